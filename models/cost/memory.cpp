#include "models/cost/memory.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>

#include "models/base/check.h"
#include "models/base/id_vector.h"
#include "models/cost/device_share.h"
#include "models/cost/host_step.h"
#include "models/ir/op_traits.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

/// The profile's, or what is assumed without it.
ir::MemoryOverhead overhead_of(const ir::Profile& profile, const std::string& gpu) {
  for (const ir::MemoryOverhead& overhead : profile.memory) {
    if (overhead.gpu == gpu) return overhead;
  }
  ir::MemoryOverhead assumed;
  assumed.context = kAssumedContext;
  return assumed;
}

/// Kept from forward to backward of one block for all samples of the group, per device.
struct Kept {
  Bytes all;        ///< Without recompute.
  Bytes attention;  ///< Part of `all` that selective recompute does not keep.
  Bytes experts;    ///< Part of it that recomputing experts does not keep.
  Bytes input;      ///< What full recompute keeps.
};

/// `load` of ExpertShare.
Kept kept_by(const Block& block, const ir::Group& group, double load) {
  const bool split_norms = group.sequence == ir::SequenceParallelism::megatron;
  const double tensor = group.tensor_parallel;
  const double per_sample = static_cast<double>(group.samples) / group.sequence_degree;
  const double replicated = split_norms ? per_sample / tensor : per_sample;
  Kept kept{per_sample / tensor * block.kept_split + replicated * block.kept_replicated,
            per_sample / tensor * block.attention_kept,
            per_sample / tensor * block.experts_split + replicated * block.experts_replicated,
            replicated * block.input_bytes};
  if (load != 1) {
    kept.all += (load - 1) * kept.experts;
    kept.experts *= load;
  }
  return kept;
}

struct Counts {
  double whole = 0;
  double sharded = 0;
};

Counts count_parameters(const ir::Segment& segment, const ir::Group& group,
                        const ExpertParts& experts, double replicas, const Workload& workload) {
  Counts counts;
  for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
    const Block& block = workload.block(b);
    counts.whole += device_parameters(block, group.tensor_parallel, experts);
    counts.sharded +=
        sharded_parameters(block, group.tensor_parallel, experts, segment.zero, replicas);
  }
  const double shared =
      tied_parameters(workload, segment.first_block, segment.last_block, group.tensor_parallel);
  counts.whole -= shared;
  counts.sharded -= shared / shard_count(segment.zero, replicas);
  return counts;
}

/// ReplicasOf of the plan.
IdVector<BlockId, int> count_replicas(const ir::Plan& plan, const Workload& workload) {
  IdVector<BlockId, int> replicas(workload.blocks.size(), 0);
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        int count = 0;  // each part of a sequence has tokens of its own
        for (const ir::Group& group : segment.groups) {
          count += group.sequence_degree * group.state_weight;
        }
        for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
          replicas[b] += count;
        }
      }
    }
  }
  return replicas;
}

/// Micro-batches that a stage computes for others and leaves to others.
struct Rerouted {
  int received = 0;
  int skipped = 0;
};

Rerouted count_rerouted(const ir::Plan& plan, std::size_t pipeline, int stage) {
  Rerouted result;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    for (const ir::Reroute& reroute : plan.pipelines[p].reroutes) {
      if (reroute.stage != stage) continue;
      if (p == pipeline) ++result.skipped;
      if (as_size(reroute.to_pipeline) == pipeline) ++result.received;
    }
  }
  return result;
}

/// ChunkKept for one micro-batch by one chunk of a stage.
struct ChunkKept {
  Bytes activations;
  Bytes recomputed;  ///< From the input's to the weights' half of a split backward pass.
};

/// Largest sum that the schedule keeps at once, of `kept` by chunk.
Bytes peak_kept(const ScheduleEntry& schedule, const ScheduleQuery& query,
                const std::vector<ChunkKept>& kept) {
  Bytes held;
  Bytes peak;
  for (const StagePass& pass : schedule.passes(query)) {
    const ChunkKept& own = kept[pass.chunk];
    const ir::OpTraits& makes = ir::traits(pass.kind);
    if (pass.kind == ir::OpKind::forward) held += own.activations;
    if (makes.is_half() && makes.input_gradients) held += own.recomputed;
    peak = std::max(peak, held);
    if (makes.weight_gradients) {
      held -= makes.is_half() ? own.activations + own.recomputed : own.activations;
    }
  }
  return peak;
}

/// What a stage keeps at its peak between passes. A stage that computes rerouted micro-batches may
/// hold all of them in addition to its own.
Bytes kept_by_stage(const ir::Plan& plan, std::size_t pipeline, int stage,
                    const std::vector<ChunkKept>& kept) {
  const ScheduleEntry& schedule = schedule_entry(plan.schedule);
  const ir::Pipeline& chain = plan.pipelines[pipeline];
  const Rerouted rerouted = count_rerouted(plan, pipeline, stage);
  const ScheduleQuery query = {static_cast<int>(chain.stages.size()), stage,
                               chain.micro_batches - rerouted.skipped + rerouted.received,
                               plan.virtual_stages};
  const bool splits = schedule.splits_backward();
  Bytes held;
  if (schedule.uses_chunks) {
    held = peak_kept(schedule, query, kept);
  } else {
    // The closed form of the replay; plans have very many stages.
    held = schedule.in_flight(query) * kept.front().activations;
    if (splits) held += schedule.weights_postponed(query) * kept.front().recomputed;
  }
  Bytes all;
  for (const ChunkKept& own : kept) all += own.activations + (splits ? own.recomputed : Bytes{});
  return std::min(held + rerouted.received * all, query.micro_batches * all);
}

/// The group of the segment that holds the device; `hint` is its position in other segments.
const ir::Group& group_with(const ir::Segment& segment, DeviceId device, std::size_t hint) {
  const auto holds = [&](const ir::Group& group) {
    return std::find(group.devices.begin(), group.devices.end(), device) != group.devices.end();
  };
  if (hint < segment.groups.size() && holds(segment.groups[hint])) return segment.groups[hint];
  const auto place = std::find_if(segment.groups.begin(), segment.groups.end(), holds);
  ORRERY_CHECK(place != segment.groups.end(), "device {} is missing in a segment", device.value);
  return *place;
}

/// Every segment has its groups on the same devices, so that their members need the same.
bool same_groups(const ir::Stage& stage) {
  const std::vector<ir::Group>& groups = stage.segments.front().groups;
  const auto alike = [](const ir::Group& a, const ir::Group& b) { return a.devices == b.devices; };
  return std::all_of(stage.segments.begin(), stage.segments.end(), [&](const ir::Segment& s) {
    return std::equal(s.groups.begin(), s.groups.end(), groups.begin(), groups.end(), alike);
  });
}

/// What redundancy adds to a device.
struct RedundantMemory {
  Bytes states;
  Bytes pass;       ///< During a redundant forward pass.
  Bytes gradients;  ///< During the optimizer step.
};

RedundantMemory redundant_memory(const ir::Stage& stage, std::size_t group, const ir::Stage& next,
                                 const ReplicasOf& replicas_of, const Workload& workload,
                                 const Job& job) {
  RedundantMemory out;
  for (const ir::Segment& segment : next.segments) {
    const ir::Segment copy = redundant_segment(stage, segment);
    const SegmentMemory memory =
        segment_memory(copy, copy.groups[group], replicas_of, workload, job);
    out.states += memory.parameters + memory.optimizer_states;
    out.pass = std::max(out.pass, memory.activations_per_micro_batch + memory.logits);
    out.gradients += memory.gradients;
  }
  return out;
}

/// Peak of a device of group `group` (in the first segment) of a stage, without context.
Bytes stage_peak(const ir::Plan& plan, std::size_t pipeline, std::size_t stage, std::size_t group,
                 DeviceId device, const ReplicasOf& replicas_of, const Workload& workload,
                 const Job& job) {
  const auto& stages = plan.pipelines[pipeline].stages;
  const bool splits = schedule_entry(plan.schedule).splits_backward();
  std::vector<ChunkKept> kept(plan.virtual_stages);
  Bytes held;
  Bytes transient;
  Bytes staging;
  for (const ir::Segment& segment : stages[stage].segments) {
    const SegmentMemory memory =
        segment_memory(segment, group_with(segment, device, group), replicas_of, workload, job);
    held += memory.states() - plan.optimizer_offload * memory.optimizer_states;
    ChunkKept& chunk = kept[segment.virtual_stage];
    chunk.activations += memory.activations_per_micro_batch;
    chunk.recomputed += memory.recomputed_kept;
    transient = std::max(transient, memory.logits + (splits ? Bytes{} : memory.recomputed));
    staging = std::max(staging, memory.communication);
  }
  const Bytes in_flight = kept_by_stage(plan, pipeline, static_cast<int>(stage), kept);
  Bytes at_step;
  if (plan.redundancy == ir::Redundancy::next_stage && stages.size() > 1) {
    const RedundantMemory extra = redundant_memory(
        stages[stage], group, stages[(stage + 1) % stages.size()], replicas_of, workload, job);
    held += extra.states;
    transient = std::max(transient, extra.pass);
    at_step = extra.gradients;
  }
  return held + staging + std::max(in_flight + transient, at_step);
}

/// Peaks of a pipeline's devices without context, in the order of its stages' first segments.
std::vector<Bytes> pipeline_peaks(const ir::Plan& plan, std::size_t pipeline,
                                  const ReplicasOf& replicas_of, const Workload& workload,
                                  const Job& job) {
  std::vector<Bytes> peaks;
  const auto& stages = plan.pipelines[pipeline].stages;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const auto& groups = stages[s].segments.front().groups;
    const bool alike = same_groups(stages[s]);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      Bytes peak;
      for (std::size_t d = 0; d < groups[g].devices.size(); ++d) {
        if (d == 0 || !alike) {
          peak = stage_peak(plan, pipeline, s, g, groups[g].devices[d], replicas_of, workload, job);
        }
        peaks.push_back(peak);
      }
    }
  }
  return peaks;
}

/// What lives in host memory, of the node with the least room for it.
std::optional<ir::HostMemoryUse> host_memory(const ir::Plan& plan, const Cluster& cluster,
                                             const ReplicasOf& replicas_of,
                                             const Workload& workload, const Job& job) {
  const double states = job.state_bytes.master + job.state_bytes.moments;
  if (plan.optimizer_offload <= 0 || states <= 0) return std::nullopt;
  IdVector<NodeId, Bytes> held(cluster.nodes.size());
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        for (const ir::Group& group : segment.groups) {
          const SegmentMemory memory = segment_memory(segment, group, replicas_of, workload, job);
          const double parameters = memory.optimizer_states.value / states;
          for (const DeviceId device : group.devices) {
            held[cluster.device(device).node] +=
                host_bytes(plan.optimizer_offload * parameters, job.state_bytes);
          }
        }
      }
    }
  }
  std::optional<ir::HostMemoryUse> worst;
  for (const NodeId node : held.ids()) {
    const Node& host = cluster.node(node);
    if (held[node].value <= 0) continue;
    if (worst && held[node] / host.host_memory <= worst->need / worst->have) continue;
    worst = {host.name, held[node], host.host_memory};
  }
  return worst;
}

/// The segments differ in their devices at most.
bool same_but_devices(const ir::Segment& a, const ir::Segment& b) {
  const auto alike = [](const ir::Group& x, const ir::Group& y) {
    return x.devices.size() == y.devices.size() && x.tensor_parallel == y.tensor_parallel &&
           x.samples == y.samples && x.sequence == y.sequence &&
           x.sequence_degree == y.sequence_degree && x.state_weight == y.state_weight &&
           x.experts == y.experts;
  };
  return a.first_block == b.first_block && a.last_block == b.last_block &&
         a.virtual_stage == b.virtual_stage && a.recompute == b.recompute && a.zero == b.zero &&
         a.expert_parallel == b.expert_parallel &&
         std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(), alike);
}

/// The pipelines' devices need the same memory, one by one: a large plan has many such. Not looked
/// for where segments of a stage cut its devices differently or micro-batches are rerouted.
bool needs_same(const ir::Plan& plan, std::size_t a, std::size_t b) {
  const ir::Pipeline& one = plan.pipelines[a];
  const ir::Pipeline& other = plan.pipelines[b];
  const auto alike = [](const ir::Stage& x, const ir::Stage& y) {
    return x.segments.size() == 1 && y.segments.size() == 1 &&
           same_but_devices(x.segments.front(), y.segments.front());
  };
  const auto reroutes = [](const ir::Pipeline& chain) { return !chain.reroutes.empty(); };
  return one.micro_batches == other.micro_batches &&
         std::equal(one.stages.begin(), one.stages.end(), other.stages.begin(), other.stages.end(),
                    alike) &&
         std::none_of(plan.pipelines.begin(), plan.pipelines.end(), reroutes);
}

}  // namespace

SegmentMemory segment_memory(const ir::Segment& segment, const ir::Group& group, double replicas,
                             const Workload& workload, const Job& job) {
  return segment_memory(segment, group, expert_share(segment, group), replicas, workload, job);
}

SegmentMemory segment_memory(const ir::Segment& segment, const ir::Group& group,
                             const ExpertShare& experts, double replicas, const Workload& workload,
                             const Job& job) {
  const ExpertParts parts = experts.parts(workload.shape.experts);
  const double load = experts.load(workload.shape.experts, group.samples);
  const Counts counts =
      count_parameters(segment, group, parts, replicas / group.state_weight, workload);
  const auto held = [&](bool sharded) { return sharded ? counts.sharded : counts.whole; };
  const StateBytes& bytes = job.state_bytes;
  SegmentMemory memory;
  memory.parameters = Bytes{held(segment.zero.shards_parameters()) * bytes.weight};
  memory.gradients = Bytes{held(segment.zero.shards_gradients()) * bytes.gradient};
  memory.optimizer_states =
      Bytes{held(segment.zero.shards_optimizer()) * (bytes.master + bytes.moments)};

  Bytes gathered;
  for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
    const Block& block = workload.block(b);
    const Kept kept = kept_by(block, group, load);
    Bytes lacking;
    if (is_recomputed(block.kind)) {
      if (segment.recompute == ir::Recompute::selective) lacking = kept.attention;
      if (segment.recompute == ir::Recompute::experts) lacking = kept.experts;
      if (segment.recompute == ir::Recompute::full) lacking = kept.all - kept.input;
    }
    memory.activations_per_micro_batch += kept.all - lacking;
    memory.recomputed = std::max(memory.recomputed, lacking);
    memory.recomputed_kept += lacking;
    memory.logits = std::max(
        memory.logits, static_cast<double>(group.samples) /
                           (static_cast<double>(group.tensor_parallel) * group.sequence_degree) *
                           block.logits);
    const double parameters = device_parameters(block, group.tensor_parallel, parts);
    gathered = std::max(gathered, Bytes{parameters * bytes.weight});
  }
  if (segment.first_block.value > 0) {
    memory.communication += kept_by(workload.block(segment.first_block), group, load).input;
  }
  if (segment.last_block.value + 1 < workload.size()) {
    memory.communication +=
        kept_by(workload.block(BlockId{segment.last_block.value + 1}), group, load).input;
  }
  if (segment.zero.shards_parameters()) memory.communication += gathered;
  return memory;
}

SegmentMemory segment_memory(const ir::Segment& segment, const ir::Group& group,
                             const ReplicasOf& replicas_of, const Workload& workload,
                             const Job& job) {
  const int first = replicas_of(segment.first_block);
  SegmentMemory total = segment_memory(segment, group, first, workload, job);
  if (!segment.zero.shards_optimizer()) return total;
  bool same = true;
  const auto blocks = ids_from_to(segment.first_block, segment.last_block);
  for (const BlockId block : blocks) same = same && replicas_of(block) == first;
  if (same) return total;
  total.parameters = total.gradients = total.optimizer_states = {};
  ir::Segment part = segment;
  for (const BlockId block : blocks) {
    part.first_block = part.last_block = block;
    const SegmentMemory one = segment_memory(part, group, replicas_of(block), workload, job);
    total.parameters += one.parameters;
    total.gradients += one.gradients;
    total.optimizer_states += one.optimizer_states;
  }
  return total;
}

ir::Segment redundant_segment(const ir::Stage& stage, const ir::Segment& next) {
  ir::Segment copy = next;
  copy.groups = stage.segments.front().groups;
  return copy;
}

int micro_batches_in_flight(ir::ScheduleKind schedule, int stages, int stage, int micro_batches,
                            int virtual_stages) {
  return schedule_entry(schedule).in_flight({stages, stage, micro_batches, virtual_stages});
}

Bytes context_memory(const ir::Profile& profile, const std::string& gpu) {
  return overhead_of(profile, gpu).context;
}

Bytes device_memory(const ir::Profile& profile, const std::string& gpu, Bytes peak) {
  const ir::MemoryOverhead overhead = overhead_of(profile, gpu);
  return overhead.fragmentation * peak + overhead.context;
}

Bytes largest_peak(const ir::Profile& profile, const GpuType& gpu) {
  const ir::MemoryOverhead overhead = overhead_of(profile, gpu.name);
  return (gpu.memory - overhead.context) / overhead.fragmentation;
}

ir::MemoryVerdict check_memory(const ir::Plan& plan, const Cluster& cluster,
                               const Workload& workload, const Job& job,
                               const ir::Profile& profile) {
  const IdVector<BlockId, int> replicas = count_replicas(plan, workload);
  const ReplicasOf replicas_of = [&](BlockId block) { return replicas[block]; };
  std::map<int, ir::MemoryUse> worst;  // by GPU type
  std::vector<Bytes> peaks;            // of the last pipeline, device by device
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    if (p == 0 || !needs_same(plan, p - 1, p)) {
      peaks = pipeline_peaks(plan, p, replicas_of, workload, job);
    }
    const auto& stages = plan.pipelines[p].stages;
    auto peak = peaks.begin();
    for (std::size_t s = 0; s < stages.size(); ++s) {
      for (const ir::Group& group : stages[s].segments.front().groups) {
        int last_type = -1;
        Bytes last_peak;
        for (const DeviceId device : group.devices) {
          const int type = cluster.device(device).gpu_type;
          const Bytes one = *peak++;
          if (type == last_type && one == last_peak) continue;
          last_type = type;
          last_peak = one;
          const GpuType& gpu = cluster.gpu(device);
          const Bytes need = device_memory(profile, gpu.name, one);
          const auto [place, added] = worst.try_emplace(type);
          if (!added && need <= place->second.need) continue;
          place->second = {gpu.name, device,    static_cast<int>(p), static_cast<int>(s),
                           need,     gpu.memory};
        }
      }
    }
  }
  ir::MemoryVerdict verdict;
  for (const auto& [type, use] : worst) verdict.by_gpu_type.push_back(use);
  verdict.host = host_memory(plan, cluster, replicas_of, workload, job);
  return verdict;
}

std::vector<Bytes> peak_memory(const ir::Program& program) {
  using Action = ir::BufferEffect::Action;
  std::vector<Bytes> peaks;
  peaks.reserve(program.ranks.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    Bytes held;
    if (r < program.resident.size()) {
      for (const ir::BufferEffect& effect : program.resident[r]) held += effect.bytes;
    }
    Bytes peak = held;
    const RankId rank{static_cast<std::int32_t>(r)};
    for (const ir::Op& op : program.stream_ops(rank, ir::Stream::compute)) {
      Bytes transient;
      Bytes freed;
      for (const ir::BufferEffect& effect : program.buffers_of(op)) {
        if (effect.action == Action::allocate) held += effect.bytes;
        if (effect.action == Action::transient) transient += effect.bytes;
        if (effect.action == Action::free) freed += effect.bytes;
      }
      peak = std::max(peak, held + transient);
      held -= freed;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace orrery::models
