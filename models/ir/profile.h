/// Measured or published numbers about GPUs and links, with where they come from. The cost models
/// look here first and fall back to the roofline; the run says which entries it used.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/ir/model_shape.h"

namespace orrery::ir {

enum class Purpose : std::uint8_t;  // models/ir/program.h

/// Where a number comes from.
struct Provenance {
  std::string source;  ///< Datasheet, paper and page, or "unverified".
  std::string date;
  std::string machine;
  std::string libraries;
  std::int64_t samples = 0;
  std::optional<double> held_out_error;  ///< Relative, of a fit.
  auto operator<=>(const Provenance&) const = default;
};

enum class Pass { forward, backward, backward_input, backward_weight, optimizer };

/// Time of one block on one GPU, for one micro-batch.
struct BlockTime {
  std::string gpu;
  BlockKind block = BlockKind::transformer;
  std::string model;  ///< Model whose block it is; empty: any block of the same shape.
  Pass pass = Pass::forward;
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  std::int64_t sequence_length = 0;
  Dtype dtype = Dtype::bf16;
  Seconds time;
  Provenance provenance;
};

/// Achieved share of peak as a function of FLOPs per op: linear in log(FLOPs) between points.
struct EfficiencyCurve {
  struct Point {
    Flops work;
    double efficiency = 0;
  };
  std::string gpu;
  Dtype dtype = Dtype::bf16;
  std::vector<Point> points;  ///< Ascending in work.
  Provenance provenance;
};

/// alpha + bytes / bandwidth on a link class, for messages of at least `from_bytes`.
struct LinkSegment {
  std::string link_class;
  Bytes from_bytes;
  Seconds latency;
  BytesPerSecond bandwidth;
  Provenance provenance;
};

/// Measured time of a collective over its closed form.
struct CollectiveFactor {
  std::string collective;
  std::string link_class;
  int ranks = 0;
  double factor = 1;
  Provenance provenance;
};

/// Bytes that a device holds beyond what the model of memory counts.
struct MemoryOverhead {
  std::string gpu;
  Bytes context;
  double fragmentation = 1.0;  ///< Reserved over allocated.
  Provenance provenance;
};

/// Time of a pass that does not depend on how many blocks it covers: intercept of measured times
/// over 1, 2, 4, 8 blocks. Added once to each compute op.
struct PassOverhead {
  std::string gpu;
  Pass pass = Pass::forward;
  Seconds time;
  Provenance provenance;
};

/// What compute loses to communication that it hides: while collectives of its rank run beside them
/// on their own stream, passes and optimizer steps advance at 1 - `share` of their speed, as the
/// collectives' kernels take multiprocessors and memory bandwidth from them.
struct OverlapLoss {
  std::string gpu;
  double share = 0;
  Provenance provenance;
};

/// Of the collectives of one purpose that passes hide (models::Job::hidden_collectives), the share
/// that they do not hide.
struct ExposedCollectives {
  std::string gpu;
  Purpose purpose{};
  double share = 1;
  Provenance provenance;
};

/// What the kernels of one GPU type reach, from which times of blocks follow by the shapes of their
/// kernels (models/cost/kernels.h). Memory bandwidth is the GPU type's.
struct KernelModel {
  /// Matrix products in one number format.
  struct Product {
    Dtype dtype = Dtype::bf16;
    FlopsPerSecond best;  ///< Of the best measured product.
    double share = 0.9;   ///< Of it that a model's products reach, but for tiles and waves.
  };
  std::string gpu;
  int multiprocessors = 0;  ///< Each computes one tile of a product at a time.
  std::vector<Product> products;
  /// Share of the best product in 16 bits that fused attention reaches forward, over long sequences
  /// with heads of 128.
  double attention = 0.7;
  double memory = 0.8;      ///< Share of memory bandwidth that kernels bound by memory reach.
  Seconds gap{3e-6};        ///< Between two kernels of a stream.
  double unaligned = 0.35;  ///< Rate of products whose rows are no multiples of 16 bytes.
  double routing = 3;       ///< Traffic of sorting tokens by expert and back over the least.
  Provenance provenance;
};

/// One way in which a communication library carries a collective inside a link domain, as NCCL's
/// tuner describes it: an algorithm with a protocol takes start + steps x step + volume x bytes /
/// bandwidth. Of the ways of a link class the library takes the fastest for the size and the
/// members (models/cost/collective.h). [NVIDIA/nccl, src/graph/tuning.cc]
struct CollectiveWay {
  /// How many steps it takes over p members, and the bytes that leave each one, of a tensor's: an
  /// all-reduce 2 (p - 1) and 2 (p - 1) / p around a ring, 2 ceil(log2 p) and 2 over trees; summed
  /// in the switch (NVLS) 2 and (p + 1) / p. All-gather and reduce-scatter have half the steps of
  /// an all-reduce; (p - 1) / p leaves or reaches each member. With chunks, an all-reduce between
  /// nodes over trees of nodes, whose members are a chain (`tree`) or sum in the switch.
  enum class Algorithm { ring, tree, nvls, nvls_tree };
  /// LL sends 4 bytes of flags with each 4 of data, LL128 8 with each 120, Simple none, but fences.
  enum class Protocol { ll, ll128, simple };
  std::string link_class;
  std::string collective;  ///< all_reduce, all_gather or reduce_scatter.
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  Seconds start;  ///< Of a call, whatever the members; with chunks, of each.
  Seconds step;   ///< Of each step; with chunks, of each hop of each between nodes.
  /// Largest that a channel sends at once, where a tensor goes between nodes in a pipeline; 0: it
  /// goes inside of a domain, as a whole (models/cost/collective_ways.h).
  Bytes chunk;
  Bytes from_bytes;  ///< Smaller tensors go another way.
  int channels = 1;
  /// Of one channel. All channels together reach at most what the link has without the flags.
  BytesPerSecond channel_bandwidth;
  Provenance provenance;
};

/// Optimizer step: `fixed` + parameters x `per_parameter`. Replaces the memory-bound form.
struct OptimizerTime {
  std::string gpu;
  Dtype dtype = Dtype::bf16;
  Seconds fixed;
  Seconds per_parameter;
  Provenance provenance;
};

/// Writing or reading a checkpoint: `latency` + bytes / `bandwidth`.
struct StorageTime {
  std::string location;  ///< peer, host_memory, nvme, cloud.
  bool write = true;
  Seconds latency;
  BytesPerSecond bandwidth;
  Provenance provenance;
};

/// Duration of a phase of recovery (detect, decide, reinitialize, ... of models/interfaces), as
/// measured on this kind of machine.
struct PhaseTime {
  std::string phase;
  Seconds time;
  Provenance provenance;
};

/// All layers of one model on one GPU type, as Metis's profiler measures them [Metis, ATC
/// 2024, 4.3]. Numbers stay in the units of its files: its search compares nearly equal sums, and
/// another unit would round differently and change plans.
struct LayerProfile {
  std::string gpu;
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  std::vector<double> layer_ms;    ///< Forward and backward, embedding first, head last.
  std::vector<double> layer_mb;    ///< States and activations, in megabytes of 2^20 bytes.
  double forward_backward_ms = 0;  ///< Of all layers together, with what lies between them.
};

/// One model in such a profile.
struct ModelLayers {
  std::string model;
  std::vector<double> parameter_bytes;  ///< Of each layer.
  double optimizer_ms = 0;              ///< One optimizer step.
  double batch_generator_ms = 0;        ///< One micro-batch of input.
  std::vector<LayerProfile> profiles;   ///< The first one's GPU type counts as the reference.
  Provenance provenance;
};

struct Profile {
  std::string name;
  std::vector<BlockTime> block_times;
  std::vector<EfficiencyCurve> efficiencies;
  std::vector<LinkSegment> links;
  std::vector<CollectiveFactor> collectives;
  std::vector<MemoryOverhead> memory;
  std::vector<PassOverhead> pass_overheads;
  std::vector<OverlapLoss> overlap_losses;
  std::vector<ExposedCollectives> exposed_collectives;
  std::vector<OptimizerTime> optimizers;
  std::vector<StorageTime> storage;
  std::vector<PhaseTime> phases;
  std::vector<ModelLayers> model_layers;
  std::vector<KernelModel> kernels;
  std::vector<CollectiveWay> collective_ways;
};

}  // namespace orrery::ir
