#include "models/sharding/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/sharding/transformer_blocks.h"
#include "models/sharding/transformer_gradients.h"

namespace orrery::models {
namespace {

using transformer::activation;
using transformer::BlockGroup;
using transformer::BlockGroups;
using transformer::Parameter;
using transformer::refused;

std::optional<GraphProblem> check_model(const ir::ModelShape& model) {
  if (model.layers < 1 || model.heads < 1 || model.kv_heads < 1 || model.vocabulary < 1) {
    return refused("the model is no transformer");
  }
  if (model.experts > 0 && model.top_k < 1) return refused("tokens choose no expert");
  if (model.kv_rank > 0) return refused("attention from latents has no annotations");
  if (model.shared_ffn > 0) return refused("an expert that all tokens take has no annotations");
  if (model.mtp_layers > 0) return refused("predictions of further tokens have no annotations");
  if (model.experts > 0 && (model.dense_layers > 0 || model.moe_interval > 1)) {
    return refused("layers with experts beside layers without have no annotations");
  }
  return std::nullopt;
}

template <class Holds>
bool any(const BlockGroups& groups, const Holds& holds) {
  return std::any_of(groups.begin(), groups.end(), holds);
}

/// A matrix that takes part in the graph, and what its bias needs.
struct Linear {
  std::string name;
  int inputs = 0;
  int outputs = 0;
  int units = 0;     ///< Heads that cannot be cut; 0: any cut.
  bool bias = true;  ///< If the model has biases.
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const ir::ModelShape& model) : model_(model) {}

  Graph take() { return std::move(graph_); }

  /// Tokens to hidden states at rest.
  int embedding(const BlockGroups& groups) {
    layer_ = "embedding";
    const int tokens = graph_.leaf("tokens", of_tokens({}), activation(groups, false));
    const Parameter matrix{name("table"), {model_.vocabulary, model_.hidden}, groups, 0};
    table_ = parameters_.size();
    table_tensor_ = leaf(matrix);
    int x = graph_.apply(name("lookup"), op::Embedding{}, {tokens, table_tensor_});
    x = settle("reduce", x, groups);
    if (model_.positions == 0) return x;
    const int numbers = graph_.leaf("positions", of_tokens({}), activation(groups, true));
    const int learned = leaf({name("position"), {model_.positions, model_.hidden}, groups});
    return add(name("positioned"), x,
               graph_.apply(name("position.lookup"), op::Embedding{}, {numbers, learned}));
  }

  /// Brings the hidden states to the groups of the next layer.
  int receive(int layer, int x, const BlockGroups& from, const BlockGroups& to) {
    layer_ = fmt::format("{}", layer);
    if (activation(from, true) == activation(to, true)) return x;
    return graph_.communicate(name("receive"), x, activation(to, true));
  }

  int transformer_layer(int x, const BlockGroups& groups) {
    x = attention(x, groups);
    return model_.experts > 0 ? experts(x, groups) : feed_forward(x, groups);
  }

  int head(int x, const BlockGroups& groups) {
    layer_ = "head";
    const int input = gather("logits.gather", norm("logits", x, groups), groups);
    const int logits = graph_.apply(name("logits.weight.dot"), op::Dot{}, {input, output(groups)});
    const int whole = graph_.communicate(name("logits.whole"), logits, activation(groups, false));
    const int labels = graph_.leaf("labels", of_tokens({}), activation(groups, false));
    return graph_.apply("loss", op::CrossEntropy{}, {whole, labels});
  }

  /// Behind the forward pass: all gradients, and with ZeRO the way back to the parameters.
  std::optional<GraphProblem> synchronize() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (tied_ && i == *tied_) continue;
      auto problem = tied_ && i == table_
                         ? synchronize_tied(parameters_[i], parameters_[*tied_], graph_)
                         : transformer::synchronize(parameters_[i], graph_);
      if (problem) return problem;
    }
    return std::nullopt;
  }

 private:
  std::string name(const std::string& part) const { return layer_ + "." + part; }

  static SymbolicShape of_tokens(const std::vector<int>& more) {
    SymbolicShape shape{SymbolicSize(kBatchSymbol), SymbolicSize(kSequenceSymbol)};
    for (const int size : more) shape.emplace_back(size);
    return shape;
  }

  int leaf(Parameter parameter) {
    parameters_.push_back(std::move(parameter));
    const Parameter& added = parameters_.back();
    return graph_.leaf(added.name, added.shape, lies(added));
  }

  int add(std::string result, int x, int y, int leading = 0) {
    return graph_.apply(std::move(result), op::Binary{op::Binary::Kind::add, leading}, {x, y});
  }

  int norm(const std::string& part, int x, const BlockGroups& groups) {
    const int gain = leaf({name(part + ".gain"), {model_.hidden}, groups});
    const int normed = graph_.apply(name(part + ".norm"), op::Norm{}, {x, gain});
    if (model_.normalization != ir::Normalization::layer_norm) return normed;
    return add(name(part + ".norm.shifted"), normed,
               leaf({name(part + ".norm.bias"), {model_.hidden}, groups}));
  }

  /// All tokens of the group's samples, or of its part of the sequences, on every member.
  int gather(const std::string& part, int x, const BlockGroups& groups) {
    if (activation(groups, true) == activation(groups, false)) return x;
    return graph_.communicate(name(part), x, activation(groups, false));
  }

  /// A product that divides its outputs among the tensor parts, and their biases with them.
  int column(const Linear& linear, int x, const BlockGroups& groups) {
    const int matrix =
        leaf({name(linear.name), {linear.inputs, linear.outputs}, groups, 1, linear.units});
    const int y = graph_.apply(name(linear.name + ".dot"), op::Dot{}, {x, matrix});
    if (!model_.biases) return y;
    const int bias = leaf({name(linear.name + ".bias"), {linear.outputs}, groups, 0, linear.units});
    return add(name(linear.name + ".biased"), y, bias);
  }

  /// Adds up the summands of a group and leaves the result at rest.
  int settle(const std::string& part, int x, const BlockGroups& groups) {
    const bool sums = any(groups, [](const BlockGroup& group) { return group.tensor_parts > 1; });
    return sums ? graph_.communicate(name(part), x, activation(groups, true)) : x;
  }

  /// A product that contracts the divided dimension. Its bias is added once, to the sum.
  int row(const std::string& part, const Linear& linear, int x, int residual,
          const BlockGroups& groups) {
    const int matrix =
        leaf({name(linear.name), {linear.inputs, linear.outputs}, groups, 0, linear.units});
    int sum = graph_.apply(name(linear.name + ".dot"), op::Dot{}, {x, matrix});
    sum = settle(part + ".reduce", sum, groups);
    if (model_.biases) {
      sum = add(name(linear.name + ".biased"), sum,
                leaf({name(linear.name + ".bias"), {linear.outputs}, groups}));
    }
    return add(name(part + ".residual"), residual, sum);
  }

  /// Queries, keys or values as attention needs them.
  int heads(const std::string& part, int x, int count, bool keys, const BlockGroups& groups) {
    const int width = count * model_.head_dim;
    const op::Reshape split{{{1, 1}, {1, 1}, {1, 2}}, of_tokens({count, model_.head_dim})};
    const int y = graph_.apply(name(part + ".heads"), split,
                               {column({part, model_.hidden, width, count}, x, groups)});
    const bool moves = any(groups, [&](const BlockGroup& group) {
      return group.sequence_parts > 1 &&
             (keys || group.sequence == ir::SequenceParallelism::ulysses);
    });
    if (!moves) return y;
    return graph_.communicate(name(part + ".exchange"), y, transformer::heads(groups, count, keys));
  }

  int attention(int x, const BlockGroups& groups) {
    const int input = gather("attention.gather", norm("attention", x, groups), groups);
    const int q = heads("attention.query", input, model_.heads, false, groups);
    const int k = heads("attention.key", input, model_.kv_heads, true, groups);
    const int v = heads("attention.value", input, model_.kv_heads, true, groups);
    const int width = model_.heads * model_.head_dim;
    int mixed = graph_.apply(name("attention"), op::Attention{}, {q, k, v});
    mixed = graph_.apply(name("attention.merge"),
                         op::Reshape{{{1, 1}, {1, 1}, {2, 1}}, of_tokens({width})}, {mixed});
    const bool moves = any(groups, [](const BlockGroup& group) {
      return group.sequence_parts > 1 && group.sequence == ir::SequenceParallelism::ulysses;
    });
    if (moves) {
      mixed = graph_.communicate(name("attention.exchange"), mixed,
                                 transformer::merged_heads(groups, model_.heads));
    }
    return row("attention", {"attention.out", width, model_.hidden, model_.heads}, mixed, x,
               groups);
  }

  /// The inner activation; `product` applies a matrix of that name to the input.
  template <class Product>
  int inner(const std::string& part, const Product& product) {
    const int up = product(part + ".up");
    if (model_.activation != ir::Activation::swiglu) {
      return graph_.apply(name(part + ".activation"), op::Unary{false}, {up});
    }
    const int gate =
        graph_.apply(name(part + ".activation"), op::Unary{false}, {product(part + ".gate")});
    return graph_.apply(name(part + ".product"), op::Binary{op::Binary::Kind::multiply},
                        {up, gate});
  }

  int feed_forward(int x, const BlockGroups& groups) {
    const int input = gather("mlp.gather", norm("mlp", x, groups), groups);
    const int wide = inner("mlp", [&](const std::string& matrix) {
      return column({matrix, model_.hidden, model_.ffn}, input, groups);
    });
    return row("mlp", {"mlp.down", model_.ffn, model_.hidden}, wide, x, groups);
  }

  /// Tokens go to the holders of their experts and come back; a tensor-parallel group works on all
  /// rows of its experts together.
  int experts(int x, const BlockGroups& groups) {
    const bool exchanges =
        any(groups, [](const BlockGroup& group) { return group.expert_parts > 1; });
    const bool splits = any(groups, [](const BlockGroup& group) {
      return group.splits_tokens() && group.tensor_parts > 1;
    });
    const int input = norm("mlp", x, groups);
    const int router = leaf({name("router"), {model_.hidden, model_.experts}, groups});
    const int scores = graph_.apply(name("router.dot"), op::Dot{}, {input, router});
    int y = graph_.apply(name("experts.rows"), op::Dispatch{SymbolicSize(kRowsSymbol)},
                         {input, scores});
    if (exchanges) {
      y = graph_.communicate(name("experts.dispatch"), y, transformer::rows(groups, true, false));
    }
    if (splits) {
      y = graph_.communicate(name("experts.gather"), y, transformer::rows(groups, true, true));
    }
    const int wide = inner("experts", [&](const std::string& matrix) {
      return expert_product({matrix, model_.hidden, model_.ffn}, y, 2, groups);
    });
    y = expert_product({"experts.down", model_.ffn, model_.hidden}, wide, 1, groups);
    if (exchanges) {
      y = graph_.communicate(name("experts.combine"), y, transformer::rows(groups, false, false));
    }
    y = graph_.apply(name("experts.mixed"), op::Combine{}, {y, scores});
    return add(name("mlp.residual"), x, y);
  }

  /// `axis` of (E, inputs, outputs) is divided among the tensor parts: the outputs, or the inputs,
  /// whose summands are added up before the bias.
  int expert_product(const Linear& linear, int x, Axis axis, const BlockGroups& groups) {
    const int matrix = leaf({name(linear.name),
                             {model_.experts, linear.inputs, linear.outputs},
                             groups,
                             axis,
                             0,
                             true});
    int y = graph_.apply(name(linear.name + ".dot"), op::BatchedDot{}, {x, matrix});
    const bool sums = any(groups, [](const BlockGroup& group) { return group.tensor_parts > 1; });
    if (axis == 1 && sums) {
      y = graph_.communicate(name("experts.reduce"), y, transformer::rows(groups, true, false));
    }
    if (!model_.biases) return y;
    const int bias = leaf({name(linear.name + ".bias"),
                           {model_.experts, linear.outputs},
                           groups,
                           axis == 2 ? 1 : kDuplicate,
                           0,
                           true});
    return add(name(linear.name + ".biased"), y, bias, 1);
  }

  /// The head's matrix (h, V): its own, or the embedding's turned round. Both ends hold a copy of
  /// that one where they lie on different devices.
  int output(const BlockGroups& groups) {
    if (!model_.tied_embeddings) {
      return leaf({name("logits.weight"), {model_.hidden, model_.vocabulary}, groups, 1});
    }
    const Parameter matrix{name("table"), {model_.vocabulary, model_.hidden}, groups, 0};
    int table = table_tensor_;
    if (lies(matrix) != lies(parameters_[table_])) {
      tied_ = parameters_.size();
      table = leaf(matrix);
    }
    return graph_.apply(name("logits.weight"), op::Transpose{{1, 0}}, {table});
  }

  const ir::ModelShape& model_;
  Graph graph_;
  std::string layer_;
  std::vector<Parameter> parameters_;
  std::size_t table_ = 0;  ///< The embedding's matrix, among the parameters.
  int table_tensor_ = -1;
  std::optional<std::size_t> tied_;  ///< The head's copy of it.
};

}  // namespace

std::int64_t rows_per_expert(const ir::ModelShape& model, std::int64_t sequence_length) {
  if (model.experts == 0) return 0;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(sequence_length) * model.top_k *
                                             model.capacity_factor / model.experts));
}

Binding binding_of(const ir::Plan& plan, std::int64_t sequence_length,
                   std::int64_t rows_per_expert) {
  Binding values{{kBatchSymbol, ir::global_batch(plan)}, {kSequenceSymbol, sequence_length}};
  if (rows_per_expert > 0) values.emplace(kRowsSymbol, rows_per_expert);
  return values;
}

std::variant<Graph, GraphProblem> transformer_graph(const ir::ModelShape& model,
                                                    const ir::Plan& plan) {
  if (auto problem = check_model(model)) return *problem;
  auto by_block = transformer::groups_by_block(plan, model);
  if (const auto* problem = std::get_if<GraphProblem>(&by_block)) return *problem;
  const auto& groups = std::get<std::vector<BlockGroups>>(by_block);
  const int blocks = static_cast<int>(groups.size());
  if (blocks != model.layers && blocks != model.layers + 2) {
    return refused(fmt::format("{} blocks for {} layers", blocks, model.layers));
  }
  const std::size_t first = blocks == model.layers ? 0 : 1;
  GraphBuilder builder(model);
  int x = builder.embedding(groups.front());
  const BlockGroups* at = &groups.front();
  for (int layer = 0; layer < model.layers; ++layer) {
    const BlockGroups& here = groups[first + layer];
    x = builder.receive(layer, x, *at, here);
    x = builder.transformer_layer(x, here);
    at = &here;
  }
  x = builder.receive(model.layers, x, *at, groups.back());
  builder.head(x, groups.back());
  if (auto problem = builder.synchronize()) return *problem;
  Graph graph = builder.take();
  if (auto problem = deduce(graph)) return *problem;
  return graph;
}

}  // namespace orrery::models
