/// Prices of ops: the profile's measured time if there is one, else by the shapes of kernels if the
/// profile knows those of the GPU type (models/cost/kernels.h), else roofline. Collectives are not
/// priced here: the simulator turns them into flows.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

class HostShares;  // models/cost/host_step.h

/// How communication and computation of a program hide each other.
struct Overlaps {
  /// By rank what its compute loses while collectives run beside it (ir::OverlapLoss), of its GPU
  /// types the most; empty: nothing.
  IdVector<RankId, double> losses;
  /// By inner set and its collectives, the share that passes do not hide, of the GPU types the
  /// largest; empty: all of everything.
  std::vector<std::vector<double>> exposed;
};

/// Of a block. Groups that share experts meet before and after them: together they take the longest
/// of what is around experts, and the longest of what is inside.
struct BlockParts {
  Seconds all;
  Seconds experts;  ///< Of it between dispatch and combine.
};

/// What one block costs, wherever it is in a plan. Not for Pass::optimizer, which has
/// a function of its own.
struct BlockQuery {
  int gpu_type = 0;  ///< Index into Cluster::gpu_types.
  BlockId block;
  ir::Pass pass = ir::Pass::forward;
  int tensor_parallel = 1;
  int sequence_degree = 1;
  int samples = 1;
  ir::Recompute recompute = ir::Recompute::none;  ///< Adds the repeated forward to backward.
  int expert_parallel = 1;                        ///< Divides the weights of the experts.
  /// ExpertShare of the group: of each block that it holds, and samples of all groups that share
  /// them; 0: they are alike.
  int experts = 0;
  int expert_samples = 0;
  /// Kernels between products see a part of the sequence each. Read where times come from kernels.
  bool sequence_parallel = true;
  auto operator<=>(const BlockQuery&) const = default;
};

/// Roofline: max(FLOPs / (peak x efficiency), bytes / (memory bandwidth x efficiency)) + launch.
/// [Williams et al. 2009] Efficiency of computation: the profile's curve for (GPU, dtype), else
/// GpuType::efficiency.
/// Forward: FLOPs / (tensor_parallel x sequence_degree); bytes: weights / tensor_parallel, read
/// once, and Block::memory_traffic, divided like the FLOPs. Backward is twice the forward;
/// backward_input and backward_weight are one each; recompute adds to backward and backward_input
/// the forward (full) or its share attention_flops / forward_flops (selective) or expert_flops /
/// forward_flops (experts) of layers, not of embedding and head. In MoE blocks the FLOPs of the
/// feed-forward are multiplied by expert_imbalance: experts are computed as one batch that is as
/// long as the busiest one's. Where groups that share experts differ (ExpertShare), the FLOPs of
/// the feed-forward are those of the group's own experts for the tokens of all groups, and what a
/// profile measured for its samples is stretched like the FLOPs.
///
/// A profile's BlockTime replaces the roofline where GPU, block kind, model (or ""), pass, degree,
/// samples, sequence length and dtype are equal and sequence_degree is 1; between two measured
/// micro-batch sizes it is linear; backward may be put together from its two halves and a half be
/// taken from it.
///
/// Kernels (ir::KernelModel) replace the roofline of transformer blocks, embedding and head where
/// they know the number format: their own split of backward, and of what recompute repeats. Without
/// Job::cuda_graphs a block takes at least GpuType::launch for each of its kernels. A step of the
/// optimizer, unless it was measured, is theirs as well.
///
/// Caches by query: not for concurrent use.
class Pricer {
 public:
  /// Keeps references to nothing: copies what it needs.
  Pricer(const Cluster& cluster, const Workload& workload, const Job& job,
         const ir::Profile& profile);
  ~Pricer();
  Pricer(Pricer&&) noexcept;

  Seconds block(const BlockQuery& query) const { return block_parts(query).all; }
  BlockParts block_parts(const BlockQuery& query) const;
  /// Compute part of an op (without inner collectives) on the slowest device of its rank: sum over
  /// the blocks of its segment, of its op group where groups that share experts differ
  /// (BlockParts); for an optimizer step without a segment, over all segments of the rank. The
  /// profile's PassOverhead comes on top, once for each op. Zero for communication ops. With
  /// optimizer_offload the GPU and the CPU step their parts at the same time (host_step()). For
  /// many ops of a program use ProgramPrices.
  Seconds compute(const ir::Program& program, const ir::Op& op) const;
  /// `parameters` that one device updates. Adam and SGD are bound by memory: gradient, master copy
  /// and moments are read, master copy, moments and weight written; plus one launch. A profile's
  /// OptimizerTime for the GPU type and dtype, else its kernels, replace that.
  Seconds optimizer(int gpu_type, double parameters) const;
  /// Time of a state op to or from storage that the profile measured (StorageTime); else nothing.
  std::optional<Seconds> storage(const ir::Op& op) const;
  /// The profile's losses and, of what the job hides (Job::hidden_collectives), its exposed
  /// shares. Without an entry: tensor_parallel 0.5, sequence_parallel 0.05 and zero 0.1, which are
  /// assumed, and expert_parallel 0: "fully hidden" [DeepSeek-V3, 3.2.1].
  Overlaps overlaps(const ir::Program& program) const;
  /// One line for each profile entry that was used, for each block that was priced by kernels, and
  /// for each (GPU, block kind, pass, dtype) that fell back to the roofline, with its efficiency
  /// and where that comes from; for each link class of the profile whether the cluster's topology
  /// takes it; sorted.
  std::vector<std::string> used_entries() const;
  /// Those for ops that were priced since the last call, however often before; without link
  /// classes. For one who remembers prices himself, or what follows from them.
  std::vector<std::string> take_recent_entries() const;

  const Cluster& cluster() const;
  const Workload& workload() const;
  const Job& job() const;

 private:
  friend class ProgramPrices;
  /// `hosts`: of the program's devices; may be null where nothing lives in host memory.
  Seconds compute(const ir::Program& program, const ir::Op& op, const HostShares* hosts) const;

  struct State;
  std::unique_ptr<State> state_;
};

/// Prices of all compute ops of one program, so that each is one look-up. Times of equal (device
/// types, segment, kind, samples) are computed once.
class ProgramPrices {
 public:
  ProgramPrices(const ir::Program& program, const Pricer& pricer);
  /// Prices that were computed elsewhere, one for each op.
  explicit ProgramPrices(std::vector<Seconds> by_op, Overlaps overlaps = {});
  /// As Pricer::compute.
  Seconds compute(OpId op) const { return prices_[index_[op]]; }
  /// As Pricer::storage; nothing for prices that were computed elsewhere.
  std::optional<Seconds> storage(OpId op) const {
    const auto found = storage_.find(op);
    return found == storage_.end() ? std::nullopt : std::optional<Seconds>(found->second);
  }

  /// As Pricer::overlaps, of a rank and of a collective of an inner set.
  double overlap_loss(RankId rank) const {
    return overlaps_.losses.empty() ? 0.0 : overlaps_.losses[rank];
  }
  double exposed(std::int32_t set, std::size_t collective) const {
    if (overlaps_.exposed.empty()) return 1.0;
    return overlaps_.exposed[as_size(set)][collective];
  }

 private:
  IdVector<OpId, std::uint32_t> index_;  ///< Into prices_.
  std::vector<Seconds> prices_;
  std::map<OpId, Seconds> storage_;  ///< Measured state ops.
  Overlaps overlaps_;
};

}  // namespace orrery::models
