/// Where the tensors of a transformer's block lie: the groups that hold it, as a plan says, and the
/// annotations of activations, of the rows of experts and of parameters on them. Private to this
/// folder. All devices of a group are numbered on one grid, row-major over tensor parts, parts of
/// the sequence and parts of the experts; each tensor has an axis for each of the three levels.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/ir/model_shape.h"
#include "models/ir/plan.h"
#include "models/sharding/annotation.h"
#include "models/sharding/graph.h"

namespace orrery::models::transformer {

/// A group of the plan; or as many consecutive ones as hold one copy of the experts together.
struct BlockGroup {
  std::vector<int> devices;  ///< As many as the product of the parts.
  int tensor_parts = 1;
  int sequence_parts = 1;  ///< Of Ulysses or ring sequence parallelism.
  int expert_parts = 1;    ///< Groups of the plan; each takes its part of the samples.
  ir::SequenceParallelism sequence = ir::SequenceParallelism::none;
  std::int64_t samples = 0;  ///< Of a step, over all micro-batches.
  ir::Zero zero;

  int device(int tensor, int part, int expert) const;
  /// Each member of the tensor-parallel group has tokens of its own outside of products.
  bool splits_tokens() const { return sequence == ir::SequenceParallelism::megatron; }
};
/// Those of all pipelines that hold a block, pipeline by pipeline.
using BlockGroups = std::vector<BlockGroup>;

/// "plan: " and the reason.
GraphProblem refused(const std::string& reason);

/// Groups of each block. Problems: what transformer_graph() refuses in a plan.
std::variant<std::vector<BlockGroups>, GraphProblem> groups_by_block(const ir::Plan& plan,
                                                                     const ir::ModelShape& model);

/// Appends `shards` along `axis`, to the last entry if it has the same axis.
void append(DistributedStates& states, Axis axis, int shards);

/// (B, S, ...) between products: Megatron's sequence parallelism splits the tokens here (`at_rest`)
/// and not as their input. Samples along HDim 0, by the groups' shares.
Annotation activation(const BlockGroups& groups, bool at_rest);

/// (B, S, n, d) as attention needs it, n = `count`: Ulysses has whole sequences and divides the
/// heads further; keys and values are of whole sequences in ring groups too. Fewer key-value heads
/// than devices lie on several.
Annotation heads(const BlockGroups& groups, int count, bool keys);

/// (B, S, width) of `count` heads before and after attention: tokens split where the group splits
/// sequences, heads over the tensor parts.
Annotation merged_heads(const BlockGroups& groups, int count);

/// (E, B, C, h): rows of experts. With the experts that compute them, or still (again) with the
/// tokens' owners; `whole`: each member of a tensor-parallel group has all of the group's rows.
Annotation rows(const BlockGroups& groups, bool with_experts, bool whole);

/// A parameter of a block.
struct Parameter {
  std::string name;
  SymbolicShape shape;  ///< Numbers.
  BlockGroups groups;
  Axis axis = kDuplicate;  ///< That tensor parallelism splits; kDuplicate: whole on each member.
  int units = 0;           ///< Along `axis`, where they cannot be cut: heads; 0: any cut.
  bool expert = false;     ///< Dimension 0 is the experts; expert parallelism divides it.
};

/// While the passes run.
Annotation lies(const Parameter& parameter);

/// The copies of a parameter whose gradients differ, each with its states: sets of devices that see
/// the same tokens; those of one key-value head, as their queries differ. A gradient that each
/// member has of tokens of its own is Partial in the states.
std::vector<Subgroup> copies(const Parameter& parameter);

}  // namespace orrery::models::transformer
