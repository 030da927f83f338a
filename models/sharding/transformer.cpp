#include "models/sharding/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::models {
namespace {

/// The groups that hold a block, pipeline by pipeline.
struct BlockGroup {
  std::vector<int> devices;
  bool sequence_split = false;
  std::int64_t samples = 0;  ///< Of a step.

  int degree() const { return static_cast<int>(devices.size()); }
};
using BlockGroups = std::vector<BlockGroup>;

GraphProblem refused(std::string reason) { return {"plan", 0, "plan: " + std::move(reason)}; }

std::optional<GraphProblem> check_model(const ir::ModelShape& model) {
  if (model.layers < 1 || model.heads < 1 || model.vocabulary < 1) {
    return refused("the model is no transformer");
  }
  if (model.experts > 0) return refused("experts have no annotations");
  if (model.tied_embeddings) return refused("tied embeddings have no annotations");
  if (model.positions > 0) return refused("learned positions have no annotations");
  if (model.biases) return refused("biases have no annotations");
  return std::nullopt;
}

std::optional<GraphProblem> check_segment(const ir::Segment& segment, const ir::Zero& zero) {
  if (segment.expert_parallel > 1) return refused("expert parallelism has no annotations");
  if (segment.zero != zero) return refused("ZeRO differs between segments");
  for (const ir::Group& group : segment.groups) {
    if (group.sequence_degree != 1 || group.sequence == ir::SequenceParallelism::ulysses ||
        group.sequence == ir::SequenceParallelism::ring) {
      return refused("Ulysses and ring groups have no annotations");
    }
  }
  return std::nullopt;
}

std::optional<GraphProblem> check_plan(const ir::Plan& plan, const ir::Zero& zero) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    if (!pipeline.reroutes.empty()) return refused("reroutes have no annotations");
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (auto problem = check_segment(segment, zero)) return problem;
      }
    }
  }
  if (zero.shard_group != 0) return refused("shard groups of ZeRO have no annotations");
  return std::nullopt;
}

/// Groups of each block. A block that a pipeline lacks leaves its entry short: see complete().
std::vector<BlockGroups> groups_by_block(const ir::Plan& plan, int blocks) {
  std::vector<BlockGroups> all(static_cast<std::size_t>(blocks));
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        for (const ir::Group& group : segment.groups) {
          BlockGroup entry{{}, group.sequence == ir::SequenceParallelism::megatron, 0};
          for (const DeviceId device : group.devices) entry.devices.push_back(device.value);
          entry.samples = std::int64_t{group.samples} * pipeline.micro_batches;
          for (int block = std::max(0, segment.first_block.value);
               block <= std::min(blocks - 1, segment.last_block.value); ++block) {
            all[static_cast<std::size_t>(block)].push_back(entry);
          }
        }
      }
    }
  }
  return all;
}

int count_blocks(const ir::Plan& plan) {
  int last = -1;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        last = std::max(last, segment.last_block.value);
      }
    }
  }
  return last + 1;
}

DistributedStates states(Axis axis, int shards) {
  if (shards == 1) return {};
  return {{axis, shards}};
}

Annotation over(const BlockGroups& groups, Axis hetero_axis) {
  Annotation annotation;
  annotation.hetero_axis = groups.size() == 1 ? kDuplicate : hetero_axis;
  for (const BlockGroup& group : groups) annotation.subgroups.push_back({group.devices, {}});
  return annotation;
}

/// All members of a group hold the same along `axis`, or a part each.
Annotation parameter(const BlockGroups& groups, Axis axis) {
  Annotation annotation = over(groups, kDuplicate);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    annotation.subgroups[i].states = states(axis, groups[i].degree());
  }
  return annotation;
}

/// Samples along HDim 0; tokens split in groups with sequence parallelism if `rest`.
Annotation activation(const BlockGroups& groups, bool at_rest) {
  Annotation annotation = over(groups, 0);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const bool split = at_rest && groups[i].sequence_split;
    annotation.subgroups[i].states = states(split ? 1 : kDuplicate, groups[i].degree());
    if (groups.size() > 1) annotation.shares.push_back(groups[i].samples);
  }
  return annotation;
}

/// The gradient after the backward pass: a summand in each group of samples. That of a gain, which
/// lies whole in a group, is a summand in each member that saw its own tokens.
Annotation gradient(const BlockGroups& groups, Axis axis) {
  Annotation annotation = parameter(groups, axis);
  if (groups.size() > 1) annotation.hetero_axis = kPartial;
  for (std::size_t i = 0; i < groups.size() && axis == kDuplicate; ++i) {
    if (groups[i].sequence_split)
      annotation.subgroups[i].states = states(kPartial, groups[i].degree());
  }
  return annotation;
}

/// Optimizer shards: the first dimension but `axis` is divided among the groups.
Annotation sharded(const BlockGroups& groups, Axis axis) {
  Annotation annotation = parameter(groups, axis);
  if (groups.size() > 1) annotation.hetero_axis = axis == 0 ? 1 : 0;
  return annotation;
}

class Builder {
 public:
  Builder(const ir::ModelShape& model, const ir::Zero& zero) : model_(model), zero_(zero) {}

  Graph take() { return std::move(graph_); }

  /// Tokens to hidden states at rest.
  int embedding(const BlockGroups& groups) {
    layer_ = "embedding";
    const int tokens = graph_.leaf("tokens", rows({}), activation(groups, false));
    const int table = weight("table", model_.vocabulary, model_.hidden, groups, 0);
    return settle("reduce", graph_.apply(name("lookup"), op::Embedding{}, {tokens, table}), groups);
  }

  /// Brings the hidden states to the groups of the next layer.
  int receive(int layer, int x, const BlockGroups& from, const BlockGroups& to) {
    layer_ = fmt::format("{}", layer);
    if (activation(from, true) == activation(to, true)) return x;
    return graph_.communicate(name("receive"), x, activation(to, true));
  }

  int transformer_layer(int x, const BlockGroups& groups) {
    const int query_width = model_.heads * model_.head_dim;
    const int key_width = model_.kv_heads * model_.head_dim;
    int input = norm_and_gather("attention", x, groups);
    const int q = heads("attention.query", input, query_width, model_.heads, groups);
    const int k = heads("attention.key", input, key_width, model_.kv_heads, groups);
    const int v = heads("attention.value", input, key_width, model_.kv_heads, groups);
    int mixed = graph_.apply(name("attention"), op::Attention{}, {q, k, v});
    mixed = graph_.apply(name("attention.merge"),
                         op::Reshape{{{1, 1}, {1, 1}, {2, 1}}, rows({query_width})}, {mixed});
    x = row("attention", "attention.out", mixed, query_width, x, groups);
    input = norm_and_gather("mlp", x, groups);
    int inner = column("mlp.up", input, model_.ffn, groups);
    if (model_.activation == ir::Activation::swiglu) {
      const int gate = graph_.apply(name("mlp.activation"), op::Unary{false},
                                    {column("mlp.gate", input, model_.ffn, groups)});
      inner =
          graph_.apply(name("mlp.product"), op::Binary{op::Binary::Kind::multiply}, {inner, gate});
    } else {
      inner = graph_.apply(name("mlp.activation"), op::Unary{false}, {inner});
    }
    return row("mlp", "mlp.down", inner, model_.ffn, x, groups);
  }

  int head(int x, const BlockGroups& groups) {
    layer_ = "head";
    const int input = norm_and_gather("logits", x, groups);
    int logits = column("logits.weight", input, model_.vocabulary, groups);
    logits = gather("logits.whole", logits, activation(groups, false));
    const int labels = graph_.leaf("labels", rows({}), activation(groups, false));
    return graph_.apply("loss", op::CrossEntropy{}, {logits, labels});
  }

  /// Behind the forward pass: all gradients, and with ZeRO the way back to the parameters.
  void synchronise() {
    for (const Parameter& p : parameters_) {
      if (p.groups.size() == 1 && gradient(p.groups, p.axis) == parameter(p.groups, p.axis))
        continue;
      const bool shards = zero_.stage > 0 && p.groups.size() > 1;
      Annotation from = gradient(p.groups, p.axis);
      Annotation to = shards ? sharded(p.groups, p.axis) : parameter(p.groups, p.axis);
      Annotation back = parameter(p.groups, p.axis);
      const auto one_from = condensed(from);
      const auto one_to = condensed(to);
      const auto one_back = condensed(back);
      // A gain's tokens add up inside each group first, then its shards between the groups.
      const bool in_two_steps = shards && p.axis == kDuplicate;
      if (one_from && one_to && one_back && !in_two_steps) {
        from = *one_from;
        to = *one_to;
        back = *one_back;
      }
      const int summands = graph_.leaf(p.name + ".summands", p.shape, from);
      const int sum = graph_.communicate(p.name + ".gradient", summands, to, Frequency::step);
      if (shards) graph_.communicate(p.name + ".refresh", sum, back, Frequency::step);
    }
  }

 private:
  struct Parameter {
    std::string name;
    SymbolicShape shape;
    BlockGroups groups;
    Axis axis = kDuplicate;
  };

  std::string name(const std::string& part) const { return layer_ + "." + part; }

  static SymbolicShape rows(const std::vector<int>& more) {
    SymbolicShape shape{SymbolicSize(kBatchSymbol), SymbolicSize(kSequenceSymbol)};
    for (const int size : more) shape.emplace_back(size);
    return shape;
  }

  int weight(const std::string& part, int inputs, int outputs, const BlockGroups& groups,
             Axis axis) {
    const SymbolicShape shape{inputs, outputs};
    parameters_.push_back({name(part), shape, groups, axis});
    return graph_.leaf(name(part), shape, parameter(groups, axis));
  }

  int gather(const std::string& part, int x, const Annotation& target) {
    return graph_.communicate(name(part), x, target);
  }

  int norm_and_gather(const std::string& part, int x, const BlockGroups& groups) {
    const SymbolicShape shape{model_.hidden};
    parameters_.push_back({name(part + ".gain"), shape, groups, kDuplicate});
    const int gain = graph_.leaf(name(part + ".gain"), shape, parameter(groups, kDuplicate));
    const int normed = graph_.apply(name(part + ".norm"), op::Norm{}, {x, gain});
    if (activation(groups, true) == activation(groups, false)) return normed;
    return gather(part + ".gather", normed, activation(groups, false));
  }

  int column(const std::string& part, int x, int outputs, const BlockGroups& groups) {
    const int w = weight(part, model_.hidden, outputs, groups, 1);
    return graph_.apply(name(part + ".dot"), op::Dot{}, {x, w});
  }

  int heads(const std::string& part, int x, int width, int count, const BlockGroups& groups) {
    const op::Reshape split{{{1, 1}, {1, 1}, {1, 2}}, rows({count, model_.head_dim})};
    return graph_.apply(name(part + ".heads"), split, {column(part, x, width, groups)});
  }

  /// Adds up the summands of a group and leaves the result at rest.
  int settle(const std::string& part, int x, const BlockGroups& groups) {
    const bool alone = std::all_of(groups.begin(), groups.end(),
                                   [](const BlockGroup& group) { return group.degree() == 1; });
    return alone ? x : graph_.communicate(name(part), x, activation(groups, true));
  }

  int row(const std::string& part, const std::string& matrix, int x, int inputs, int residual,
          const BlockGroups& groups) {
    const int w = weight(matrix, inputs, model_.hidden, groups, 0);
    const int sum =
        settle(part + ".reduce", graph_.apply(name(matrix + ".dot"), op::Dot{}, {x, w}), groups);
    return graph_.apply(name(part + ".residual"), op::Binary{op::Binary::Kind::add},
                        {residual, sum});
  }

  const ir::ModelShape& model_;
  ir::Zero zero_;
  Graph graph_;
  std::string layer_;
  std::vector<Parameter> parameters_;
};

}  // namespace

Binding binding_of(const ir::Plan& plan, std::int64_t sequence_length) {
  return {{kBatchSymbol, ir::global_batch(plan)}, {kSequenceSymbol, sequence_length}};
}

std::variant<Graph, GraphProblem> transformer_graph(const ir::ModelShape& model,
                                                    const ir::Plan& plan) {
  if (auto problem = check_model(model)) return *problem;
  const int blocks = count_blocks(plan);
  if (blocks != model.layers && blocks != model.layers + 2) {
    return refused(fmt::format("{} blocks for {} layers", blocks, model.layers));
  }
  const ir::Zero zero = plan.pipelines.front().stages.front().segments.front().zero;
  if (auto problem = check_plan(plan, zero)) return *problem;
  const auto groups = groups_by_block(plan, blocks);
  for (std::size_t block = 0; block < groups.size(); ++block) {
    std::int64_t samples = 0;
    for (const BlockGroup& group : groups[block]) samples += group.samples;
    if (samples != ir::global_batch(plan)) {
      return refused(
          fmt::format("block {} sees {} of {} samples", block, samples, ir::global_batch(plan)));
    }
  }
  const std::size_t first = blocks == model.layers ? 0 : 1;
  Builder builder(model, zero);
  int x = builder.embedding(groups.front());
  const BlockGroups* at = &groups.front();
  for (int layer = 0; layer < model.layers; ++layer) {
    const BlockGroups& here = groups[first + static_cast<std::size_t>(layer)];
    x = builder.receive(layer, x, *at, here);
    x = builder.transformer_layer(x, here);
    at = &here;
  }
  x = builder.receive(model.layers, x, *at, groups.back());
  builder.head(x, groups.back());
  builder.synchronise();
  Graph graph = builder.take();
  if (auto problem = deduce(graph)) return *problem;
  return graph;
}

}  // namespace orrery::models
