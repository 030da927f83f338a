/// Data-parallel copies of blocks: who holds a block, the annotation of each of its parameters on
/// the holders, and the steps that add up its gradients and spread its parameters. For models/lower
/// and models/reshard.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "models/base/id_vector.h"
#include "models/lower/placement.h"
#include "models/sharding/annotation.h"
#include "models/sharding/gradient.h"
#include "models/sharding/layout.h"
#include "models/sharding/resolve.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// A group that holds a block.
struct BlockReplica {
  int pipeline = 0;
  int element = 0;  ///< As Placement numbers them.
  int group = 0;
  auto operator<=>(const BlockReplica&) const = default;
};

/// reduce: gradients are added up. gather: with ZeRO, updated parameters reach all holders.
enum class SyncPhase { reduce, gather };

/// One communication of one parameter.
struct ParameterStep {
  GroupStep step;  ///< Owners are device ids.
  int order = 0;   ///< Steps of equal order do not read what one of them writes.
  /// Of the parameter that its slices are. With uneven shards the ring is as slow as if each member
  /// had the longest: as much more.
  double share = 0;
};

class BlockReplicas {
 public:
  /// Keeps references.
  BlockReplicas(const Workload& workload, const Placement& placement);

  const std::vector<BlockReplica>& of(BlockId block) const { return replicas_[block]; }
  /// Groups that keep a redundant copy (Redundancy::next_stage); they take no part in steps().
  const std::vector<BlockReplica>& shadows(BlockId block) const { return shadows_[block]; }
  /// Sets of devices that see tokens of their own: each group, and in it each part of the sequence.
  /// They are the replicas that ZeRO counts.
  int count(BlockId block) const { return counts_[block]; }
  /// Sum of their Group::state_weight; count() where shards are even.
  int weight(BlockId block) const { return weights_[block]; }
  const ir::Zero& zero(BlockId block) const;
  /// Equal replicas and shadows and equal lists of parameters: the blocks synchronize as one.
  bool alike(BlockId a, BlockId b) const;
  /// The same devices hold both in the same way: parameters of equal split_length and expert that
  /// are not tied have equal steps().
  bool same_holders(BlockId a, BlockId b) const;

  /// Embedding and head share one matrix [Shoeybi et al. 2019, section 3].
  bool tied() const;
  /// Whether the parameter is that matrix: the largest of the first and of the last block.
  bool is_tied(BlockId block, std::size_t parameter) const;

  /// Steps of one parameter of the block, in order. For the tied matrix they are among the holders
  /// of both ends, whichever end is asked for. Without ZeRO nothing is gathered. Untied parameters
  /// of one block with equal split_length and expert have equal steps.
  std::vector<ParameterStep> steps(BlockId block, std::size_t parameter, SyncPhase phase,
                                   ShortSlices short_slices = ShortSlices::broadcast) const;

  /// What brings the block's gradients, once steps() have added them up, to the pipeline's shadows:
  /// sends of order 0 from the stage of the same pipeline that they copy. Parameters with equal
  /// split_length and expert have equal steps, the tied matrix apart.
  std::vector<ParameterStep> shadow_steps(BlockId block, std::size_t parameter, int pipeline) const;

  /// What each device holds of one parameter of the block, as full values, shadows included: the
  /// parameter itself, or its share of a state that ZeRO divides (`sharded`). The tied matrix lies
  /// on the holders of both ends, whichever end is asked for. The elements are the units of
  /// split_length, expert by expert for experts; 0 to 1 without a split. No device has an element
  /// twice for one device.
  Layout holdings(BlockId block, std::size_t parameter, bool sharded) const;

 private:
  struct Sheet;
  const ir::Segment& segment_of(const BlockReplica& at) const;
  const ir::Group& group_of(const BlockReplica& at) const;
  std::vector<Sheet> sheets(BlockId block, std::size_t parameter) const;
  std::map<int, int> weights_of(BlockId block, std::size_t parameter) const;
  std::vector<ParameterStep> steps_of_equal_groups(BlockId block, const Parameter& parameter) const;
  Layout plain_holdings(BlockId block, const Parameter& parameter) const;
  std::vector<Piece> pieces(BlockId block, std::size_t parameter,
                            const std::vector<BlockReplica>& at) const;
  std::vector<Piece> other_end(BlockId block, std::size_t parameter, const Layout& keepers) const;
  void add_shadow_pieces(BlockId block, std::size_t parameter, Layout& layout) const;
  std::vector<Sheet> tied_sheets(std::int64_t length) const;
  Gradients gradients(const Parameter& parameter, const std::vector<BlockReplica>& at) const;
  Annotation split_copies(std::int64_t length, const std::vector<BlockReplica>& at) const;
  Annotation whole_copies(const std::vector<BlockReplica>& at) const;
  Annotation expert_copies(bool is_split, const std::vector<BlockReplica>& at) const;
  bool has_uneven_experts(BlockId block) const;
  Slice experts_of(const BlockReplica& at) const;
  std::vector<Sheet> expert_sheets(const Parameter& parameter,
                                   const std::vector<BlockReplica>& at) const;

  const Workload& workload_;
  const Placement& placement_;
  IdVector<BlockId, std::vector<BlockReplica>> replicas_;
  IdVector<BlockId, std::vector<BlockReplica>> shadows_;
  IdVector<BlockId, int> counts_;
  IdVector<BlockId, int> weights_;
};

}  // namespace orrery::models
