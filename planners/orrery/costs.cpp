#include "planners/orrery/costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "models/cost/collective.h"
#include "models/cost/memory.h"
#include "models/cost/shared_links.h"
#include "models/ir/op_traits.h"
#include "models/schedule/schedule.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

using ir::CollectiveKind;
using models::CollectiveAlgorithm;

/// Most of a link's time that other flows are held to take from one: beyond it the link itself
/// bounds the iteration.
constexpr double kMostShared = 0.9;
/// Steps in which that share is counted.
constexpr double kShareSteps = 50;
/// Places for what is remembered of stages and their parts, of runs of pipelines, and of orders of
/// passes.
constexpr std::size_t kStagesRemembered = 1 << 16;
constexpr std::size_t kPartsRemembered = 1 << 15;
constexpr std::size_t kRunsRemembered = 1 << 12;
constexpr std::size_t kOrdersRemembered = 1 << 7;
/// Loads of links that hops and rings are remembered with, and groups whose class is; beyond that
/// all are forgotten.
constexpr std::size_t kMostLoads = 1 << 19;
constexpr std::size_t kMostGroups = 1 << 16;

/// Fields of less than 2^bits each, put into one number.
class Packed {
 public:
  Packed& add(std::int64_t field, int bits) {
    key_ = (key_ << bits) | (static_cast<std::uint64_t>(field) & ((std::uint64_t{1} << bits) - 1));
    return *this;
  }
  std::uint64_t key() const { return key_; }

 private:
  std::uint64_t key_ = 0;
};

bool same_work(const models::Block& a, const models::Block& b) {
  return a.forward_flops == b.forward_flops && a.kind == b.kind &&
         models::parameters(a) == models::parameters(b) && a.kept_split == b.kept_split &&
         a.kept_replicated == b.kept_replicated && a.memory_traffic == b.memory_traffic &&
         a.output_bytes == b.output_bytes;
}

std::size_t hash_words(std::size_t count, const auto& word) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < count; ++i) {
    hash = (hash ^ static_cast<std::uint64_t>(word(i))) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return static_cast<std::size_t>(hash);
}

}  // namespace

std::size_t NumbersHash::operator()(const std::vector<std::int32_t>& numbers) const {
  return hash_words(numbers.size(), [&](std::size_t i) { return numbers[i]; });
}
std::size_t NumbersHash::operator()(const std::vector<DeviceId>& devices) const {
  return hash_words(devices.size(), [&](std::size_t i) { return devices[i].value; });
}
std::size_t NumbersHash::operator()(const std::vector<double>& numbers) const {
  return hash_words(numbers.size(),
                    [&](std::size_t i) { return std::bit_cast<std::uint64_t>(numbers[i]); });
}
std::size_t NumbersHash::operator()(const std::pair<std::uint64_t, std::uint64_t>& key) const {
  return hash_words(2, [&](std::size_t i) { return i == 0 ? key.first : key.second; });
}

double DraftCosts::StageRun::busy() const {
  return std::accumulate(forward.begin(), forward.end(), 0.0) +
         std::accumulate(backward.begin(), backward.end(), 0.0);
}

DraftCosts::DraftCosts(const PlannerInput& input)
    : input_(input),
      costs_(input),
      layers_(count_layers(input.workload)),
      uniform_(true),
      fits_(kStagesRemembered),
      in_memory_(kStagesRemembered),
      ends_(kRunsRemembered),
      parts_(kPartsRemembered),
      passes_(kOrdersRemembered) {
  const models::Workload& workload = input.workload;
  gradient_prefix_.push_back(0);
  expert_prefix_.push_back(0);
  moe_prefix_.push_back(0);
  for (int i = 0; i < layers_; ++i) {
    gradient_prefix_.push_back(gradient_prefix_.back() + costs_.gradients(i, 1).value);
    expert_prefix_.push_back(expert_prefix_.back() +
                             costs_.expert_parameters(i, 1) * input.job.state_bytes.gradient);
    const BlockId block{workload.first_layer().value + i};
    moe_prefix_.push_back(moe_prefix_.back() + (workload.block(block).expert_all_to_all ? 1 : 0));
    uniform_ = uniform_ && same_work(workload.block(workload.first_layer()), workload.block(block));
  }
  int largest = 1;
  for (const models::Node& node : input.cluster.nodes) {
    largest = std::max(largest, static_cast<int>(node.gpu_types.size()));
  }
  degrees_ = tensor_degrees(workload, input.job, largest);
}

int DraftCosts::group_class(const DraftGroup& group) const {
  const auto [place, added] = class_of_.try_emplace(group.devices, 0);
  if (!added) return place->second;
  std::vector<double> kind;
  for (const DeviceId device : group.devices) {
    kind.push_back(input_.cluster.device(device).gpu_type);
  }
  std::sort(kind.begin(), kind.end());
  for (const Bytes bytes : {1_MiB, 64_MiB}) {
    kind.push_back(costs_.all_reduce(group.devices, bytes).value);
  }
  return place->second =
             classes_.try_emplace(std::move(kind), static_cast<int>(classes_.size())).first->second;
}

int DraftCosts::stage_class(const DraftStage& stage) const {
  std::vector<double> kind = {-1, static_cast<double>(stage.expert_parallel),
                              exchange(stage.groups, stage.expert_parallel).seconds};
  for (const DraftGroup& group : stage.groups) {
    kind.push_back(group_class(group));
    kind.push_back(group.samples);
    kind.push_back(group.experts);
  }
  return classes_.try_emplace(std::move(kind), static_cast<int>(classes_.size())).first->second;
}

const DraftCosts::PassTable& DraftCosts::table(const DraftGroup& group, ir::Recompute recompute,
                                               const models::ExpertShare& experts) const {
  const Fields key{Packed()
                       .add(group_class(group), 32)
                       .add(group.samples, 16)
                       .add(static_cast<int>(recompute), 2)
                       .add(experts.degree, 11)
                       .key(),
                   Packed().add(experts.experts, 32).add(experts.samples, 32).key()};
  PassTable& table = tables_[key];
  if (!table.forward.empty()) return table;
  StageShape shape;
  shape.tensor_parallel = group.degree();
  shape.sequence = megatron_sequence(input_.job, group.degree());
  shape.samples = group.samples;
  shape.recompute = recompute;
  shape.expert_parallel = experts.degree;
  shape.experts = experts.experts;
  shape.expert_samples = experts.samples;
  std::set<int> types;
  for (const DeviceId device : group.devices) types.insert(input_.cluster.device(device).gpu_type);
  table.forward = table.backward = table.weights = {0};
  if (!experts.even()) table.experts_forward = table.experts_backward = {0};
  for (int i = 0; i < layers_; ++i) {
    shape.first = i;
    const StageCosts::Passes passes = costs_.passes(group.devices, shape);
    double weights = 0;
    for (const int type : types) {
      weights = std::max(weights, costs_.compute(type, shape).forward.value);
    }
    table.forward.push_back(table.forward.back() + passes.forward.value);
    table.backward.push_back(table.backward.back() + passes.backward.value);
    table.weights.push_back(table.weights.back() + weights);
    if (experts.even()) continue;
    table.experts_forward.push_back(table.experts_forward.back() + passes.experts_forward.value);
    table.experts_backward.push_back(table.experts_backward.back() + passes.experts_backward.value);
  }
  return table;
}

DraftCosts::ChunkPasses DraftCosts::chunk_passes(const DraftGroup& group,
                                                 const models::ExpertShare& experts,
                                                 const DraftChunk& chunk, int first) const {
  ChunkPasses sum;
  for (const auto& [count, recompute] : chunk.parts()) {
    if (count == 0) continue;
    const PassTable& times = table(group, recompute, experts);
    sum.forward += times.forward[first + count] - times.forward[first];
    sum.backward += times.backward[first + count] - times.backward[first];
    sum.weights += times.weights[first + count] - times.weights[first];
    first += count;
  }
  return sum;
}

DraftCosts::ChunkPasses DraftCosts::joint_passes(const std::vector<DraftGroup>& groups,
                                                 int expert_parallel, const DraftChunk& chunk,
                                                 int first) const {
  ChunkPasses longest;
  const auto extend = [](ChunkPasses& so_far, const ChunkPasses& one) {
    so_far.forward = std::max(so_far.forward, one.forward);
    so_far.backward = std::max(so_far.backward, one.backward);
    so_far.weights = std::max(so_far.weights, one.weights);
  };
  const auto size = as_size(expert_parallel);
  for (std::size_t set = 0; set < groups.size(); set += size) {
    if (expert_share(groups, expert_parallel, set).even()) {
      for (std::size_t g = set; g < set + size; ++g) {
        extend(longest, chunk_passes(groups[g], {expert_parallel}, chunk, first));
      }
      continue;
    }
    ChunkPasses around, inside;
    for (std::size_t g = set; g < set + size; ++g) {
      const models::ExpertShare share = expert_share(groups, expert_parallel, g);
      const ChunkPasses all = chunk_passes(groups[g], share, chunk, first);
      ChunkPasses experts;
      int from = first;
      for (const auto& [count, recompute] : chunk.parts()) {
        if (count == 0) continue;
        const PassTable& times = table(groups[g], recompute, share);
        experts.forward += times.experts_forward[from + count] - times.experts_forward[from];
        experts.backward += times.experts_backward[from + count] - times.experts_backward[from];
        from += count;
      }
      experts.weights = experts.forward;  // As costs of weights are those of forward passes.
      extend(around, {all.forward - experts.forward, all.backward - experts.backward,
                      all.weights - experts.weights});
      extend(inside, experts);
    }
    extend(longest, {around.forward + inside.forward, around.backward + inside.backward,
                     around.weights + inside.weights});
  }
  return longest;
}

const DraftCosts::PartMemory& DraftCosts::memory(int first, int layers, const DraftGroup& group,
                                                 ir::Recompute recompute, const ir::Zero& zero,
                                                 int weight, int replicas,
                                                 const models::ExpertShare& experts) const {
  const bool head = first + layers == layers_;
  // Where layers are alike only what touches the ends is special.
  const int from = !uniform_ ? first : first == 0 ? 0 : head ? layers_ - layers : 1;
  const std::uint64_t key = Packed()
                                .add(from, 10)
                                .add(layers, 10)
                                .add(group.degree(), 10)
                                .add(group.samples, 8)
                                .add(static_cast<int>(recompute), 2)
                                .add(zero.stage, 2)
                                .add(zero.shard_group, 8)
                                .add(zero.stage > 0 ? replicas : 1, 14)
                                .key();
  const std::uint64_t rest = Packed()
                                 .add(weight, 8)
                                 .add(experts.degree, 20)
                                 .add(experts.experts, 16)
                                 .add(experts.samples, 20)
                                 .key();
  return parts_.answer({key, rest}, [&]() -> PartMemory {
    ir::Segment segment = segment_of_layers(input_.workload, from, layers);
    segment.recompute = recompute;
    segment.zero = zero;
    segment.expert_parallel = experts.degree;
    ir::Group made;
    made.tensor_parallel = group.degree();
    made.sequence = megatron_sequence(input_.job, group.degree());
    made.samples = group.samples;
    made.state_weight = weight;
    const models::SegmentMemory held =
        models::segment_memory(segment, made, experts, replicas, input_.workload, input_.job);
    return {held.states(),   held.activations_per_micro_batch,
            held.recomputed, held.recomputed_kept,
            held.logits,     held.communication};
  });
}

const DraftCosts::Orders& DraftCosts::passes(const Draft& draft, int stages,
                                             int micro_batches) const {
  const Fields key{
      static_cast<std::uint64_t>(index_of(draft.schedule)),
      Packed().add(stages, 20).add(micro_batches, 30).add(draft.virtual_stages, 10).key()};
  return passes_.answer(key, [&] {
    Orders orders;
    for (int stage = 0; stage < stages; ++stage) {
      orders.push_back(models::schedule_entry(draft.schedule)
                           .passes({stages, stage, micro_batches, draft.virtual_stages}));
    }
    return orders;
  });
}

/// What a stage keeps between passes at its peak, of what each chunk keeps for a micro-batch. As
/// models::check_memory, which has the last word.
Bytes DraftCosts::kept(const Draft& draft, const models::ScheduleQuery& query,
                       std::span<const Bytes> activations,
                       std::span<const Bytes> recomputed) const {
  const models::ScheduleEntry& schedule = models::schedule_entry(draft.schedule);
  if (!schedule.uses_chunks) {
    Bytes held = schedule.in_flight(query) * activations[0];
    if (schedule.splits_backward()) held += schedule.weights_postponed(query) * recomputed[0];
    return held;
  }
  Bytes peak;
  for (const std::vector<int>& counts : most_in_flight(draft, query)) {
    Bytes held;
    for (std::size_t c = 0; c < counts.size(); ++c) held += counts[c] * activations[c];
    peak = std::max(peak, held);
  }
  return peak;
}

/// Micro-batches of each chunk whose activations a stage holds at once, where no other moment has
/// as many of each.
const std::vector<std::vector<int>>& DraftCosts::most_in_flight(
    const Draft& draft, const models::ScheduleQuery& query) const {
  auto& most = in_flight_[{static_cast<int>(draft.schedule), query.stages, query.stage,
                           query.micro_batches, draft.virtual_stages}];
  if (!most.empty()) return most;
  std::set<std::vector<int>> moments;
  std::vector<int> held(as_size(draft.virtual_stages), 0);
  for (const models::StagePass& pass :
       passes(draft, query.stages, query.micro_batches)[as_size(query.stage)]) {
    const bool forward = pass.kind == ir::OpKind::forward;
    held[as_size(pass.chunk)] += forward ? 1 : -1;
    if (forward) moments.insert(held);
  }
  for (const std::vector<int>& moment : moments) {
    const bool beaten = std::any_of(moments.begin(), moments.end(), [&](const auto& other) {
      return other != moment && std::equal(moment.begin(), moment.end(), other.begin(),
                                           [](int a, int b) { return a <= b; });
    });
    if (!beaten) most.push_back(moment);
  }
  return most;
}

bool DraftCosts::fits(const Draft& draft, const models::ScheduleQuery& query,
                      const std::vector<DraftGroup>& groups, int expert_parallel,
                      const std::vector<DraftChunk>& chunks, const std::vector<int>& firsts,
                      int replicas) const {
  if (groups.size() != 1 || chunks.size() != 1 || !uniform_ || draft.lighter_layers > 0) {
    return fits_anew(draft, query, groups, expert_parallel, chunks, firsts, replicas);
  }
  const models::ScheduleEntry& schedule = models::schedule_entry(draft.schedule);
  const DraftChunk& chunk = chunks[0];
  const int place = (firsts[0] == 0 ? 1 : 0) + (firsts[0] + chunk.layers == layers_ ? 2 : 0);
  const std::pair key{
      Packed()
          .add(group_class(groups[0]), 24)
          .add(place, 2)
          .add(chunk.layers, 10)
          .add(chunk.full, 10)
          .add(chunk.selective, 10)
          .add(groups[0].samples, 8)
          .key(),
      Packed()
          .add(schedule.in_flight(query), 16)
          .add(schedule.splits_backward() ? schedule.weights_postponed(query) : 0, 16)
          .add(draft.zero.stage, 2)
          .add(draft.zero.shard_group, 10)
          .add(draft.zero.stage > 0 ? replicas : 1, 16)
          .add(state_weight(draft, groups[0], input_.cluster) - 1, 3)
          .add(schedule.splits_backward() ? 1 : 0, 1)
          .key()};
  return in_memory_.answer(
      key, [&] { return fits_anew(draft, query, groups, 1, chunks, firsts, replicas); });
}

bool DraftCosts::fits_anew(const Draft& draft, const models::ScheduleQuery& query,
                           const std::vector<DraftGroup>& groups, int expert_parallel,
                           const std::vector<DraftChunk>& chunks, const std::vector<int>& firsts,
                           int replicas) const {
  // Gathers of ZeRO-3 in a pass would have to be the same in all groups that meet there.
  if (expert_parallel > 1 && draft.zero.shards_parameters()) return false;
  if (expert_parallel > 1) replicas *= static_cast<int>(groups.size());
  const bool splits = models::schedule_entry(draft.schedule).splits_backward();
  std::vector<Bytes> activations(chunks.size()), recomputed(chunks.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const DraftGroup& group = groups[g];
    const models::ExpertShare experts = expert_share(groups, expert_parallel, g);
    Bytes held, transient, staging;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      activations[c] = recomputed[c] = 0_B;
      for (const DraftPart& own : parts_of(draft, chunks[c], firsts[c], layers_, input_.job)) {
        const PartMemory& part =
            memory(own.first, own.layers, group, own.recompute, own.zero,
                   state_weight(draft, group, input_.cluster), replicas, experts);
        held += part.states;
        activations[c] += part.activations;
        recomputed[c] += part.recomputed_kept;
        transient = std::max(transient, part.logits + (splits ? 0_B : part.recomputed));
        staging = std::max(staging, part.communication);
      }
    }
    const Bytes need = held + staging + kept(draft, query, activations, recomputed) + transient;
    for (const DeviceId device : group.devices) {
      if (need > costs_.capacity(input_.cluster.device(device).gpu_type)) return false;
    }
  }
  return true;
}

DraftCosts::Place DraftCosts::place(const Draft& draft, const DraftPipeline& pipeline,
                                    std::size_t stage, int replicas) const {
  const std::vector<DraftGroup>& groups = pipeline.stages[stage].groups;
  const std::size_t stages = pipeline.stages.size();
  const int chunks = draft.virtual_stages;
  Place place;
  place.groups = &groups;
  place.query = {static_cast<int>(stages), static_cast<int>(stage), pipeline.micro_batches, chunks};
  place.replicas = weighed(draft, pipeline, stage, replicas);
  const DraftStage& own = pipeline.stages[stage];
  const bool shared = own.expert_parallel > 1;
  place.expert_parallel = own.expert_parallel;
  if (shared) place.exchange = exchange(groups, own.expert_parallel).seconds;
  place.unlike = has_unlike_shares(own);
  place.remembered =
      (groups.size() == 1 || shared) && uniform_ && draft.lighter_layers == 0 &&
      (chunks == 1 || (stages < 256 && pipeline.micro_batches < 4096 && chunks < 16));
  if (!place.remembered) return place;
  place.kind = Packed()
                   .add(shared ? stage_class(own) : group_class(groups[0]), 24)
                   .add((stage == 0 ? 1 : 0) + (stage + 1 == stages ? 2 : 0), 2)
                   .add(groups[0].samples, 8)
                   .add(static_cast<int>(draft.schedule), 4)
                   .add(chunks > 1 ? 1 : 0, 1)
                   .key();
  Packed held;  // What decides how much is in flight.
  if (chunks == 1) {
    const models::ScheduleEntry& schedule = models::schedule_entry(draft.schedule);
    held.add(schedule.in_flight(place.query), 16)
        .add(schedule.splits_backward() ? schedule.weights_postponed(place.query) : 0, 16);
  } else {
    held.add(place.query.stage, 8)
        .add(place.query.stages, 8)
        .add(place.query.micro_batches, 12)
        .add(chunks, 4);
  }
  place.held = held.add(draft.zero.stage, 2)
                   .add(draft.zero.shard_group, 10)
                   .add(draft.zero.stage > 0 ? place.replicas : 1, 16)
                   .add(state_weight(draft, groups[0], input_.cluster) - 1, 3)
                   .key();
  return place;
}

int DraftCosts::weighed(const Draft& draft, const DraftPipeline& pipeline, std::size_t stage,
                        int replicas) const {
  if (draft.state_weights.empty()) return replicas;
  int sum = 0;
  if (as_size(replicas) != draft.pipelines.size()) {  // A draft that is not complete.
    for (const DeviceId device : input_.devices) {
      sum += draft.state_weights[as_size(input_.cluster.device(device).gpu_type)];
    }
    const double mean = sum / static_cast<double>(input_.devices.size());
    return std::max(1, static_cast<int>(std::lround(replicas * mean)));
  }
  for (const DraftPipeline& other : draft.pipelines) {
    const std::size_t peer = stage * other.stages.size() / pipeline.stages.size();
    sum += state_weight(draft, other.stages[peer].groups[0], input_.cluster);
  }
  return sum;
}

DraftCosts::StageFit DraftCosts::fit(const Draft& draft, const Place& place, int layers) const {
  if (layers < draft.virtual_stages || layers > layers_) return {};
  if (!place.remembered) return fit_anew(draft, place, layers);
  constexpr int kLayerBits = 10;
  const Fields key{place.kind << kLayerBits | static_cast<std::uint64_t>(layers), place.held};
  return fits_.answer(key, [&] { return fit_anew(draft, place, layers); });
}

DraftCosts::StageFit DraftCosts::fit_anew(const Draft& draft, const Place& place,
                                          int layers) const {
  const models::ScheduleQuery& query = place.query;
  const std::vector<DraftGroup>& groups = *place.groups;
  const int replicas = place.replicas;
  const int chunks = draft.virtual_stages;
  const int last_first = layers_ - layers;
  const bool head = query.stage == 0, tail = query.stage + 1 == query.stages;
  // Where layers are not alike by ZeRO: about where the chunk would begin.
  const auto middle = [&](int chunk, int share) {
    const int place = chunk * query.stages + query.stage;
    const int begin = draft.lighter_layers == 0 ? 1 : place * layers_ / (query.stages * chunks);
    return std::min(std::max(begin, 1), layers_ - share);
  };
  const int first = head ? 0 : tail ? last_first : middle(0, layers);
  std::vector<DraftChunk> probed;
  std::vector<int> firsts;
  const auto& allowed = input_.job.allowed.recompute;
  const auto has = [&](ir::Recompute r) {
    return allowed.empty() ? r == ir::Recompute::none
                           : std::find(allowed.begin(), allowed.end(), r) != allowed.end();
  };
  const auto try_with = [&](int full, int selective) -> double {
    probed.clear();
    firsts.clear();
    int left = layers, left_full = full, left_selective = selective;
    for (int c = 0; c < chunks; ++c) {
      const int share = (left + chunks - c - 1) / (chunks - c);
      DraftChunk chunk{share, std::min(share, left_full), 0};
      chunk.selective = std::min(share - chunk.full, left_selective);
      left -= share;
      left_full -= chunk.full;
      left_selective -= chunk.selective;
      probed.push_back(chunk);
      // Of an interleaved stage only the outer chunks touch the ends of the model.
      firsts.push_back(chunks == 1               ? first
                       : head && c == 0          ? 0
                       : tail && c + 1 == chunks ? layers_ - share
                                                 : middle(c, share));
    }
    if (!fits(draft, query, groups, place.expert_parallel, probed, firsts, replicas)) {
      return kNever;
    }
    double slowest = 0;
    for (const DraftGroup& group : groups) {
      double sum = 0;
      for (int c = 0; c < chunks && !place.unlike; ++c) {
        const DraftChunk& chunk = probed[c];
        int from = firsts[c];
        for (const auto& [count, recompute] : chunk.parts()) {
          if (count == 0) continue;
          const PassTable& times = table(group, recompute, {place.expert_parallel});
          sum += times.forward[from + count] - times.forward[from] + times.backward[from + count] -
                 times.backward[from];
          from += count;
        }
      }
      slowest = std::max(slowest, sum);
    }
    for (int c = 0; c < chunks && place.unlike; ++c) {
      const ChunkPasses passes = joint_passes(groups, place.expert_parallel, probed[c], firsts[c]);
      slowest += passes.forward + passes.backward;
    }
    if (place.expert_parallel > 1) {
      for (int c = 0; c < chunks; ++c) {
        slowest += place.exchange * exchanges(probed[c], firsts[c]).both();
      }
    }
    return slowest;
  };
  // The fewest recomputed layers that fit, with each kind of recomputation below them.
  StageFit best;
  const auto search = [&](int selective_of_rest) {
    const auto offered = [&](int full) {
      return try_with(full, selective_of_rest * (layers - full));
    };
    const auto take = [&](double seconds, int full) {
      if (seconds < best.seconds) best = {seconds, full, selective_of_rest * (layers - full)};
    };
    const double without = offered(0);
    if (without < kNever || !has(ir::Recompute::full)) return take(without, 0);
    // More recomputed layers take less memory: bisection.
    int low = 1, high = layers;
    if (offered(high) == kNever) return;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (offered(middle) < kNever) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    take(offered(high), high);
  };
  if (has(ir::Recompute::none)) search(0);
  const bool nothing_recomputed = best.seconds < kNever && best.full == 0;
  if (has(ir::Recompute::selective) && !nothing_recomputed) search(1);
  if (!has(ir::Recompute::none) && !has(ir::Recompute::selective)) {
    const double seconds = try_with(layers, 0);
    if (seconds < best.seconds) best = {seconds, layers, 0};
  }
  return best;
}

const DraftCosts::Hop& DraftCosts::hop(const DraftStage& from, const DraftStage& to, int layer,
                                       ir::ActivationTransfer transfer) const {
  std::vector<std::int32_t>& key = scratch_;
  key.assign({layer == layers_ ? 0 : uniform_ ? 1 : layer, static_cast<int>(transfer)});
  for (const DraftStage* stage : {&from, &to}) {
    for (const DraftGroup& group : stage->groups) {
      key.push_back(-group.samples);
      for (const DeviceId device : group.devices) key.push_back(device.value);
    }
    key.push_back(-1000);
  }
  const auto [place, added] = hops_.try_emplace(key);
  Hop& hop = place->second;
  if (!added) return hop;
  const models::PathFunction path = [this](DeviceId a, DeviceId b) { return costs_.path(a, b); };
  const Bytes sample = costs_.activation(std::min(layer, layers_ - 1));
  std::map<std::size_t, double> busy;
  std::vector<LinkId> route;
  double latency = 0, inside = 0, direct = 0;
  const auto send = [&](DeviceId a, DeviceId b, Bytes bytes) {
    if (a == b) return;
    route.clear();
    input_.topology.route(a, b, route);
    for (const LinkId link : route) {
      const models::Link& of = input_.topology.links()[link];
      if (!of.uncontended) busy[link.index()] += bytes / of.bandwidth / Seconds{1};
    }
    direct = std::max(direct, models::point_to_point_time(a, b, bytes, path).value);
    latency = std::max(latency, costs_.path(a, b).latency.value);
  };
  // Samples of the receivers from those who have them, in order.
  std::size_t sender = 0;
  int left = from.groups[0].samples;
  for (const DraftGroup& group : to.groups) {
    for (int wanted = group.samples; wanted > 0;) {
      const int taken = std::min(wanted, left);
      const Bytes bytes = static_cast<double>(taken) * sample;
      const std::vector<DeviceId>& sources = from.groups[sender].devices;
      if (transfer == ir::ActivationTransfer::sliced) {
        const std::size_t parts = group.devices.size();
        for (std::size_t i = 0; i < parts; ++i) {
          send(sources[i * sources.size() / parts], group.devices[i],
               bytes / static_cast<double>(parts));
        }
      } else {
        send(sources.front(), group.devices.front(), bytes);
      }
      wanted -= taken;
      left -= taken;
      if (left == 0 && sender + 1 < from.groups.size()) left = from.groups[++sender].samples;
    }
    const bool sliced = transfer == ir::ActivationTransfer::sliced;
    inside = std::max(inside, models::collective_time(
                                  sliced ? CollectiveKind::all_gather : CollectiveKind::broadcast,
                                  CollectiveAlgorithm::ring, group.devices,
                                  static_cast<double>(group.samples) * sample, path)
                                  .value);
  }
  double longest = 0;
  for (const auto& [link, seconds] : busy) {
    longest = std::max(longest, seconds);
    hop.loads.push_back({link, seconds});
  }
  hop.seconds = std::max(direct, longest + latency) + inside;
  loads_ += hop.loads.size();
  return hop;
}

DraftCosts::Exchanges DraftCosts::exchanges(const DraftChunk& chunk, int first) const {
  const auto with_experts = [&](int layers) {
    return moe_prefix_[first + layers] - moe_prefix_[first];
  };
  const int all = 2 * with_experts(chunk.layers);
  return {all, all + 2 * with_experts(chunk.full)};
}

const DraftCosts::Exchange& DraftCosts::exchange(const std::vector<DraftGroup>& groups,
                                                 int expert_parallel) const {
  std::vector<std::int32_t> key = {expert_parallel};
  for (const DraftGroup& group : groups) {
    key.insert(key.end(), {-1, group.samples, group.experts});
    for (const DeviceId device : group.devices) key.push_back(device.value);
  }
  const auto [place, added] = exchanges_.try_emplace(std::move(key));
  Exchange& made = place->second;
  if (!added) return made;
  const ir::ModelShape& shape = input_.workload.shape;
  const models::PathFunction path = [this](DeviceId a, DeviceId b) { return costs_.path(a, b); };
  const auto size = as_size(expert_parallel);
  const std::map<LinkId, double> no_slowdown;
  models::SharedLinks links({input_.topology, path, no_slowdown});
  std::vector<DeviceId> members(size);
  std::vector<double> peers(size * size);
  for (std::size_t set = 0; set + size <= groups.size(); set += size) {
    const int degree = groups[set].degree();
    const bool split = megatron_sequence(input_.job, degree) == ir::SequenceParallelism::megatron;
    // As models/lower/inner.cpp: each member sends its tokens to the holders of their experts. Of
    // unlike groups the way back is as long as the way there.
    const Bytes of_sample = costs_.activation(layers_ / 2) *
                            (shape.top_k * shape.capacity_factor / (split ? degree : 1));
    const Bytes routed = groups[set].samples * of_sample;
    for (std::size_t i = 0; i < size * size; ++i) {
      const auto parts = expert_share(groups, expert_parallel, set + i % size).parts(shape.experts);
      peers[i] =
          i % (size + 1) == 0 ? 0 : groups[set + i / size].samples * of_sample.value / parts.parts;
    }
    for (int position = 0; position < degree; ++position) {
      for (std::size_t i = 0; i < size; ++i) members[i] = groups[set + i].devices[position];
      links.add(CollectiveKind::all_to_all, members, routed, peers);
    }
  }
  made.seconds = links.time().value;
  for (const auto& [link, load] : links.loads()) {
    made.loads.push_back({link.index(), load.busy.value});
  }
  // What a job hides of them is left out here; the judge knows better.
  const auto& hidden = input_.job.hidden_collectives;
  if (std::find(hidden.begin(), hidden.end(), ir::Purpose::expert_parallel) != hidden.end()) {
    made.seconds = 0;
  }
  loads_ += made.loads.size();
  return made;
}

const DraftCosts::Ring& DraftCosts::ring(const std::vector<DeviceId>& devices) const {
  const auto [place, added] = rings_.try_emplace(devices);
  Ring& ring = place->second;
  if (!added) return ring;
  const models::PathFunction path = [this](DeviceId a, DeviceId b) { return costs_.path(a, b); };
  const Bytes bytes = 64_MiB;
  std::map<std::size_t, double> loads;
  std::vector<LinkId> route;
  for (const models::FlowEdge& edge :
       models::collective_flows(CollectiveKind::all_reduce, devices, bytes, path)) {
    route.clear();
    input_.topology.route(edge.source, edge.destination, route);
    for (const LinkId link : route) {
      const models::Link& of = input_.topology.links()[link];
      if (!of.uncontended) {
        loads[link.index()] += edge.bytes / of.bandwidth / Seconds{1} / bytes.value;
      }
    }
  }
  for (const auto& [link, seconds] : loads) ring.loads.push_back({link, seconds});
  loads_ += ring.loads.size();
  const auto time = [&](Bytes size) {
    return models::collective_time(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, devices,
                                   size, path)
        .value;
  };
  ring.latency = time(1_B);
  ring.per_byte = (time(bytes) - ring.latency) / bytes.value;
  return ring;
}

/// Layers of a chunk whose parameters passes gather, in layers of the model's mean size.
double DraftCosts::gathered_layers(const Draft& draft, const DraftChunk& chunk, int first) const {
  if (draft.lighter_layers == 0) return chunk.layers;
  const int past = std::clamp(first_lighter(draft, layers_), first, first + chunk.layers);
  return (gradient_prefix_[past] - gradient_prefix_[first]) * layers_ / gradient_prefix_.back();
}

DraftCosts::StageRun DraftCosts::stage_run(const Draft& draft, const DraftPipeline& pipeline,
                                           std::size_t stage, const std::vector<int>& firsts,
                                           double gather) const {
  const DraftStage& own = pipeline.stages[stage];
  StageRun run;
  for (std::size_t c = 0; c < own.chunks.size(); ++c) {
    const DraftChunk& chunk = own.chunks[c];
    auto [forward, backward, weights] =
        joint_passes(own.groups, own.expert_parallel, chunk, firsts[c]);
    if (own.expert_parallel > 1) {
      run.exchange = &exchange(own.groups, own.expert_parallel);
      const Exchanges counts = exchanges(chunk, firsts[c]);
      forward += counts.forward * run.exchange->seconds;
      backward += counts.backward * run.exchange->seconds;
      run.exchanges += counts.both();
    }
    const double gathers = gather * gathered_layers(draft, chunk, firsts[c]);
    run.forward.push_back(forward + gathers);
    run.backward.push_back(backward + gathers);
    run.weights.push_back(weights);
    const bool last_stage = stage + 1 == pipeline.stages.size();
    const bool last = last_stage && c + 1 == own.chunks.size();
    const DraftStage* next = last ? nullptr : &pipeline.stages[last_stage ? 0 : stage + 1];
    const int layer = firsts[c] + chunk.layers;
    run.up.push_back(next == nullptr ? nullptr : &hop(own, *next, layer, draft.transfer));
    run.down.push_back(next == nullptr ? nullptr : &hop(*next, own, layer, draft.transfer));
  }
  return run;
}

/// Runs the passes of all stages in their order, each once what it needs has arrived.
DraftCosts::Ends DraftCosts::run_anew(const Draft& draft, const DraftPipeline& pipeline,
                                      const std::vector<StageRun>& stages,
                                      const std::vector<double>& up,
                                      const std::vector<double>& down) const {
  const int count = static_cast<int>(stages.size());
  const int chunks = draft.virtual_stages;
  const int batches = pipeline.micro_batches;
  const auto index = [&](int stage, int chunk, int batch) {
    return as_size((stage * chunks + chunk) * batches + batch);
  };
  constexpr double kUnknown = -1;
  std::vector<double> input(as_size(count * chunks * batches), kUnknown);
  std::vector<double> gradient(input.size(), kUnknown);
  for (int m = 0; m < batches; ++m) input[index(0, 0, m)] = 0;
  std::vector<double> up_free(as_size(count * chunks), 0), down_free(up_free);
  std::vector<double> free(as_size(count), 0);
  std::vector<std::size_t> next(as_size(count), 0);
  const Orders& orders = passes(draft, count, batches);
  Ends ends;
  ends.last_backward.assign(as_size(count), 0);
  for (bool any = true; any;) {
    any = false;
    for (int s = 0; s < count; ++s) {
      const auto& order = orders[as_size(s)];
      const StageRun& stage = stages[s];
      while (next[s] < order.size()) {
        const models::StagePass& pass = order[next[s]];
        const int c = pass.chunk, m = pass.micro_batch;
        const ir::OpTraits& makes = ir::traits(pass.kind);
        double begin = free[s], duration = 0;
        if (pass.kind == ir::OpKind::forward) {
          const double ready = input[index(s, c, m)];
          if (ready == kUnknown) break;
          begin = std::max(begin, ready);
          duration = stage.forward[c];
        } else if (makes.input_gradients) {
          const double ready = gradient[index(s, c, m)];
          if (ready == kUnknown) break;
          begin = std::max(begin, ready);
          duration = stage.backward[c] - (makes.is_half() ? stage.weights[c] : 0);
        } else {
          duration = stage.weights[c];
        }
        const double end = begin + duration;
        free[s] = end;
        ++next[s];
        any = true;
        if (pass.kind == ir::OpKind::forward) {
          const bool last_stage = s + 1 == count;
          if (last_stage && c + 1 == chunks) {
            gradient[index(s, c, m)] = end;
            continue;
          }
          double& channel = up_free[s * chunks + c];
          channel = std::max(channel, end) + up[s * chunks + c];
          input[last_stage ? index(0, c + 1, m) : index(s + 1, c, m)] = channel;
          continue;
        }
        ends.last_backward[s] = end;
        if (!makes.input_gradients || (s == 0 && c == 0)) continue;
        const int before = s > 0 ? s - 1 : count - 1;
        const int chunk = s > 0 ? c : c - 1;
        double& channel = down_free[before * chunks + chunk];
        channel = std::max(channel, end) + down[before * chunks + chunk];
        gradient[index(before, chunk, m)] = channel;
      }
    }
  }
  ends.end = *std::max_element(ends.last_backward.begin(), ends.last_backward.end());
  return ends;
}

/// The same stages with the same waits end at the same times.
const DraftCosts::Ends& DraftCosts::run(const Draft& draft, const DraftPipeline& pipeline,
                                        const std::vector<StageRun>& stages,
                                        const std::vector<double>& up,
                                        const std::vector<double>& down) const {
  const int chunks = draft.virtual_stages;
  std::vector<double> key = {static_cast<double>(index_of(draft.schedule)),
                             static_cast<double>(chunks),
                             static_cast<double>(pipeline.micro_batches)};
  for (const StageRun& stage : stages) {
    for (int c = 0; c < chunks; ++c) {
      key.insert(key.end(), {stage.forward[c], stage.backward[c], stage.weights[c]});
    }
  }
  key.insert(key.end(), up.begin(), up.end());
  key.insert(key.end(), down.begin(), down.end());
  return ends_.answer(key, [&] { return run_anew(draft, pipeline, stages, up, down); });
}

/// Pipelines of as many stages whose longest stage takes the same time: they begin together, and
/// stay in step.
std::vector<std::vector<std::size_t>> DraftCosts::in_step(
    const std::vector<std::vector<StageRun>>& runs) const {
  constexpr double kSameTime = 1.02;
  std::vector<std::vector<std::size_t>> classes;
  std::vector<double> periods;
  for (std::size_t p = 0; p < runs.size(); ++p) {
    double period = 0;
    for (const StageRun& stage : runs[p]) period = std::max(period, stage.busy());
    std::size_t c = 0;
    while (c < classes.size() &&
           (runs[classes[c].front()].size() != runs[p].size() || period > kSameTime * periods[c] ||
            periods[c] > kSameTime * period)) {
      ++c;
    }
    if (c == classes.size()) {
      classes.emplace_back();
      periods.push_back(period);
    }
    classes[c].push_back(p);
  }
  return classes;
}

/// Seconds of the hops of pipelines that run in step: those over one link go at the same time and
/// share it. The others take their share of it on average, of `horizon` seconds (0: none).
void DraftCosts::share_links(const Draft& draft, const std::vector<std::vector<StageRun>>& runs,
                             const std::vector<std::size_t>& together,
                             const std::vector<double>& busy, double horizon,
                             std::vector<Waits>& waits) const {
  const std::size_t count = runs[together.front()].size();
  const auto chunks = as_size(draft.virtual_stages);
  // Where all forward passes come before the backward ones, so do their transfers: each direction
  // has the links for its share of the time only.
  double phase[2] = {1, 1};
  if (models::schedule_entry(draft.schedule).holds_whole_batch()) {
    double forward = 0, backward = 0;
    for (const StageRun& stage : runs[together.front()]) {
      for (const double seconds : stage.forward) forward += seconds;
      for (const double seconds : stage.backward) backward += seconds;
    }
    phase[0] = (forward + backward) / forward;
    phase[1] = (forward + backward) / backward;
  }
  for (const std::size_t p : together) {
    waits[p].up.assign(count * chunks, 0);
    waits[p].down.assign(count * chunks, 0);
  }
  std::vector<double>& at_once = link_scratch_;
  at_once.resize(2 * busy.size(), 0);
  const std::size_t other = busy.size();
  for (std::size_t s = 0; s < count; ++s) {
    for (std::size_t c = 0; c < chunks; ++c) {
      if (runs[together.front()][s].up[c] == nullptr) continue;
      for (const std::size_t p : together) {
        for (const LinkLoad& load : runs[p][s].up[c]->loads) {
          at_once[load.link] += load.seconds_per_byte;
        }
        for (const LinkLoad& load : runs[p][s].down[c]->loads) {
          at_once[other + load.link] += load.seconds_per_byte;
        }
      }
      for (const std::size_t p : together) {
        for (const bool back : {false, true}) {
          const Hop& hop = back ? *runs[p][s].down[c] : *runs[p][s].up[c];
          const double batches = draft.pipelines[p].micro_batches;
          double own = 0, shared = 0, factor = 1;
          for (const LinkLoad& load : hop.loads) {
            own = std::max(own, load.seconds_per_byte);
            shared = std::max(shared, at_once[load.link + (back ? other : 0)]);
            if (horizon == 0) continue;
            const double others =
                busy[load.link] - batches * (at_once[load.link] + at_once[other + load.link]);
            // In steps, so that runs repeat.
            const double share = std::round(
                std::clamp(phase[back ? 1 : 0] * others / horizon, 0.0, kMostShared) * kShareSteps);
            factor = std::max(factor, 1 / (1 - share / kShareSteps));
          }
          (back ? waits[p].down : waits[p].up)[s * chunks + c] =
              (hop.seconds + shared - own) * factor;
        }
      }
      // Back to zero, without what rounding leaves.
      for (const std::size_t p : together) {
        for (const LinkLoad& load : runs[p][s].up[c]->loads) at_once[load.link] = 0;
        for (const LinkLoad& load : runs[p][s].down[c]->loads) at_once[other + load.link] = 0;
      }
    }
  }
}

double DraftCosts::optimizer(const Draft& draft, const DraftStage& stage, int first,
                             int replicas) const {
  double slowest = 0;
  for (std::size_t g = 0; g < stage.groups.size(); ++g) {
    const DraftGroup& group = stage.groups[g];
    const int layers = stage.layers();
    const bool head = first + stage.chunks[0].layers == layers_;
    const int from = !uniform_ ? first : first == 0 ? 0 : head ? layers_ - layers : 1;
    const int type = input_.cluster.device(group.devices.front()).gpu_type;
    const bool shared = stage.expert_parallel > 1;
    const int copies = shared ? replicas * static_cast<int>(stage.groups.size()) : replicas;
    const int weight = state_weight(draft, group, input_.cluster);
    const Fields key{Packed()
                         .add(type, 10)
                         .add(weight, 4)
                         .add(from, 10)
                         .add(layers, 10)
                         .add(group.degree(), 10)
                         .add(draft.zero.stage > 0 ? 1 : 0, 1)
                         .add(draft.zero.stage > 0 ? copies : 1, 16)
                         .key(),
                     Packed().add(stage.expert_parallel, 32).add(group.experts, 32).key()};
    const auto [place, added] = optimizer_.try_emplace(key, 0);
    if (added) {
      StageShape shape;
      shape.first = std::min(from, layers_ - layers);
      shape.layers = layers;
      shape.tensor_parallel = group.degree();
      shape.zero_stage = draft.zero.stage;
      shape.replicas = copies;
      shape.state_weight = weight;
      shape.expert_parallel = stage.expert_parallel;
      shape.experts = group.experts;
      place->second = costs_.optimizer(type, shape).value;
    }
    slowest = std::max(slowest, place->second);
  }
  return slowest;
}

/// Rings of ranges of layers that the same groups hold, in the order in which their gradients are
/// there; each link and each stage carries one after the other.
double DraftCosts::synchronize(const Draft& draft, const std::vector<std::vector<int>>& firsts,
                               const std::vector<std::vector<StageRun>>& runs,
                               const std::vector<Ends>& ends) const {
  struct Holding {
    std::size_t pipeline, stage, chunk;
    int first, layers;
  };
  std::vector<Holding> holdings;
  std::vector<char> cut(as_size(layers_ + 1), 0);
  std::size_t stages = 0;
  std::vector<std::size_t> base;
  for (std::size_t p = 0; p < draft.pipelines.size(); ++p) {
    base.push_back(stages);
    const auto chunks = as_size(draft.virtual_stages);
    for (std::size_t s = 0; s < draft.pipelines[p].stages.size(); ++s) {
      for (std::size_t c = 0; c < chunks; ++c) {
        const int first = firsts[p][s * chunks + c];
        holdings.push_back({p, s, c, first, draft.pipelines[p].stages[s].chunks[c].layers});
        cut[first] = 1;
      }
    }
    stages += draft.pipelines[p].stages.size();
  }
  const int lighter = first_lighter(draft, layers_);
  cut[as_size(lighter)] = 1;
  struct Range {
    int first, layers;
    double ready;
    std::vector<const Holding*> holders;
  };
  std::vector<Range> ranges;
  for (int first = 0; first < layers_;) {
    int past = first + 1;
    while (past < layers_ && cut[past] == 0) ++past;
    ranges.push_back({first, past - first, 0, {}});
    first = past;
  }
  std::vector<std::size_t> range_at(as_size(layers_));
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    for (int i = 0; i < ranges[r].layers; ++i) range_at[ranges[r].first + i] = r;
  }
  for (const Holding& holding : holdings) {
    const Ends& end = ends[holding.pipeline];
    for (std::size_t r = range_at[holding.first];
         r < ranges.size() && ranges[r].first < holding.first + holding.layers; ++r) {
      double ready = end.last_backward[holding.stage];
      if (draft.overlap) {
        // The last pass goes through its layers backward.
        const double pass = runs[holding.pipeline][holding.stage].backward[holding.chunk];
        ready -= pass * (ranges[r].first - holding.first) / holding.layers;
      }
      ranges[r].ready = std::max(ranges[r].ready, ready);
      ranges[r].holders.push_back(&holding);
    }
  }
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const Range& a, const Range& b) { return a.ready < b.ready; });
  std::vector<double> link_free(input_.topology.links().size(), 0);
  std::vector<double> stage_free(stages, 0), gathered(stages, 0);
  for (std::size_t p = 0; p < ends.size(); ++p) {
    for (std::size_t s = 0; s < ends[p].last_backward.size(); ++s) {
      stage_free[base[p] + s] = draft.overlap ? 0 : ends[p].last_backward[s];
    }
  }
  const double share = draft.zero.shards_optimizer() ? 0.5 : 1;
  std::vector<DeviceId> members;
  for (const Range& range : ranges) {
    std::size_t largest = 1, groups = 0;
    int shared = 1;                // Largest number of groups that share experts.
    int heaviest = 1, weight = 0;  // Of shards: a ring's steps are as long as the longest.
    double start = range.ready;
    for (const Holding* holding : range.holders) {
      for (const DraftGroup& group :
           draft.pipelines[holding->pipeline].stages[holding->stage].groups) {
        largest = std::max(largest, group.devices.size());
        ++groups;
        const int own = state_weight(draft, group, input_.cluster);
        heaviest = std::max(heaviest, own);
        weight += own;
      }
      shared = std::max(shared,
                        draft.pipelines[holding->pipeline].stages[holding->stage].expert_parallel);
      start = std::max(start, stage_free[base[holding->pipeline] + holding->stage]);
    }
    if (groups < 2) continue;
    const double experts =
        shared == 1 ? 0 : expert_prefix_[range.first + range.layers] - expert_prefix_[range.first];
    const double bytes =
        (gradient_prefix_[range.first + range.layers] - gradient_prefix_[range.first] - experts) /
        static_cast<double>(largest) * share * heaviest * static_cast<double>(groups) / weight;
    double end = start;
    // Seconds that the members' ring would take alone; its links are busy from then on.
    const auto reduce = [&](double of_each) {
      std::sort(members.begin(), members.end());
      const Ring& used = ring(members);
      for (const LinkLoad& load : used.loads) {
        double& free = link_free[load.link];
        free = std::max(free, start) + of_each * load.seconds_per_byte;
        end = std::max(end, free + used.latency);
      }
      return used.latency + of_each * used.per_byte;
    };
    // A member of a smaller group takes part in several slices, one after the other.
    double alone = 0;
    std::size_t smallest = largest;
    for (std::size_t slice = 0; slice < largest; ++slice) {
      members.clear();
      for (const Holding* holding : range.holders) {
        for (const DraftGroup& group :
             draft.pipelines[holding->pipeline].stages[holding->stage].groups) {
          smallest = std::min(smallest, group.devices.size());
          members.push_back(group.devices[slice * group.devices.size() / largest]);
        }
      }
      alone = std::max(alone, reduce(bytes));
    }
    const double turns = static_cast<double>(largest) / static_cast<double>(smallest);
    // Of experts each part is reduced among the copies, which several groups make.
    double alone_experts = 0;
    const double part = experts / shared / static_cast<double>(largest) * share;
    for (int position = 0; part > 0 && position < shared; ++position) {
      for (std::size_t slice = 0; slice < largest; ++slice) {
        members.clear();
        for (const Holding* holding : range.holders) {
          const DraftStage& stage = draft.pipelines[holding->pipeline].stages[holding->stage];
          const auto degree = as_size(stage.expert_parallel);
          for (std::size_t set = 0; set < stage.groups.size(); set += degree) {
            const DraftGroup& group =
                stage.groups[set + as_size(position) * degree / as_size(shared)];
            members.push_back(group.devices[slice * group.devices.size() / largest]);
          }
        }
        if (members.size() < 2) continue;
        alone_experts = std::max(alone_experts, reduce(part));
      }
    }
    alone += alone_experts;
    end = std::max(end, start + turns * alone);
    for (const Holding* holding : range.holders) {
      const std::size_t stage = base[holding->pipeline] + holding->stage;
      stage_free[stage] = end;
      if (!draft.zero.shards_parameters() || range.first >= lighter) {
        gathered[stage] += turns * alone;
      }
    }
  }
  const int replicas = static_cast<int>(draft.pipelines.size());
  double last = 0;
  for (std::size_t p = 0; p < draft.pipelines.size(); ++p) {
    const auto chunks = as_size(draft.virtual_stages);
    for (std::size_t s = 0; s < draft.pipelines[p].stages.size(); ++s) {
      const DraftStage& stage = draft.pipelines[p].stages[s];
      double end = std::max(stage_free[base[p] + s], ends[p].last_backward[s]) +
                   optimizer(draft, stage, firsts[p][s * chunks],
                             weighed(draft, draft.pipelines[p], s, replicas));
      if (draft.zero.shards_optimizer() && !gathers_in_passes(draft)) end += gathered[base[p] + s];
      last = std::max(last, end);
    }
  }
  if (!gathers_in_passes(draft)) return last;
  // What first passes wait for gathers: all of a bucket before the first of them, and as much of
  // the chunk's as is longer than the way of the first micro-batch and the pass.
  double exposed = 0;
  for (std::size_t p = 0; p < draft.pipelines.size(); ++p) {
    const std::vector<DraftStage>& of = draft.pipelines[p].stages;
    double arrival = 0;  // Of the first micro-batch.
    for (std::size_t s = 0; s < of.size(); ++s) {
      const double pass = runs[p][s].forward[0];
      const double pieces = gather_pieces(draft, of[s]);
      const double gather = gathered[base[p] + s] / draft.virtual_stages;
      exposed = std::max(
          {exposed, gather / pieces - arrival, gather - arrival - pass * (pieces - 1) / pieces});
      arrival += pass;
    }
  }
  return last + exposed;
}

/// Buckets of the first chunk.
double DraftCosts::gather_pieces(const Draft& draft, const DraftStage& stage) const {
  if (draft.bucket.value <= 0) return 1;
  const double layers = stage.chunks[0].layers;
  const double bytes = gradient_prefix_.back() / layers_ * layers /
                       static_cast<double>(stage.groups.front().devices.size());
  return std::clamp(bytes / draft.bucket.value, 1.0, std::max(1.0, layers));
}

/// Not while a view is made: it refers to hops.
void DraftCosts::forget() const {
  if (loads_ > kMostLoads) {
    hops_.clear();
    rings_.clear();
    exchanges_.clear();
    loads_ = 0;
  }
  if (class_of_.size() > kMostGroups) class_of_.clear();
}

DraftCosts::View DraftCosts::view(const Draft& draft) const {
  forget();
  View view;
  const std::size_t count = draft.pipelines.size();
  const auto chunks = as_size(draft.virtual_stages);
  const int replicas = static_cast<int>(count);
  std::vector<std::vector<int>> firsts(count);
  std::vector<std::vector<StageRun>> runs(count);
  for (std::size_t p = 0; p < count; ++p) {
    const DraftPipeline& pipeline = draft.pipelines[p];
    firsts[p].resize(pipeline.stages.size() * chunks);
    int first = 0;
    for (std::size_t c = 0; c < chunks; ++c) {
      for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
        firsts[p][s * chunks + c] = first;
        first += pipeline.stages[s].chunks[c].layers;
      }
    }
    if (first != layers_) return view;
    std::vector<int> own;
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      own.assign(firsts[p].begin() + static_cast<std::ptrdiff_t>(s * chunks),
                 firsts[p].begin() + static_cast<std::ptrdiff_t>((s + 1) * chunks));
      const models::ScheduleQuery query = {static_cast<int>(pipeline.stages.size()),
                                           static_cast<int>(s), pipeline.micro_batches,
                                           draft.virtual_stages};
      const DraftStage& stage = pipeline.stages[s];
      if (!fits(draft, query, stage.groups, stage.expert_parallel, stage.chunks, own,
                weighed(draft, pipeline, s, replicas))) {
        return view;
      }
      double gather = 0;
      if (draft.zero.shards_parameters() && count > 1) {
        std::vector<DeviceId> peers;
        int heaviest = 1;
        for (const DraftPipeline& other : draft.pipelines) {
          const std::size_t q = s * other.stages.size() / pipeline.stages.size();
          peers.push_back(other.stages[q].groups[0].devices[0]);
          heaviest =
              std::max(heaviest, state_weight(draft, other.stages[q].groups[0], input_.cluster));
        }
        const double longest = static_cast<double>(heaviest) * replicas /
                               weighed(draft, pipeline, s, replicas);  // Over the mean shard.
        std::sort(peers.begin(), peers.end());
        peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
        const double bytes = gradient_prefix_.back() / layers_ / input_.job.state_bytes.gradient *
                             input_.job.state_bytes.weight / pipeline.stages[s].groups[0].degree();
        if (peers.size() > 1) gather = 0.5 * bytes * longest * ring(peers).per_byte;
      }
      runs[p].push_back(stage_run(draft, pipeline, s, own, gather));
    }
  }
  // Alone first; then with what the links are busy for others.
  std::vector<double> busy(input_.topology.links().size(), 0);
  for (std::size_t p = 0; p < count; ++p) {
    for (const StageRun& stage : runs[p]) {
      for (std::size_t c = 0; c < chunks; ++c) {
        for (const Hop* hop : {stage.up[c], stage.down[c]}) {
          if (hop == nullptr) continue;
          for (const LinkLoad& load : hop->loads) {
            busy[load.link] += draft.pipelines[p].micro_batches * load.seconds_per_byte;
          }
        }
      }
      if (stage.exchange == nullptr || stage.exchange->seconds == 0) continue;
      for (const LinkLoad& load : stage.exchange->loads) {
        busy[load.link] +=
            draft.pipelines[p].micro_batches * stage.exchanges * load.seconds_per_byte;
      }
    }
  }
  const double link_bound = *std::max_element(busy.begin(), busy.end());
  std::vector<Ends> ends(count);
  double horizon = 0;
  const std::vector<std::vector<std::size_t>> classes = in_step(runs);
  std::vector<Waits> waits(count);
  for (const bool shared : {false, true}) {
    if (shared) {
      horizon = std::max(horizon, link_bound);
      if (horizon == 0) break;
    }
    for (const auto& together : classes) {
      share_links(draft, runs, together, busy, horizon, waits);
      for (const std::size_t p : together) {
        ends[p] = run(draft, draft.pipelines[p], runs[p], waits[p].up, waits[p].down);
      }
    }
    for (const Ends& end : ends) horizon = std::max(horizon, end.end);
  }
  double last = 0;
  for (std::size_t p = 0; p < count; ++p) {
    double longest = 0;
    int which = 0;
    for (std::size_t s = 0; s < runs[p].size(); ++s) {
      const double busy_seconds = runs[p][s].busy();
      if (busy_seconds > longest) {
        longest = busy_seconds;
        which = static_cast<int>(s);
      }
    }
    view.pipelines.push_back(ends[p].end);
    view.periods.push_back(longest);
    view.longest.push_back(which);
    last = std::max(last, ends[p].end);
  }
  view.seconds = std::max(synchronize(draft, firsts, runs, ends), link_bound);
  view.gradients = view.seconds - last;
  return view;
}

}  // namespace orrery::planners
