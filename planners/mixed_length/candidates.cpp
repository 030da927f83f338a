#include "planners/mixed_length/candidates.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace orrery::planners {
namespace {

std::vector<PipelineKind> kinds_of(int devices, int layers, const StrategySearch& search) {
  const int most = search.max_tensor_parallel > 0 ? search.max_tensor_parallel : devices;
  std::vector<PipelineKind> kinds;
  for (int tp = 1; tp <= std::min(most, devices); tp *= 2) {
    for (int stages = 1; stages <= std::min(search.max_stages, layers); ++stages) {
      if (!std::has_single_bit(static_cast<unsigned>(stages)) && devices % stages != 0) continue;
      if (tp * stages > devices) continue;
      PipelineKind kind;
      kind.tensor_parallel = tp;
      kind.stages = stages;
      if (tp > 1) kind.sequence = ir::SequenceParallelism::megatron;
      kinds.push_back(kind);
    }
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const PipelineKind& a, const PipelineKind& b) {
    return std::pair(devices_of(a), a.tensor_parallel) >
           std::pair(devices_of(b), b.tensor_parallel);
  });
  return kinds;
}

/// Replicas on all devices.
void add_replicas(int devices, PipelineKind kind, std::vector<std::vector<PipelineKind>>& all) {
  if (devices % devices_of(kind) != 0) return;
  kind.count = devices / devices_of(kind);
  all.push_back({kind});
}

}  // namespace

std::vector<std::vector<PipelineKind>> ulysses_candidates(int devices, int /*layers*/,
                                                          const StrategySearch& /*search*/) {
  std::vector<std::vector<PipelineKind>> all;
  for (int degree = 1; degree <= devices; degree *= 2) {
    PipelineKind kind;
    if (degree > 1) kind.sequence = ir::SequenceParallelism::ulysses;
    kind.sequence_degree = degree;
    add_replicas(devices, kind, all);
  }
  return all;
}

std::vector<std::vector<PipelineKind>> ring_candidates(int devices, int layers,
                                                       const StrategySearch& search) {
  std::vector<std::vector<PipelineKind>> all;
  for (PipelineKind kind : kinds_of(devices, layers, search)) {
    for (int degree = 1; degree <= devices; degree *= 2) {
      if (degree > 1) kind.sequence = ir::SequenceParallelism::ring;
      kind.sequence_degree = degree;
      add_replicas(devices, kind, all);
    }
  }
  return all;
}

std::vector<std::vector<PipelineKind>> candidate_pipelines(int devices, int layers,
                                                           const StrategySearch& search,
                                                           int max_kinds) {
  const std::vector<PipelineKind> kinds = kinds_of(devices, layers, search);
  std::vector<std::vector<PipelineKind>> all;
  std::vector<PipelineKind> chosen;
  const std::function<void(std::size_t, int)> fill = [&](std::size_t first, int left) {
    for (std::size_t k = first; k < kinds.size(); ++k) {
      const int each = devices_of(kinds[k]);
      const int most = left / each;
      if (most == 0) continue;
      chosen.push_back(kinds[k]);
      chosen.back().count = most;
      all.push_back(chosen);
      for (int count = 1; static_cast<int>(chosen.size()) < max_kinds && count <= most; ++count) {
        chosen.back().count = count;
        fill(k + 1, left - count * each);
      }
      chosen.pop_back();
    }
  };
  fill(0, devices);
  return all;
}

std::vector<std::int64_t> search_borders(const StrategySearch& search, std::int64_t context,
                                         std::int64_t multiple) {
  std::vector<std::int64_t> borders;
  if (search.borders.empty()) {
    for (std::int64_t part = 16; part > 1; part /= 2) {
      borders.push_back(context / part / multiple * multiple);
    }
  }
  for (const std::int64_t border : search.borders) {
    borders.push_back(border / multiple * multiple);
  }
  std::erase_if(borders, [&](std::int64_t b) { return b <= 0 || b >= context; });
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  borders.push_back(context);
  return borders;
}

}  // namespace orrery::planners
