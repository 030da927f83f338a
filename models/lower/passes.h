/// The three parts of lowering: compute ops in schedule order, activation transfers between
/// elements, gradient synchronisation and optimizer. Private to models/lower.
#pragma once
#include <cstdint>
#include <vector>

#include "models/lower/draft.h"
#include "models/lower/placement.h"

namespace orrery::models {

struct LowerContext {
  const ir::Plan& plan;
  const Cluster& cluster;
  const Workload& workload;
  const Job& job;
  const Placement& placement;
};

/// Ops of one pipeline's compute streams, to hang transfers and synchronisation on.
class ComputeOps {
 public:
  ComputeOps(const std::vector<Element>& elements, int micro_batches);
  /// First and last op of a pass: a backward pass that overlaps with gradient synchronisation is
  /// cut into several ops.
  struct Pass {
    DraftId first = kNoOp;
    DraftId last = kNoOp;
  };
  Pass& at(bool backward, int element, int micro_batch, int group, int member);

  /// An op of the last backward pass of an element: when it ends, the gradients of its blocks are
  /// complete.
  struct GradientReady {
    int element = 0;
    int group = 0;
    int member = 0;
    BlockId first;
    BlockId last;
    DraftId op = kNoOp;
  };
  std::vector<GradientReady> ready;

 private:
  int micro_batches_;
  std::vector<std::size_t> element_begin_;
  std::vector<std::vector<int>> group_begin_;
  std::vector<int> members_;
  std::vector<Pass> forward_;
  std::vector<Pass> backward_;
};

/// Compute ops of one pipeline, in the order that its schedule gives. `replicas` tells for each
/// element by group position the devices that hold the same slice in all data-parallel replicas
/// (ZeRO-3 gathers).
ComputeOps add_compute(const LowerContext& context, int pipeline, Draft& draft);

/// Sends, receives and broadcasts between consecutive elements of one pipeline.
void add_transfers(const LowerContext& context, int pipeline, ComputeOps& ops, Draft& draft);

/// Gradient synchronisation, optimizer steps, parameter gathers of all pipelines.
void add_synchronisation(const LowerContext& context, const std::vector<ComputeOps>& ops,
                         Draft& draft);

/// All data-parallel copies of a block: which segment and group holds it.
struct BlockReplica {
  int pipeline = 0;
  int element = 0;
  int group = 0;
  auto operator<=>(const BlockReplica&) const = default;
};
std::vector<BlockReplica> replicas_of(const LowerContext& context, BlockId block);

/// Devices at `position` of every replica of the segment, for ZeRO-3; empty when replicas differ in
/// size (their gathers are then lowered as collectives among whole sets, one per replica).
std::vector<std::vector<DeviceId>> zero_peers(const LowerContext& context, BlockId block);

}  // namespace orrery::models
