#include "planners/metis/choices.h"

#include <algorithm>
#include <utility>

#include "models/base/ids.h"
#include "planners/metis/balance.h"

namespace orrery::planners {

MetisChoices::MetisChoices(const PlannerInput& input, const MetisSettings& settings,
                           const MetisTables& tables, const MetisPlacement& placement,
                           std::vector<std::int64_t> batches)
    : input_(input),
      settings_(settings),
      tables_(tables),
      placement_(placement),
      batches_(std::move(batches)) {}

MetisStageChoice MetisChoices::make(int first, int size, int batch, int step) const {
  MetisStageChoice result;
  result.tensor = 1 << step;
  result.data = size >> step;
  const std::int64_t samples = input_.job.global_batch / batches_[batch];
  const std::int64_t each = samples / result.data;
  result.valid =
      each >= 1 && each <= tables_.max_samples() && result.tensor <= tables_.max_tensor();
  if (!result.valid) return result;
  fill(result, first, size, static_cast<int>(samples));
  return result;
}

double MetisChoices::time(const MetisStageChoice& choice, int begin, int end) const {
  const std::size_t range = begin * (tables_.layers + 1) + end;
  double slowest = 0;
  for (const MetisStageChoice::Kind& kind : choice.kinds) {
    double sum = 0;
    for (const int part : kind.parts) {
      sum += tables_.find(kind.type, choice.tensor, part)->range_ms[range];
    }
    slowest = std::max(slowest, sum);
  }
  return slowest;
}

std::vector<int> MetisChoices::types(int first, int size) const {
  return {placement_.type.begin() + first, placement_.type.begin() + first + size};
}

std::vector<int> MetisChoices::divide(const std::vector<int>& types, int data, int tensor,
                                      int micro_batch) const {
  const std::size_t replica = types.size() / data;
  std::vector<double> times;
  for (std::size_t d = 0; d < as_size(data); ++d) {
    const MetisEntry* entry = tables_.find(types[d * replica], tensor, 1);
    if (entry == nullptr) return {};
    times.push_back(settings_.data_balance == MetisBalance::capacity ? entry->total_ms : 1.0);
  }
  return divide_samples(times, micro_batch);
}

bool MetisChoices::add_kinds(MetisStageChoice& choice, const std::vector<int>& types) const {
  for (std::size_t d = 0; d < choice.samples.size(); ++d) {
    const int type = types[d * (types.size() / choice.samples.size())];
    const int samples = choice.samples[d];
    const bool known = std::any_of(choice.kinds.begin(), choice.kinds.end(), [&](const auto& kind) {
      return kind.type == type && kind.samples == samples;
    });
    if (known) continue;
    if (samples == 0) return false;
    choice.kinds.push_back({type, samples, binary_parts(samples)});
    for (const int part : choice.kinds.back().parts) {
      if (tables_.find(type, choice.tensor, part) == nullptr) return false;
    }
  }
  return true;
}

/// No tensor-parallel group leaves its node or mixes types: times are measured inside a node.
/// [Metis, 4.2.1: "TP typically occurs within a single node"]
bool MetisChoices::inside_nodes(int first, int size, int tensor) const {
  for (int rank = first; rank < first + size; ++rank) {
    const int leader = rank - (rank - first) % tensor;
    if (placement_.node[rank] != placement_.node[leader]) return false;
  }
  return true;
}

void MetisChoices::fill(MetisStageChoice& choice, int first, int size, int micro_batch) const {
  choice.valid = false;
  if (!inside_nodes(first, size, choice.tensor)) return;
  const auto& allowed = tables_.allowed_tensor;
  if (std::find(allowed.begin(), allowed.end(), choice.tensor) == allowed.end()) return;
  const std::vector<int> types = this->types(first, size);
  choice.samples = divide(types, choice.data, choice.tensor, micro_batch);
  if (choice.samples.empty() || !add_kinds(choice, types)) return;
  const int most = *std::max_element(choice.samples.begin(), choice.samples.end());
  if (most > input_.job.allowed.max_micro_batch_size) return;
  choice.nominal = micro_batch / choice.data;
  if (settings_.replica_samples == MetisReplicaSamples::rounded_up &&
      micro_batch % choice.data != 0) {
    ++choice.nominal;
  }
  for (const MetisStageChoice::Kind& kind : choice.kinds) {
    double sync = 0;
    for (const int part : binary_parts(choice.nominal)) {
      const MetisEntry* entry = tables_.find(kind.type, choice.tensor, part);
      if (entry == nullptr) return;
      sync += entry->sync_ms;
    }
    choice.sync_ms = &kind == &choice.kinds.front() ? sync : std::max(choice.sync_ms, sync);
  }
  if (all_equal(types)) {
    choice.memory_parts = binary_parts(most);
  } else {
    for (const int samples : choice.samples) {
      for (const int part : binary_parts(samples)) choice.memory_parts.push_back(part);
    }
  }
  choice.total_ms = time(choice, 0, tables_.layers);
  choice.reduce_ms_per_byte =
      2.0 * (choice.data - 1) /
      (choice.data * (placement_.bandwidth(first, first + size) * kMetisBytesPerMillisecond));
  choice.valid = true;
}

}  // namespace orrery::planners
