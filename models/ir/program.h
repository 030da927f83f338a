/// The program: what every rank does in one iteration, op by op. The simulator prices and times
/// it, the executor runs it. It carries no durations and decides all communication, so that
/// neither of the two decides anything. Gradient synchronization (Purpose::data_parallel) adds up
/// what passes have added since the last time: the gradient of a step is the sum of such rounds.
/// Laid out for size (16,384 GPUs give about 10^6 ops): all ops are in one array, grouped by rank
/// and stream; what repeats from micro-batch to micro-batch (inner collectives, payload regions,
/// buffer effects) is in a table once and referred to by index.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/model_shape.h"
#include "models/ir/plan.h"

namespace orrery::ir {

enum class OpKind : std::uint8_t {
  forward,
  backward,        ///< Gradients of input and weights.
  backward_input,  ///< Zero-bubble schedules split the backward pass.
  backward_weight,
  send,
  recv,
  collective,
  optimizer_step,
  load_state,
  save_state,
  kernel,  ///< Work of a recorded run on its device: its time is the recorded one.
  host,    ///< Time of a recorded run in which the host keeps the device waiting.
};

/// Compute and collective streams: the ops of a rank run one after the other, in their order in the
/// program. The p2p stream: each op runs as soon as its dependencies have ended (sends to different
/// peers do not wait for each other; where order matters there is a dependency). Streams run
/// concurrently.
enum class Stream : std::uint8_t { compute, p2p, collective };
inline constexpr int kStreams = 3;

/// Where LoadState and SaveState read or write.
enum class Location : std::uint8_t { none, peer, host_memory, nvme, cloud };

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,  ///< From the first rank of the group.
  all_to_all,
};

/// Why a transfer happens; breakdowns are by purpose.
enum class Purpose : std::uint8_t {
  tensor_parallel,
  sequence_parallel,
  expert_parallel,
  pipeline,
  data_parallel,  ///< Gradient synchronization, tied embeddings included.
  zero,           ///< Gathering sharded parameters, scattering sharded gradients.
  state,          ///< Checkpoints, plan switches, gradients for redundant replicas of a stage.
};

enum class TensorKind : std::uint8_t {
  activation,
  activation_gradient,
  parameter,
  gradient,
  master_parameter,
  first_moment,
  second_moment,
};

/// A part of a tensor. `parameter` numbers the parameters of the block in the order of the
/// workload's block. [begin, end) are elements along the dimension that tensor parallelism splits;
/// for activations tokens: sample * sequence_length + token.
struct Region {
  TensorKind tensor = TensorKind::activation;
  BlockId first_block;
  BlockId last_block;
  std::int32_t parameter = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  auto operator<=>(const Region&) const = default;
};

enum class BufferKind : std::uint8_t {
  parameters,
  gradients,
  optimizer_states,
  activations,    ///< Kept from forward to backward, per micro-batch.
  recomputed,     ///< Lives inside one backward op.
  logits,         ///< Lives inside the head's ops.
  communication,  ///< Staging for collectives and point-to-point.
  context,        ///< CUDA context, libraries: never freed.
};

/// What an op allocates and frees. `per_micro_batch` buffers are told apart by the op's
/// micro-batch; transient ones live only while the op runs.
struct BufferEffect {
  enum class Action : std::uint8_t { allocate, free, transient };
  BufferKind kind = BufferKind::activations;
  Action action = Action::allocate;
  bool per_micro_batch = false;
  std::int32_t segment = -1;  ///< Index into Program::segments, to tell chunks apart.
  Bytes bytes;
  auto operator<=>(const BufferEffect&) const = default;
};

/// Collectives inside a Forward or Backward op, blocking its compute: tensor, sequence and expert
/// parallelism, ZeRO-3 gathers. `count` equal ones follow one another. An op (with its op group)
/// drives the edges that leave its own devices; edges from devices of other ops are driven by
/// those.
struct InnerCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Purpose purpose = Purpose::tensor_parallel;
  std::vector<std::int32_t> groups;  ///< Concurrent; indices into Program::groups.
  std::int32_t count = 1;
  Bytes bytes;  ///< Size of the full (gathered, reduced) tensor of one of them.
  /// All-to-all only: bytes from each member to each other, row-major, size() of the group squared.
  std::vector<double> bytes_per_peer;
  auto operator<=>(const InnerCollective&) const = default;
};

/// An ordered set of devices that communicate. Rings follow this order. In a collapsed Program
/// groups name devices that are not ranks, hence devices and not ranks.
struct CommunicationGroup {
  std::vector<DeviceId> devices;
  auto operator<=>(const CommunicationGroup&) const = default;
};

/// Equal collectives that run concurrently, shared by all micro-batches. An expanded Program
/// has one part; a collapsed one has a part for each member of the tensor-parallel groups that its
/// ranks stand for, so that shared links see all the traffic.
struct CollectiveShape {
  struct Part {
    std::int32_t group = -1;  ///< Index into Program::groups.
    Bytes bytes;              ///< Size of the full (gathered, reduced) tensor.
    /// reduce_scatter: what each member of the group keeps; all_gather: what each one brings.
    std::vector<std::vector<Region>> member_regions;
    auto operator<=>(const Part&) const = default;
  };
  CollectiveKind kind = CollectiveKind::all_reduce;
  Purpose purpose = Purpose::data_parallel;
  std::vector<Part> parts;
  std::int32_t regions = -1;  ///< Index into Program::region_sets.
  auto operator<=>(const CollectiveShape&) const = default;
};

/// A set of ops that meet: Program::members[first_member .. first_member + member_count).
struct Rendezvous {
  std::uint32_t first_member = 0;
  std::uint32_t member_count = 0;
  auto operator<=>(const Rendezvous&) const = default;
};

/// One collective among ranks: gradient synchronization, activation broadcasts. It starts when all
/// member ops are ready and ends for all of them together.
struct Collective {
  std::int32_t shape = -1;  ///< Index into Program::collective_shapes.
  Rendezvous members;
  auto operator<=>(const Collective&) const = default;
};

/// One device-to-device path of a send; a send has several when slices travel side by side.
struct Transfer {
  DeviceId source;
  DeviceId destination;
  Bytes bytes;
  auto operator<=>(const Transfer&) const = default;
};

inline constexpr std::int32_t kNone = -1;

struct Op {
  OpKind kind = OpKind::forward;
  Stream stream = Stream::compute;
  Location location = Location::none;
  Purpose purpose = Purpose::pipeline;
  RankId rank;
  MicroBatchId micro_batch;
  /// Index into Program::segments: which blocks. A transfer of a micro-batch that another pipeline
  /// computes has a segment of the pipeline that owns the micro-batch; other transfers belong to
  /// the pipeline of their rank.
  std::int32_t segment = kNone;
  std::int32_t samples = 0;      ///< Samples of the micro-batch that this rank's group computes.
  std::int32_t inner = kNone;    ///< Index into Program::inner_sets.
  std::int32_t buffers = kNone;  ///< Index into Program::buffer_sets.
  std::int32_t regions = kNone;  ///< Index into Program::region_sets: what moves.
  /// send, recv: the opposite op's index. collective: index into Program::collectives. forward and
  /// backward with inner collectives that several ranks run: index into Program::op_groups.
  std::int32_t match = kNone;
  std::int32_t transfers = kNone;  ///< Index into Program::transfer_sets: send, recv, state ops.
  Bytes bytes;                     ///< Sum over its transfers, or size of its collective's parts.
  auto operator<=>(const Op&) const = default;
};

/// A participant. Expanded Programs have one for each device; collapsed ones have one for each
/// group, which represents all of the group's devices: they do the same.
struct Rank {
  DeviceId device;
  std::vector<DeviceId> devices;  ///< All that it represents, `device` first.
  std::int32_t pipeline = 0;
  std::int32_t stage = 0;
  std::int32_t group = 0;            ///< Position in the stage.
  std::int32_t position = 0;         ///< Position in the group; 0 in a collapsed Program.
  std::int32_t tensor_parallel = 1;  ///< Degree of its first segment.
  auto operator<=>(const Rank&) const = default;
};

/// The blocks that one compute op covers, and how.
struct SegmentInfo {
  std::int32_t pipeline = 0;
  std::int32_t stage = 0;
  std::int32_t virtual_stage = 0;
  std::int32_t group = 0;         ///< Position of the group in the stage.
  std::int32_t first_sample = 0;  ///< Of each micro-batch; the group takes `samples` from here.
  std::int32_t samples = 0;
  BlockId first_block;
  BlockId last_block;
  std::int32_t tensor_parallel = 1;
  std::int32_t sequence_degree = 1;
  SequenceParallelism sequence = SequenceParallelism::none;
  std::int32_t expert_parallel = 1;
  Recompute recompute = Recompute::none;
  Zero zero;
  std::int32_t state_weight = 1;  ///< Group::state_weight.
  /// Of each block that the group holds, if groups that share experts hold unlike numbers of them.
  std::int32_t experts = 0;
  /// Of each micro-batch, whose tokens come to the experts: of all groups that share them. 0: they
  /// are alike.
  std::int32_t expert_samples = 0;
  /// The blocks are the next stage's: these ranks keep a replica of their states and run forward
  /// passes over them, whose outputs nobody reads (Redundancy::next_stage). `stage` and `group` are
  /// those of the ranks that keep the replica.
  bool redundant = false;
  auto operator<=>(const SegmentInfo&) const = default;
};

/// The share of a pipeline in the global batch: samples first_sample + m * micro_batch_size + i for
/// micro-batch m.
struct PipelineInfo {
  std::int64_t first_sample = 0;
  std::int32_t micro_batches = 0;
  std::int32_t micro_batch_size = 0;
  auto operator<=>(const PipelineInfo&) const = default;
};

/// Shapes and numerics: what the executor needs to build the model.
struct ProgramHeader {
  int schema = 1;
  ModelShape model;
  std::vector<BlockKind> blocks;
  std::int64_t sequence_length = 0;
  std::int64_t global_batch = 0;
  Dtype dtype = Dtype::bf16;
  Optimizer optimizer = Optimizer::adam;
  std::uint64_t seed = 0;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  OptimizerStart optimizer_start = OptimizerStart::together;
  double optimizer_offload = 0;
  bool collapsed = false;
  std::string plan_hash;
  std::string cluster_hash;
  std::string workload_hash;
};

struct Program {
  ProgramHeader header;
  std::vector<PipelineInfo> pipelines;
  std::vector<Rank> ranks;
  std::vector<SegmentInfo> segments;
  std::vector<CommunicationGroup> groups;
  std::vector<CollectiveShape> collective_shapes;
  std::vector<Collective> collectives;
  /// Ops that run their inner collectives together, in group order: of a tensor-parallel group in
  /// an expanded Program, and of the groups that hold experts together in either.
  std::vector<Rendezvous> op_groups;
  std::vector<OpId> members;  ///< Of collectives and op groups.
  std::vector<std::vector<Transfer>> transfer_sets;
  std::vector<std::vector<InnerCollective>> inner_sets;
  std::vector<std::vector<BufferEffect>> buffer_sets;
  std::vector<std::vector<Region>> region_sets;
  /// Buffers that exist before the first op, for each rank: parameters, optimizer states, context.
  std::vector<std::vector<BufferEffect>> resident;

  /// Grouped by rank, inside a rank by stream, inside a stream in the order of execution.
  std::vector<Op> ops;
  /// ops of (rank, stream) are [stream_begin[rank * kStreams + stream], stream_begin[... + 1]).
  std::vector<std::uint32_t> stream_begin;
  /// Ops that must end before op i starts, beyond the order of its stream. A send and its recv are
  /// one transfer: it starts when both may start, and ends for both.
  /// dependencies[dependency_begin[i] .. dependency_begin[i + 1]).
  std::vector<std::uint32_t> dependency_begin;
  std::vector<OpId> dependencies;

  std::span<const Op> stream_ops(RankId rank, Stream stream) const;
  std::span<const OpId> dependencies_of(OpId op) const;
  std::span<const OpId> members_of(Rendezvous rendezvous) const;
  const Op& op(OpId id) const { return ops[id.index()]; }
  const CommunicationGroup& group(std::int32_t index) const { return entry(groups, index); }
  const PipelineInfo& pipeline(std::int32_t index) const { return entry(pipelines, index); }
  const Rank& rank(RankId id) const { return ranks[id.index()]; }
  const Rank& rank_of(const Op& op) const { return ranks[op.rank.index()]; }
  /// The op must have a segment.
  const SegmentInfo& segment_of(const Op& op) const { return entry(segments, op.segment); }
  /// The op must be a collective.
  const Collective& collective_of(const Op& op) const { return entry(collectives, op.match); }
  const CollectiveShape& shape_of(const Collective& collective) const {
    return entry(collective_shapes, collective.shape);
  }
  /// Empty where the op has none.
  std::span<const InnerCollective> inner_of(const Op& op) const {
    return set(inner_sets, op.inner);
  }
  std::span<const BufferEffect> buffers_of(const Op& op) const {
    return set(buffer_sets, op.buffers);
  }
  std::span<const Region> regions_of(const Op& op) const { return set(region_sets, op.regions); }
  std::span<const Transfer> transfers_of(const Op& op) const {
    return set(transfer_sets, op.transfers);
  }

 private:
  template <class T>
  static const T& entry(const std::vector<T>& table, std::int32_t index) {
    return table[index];
  }
  template <class T>
  static std::span<const T> set(const std::vector<std::vector<T>>& sets, std::int32_t index) {
    if (index == kNone) return {};
    return entry(sets, index);
  }
};

/// Empty if the program is well formed; else the first violation in words: ranges, matches that
/// are mutual, collectives whose members agree, dependencies without a cycle, buffers freed once.
std::string find_defect(const Program& program);

}  // namespace orrery::ir
