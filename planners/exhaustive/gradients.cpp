// Gradient synchronization of a structure, for `exhaustive`: PlanEstimator's formula with the
// all-reduce of each combination of stages priced once, as a fixed time and a time per byte.
#include <algorithm>
#include <limits>
#include <set>

#include "models/cost/collective.h"
#include "planners/exhaustive/costs.h"

namespace orrery::planners::exhaustive {
namespace {

constexpr Bytes kGradientsSmall{1e6};
constexpr Bytes kGradientsLarge{1e9};
/// Combinations of stages up to which least() looks at all of them.
constexpr std::size_t kMostCombinations = 256;

}  // namespace

std::vector<std::vector<std::vector<std::vector<DeviceId>>>> place_devices(
    const Space& space, const Structure& structure) {
  std::vector<std::size_t> used(space.classes.size(), 0);
  std::vector<std::vector<std::vector<std::vector<DeviceId>>>> result;
  for (const int chain : structure) {
    auto& stages = result.emplace_back();
    for (const int stage : space.chains[static_cast<std::size_t>(chain)].stages) {
      auto& groups = stages.emplace_back();
      for (const int group : space.stages[static_cast<std::size_t>(stage)]) {
        auto& devices = groups.emplace_back();
        for (const int c : space.groups[static_cast<std::size_t>(group)]) {
          const auto index = static_cast<std::size_t>(c);
          devices.push_back(space.classes[index].devices[used[index]++]);
        }
      }
    }
  }
  return result;
}

GradientCosts::GradientCosts(const PlannerInput& input, const Space& space,
                             const Structure& structure, int zero)
    : input_(input),
      zero_factor_(zero == 3 ? 1.5 : 1.0),
      devices_(place_devices(space, structure)) {
  const models::Workload& workload = input.workload;
  bytes_before_.push_back(0);
  for (BlockId b{0}; b.value < workload.size(); ++b.value) {
    bytes_before_.push_back(static_cast<double>(models::parameters(workload, BlockId{0}, b)) *
                            input.job.state_bytes.gradient);
  }
}

double GradientCosts::Reduction::at(double bytes) const {
  double slowest = 0;
  for (const Ring& ring : slices) slowest = std::max(slowest, ring.fixed + ring.per_byte * bytes);
  return factor * slowest;
}

GradientCosts::Reduction GradientCosts::reduce(
    const std::vector<std::vector<DeviceId>>& holders) const {
  Reduction result;
  if (holders.size() < 2) return result;
  std::size_t smallest = holders.front().size();
  std::size_t largest = smallest;
  for (const auto& group : holders) {
    smallest = std::min(smallest, group.size());
    largest = std::max(largest, group.size());
  }
  const auto parts = static_cast<double>(largest);
  result.factor = zero_factor_ * parts / static_cast<double>(smallest);
  const auto node_of = [&](DeviceId device) { return input_.cluster.device(device).node; };
  const models::PathFunction path = [&](DeviceId a, DeviceId b) {
    return input_.topology.path(a, b);
  };
  for (std::size_t slice = 0; slice < largest; ++slice) {
    std::vector<DeviceId> ring;
    for (const auto& group : holders) ring.push_back(group[slice * group.size() / largest]);
    ring = models::ring_order(ring, node_of);
    const auto time = [&](Bytes bytes) {
      return models::collective_time(ir::CollectiveKind::all_reduce,
                                     models::CollectiveAlgorithm::ring, ring, bytes, path)
          .value;
    };
    const double slope =
        (time(kGradientsLarge) - time(kGradientsSmall)) / (kGradientsLarge - kGradientsSmall).value;
    result.slices.push_back({time(kGradientsSmall) - slope * kGradientsSmall.value, slope / parts});
  }
  return result;
}

const GradientCosts::Reduction& GradientCosts::reduction(const std::vector<int>& stages) {
  const auto [place, added] = reductions_.try_emplace(stages);
  if (!added) return place->second;
  std::vector<std::vector<DeviceId>> holders;
  for (std::size_t p = 0; p < stages.size(); ++p) {
    for (const auto& group : devices_[p][static_cast<std::size_t>(stages[p])]) {
      holders.push_back(group);
    }
  }
  place->second = reduce(holders);
  return place->second;
}

double GradientCosts::time(const std::vector<const std::vector<int>*>& splits) {
  std::vector<int> stages(splits.size(), 0);
  std::vector<int> ends;  // Of the current stage of each pipeline.
  std::vector<std::vector<double>> sums;
  for (const std::vector<int>* split : splits) {
    ends.push_back(split->front());
    sums.emplace_back(split->size(), 0.0);
  }
  const int blocks = static_cast<int>(bytes_before_.size()) - 1;
  for (int begin = 0; begin < blocks;) {
    const int end = *std::min_element(ends.begin(), ends.end());
    const double time = reduction(stages).at(bytes_before_[static_cast<std::size_t>(end)] -
                                             bytes_before_[static_cast<std::size_t>(begin)]);
    for (std::size_t p = 0; p < splits.size(); ++p) {
      sums[p][static_cast<std::size_t>(stages[p])] += time;
      if (ends[p] != end || end == blocks) continue;
      ends[p] += (*splits[p])[static_cast<std::size_t>(++stages[p])];
    }
    begin = end;
  }
  double longest = 0;
  for (const auto& chain : sums) {
    for (const double sum : chain) longest = std::max(longest, sum);
  }
  return longest;
}

double GradientCosts::least() {
  std::size_t combinations = 1;
  std::size_t shortest = std::numeric_limits<std::size_t>::max();
  for (const auto& chain : devices_) {
    combinations *= chain.size();
    shortest = std::min(shortest, chain.size());
    if (combinations > kMostCombinations) return 0;
  }
  double per_byte = std::numeric_limits<double>::infinity();
  std::vector<int> stages(devices_.size(), 0);
  for (std::size_t i = 0; i < combinations; ++i) {
    std::size_t rest = i;
    for (std::size_t p = 0; p < devices_.size(); ++p) {
      stages[p] = static_cast<int>(rest % devices_[p].size());
      rest /= devices_[p].size();
    }
    const Reduction& reduce = reduction(stages);
    double slowest = 0;
    for (const Ring& ring : reduce.slices) slowest = std::max(slowest, ring.per_byte);
    per_byte = std::min(per_byte, reduce.factor * slowest);
  }
  return per_byte * bytes_before_.back() / static_cast<double>(shortest);
}

}  // namespace orrery::planners::exhaustive
