/// The annotated graph of a decoder-only transformer under a plan: Megatron's column and row splits
/// inside each tensor-parallel group, samples divided among the groups along HDim 0 with the
/// pipelines' shares of the batch, communication operators in the layers, between the stages and
/// for the gradients. [Hetu v2, sections 5.1 and 8]
#pragma once
#include <cstdint>
#include <variant>

#include "models/ir/model_shape.h"
#include "models/ir/plan.h"
#include "models/sharding/graph.h"

namespace orrery::models {

/// Symbols of the graph's shapes; bind them with binding_of().
inline constexpr const char* kBatchSymbol = "B";     ///< Samples of a step, over all pipelines.
inline constexpr const char* kSequenceSymbol = "S";  ///< Tokens of a sample.

Binding binding_of(const ir::Plan& plan, std::int64_t sequence_length);

/// Forward pass and gradient synchronisation, deduced. Operators are named "12.attention.out" by
/// layer; the communication ones "12.receive" (between stages), "12.mlp.gather", "12.mlp.reduce"
/// (inside a group), "12.mlp.down.gradient" and, with ZeRO, "12.mlp.down.refresh".
/// A group without Megatron's sequence parallelism all-reduces where one with it reduce-scatters
/// and all-gathers. Gradients of groups with equal states are one subgroup, which makes their
/// synchronisation AR where it would be SplitAR. ZeRO shards each parameter along the first
/// dimension that no group splits.
/// Blocks: layers + 2 with embedding and head at the ends, or the layers alone, when embedding and
/// head stand with the first and the last. The logits are gathered before the loss.
/// Problems: blocks that do not fit or are missing, experts, tied embeddings, learned positions,
/// biases, reroutes, Ulysses or ring groups, ZeRO with shard groups of its own or on some segments
/// only, and whatever deduce() finds.
std::variant<Graph, GraphProblem> transformer_graph(const ir::ModelShape& model,
                                                    const ir::Plan& plan);

}  // namespace orrery::models
