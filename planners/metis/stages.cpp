#include "planners/metis/stages.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

#include "models/cost/memory.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/metis/balance.h"

namespace orrery::planners {
namespace {

/// Metis's GB/s are 2^20 bytes per millisecond. [public code]
constexpr double kBytesPerMillisecond = 1024.0 * 1024.0;

bool all_equal(std::span<const int> values) {
  return std::all_of(values.begin(), values.end(), [&](int v) { return v == values.front(); });
}

std::vector<int> types_at(const std::vector<int>& type, int first, int size) {
  return {type.begin() + first, type.begin() + first + size};
}

}  // namespace

MetisStages::MetisStages(const PlannerInput& input, const MetisSettings& settings,
                         const MetisTables& tables, const MetisPlacement& placement,
                         const std::vector<std::int64_t>& batches, ir::Recompute recompute)
    : input_(input),
      settings_(settings),
      tables_(tables),
      placement_(placement),
      batches_(batches),
      recompute_(recompute),
      device_rule_(settings.memory == MetisMemory::device ||
                   (settings.memory == MetisMemory::automatic && !tables.imported)),
      sizes_(static_cast<int>(std::bit_width(static_cast<unsigned>(placement.size())))),
      costs_(input),
      slots_(at(placement.size() * sizes_) * batches.size() * at(tables.tensor_steps)),
      bounds_at_(at(placement.size() * sizes_) * batches.size(), -1),
      hops_(at(placement.size() * sizes_ * sizes_), -1.0) {
  const std::vector<double>& bytes = tables.parameter_bytes;
  if (bytes.size() > 2) least_bytes_ = *std::min_element(bytes.begin() + 1, bytes.end() - 1);
}

MetisStages::Slot& MetisStages::slot(int first, int size, int batch, int step) {
  const int place = (first * sizes_ + std::countr_zero(static_cast<unsigned>(size)));
  return slots_[(at(place) * batches_.size() + at(batch)) * at(tables_.tensor_steps) + at(step)];
}

const MetisStageChoice& MetisStages::choice(int first, int size, int batch, int step) {
  Slot& place = slot(first, size, batch, step);
  if (place.choice < 0) {
    place.choice = static_cast<int>(choices_.size());
    choices_.push_back(make(first, size, batch, step));
    for (MetisStageChoice::Kind& kind : choices_.back().kinds) add_table(choices_.back(), kind);
  }
  return choices_[at(place.choice)];
}

int MetisStages::make_layer_bounds(int first, int size, int batch) {
  const int begin = static_cast<int>(layer_bounds_.size());
  for (int step = 0; step < steps(size); ++step) {
    layer_bounds_.push_back(make_layer_bound(choice(first, size, batch, step), first, size, batch));
  }
  const int place = first * sizes_ + std::countr_zero(static_cast<unsigned>(size));
  bounds_at_[at(place) * batches_.size() + at(batch)] = begin;
  return begin;
}

MetisLayerBound MetisStages::make_layer_bound(const MetisStageChoice& choice, int first, int size,
                                              int batch) {
  MetisLayerBound result;
  if (!choice.valid || choice.broken || tables_.layers < 3) return result;
  result.time = 0;
  for (const MetisStageChoice::Kind& kind : choice.kinds) {
    double time = 0;
    for (const int part : kind.parts) {
      time += tables_.find(kind.type, choice.tensor, part)->fastest_layer;
    }
    result.time = std::max(result.time, time);
  }
  const auto more = static_cast<double>(batches_[at(batch)] - 1);
  result.rate =
      1 / (more * result.time + choice.reduce_ms_per_byte * (least_bytes_ / choice.tensor) +
           tables_.optimizer_ms / choice.tensor / tables_.layers);
  if (!device_rule_) {
    result.have_mb = group_memory(first, size);
    result.states_mb = kNever;
    for (int layer = 1; layer + 1 < tables_.layers; ++layer) {
      result.states_mb = std::min(result.states_mb, layer_memory(choice, layer, layer + 1) - 0.001);
    }
    return result;
  }
  for (const MetisStageChoice::Kind& kind : choice.kinds) {
    MetisLayerBound own{0, 0, kNever, kNever, costs_.capacity(kind.type).value / kMetisMegabyte};
    for (int layer = 1; layer + 1 < tables_.layers; ++layer) {
      const Held& memory = held(choice, kind, layer, layer + 1);
      own.states_mb = std::min(own.states_mb, memory.states);
      own.kept_mb = std::min(own.kept_mb, memory.per_in_flight);
    }
    const double use = (own.states_mb + own.kept_mb) / own.have_mb;
    if (&kind != &choice.kinds.front() &&
        use <= (result.states_mb + result.kept_mb) / result.have_mb) {
      continue;
    }
    result.states_mb = own.states_mb;
    result.kept_mb = own.kept_mb;
    result.have_mb = own.have_mb;
  }
  return result;
}

const MetisStageBound& MetisStages::bound(int first, int size, int batch, int step) {
  const int known = slot(first, size, batch, step).bound;
  if (known >= 0) return bounds_[at(known)];
  MetisStageBound result;
  const MetisStageChoice& own = choice(first, size, batch, step);
  if (own.valid && !own.broken) {
    result = {0, 0, 0, own.sync_ms, static_cast<double>(own.nominal)};
    for (const MetisStageChoice::Kind& kind : own.kinds) {
      double per_share = 0, first_ms = 0, last_ms = 0;
      for (const int part : kind.parts) {
        const MetisEntry& entry = *tables_.find(kind.type, own.tensor, part);
        per_share += entry.per_share;
        first_ms += entry.layer_ms.front();
        last_ms += entry.layer_ms.back();
      }
      result.per_share = std::max(result.per_share, per_share);
      result.first = std::max(result.first, first_ms);
      result.last = std::max(result.last, last_ms);
    }
  }
  if (step + 1 < steps(size)) {
    const MetisStageBound& later = bound(first, size, batch, step + 1);
    result = {std::min(result.per_share, later.per_share), std::min(result.first, later.first),
              std::min(result.last, later.last), std::min(result.sync, later.sync),
              std::min(result.samples, later.samples)};
  }
  slot(first, size, batch, step).bound = static_cast<int>(bounds_.size());
  bounds_.push_back(result);
  return bounds_.back();
}

MetisStageChoice MetisStages::make(int first, int size, int batch, int step) const {
  MetisStageChoice result;
  result.tensor = 1 << step;
  result.data = size >> step;
  const std::int64_t samples = input_.job.global_batch / batches_[at(batch)];
  const std::int64_t each = samples / result.data;
  result.valid =
      each >= 1 && each <= tables_.max_samples() && result.tensor <= tables_.max_tensor();
  if (!result.valid) return result;
  const int micro_batch = static_cast<int>(samples);
  if (settings_.as_published()) {
    make_published(result, first, size, micro_batch);
  } else {
    make_fixed(result, first, size, micro_batch);
  }
  return result;
}

/// Samples of each replica; empty where a type has no time for one sample.
std::vector<int> MetisStages::divide(const std::vector<int>& types, int data, int tensor,
                                     int micro_batch) const {
  const std::size_t replica = types.size() / at(data);
  std::vector<double> times;
  for (std::size_t d = 0; d < at(data); ++d) {
    const MetisEntry* entry = tables_.find(types[d * replica], tensor, 1);
    if (entry == nullptr) return {};
    times.push_back(settings_.data_balance == MetisBalance::capacity ? entry->total_ms : 1.0);
  }
  return divide_samples(times, micro_batch);
}

/// The kinds of replicas; false where samples were not measured.
bool MetisStages::add_kinds(MetisStageChoice& choice, const std::vector<int>& types) const {
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
bool MetisStages::inside_nodes(int first, int size, int tensor) const {
  for (int rank = first; rank < first + size; ++rank) {
    const int leader = rank - (rank - first) % tensor;
    if (placement_.node[at(rank)] != placement_.node[at(leader)]) return false;
  }
  return true;
}

void MetisStages::make_fixed(MetisStageChoice& choice, int first, int size, int micro_batch) const {
  choice.valid = false;
  if (!inside_nodes(first, size, choice.tensor)) return;
  const auto& allowed = tables_.allowed_tensor;
  if (std::find(allowed.begin(), allowed.end(), choice.tensor) == allowed.end()) return;
  const std::vector<int> types = types_at(placement_.type, first, size);
  choice.samples = divide(types, choice.data, choice.tensor, micro_batch);
  if (choice.samples.empty() || !add_kinds(choice, types)) return;
  const int most = *std::max_element(choice.samples.begin(), choice.samples.end());
  if (most > input_.job.allowed.max_micro_batch_size) return;
  choice.nominal = (micro_batch + choice.data - 1) / choice.data;
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
      (choice.data * (placement_.bandwidth(first, first + size) * kBytesPerMillisecond));
  choice.valid = true;
}

/// Parts for the memory of the stage; false where the public code stops. It takes the types of the
/// whole cluster for those of the stage, and nodes for as large as the first.
bool MetisStages::publish_memory(MetisStageChoice& choice, int first, int size,
                                 int micro_batch) const {
  const std::vector<int>& types = placement_.published_type;
  if (first + size > static_cast<int>(types.size())) return false;
  if (all_equal(std::span(types).subspan(at(first), at(size)))) {
    choice.memory_parts = {micro_batch / choice.data};
  } else {
    if (static_cast<int>(types.size()) < choice.data) return false;
    const std::vector<int> samples = divide(types, choice.data, choice.tensor, micro_batch);
    if (samples.empty()) return false;
    for (const int each : samples) {
      if (each == 0) return false;
      for (const int part : binary_parts(each)) choice.memory_parts.push_back(part);
    }
  }
  return std::all_of(choice.memory_parts.begin(), choice.memory_parts.end(), [&](int part) {
    return is_power_of_two(part) && tables_.find(types.front(), choice.tensor, part) != nullptr;
  });
}

void MetisStages::make_published(MetisStageChoice& choice, int first, int size,
                                 int micro_batch) const {
  choice.broken = true;
  choice.nominal = micro_batch / choice.data;
  const std::vector<int> types = types_at(placement_.type, first, size);
  if (all_equal(types)) {
    choice.samples.assign(at(choice.data), choice.nominal);
    choice.kinds = {{types.front(), choice.nominal, {choice.nominal}}};
    if (!is_power_of_two(choice.nominal) ||
        tables_.find(types.front(), choice.tensor, choice.nominal) == nullptr) {
      return;
    }
  } else {
    choice.samples = divide(types, choice.data, choice.tensor, micro_batch);
    if (choice.samples.empty() || !add_kinds(choice, types)) return;
  }
  if (!publish_memory(choice, first, size, micro_batch)) return;
  choice.sync_ms = -kNever;
  for (const int type : types) {
    const MetisEntry* entry = is_power_of_two(choice.nominal)
                                  ? tables_.find(type, choice.tensor, choice.nominal)
                                  : nullptr;
    // A time of exactly zero counts as missing in the public code.
    const bool missing = entry == nullptr || (tables_.imported && entry->sync_ms == 0);
    choice.sync_ms = std::max(choice.sync_ms, missing ? kNever : entry->sync_ms);
  }
  choice.total_ms = time(choice, 0, tables_.layers);
  // The "data-parallel groups" of the public code hold `tensor` ranks that are `data` apart.
  double slowest = kNever;
  for (int d = 0; d < choice.data; ++d) {
    std::vector<int> ranks;
    for (int t = 0; t < choice.tensor; ++t) ranks.push_back(first + t * choice.data + d);
    const auto bandwidth = placement_.published_bandwidth(ranks);
    slowest = bandwidth ? std::min(slowest, *bandwidth) : -1;
    if (!bandwidth) break;
  }
  choice.reduce_ms_per_byte =
      slowest < 0 ? kNever
                  : 2.0 * (choice.data - 1) / (choice.data * (slowest * kBytesPerMillisecond));
  choice.broken = false;
}

double MetisStages::time(const MetisStageChoice& choice, int begin, int end) const {
  const std::size_t range = at(begin * (tables_.layers + 1) + end);
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

double MetisStages::parameters(int begin, int end) const {
  const std::vector<double>& bytes = tables_.parameter_bytes;
  if (!settings_.as_published()) {
    return std::accumulate(bytes.begin() + begin, bytes.begin() + end, 0.0);
  }
  // All inner layers count as the first of them.
  double sum = 0;
  int inner = end - begin;
  if (begin == 0) {
    sum += bytes.front();
    --inner;
  }
  if (end == tables_.layers) {
    sum += bytes.back();
    --inner;
  }
  return sum + bytes[1] * inner;
}

double MetisStages::group_memory(int first, int size) const {
  double sum = 0;
  for (int rank = first; rank < first + size; ++rank) {
    sum += input_.cluster.gpu_types[at(placement_.type[at(rank)])].memory.value / kMetisMegabyte;
  }
  return sum;
}

double MetisStages::layer_memory(const MetisStageChoice& choice, int begin, int end) const {
  const std::size_t range = at(begin * (tables_.layers + 1) + end);
  double sum = 0.001;
  for (const int part : choice.memory_parts) {
    // Memory is measured on one type for all. [Metis, 4.3]
    const MetisEntry* entry = tables_.find(placement_.sequence.front(), choice.tensor, part);
    if (entry == nullptr) entry = tables_.find(choice.kinds.front().type, choice.tensor, part);
    if (entry == nullptr) return kNever;
    sum += entry->range_mb[range] * settings_.memory_coefficient;
  }
  return sum;
}

ir::Segment MetisStages::segment(int begin, int end) const {
  ir::Segment result;
  result.first_block = BlockId{begin};
  result.last_block = BlockId{end - 1};
  result.recompute = recompute_;
  result.zero.stage = smallest_zero_stage(input_.job);
  return result;
}

void MetisStages::add_table(const MetisStageChoice& choice, MetisStageChoice::Kind& kind) {
  const bool sharded = smallest_zero_stage(input_.job) > 0;
  const auto [place, added] = table_of_.try_emplace(
      {choice.tensor, kind.samples, sharded ? choice.data : 1}, static_cast<int>(held_.size()));
  if (added) held_.emplace_back(at((tables_.layers + 1) * (tables_.layers + 1)));
  kind.memory = place->second;
}

const MetisStages::Held& MetisStages::held(const MetisStageChoice& choice,
                                           const MetisStageChoice::Kind& kind, int begin, int end) {
  Held& result = held_[at(kind.memory)][at(begin * (tables_.layers + 1) + end)];
  if (result.fixed >= 0) return result;
  ir::Group group;
  group.tensor_parallel = choice.tensor;
  group.samples = kind.samples;
  const models::SegmentMemory memory =
      models::segment_memory(segment(begin, end), group, choice.data, input_.workload, input_.job);
  result = {memory.fixed().value / kMetisMegabyte, memory.states().value / kMetisMegabyte,
            memory.activations_per_micro_batch.value / kMetisMegabyte};
  return result;
}

std::pair<double, double> MetisStages::device_memory(const MetisStageChoice& choice, int begin,
                                                     int end, int in_flight) {
  std::pair<double, double> tightest{kNever, 0};
  double ratio = -1;
  for (const MetisStageChoice::Kind& kind : choice.kinds) {
    const Held& memory = held(choice, kind, begin, end);
    const double need = memory.fixed + in_flight * memory.per_in_flight;
    const double have = costs_.capacity(kind.type).value / kMetisMegabyte;
    const double use = have > 0 ? need / have : kNever;
    if (use > ratio) {
      ratio = use;
      tightest = {have, need};
    }
  }
  return tightest;
}

double MetisStages::hop_per_sample(int first, int size, int next_size) {
  const int sizes = std::countr_zero(static_cast<unsigned>(size)) * sizes_ +
                    std::countr_zero(static_cast<unsigned>(next_size));
  double& known = hops_[at(first * sizes_ * sizes_ + sizes)];
  if (known >= 0) return known;
  double bandwidth = 0;
  if (settings_.as_published()) {
    std::vector<int> ranks(at(size + next_size));
    std::iota(ranks.begin(), ranks.end(), first);
    bandwidth = placement_.published_bandwidth(ranks).value_or(0);
  } else {
    bandwidth = placement_.bandwidth(first, first + size + next_size);
  }
  const double elements = static_cast<double>(input_.workload.sequence_length) *
                          static_cast<double>(input_.workload.shape.hidden);
  known = bandwidth > 0 ? elements / (bandwidth * kBytesPerMillisecond) : kNever;
  return known;
}

}  // namespace orrery::planners
