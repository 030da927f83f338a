#include "planners/piper/stages.h"

#include <algorithm>
#include <cmath>

#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

PiperStages::PiperStages(const PlannerInput& input, const StageCosts& costs,
                         const UniformView& view, const PiperSettings& settings, PiperCase what)
    : UniformStages(input, costs, view),
      settings_(settings),
      case_(what),
      keeping_(weakest_recompute(input.job)),
      recomputing_(strongest_recompute(input.job)),
      zero_(smallest_zero_stage(input.job)) {
  if (settings.recompute == PiperRecompute::never) recomputing_ = keeping_;
  for (const int tensor :
       tensor_degrees(input.workload, input.job, settings.tensor ? view.gpus_per_host() : 1)) {
    if (!is_power_of_two(tensor)) continue;
    for (const std::int64_t divisor : divisors(what.round)) {
      const int data = static_cast<int>(divisor);
      if (tensor * data > view.devices()) break;
      const std::int64_t samples = std::int64_t{what.micro_batch_size} * (what.round / data);
      if (samples > input.job.allowed.max_micro_batch_size) continue;
      choices_.push_back({tensor * data, what.memory == PiperMemory::paper ? data : 1});
      degrees_.push_back({tensor, data});
    }
  }
}

int PiperStages::most_load() const {
  const std::int64_t devices = view_.devices();
  if (case_.memory == PiperMemory::plan) return std::min(costs_.layers(), view_.devices());
  return static_cast<int>(std::min(devices, case_.micro_batches));
}

StageShape PiperStages::shape(int first, int layers, const PiperDegrees& degrees,
                              ir::Recompute recompute, int samples) const {
  StageShape stage;
  stage.first = first;
  stage.layers = layers;
  stage.tensor_parallel = degrees.tensor;
  stage.samples = samples;
  stage.recompute = recompute;
  stage.zero_stage = zero_;
  stage.replicas = degrees.data;
  return stage;
}

models::SegmentMemory PiperStages::memory(const StageShape& stage) const {
  const ir::Segment segment = segment_of_layers(input_.workload, stage.first, stage.layers, {},
                                                stage.recompute, stage.zero_stage);
  ir::Group group;
  group.tensor_parallel = stage.tensor_parallel;
  group.samples = stage.samples;
  return models::segment_memory(segment, group, stage.replicas, input_.workload, input_.job);
}

/// Samples of one micro-batch in flight: the paper's micro-batch, or a group's share of a round.
int PiperStages::samples_held(const PiperDegrees& degrees) const {
  if (case_.memory == PiperMemory::paper) return case_.micro_batch_size;
  return case_.micro_batch_size * (case_.round / degrees.data);
}

const PiperStages::Saving& PiperStages::saving(int layer, const PiperDegrees& degrees) {
  const auto [place, added] = savings_.try_emplace({layer, degrees.tensor, degrees.data});
  if (!added) return place->second;
  const int held = samples_held(degrees);
  const auto seconds = [&](ir::Recompute recompute) {
    const StageShape alone = shape(layer, 1, degrees, recompute, case_.micro_batch_size);
    return (view_.compute(alone) + view_.tensor_parallel(alone)).value;
  };
  const models::SegmentMemory keep = memory(shape(layer, 1, degrees, keeping_, held));
  const models::SegmentMemory again = memory(shape(layer, 1, degrees, recomputing_, held));
  place->second = {keep.activations_per_micro_batch - again.activations_per_micro_batch,
                   again.recomputed, seconds(recomputing_) - seconds(keeping_)};
  return place->second;
}

/// Layers of the range, those that save most memory per second first; of equal ones (within 1e-9)
/// the earlier, so that recomputed layers are neighbors.
std::vector<int> PiperStages::order(int first, int last, const PiperDegrees& degrees) {
  std::vector<std::pair<std::int64_t, int>> ranked;
  if (recomputing_ == keeping_) return {};
  double largest = 0;
  const auto price = [&](int layer) {
    const Saving& own = saving(layer, degrees);
    return own.seconds / own.kept.value;
  };
  for (int layer = first; layer <= last; ++layer) {
    if (saving(layer, degrees).kept > Bytes{}) largest = std::max(largest, price(layer));
  }
  for (int layer = first; layer <= last; ++layer) {
    if (!(saving(layer, degrees).kept > Bytes{})) continue;
    const double share = largest > 0 ? price(layer) / largest : 0;
    ranked.emplace_back(std::llround(share * 1e9), layer);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<int> layers;
  for (const auto& [rank, layer] : ranked) layers.push_back(layer);
  return layers;
}

/// Seconds per micro-batch of the step: activations and their gradients over the two cuts, shared
/// by the groups, and the gradient all-reduce over the step's micro-batches, all over one flat
/// bandwidth: (2 cuts / d + 4 (d - 1) / d w / N) / bandwidth.
double PiperStages::communication(int first, int last, const PiperDegrees& degrees) const {
  const double data = degrees.data;
  const double samples = case_.micro_batch_size;
  Bytes cuts;
  if (first > 0) cuts += samples * costs_.activation(first);
  if (last + 1 < costs_.layers()) cuts += samples * costs_.activation(last + 1);
  const Bytes weights{view_.parameters(first, last - first + 1) / degrees.tensor *
                      input_.job.state_bytes.gradient};
  const Bytes bytes = 2.0 / data * cuts +
                      4.0 * (data - 1) / data / static_cast<double>(case_.micro_batches) * weights;
  if (bytes == Bytes{}) return 0;
  const models::Path& path = view_.hosts().size() > 1 ? view_.between() : view_.inside();
  return (bytes / path.bandwidth).value;
}

/// States that a range holds in addition when it is cut into segments: the matrix that embedding
/// and head share within one segment.
Bytes PiperStages::unshared(int first, int layers, const PiperDegrees& degrees) const {
  if (!input_.workload.shape.tied_embeddings || layers != costs_.layers()) return {};
  const auto states = [&](int from, int count) {
    return memory(shape(from, count, degrees, keeping_, 1)).states();
  };
  return states(first, layers - 1) + states(first + layers - 1, 1) - states(first, layers);
}

/// The largest load under which at most `in_flight` micro-batches are held.
int PiperStages::most_load_for(double in_flight, const PiperDegrees& degrees) const {
  const std::int64_t all = case_.micro_batches / case_.round;
  if (in_flight < 1) return 0;
  if (case_.memory == PiperMemory::paper) {
    return static_cast<int>(std::min<double>(in_flight * degrees.data, most_load()));
  }
  if (in_flight >= static_cast<double>(all)) return most_load();
  if (models::schedule_entry(case_.schedule).holds_whole_batch()) return 0;
  return static_cast<int>(std::min<double>(in_flight, most_load()));
}

std::vector<StageStep> PiperStages::price(int first, int layers, int choice) {
  std::vector<StageStep> steps;
  const PiperDegrees& degrees = degrees_[choice];
  const int end = first + layers;
  const StageShape once = shape(first, layers, degrees, keeping_, case_.micro_batch_size);
  double seconds = (view_.compute(once) + view_.tensor_parallel(once)).value;
  const double messages = communication(first, end - 1, degrees);
  const models::SegmentMemory base =
      memory(shape(first, layers, degrees, keeping_, samples_held(degrees)));
  Bytes kept = base.activations_per_micro_batch;
  Bytes transient = base.recomputed;
  Bytes widest;
  for (int l = first; l < end; ++l) widest = std::max(widest, costs_.activation(l));
  const Bytes fixed = base.states() + base.logits;
  const std::vector<int> cheap_first = order(first, end - 1, degrees);
  Bytes least;
  for (std::size_t r = 0; r <= cheap_first.size(); ++r) {
    if (r > 0) {
      const Saving& next = saving(cheap_first[r - 1], degrees);
      kept -= next.kept;
      transient = std::max(transient, next.transient);
      seconds += next.seconds;
    }
    const bool mixed = r > 0 && r < cheap_first.size();
    if (mixed && settings_.recompute == PiperRecompute::all_or_none) continue;
    // A stage of several segments stages its inner cuts like its outer ones.
    const Bytes staging = mixed ? std::max(base.communication, 2.0 * samples_held(degrees) * widest)
                                : base.communication;
    const Bytes held = fixed + (mixed ? unshared(first, layers, degrees) : Bytes{});
    const Bytes free = view_.capacity() - held - transient - staging;
    const Bytes need = held + transient + staging + kept;
    if (r == 0 || need < least) least = need;
    if (free < Bytes{}) continue;
    // The bytes decide at the border, not the rounding of a quotient.
    double in_flight = kept > Bytes{} ? std::floor(free / kept) + 1 : 1e9;
    while (in_flight > 0 && in_flight * kept > free) --in_flight;
    const double time = seconds / degrees.data + messages;
    const int most = most_load_for(in_flight, degrees);
    if (most > 0 && std::isfinite(time)) steps.push_back({most, time, static_cast<int>(r)});
    if (most >= most_load()) break;
  }
  if (steps.empty()) ++rejected_;
  if (layers == 1) note_need(first, least);
  return steps;
}

std::vector<char> PiperStages::recomputed(int first, int last, int choice, int variant) {
  const int layers = last - first + 1;
  const int from = view_.representative(first, layers);
  const std::vector<int> cheap_first = order(from, from + layers - 1, degrees(choice));
  std::vector<char> chosen(layers, 0);
  for (int r = 0; r < variant; ++r) chosen[cheap_first[r] - from] = 1;
  return chosen;
}

}  // namespace orrery::planners
