/// The three parts of lowering: compute ops in schedule order, activation transfers between
/// elements, gradient synchronization and optimizer. Private to models/lower.
#pragma once
#include <cstdint>
#include <vector>

#include "models/lower/block_replicas.h"
#include "models/lower/placement.h"
#include "models/lower/program_builder.h"
#include "models/lower/zero_gathers.h"
#include "models/sharding/activation.h"

namespace orrery::models {

struct LowerContext {
  const ir::Plan& plan;
  const Workload& workload;
  const Job& job;
  const Placement& placement;
  const BlockReplicas& replicas;
  const std::vector<bool>& built;  ///< LowerOptions::built.
  int rounds = 1;                  ///< Of gradient synchronization (schedule/rounds.h).

  /// Parameters of the segment are gathered in front of its first forward passes.
  bool gathers_first(const ir::Segment& segment) const {
    return plan.communication.parameter_overlap && segment.zero.shards_optimizer() &&
           !segment.zero.shards_parameters();
  }
  bool builds_all() const { return built.empty(); }
  bool builds(int pipeline) const { return built.empty() || built[pipeline]; }
};

/// Ops of one pipeline's compute streams, to hang transfers and synchronization on.
class ComputeOps {
 public:
  /// `elements`: chain and detours, as Placement numbers them.
  ComputeOps(const std::vector<const PlacedSegment*>& elements, int micro_batches);
  /// First and last op of a pass: one that overlaps with synchronization of gradients or gathers
  /// of parameters is cut into several ops.
  struct Pass {
    PendingOp first = kNoOp;
    PendingOp last = kNoOp;
  };
  Pass& at(bool backward, int element, int micro_batch, int group, int member);

  /// An op of a pass of an element, and a round of gradient synchronization.
  struct PartOp {
    int element = 0;
    int group = 0;
    int member = 0;
    BlockId first;
    BlockId last;
    PendingOp op = kNoOp;
    int round = 0;
  };
  /// Those of the last pass of each round: when one ends, the round's gradients of its blocks are
  /// complete.
  std::vector<PartOp> ready;
  /// Those of the first pass after a round: they must not add to gradients that are being reduced.
  std::vector<PartOp> next;
  /// With parameter_overlap: those of the first forward pass of each chunk on a stage.
  std::vector<PartOp> opening;

 private:
  std::vector<std::size_t> element_begin_;
  std::vector<std::vector<int>> group_begin_;
  std::vector<int> members_;
  std::vector<Pass> forward_;
  std::vector<Pass> backward_;
};

/// Compute ops of all pipelines, stage by stage in the order that the schedule gives. Passes for
/// micro-batch i of another pipeline follow the own ones for micro-batch i: every stage then keeps
/// the order of one long 1F1B (or other) schedule, so that no two wait for each other.
std::vector<ComputeOps> add_compute(const LowerContext& context, const ZeroGathers& gathers,
                                    ProgramBuilder& builder);

/// Sends, receives, broadcasts and gathers between consecutive elements of one pipeline.
void add_transfers(const LowerContext& context, int pipeline, KnownTransfers& known,
                   ComputeOps& ops, ProgramBuilder& builder);

/// Gradient synchronization, optimizer steps, parameter gathers of all pipelines; `ops` by
/// pipeline. Collectives are added in one global order: gathers that overlap with forward passes,
/// from the first block to the last; then round by round, in a round from the last block to the
/// first. There is no second gradient buffer: after a round the next pass that adds to
/// a gradient waits until the gradient is through; forward passes before it in the schedule go on.
void add_synchronization(const LowerContext& context, const std::vector<ComputeOps>& ops,
                         ProgramBuilder& builder, PartialProgram& partial);

}  // namespace orrery::models
