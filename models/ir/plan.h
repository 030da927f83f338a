/// The plan: how a job is laid over devices. It says everything that the planners of the five
/// papers say (asymmetric pipelines, tensor-parallel groups of different degree in one stage,
/// uneven layers and batches). Planners write it, models/lower turns it into a Program.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"

namespace orrery::ir {

/// Order of forward and backward passes inside a pipeline.
enum class ScheduleKind {
  gpipe,
  one_f_one_b,
  interleaved_one_f_one_b,
  zero_bubble,
  zb_v,
  dual_pipe,
};

/// How activations cross from one stage to the next when both are tensor-parallel groups.
enum class ActivationTransfer {
  leader_broadcast,  ///< Leader to leader, then broadcast inside the receiver [HexiScale 3.2].
  sliced,            ///< Every member sends a slice, then all-gather inside [Hetu v2 4.3].
};

/// Replicas of a stage's state that are kept for recovery [Bamboo, NSDI 2023].
enum class Redundancy { none, next_stage };

/// When ranks begin the next iteration.
enum class OptimizerStart {
  together,  ///< When all ranks have ended: the optimizer waits for all gradients, for their norm.
  /// Each rank when it has ended itself: a stage steps once its own gradients are synchronized, so
  /// that idle time at the end of an iteration and at the start of the next is one [ReCycle, SOSP
  /// 2024, staggered optimizer].
  staggered,
};

/// How the sequence dimension is split inside a group.
enum class SequenceParallelism {
  none,
  megatron,  ///< Norms split along the sequence over the tensor-parallel group; degree 1.
  ulysses,   ///< All-to-all between heads and sequence over `degree` groups of ranks.
  ring,      ///< Ring attention over `degree` groups of ranks.
};

/// What the backward pass recomputes instead of keeping it.
enum class Recompute {
  none,
  selective,  ///< Attention scores only [Korthikanti et al. 2022].
  full,       ///< Only the input of each block is kept.
  experts,    ///< Feed-forward of experts, with dispatch and combine [Megatron-LM,
              ///< recompute_modules].
};

/// Whether `a` repeats less than `b`.
constexpr bool weaker(Recompute a, Recompute b) {
  constexpr int kRepeats[] = {0, 1, 3, 2};  // In the order of Recompute.
  return kRepeats[static_cast<int>(a)] < kRepeats[static_cast<int>(b)];
}

/// Sequence lengths that a pipeline or a phase takes, in tokens, both ends included.
struct LengthRange {
  std::int64_t shortest = 0;
  std::int64_t longest = 0;
  auto operator<=>(const LengthRange&) const = default;
};

/// Sharding of model states over the data-parallel replicas of a segment [Rajbhandari et al. 2020]:
/// sets of devices that see tokens of their own, so that each part of a sequence counts.
struct Zero {
  int stage = 0;        ///< 0: none; 1: optimizer states; 2: and gradients; 3: and parameters.
  int shard_group = 0;  ///< Replicas per shard group; 0: all replicas share one set of shards.
  bool shards_optimizer() const { return stage >= 1; }
  bool shards_gradients() const { return stage >= 2; }
  bool shards_parameters() const { return stage >= 3; }
  auto operator<=>(const Zero&) const = default;
};

/// Largest Group::state_weight.
inline constexpr int kMostStateWeight = 1'000;

/// One tensor-parallel group. Its devices number tensor_parallel * sequence_degree, in rank order:
/// tensor-parallel neighbors are adjacent.
struct Group {
  std::vector<DeviceId> devices;
  int tensor_parallel = 1;
  SequenceParallelism sequence = SequenceParallelism::none;
  int sequence_degree = 1;
  /// Samples of each micro-batch that this group takes. Groups of a stage take consecutive sample
  /// ranges in their order in the stage, and their samples add up to micro_batch_size.
  int samples = 1;
  /// How much of the model states that ZeRO divides each replica in this group keeps, relative to
  /// the other replicas of its blocks: shards apart from the share of the batch [Cephalo,
  /// arXiv:2411.01075]. All 1: even shards.
  int state_weight = 1;
  /// Experts of each block that this group holds, of those that consecutive groups hold together
  /// (Segment::expert_parallel): fewer or more than the others, apart from its samples [Wu et al.
  /// 2025, HeterMoE, arXiv:2504.03871, asymmetric expert assignment]. 0: as many as each.
  int experts = 0;
  auto operator<=>(const Group&) const = default;
};

/// A run of blocks with one strategy. A stage has several when it is interleaved (one for each
/// virtual stage) or when the strategy changes inside it.
struct Segment {
  BlockId first_block;  ///< Inclusive.
  BlockId last_block;   ///< Inclusive.
  int virtual_stage = 0;
  std::vector<Group> groups;
  Recompute recompute = Recompute::none;
  Zero zero;
  int expert_parallel = 1;  ///< So many consecutive groups hold one copy of the experts together.
  auto operator<=>(const Segment&) const = default;
};

/// All segments of a stage live on the same devices.
struct Stage {
  std::vector<Segment> segments;
  auto operator<=>(const Stage&) const = default;
};

/// Micro-batch `micro_batch` skips stage `stage` of its own pipeline and is computed by the same
/// stage of `to_pipeline` [ReCycle, SOSP 2024].
struct Reroute {
  int stage = 0;
  int micro_batch = 0;
  int to_pipeline = 0;
  auto operator<=>(const Reroute&) const = default;
};

/// One replica of the model: a chain of stages with its own share of the global batch.
struct Pipeline {
  int micro_batches = 1;
  int micro_batch_size = 1;  ///< In samples (sequences).
  std::optional<LengthRange> length_range;
  std::vector<Stage> stages;
  std::vector<Reroute> reroutes;
  auto operator<=>(const Pipeline&) const = default;
};

struct Communication {
  ActivationTransfer activation_transfer = ActivationTransfer::leader_broadcast;
  /// Gradients synchronize while the backward pass still runs, bucket by bucket.
  bool gradient_overlap = false;
  /// ZeRO-1 and 2: updated parameters are gathered in the next iteration, bucket by bucket; the
  /// first forward pass over a bucket waits for it [Megatron-LM --overlap-param-gather]. An
  /// iteration begins with the gathers in place of ending with them.
  bool parameter_overlap = false;
  /// Bytes of gradient that are synchronized together; 0: one bucket for each run of blocks with
  /// the same owners.
  Bytes bucket;
  auto operator<=>(const Communication&) const = default;
};

/// What the planner itself believed; judged apart from what the simulator says.
struct Prediction {
  Seconds iteration_time;
  Bytes peak_memory;  ///< Largest over all devices.
  auto operator<=>(const Prediction&) const = default;
};

struct Plan {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  /// Chunks of blocks per stage; 1 unless interleaved. Under dual_pipe each chunk has the model.
  int virtual_stages = 1;
  Communication communication;
  Redundancy redundancy = Redundancy::none;
  OptimizerStart optimizer = OptimizerStart::together;
  /// Share of each rank's optimizer states (master weights, moments) that lives in host memory; the
  /// CPU steps it [Ren et al., ZeRO-Offload, ATC 2021; Megatron-LM --optimizer-offload-fraction].
  double optimizer_offload = 0;
  std::vector<Pipeline> pipelines;
  std::optional<Prediction> predicted;

  std::string planner;        ///< Who made it, for tables; not interpreted.
  std::string cluster_hash;   ///< Content hash of the cluster file that it was made for.
  std::string workload_hash;  ///< Content hash of the workload that it was made for.
  auto operator<=>(const Plan&) const = default;
};

/// Several plans inside one optimizer step, each for a range of sequence lengths [HotSPa 2024].
struct StepPlan {
  struct Phase {
    Plan plan;
    std::optional<LengthRange> length_range;
  };
  std::vector<Phase> phases;
};

/// Devices of a stage in rank order: groups one after the other. Taken from its first segment.
std::vector<DeviceId> devices_of(const Stage& stage);

/// All devices that the plan uses, each once, ascending.
std::vector<DeviceId> devices_of(const Plan& plan);

/// Devices that compute: devices_of(plan) without those of stages that leave all of their
/// micro-batches to other pipelines and take none (Reroute). A plan runs when these live.
std::vector<DeviceId> working_devices(const Plan& plan);

/// Samples per step: sum over pipelines of micro_batches * micro_batch_size.
std::int64_t global_batch(const Plan& plan);

}  // namespace orrery::ir
