/// What one rank needs to know of a Program, worked out once: its ops, who waits for whom, tags and
/// groups as ranks, which units its optimizer updates. Private to executor/engine.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "executor/model/shard.h"
#include "executor/net/ring.h"
#include "executor/net/transport.h"
#include "models/base/ids.h"
#include "models/ir/program.h"

namespace orrery::executor {

/// The activation that leaves a block, or the gradient with respect to it, of a micro-batch.
struct ActivationKey {
  std::int32_t pipeline = 0;
  std::int32_t micro_batch = 0;
  std::int32_t block = 0;
  bool gradient = false;
  auto operator<=>(const ActivationKey&) const = default;
};

/// Ranks that a pass shares tensors with, and those that hold the other experts of its layers.
struct PassGroups {
  RingGroup tensor;
  RingGroup experts;
  std::vector<ExpertMember> expert_members = {};  ///< As ModelShard::HeldBlock's.
};

class RankView {
 public:
  RankView(const ir::Program& program, RankId rank);

  const ir::Program& program() const { return program_; }
  RankId rank() const { return rank_; }

  /// Ops of this rank, in the order of the Program; local numbers are positions in it.
  std::span<const ir::Op> ops() const;
  OpId global(std::size_t local) const { return {first_ + static_cast<std::int32_t>(local)}; }
  const ir::Op& op(std::size_t local) const { return ops()[local]; }
  /// Local numbers of the ops of a stream, in order.
  std::vector<std::size_t> stream(ir::Stream stream) const;
  /// Ops of this rank that op `local` waits for, and those that wait for it. What gradients of
  /// experts wait for on other ranks has ended when the rank's own passes have: they are one with
  /// those of the others.
  int dependency_count(std::size_t local) const { return counts_[local]; }
  const std::vector<std::size_t>& dependents(std::size_t local) const { return dependents_[local]; }

  const ir::SegmentInfo& segment(const ir::Op& op) const;
  const std::vector<ir::Region>& regions(std::int32_t set) const;
  /// Tag number that all who take part in the op agree on.
  std::uint64_t tag_number(std::size_t local) const;
  /// The other side of a send or recv.
  int peer(const ir::Op& op) const;
  /// The shape of a collective, and its group with the position of this rank.
  const ir::CollectiveShape& shape(const ir::Op& op) const;
  RingGroup ring(const ir::CommunicationGroup& group) const;
  /// Groups of a compute op, also where the op exchanges nothing and has no op group.
  PassGroups groups(const ir::Op& op) const;

  /// Activations that the op reads or writes.
  std::vector<ActivationKey> touches(const ir::Op& op) const;
  /// Blocks of this rank with degree, position, and the units that other ranks update.
  std::vector<ModelShard::HeldBlock> held_blocks() const;

  /// ZeRO-3: an all-gather of weights inside a shard group. Members bring what they keep of the
  /// gradients' reduce-scatter.
  struct ShardGather {
    RingGroup group;
    std::uint64_t tag = 0;  ///< Of that reduce-scatter: members agree on it.
    std::vector<std::vector<ir::Region>> members;
  };
  /// What brings the weights of a block together; empty: they are whole.
  const std::vector<ShardGather>& gathers(BlockId block) const;
  /// Parameters of such a block that the first member of its tensor-parallel group keeps for all of
  /// it: those that all members hold whole, with equal gradients.
  const std::vector<int>& kept_by_first(BlockId block) const;

 private:
  const ir::Program& program_;
  RankId rank_;
  std::int32_t first_ = 0;
  std::size_t count_ = 0;
  std::vector<int> counts_;
  std::vector<std::vector<std::size_t>> dependents_;
  std::map<DeviceId, int> rank_of_;
  /// By pipeline, stage, block: the groups of this rank, from ops that have an op group.
  std::map<std::tuple<std::int32_t, std::int32_t, BlockId>, PassGroups> op_groups_;
  /// Of passes that exchange something and have no op group, by local number: what the members
  /// agree on.
  std::map<std::size_t, std::uint64_t> pass_tags_;
  std::map<std::pair<BlockId, std::int32_t>, std::vector<UnitRange>> arriving_;
  std::map<BlockId, std::vector<ShardGather>> gathers_;
  std::map<BlockId, std::vector<int>> kept_by_first_;

  PassGroups groups_of_members(const ir::Op& op) const;
  void find_pass_tags();
  void find_kept_by_first();
  void find_gathers();
  bool has_sequence(const ir::SegmentInfo& info) const;
};

}  // namespace orrery::executor
