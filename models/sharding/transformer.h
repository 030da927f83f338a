/// The annotated graph of a transformer under a plan: Megatron's column and row splits inside each
/// tensor-parallel group, samples divided among the groups along HDim 0 with the pipelines' shares
/// of the batch, communication operators in the layers, between the stages and for the gradients;
/// sequence parallelism of three kinds, experts, tied embeddings and ZeRO as the plan has them.
/// [Hetu v2, sections 5.1 and 8]
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

/// Rows that an expert has for one sample: tokens that may choose it.
inline constexpr const char* kRowsSymbol = "C";

/// Even share of the tokens times the capacity factor, rounded up; 0 without experts. Parts of a
/// sequence have equal parts of it: where they do not divide it, specialize() refuses.
std::int64_t rows_per_expert(const ir::ModelShape& model, std::int64_t sequence_length);

/// Without `rows_per_expert` for models without experts.
Binding binding_of(const ir::Plan& plan, std::int64_t sequence_length,
                   std::int64_t rows_per_expert = 0);

/// Forward pass and gradient synchronization, deduced. Operators are named "12.attention.out" by
/// layer; the communication ones are
/// - 12.receive, between stages;
/// - 12.mlp.gather and 12.mlp.reduce, around the products of a tensor-parallel group;
/// - 12.attention.query.exchange, between parts of a sequence. Ulysses sends, from tokens split to
///   heads split, and 12.attention.exchange back. Ring groups gather keys and values, not queries,
///   along the sequence: an all-gather here, whose parts travel round the ring while attention
///   works on those that came before [Liu et al. 2023];
/// - 12.experts.dispatch and .combine, between the groups that share experts, from samples split to
///   experts split and back; 12.experts.gather and .reduce around the products;
/// - 12.mlp.down.gradient, .refresh and .whole: transformer_gradients.h.
///
/// A group without Megatron's sequence parallelism all-reduces where one with it reduce-scatters
/// and all-gathers. Biases of products that are summands are added to the sum. Fewer key-value
/// heads than tensor parts lie on several devices, with the queries that share them. Gradients of
/// copies with equal states are one subgroup, which makes their synchronization AR where it would
/// be SplitAR; all gains of groups with Megatron's sequence parallelism are summed inside the group
/// first if groups differ. Tied embeddings: the head uses the embedding's matrix, or on other
/// devices a copy of it, whose gradients are added up with the embedding's once per step.
/// Blocks: layers + 2 with embedding and head at the ends, or the layers alone, when embedding and
/// head are on the stages of the first and the last layer. The logits are gathered before the loss.
/// ZeRO-3 gathers parameters in every pass (Frequency::pass), which makes no pipelines of those
/// that share shards. Problems: blocks that do not fit or are missing; reroutes; groups that share
/// experts and differ in samples, degrees or numbers of experts; holders of a block that differ in
/// ZeRO; heads that do not divide; several ZeRO shard groups, one of which joins copies of
/// different degrees; uneven ZeRO shards; devices with unequal parts of a tied matrix; and whatever
/// deduce() finds.
std::variant<Graph, GraphProblem> transformer_graph(const ir::ModelShape& model,
                                                    const ir::Plan& plan);

}  // namespace orrery::models
