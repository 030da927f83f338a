#include "planners/metis/stages.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "models/base/ids.h"
#include "models/cost/memory.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

MetisStages::MetisStages(const PlannerInput& input, const MetisSettings& settings,
                         const MetisTables& tables, const MetisPlacement& placement,
                         const std::vector<std::int64_t>& batches, ir::Recompute recompute)
    : input_(input),
      settings_(settings),
      tables_(tables),
      placement_(placement),
      batches_(batches),
      recompute_(recompute),
      maker_(make_metis_choices(input, settings, tables, placement, batches)),
      device_rule_(settings.memory == MetisMemory::device ||
                   (settings.memory == MetisMemory::automatic && !tables.imported)),
      sizes_(static_cast<int>(std::bit_width(static_cast<unsigned>(placement.size())))),
      costs_(input),
      slots_(as_size(placement.size() * sizes_) * batches.size() * as_size(tables.tensor_steps)),
      bounds_at_(as_size(placement.size() * sizes_) * batches.size(), -1),
      hops_(as_size(placement.size() * sizes_ * sizes_), -1.0) {
  const std::vector<double>& bytes = tables.parameter_bytes;
  if (bytes.size() > 2) {
    least_bytes_ = settings.layer_gradients == MetisLayerGradients::first
                       ? bytes[1]
                       : *std::min_element(bytes.begin() + 1, bytes.end() - 1);
  }
}

MetisStages::Slot& MetisStages::slot(int first, int size, int batch, int step) {
  const int place = (first * sizes_ + std::countr_zero(static_cast<unsigned>(size)));
  return slots_[(as_size(place) * batches_.size() + as_size(batch)) *
                    as_size(tables_.tensor_steps) +
                as_size(step)];
}

const MetisStageChoice& MetisStages::choice(int first, int size, int batch, int step) {
  Slot& place = slot(first, size, batch, step);
  if (place.choice < 0) {
    place.choice = static_cast<int>(choices_.size());
    choices_.push_back(maker_->make(first, size, batch, step));
    for (MetisStageChoice::Kind& kind : choices_.back().kinds) add_table(choices_.back(), kind);
  }
  return choices_[place.choice];
}

int MetisStages::make_layer_bounds(int first, int size, int batch) {
  const int begin = static_cast<int>(layer_bounds_.size());
  for (int step = 0; step < steps(size); ++step) {
    layer_bounds_.push_back(make_layer_bound(choice(first, size, batch, step), first, size, batch));
  }
  const int place = first * sizes_ + std::countr_zero(static_cast<unsigned>(size));
  bounds_at_[as_size(place) * batches_.size() + as_size(batch)] = begin;
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
  const auto more = static_cast<double>(batches_[batch] - 1);
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
      const Peak& memory = peak(choice, kind, layer, layer + 1);
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
  if (known >= 0) return bounds_[known];
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

double MetisStages::parameters(int begin, int end) const {
  const std::vector<double>& bytes = tables_.parameter_bytes;
  if (settings_.layer_gradients == MetisLayerGradients::each && !settings_.as_published()) {
    return std::accumulate(bytes.begin() + begin, bytes.begin() + end, 0.0);
  }
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
    sum += input_.cluster.gpu_types[placement_.type[rank]].memory.value / kMetisMegabyte;
  }
  return sum;
}

double MetisStages::layer_memory(const MetisStageChoice& choice, int begin, int end) const {
  const std::size_t range = begin * (tables_.layers + 1) + end;
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
      {choice.tensor, kind.samples, sharded ? choice.data : 1}, static_cast<int>(peaks_.size()));
  if (added) peaks_.emplace_back(as_size((tables_.layers + 1) * (tables_.layers + 1)));
  kind.memory = place->second;
}

const MetisStages::Peak& MetisStages::peak(const MetisStageChoice& choice,
                                           const MetisStageChoice::Kind& kind, int begin, int end) {
  Peak& result = peaks_[kind.memory][begin * (tables_.layers + 1) + end];
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
    const Peak& memory = peak(choice, kind, begin, end);
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

double MetisStages::head_input(int tensor, int end) const {
  const bool hidden = settings_.head_input == MetisHeadInput::hidden && !settings_.as_published();
  if (hidden || end != tables_.layers - 1) return 1;
  return static_cast<double>(input_.workload.shape.vocabulary) / tensor /
         static_cast<double>(input_.workload.shape.hidden);
}

double MetisStages::hop_per_sample(int first, int size, int next_size) {
  const int sizes = std::countr_zero(static_cast<unsigned>(size)) * sizes_ +
                    std::countr_zero(static_cast<unsigned>(next_size));
  double& known = hops_[first * sizes_ * sizes_ + sizes];
  if (known >= 0) return known;
  double bandwidth = 0;
  if (settings_.as_published()) {
    std::vector<int> ranks(size + next_size);
    std::iota(ranks.begin(), ranks.end(), first);
    bandwidth = placement_.published_bandwidth(ranks).value_or(0);
  } else {
    bandwidth = placement_.bandwidth(first, first + size + next_size);
  }
  const double elements = static_cast<double>(input_.workload.sequence_length) *
                          static_cast<double>(input_.workload.shape.hidden);
  known = bandwidth > 0 ? elements / (bandwidth * kMetisBytesPerMillisecond) : kNever;
  return known;
}

}  // namespace orrery::planners
