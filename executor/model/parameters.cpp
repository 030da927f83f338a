#include "executor/model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "models/base/check.h"
#include "models/base/rng.h"

namespace orrery::executor {
namespace {

constexpr double kInitialDeviation = 0.02;

/// A parameter list as models/spec/workload.cpp makes it, in its order.
class ParameterList {
 public:
  explicit ParameterList(const ir::ModelShape& shape) : s_(shape) {}

  ParameterPair norm(const std::string& name) {
    ParameterPair out = {add({name + ".gain", 0, s_.hidden})};
    if (s_.normalization == ir::Normalization::layer_norm) {
      out.bias = add({name + ".bias", 0, s_.hidden});
    }
    return out;
  }
  /// The matrix of all experts: `units` of each, and their biases as for linear().
  ParameterPair expert_linear(const std::string& name, std::int64_t units, std::int64_t unit,
                              std::int64_t bias_unit) {
    const std::int64_t experts = s_.experts;
    ParameterPair out = {add({name, experts * units, unit, s_.experts})};
    if (!s_.biases) return out;
    const std::string bias = name + ".bias";
    out.bias = add(bias_unit > 0 ? ParameterInfo{bias, experts * units, bias_unit, s_.experts}
                                 : ParameterInfo{bias, experts, s_.hidden, s_.experts});
    return out;
  }
  /// A matrix whose units make one bias element each `bias_unit` times; 0: a bias of the whole
  /// output, which every member of a tensor-parallel group holds.
  ParameterPair linear(const std::string& name, std::int64_t units, std::int64_t unit,
                       std::int64_t bias_unit) {
    ParameterPair out = {add({name, units, unit})};
    if (!s_.biases) return out;
    const std::string bias = name + ".bias";
    out.bias = add(bias_unit > 0 ? ParameterInfo{bias, units, bias_unit}
                                 : ParameterInfo{bias, 0, s_.hidden});
    return out;
  }
  std::size_t add(ParameterInfo info) {
    all_.push_back(std::move(info));
    return all_.size() - 1;
  }
  std::vector<ParameterInfo> take() { return std::move(all_); }

 private:
  const ir::ModelShape& s_;
  std::vector<ParameterInfo> all_;
};

TransformerParameters add_transformer(const ir::ModelShape& s, ParameterList& list) {
  const std::int64_t hidden = s.hidden;
  const std::int64_t head = hidden * s.head_dim;
  TransformerParameters out;
  out.norm1 = list.norm("norm1");
  out.query = list.linear("attention.query", s.heads, head, s.head_dim);
  out.key = list.linear("attention.key", s.kv_heads, head, s.head_dim);
  out.value = list.linear("attention.value", s.kv_heads, head, s.head_dim);
  out.output = list.linear("attention.output", s.heads, head, 0);
  out.norm2 = list.norm("norm2");
  if (s.experts > 0) {
    out.router.main = list.add({"router", 0, hidden * s.experts});
    if (s.activation == ir::Activation::swiglu) {
      out.gate = list.expert_linear("experts.gate", s.ffn, hidden, 1);
    }
    out.up = list.expert_linear("experts.up", s.ffn, hidden, 1);
    out.down = list.expert_linear("experts.down", s.ffn, hidden, 0);
    return out;
  }
  if (s.activation == ir::Activation::swiglu) out.gate = list.linear("mlp.gate", s.ffn, hidden, 1);
  out.up = list.linear("mlp.up", s.ffn, hidden, 1);
  out.down = list.linear("mlp.down", s.ffn, hidden, 0);
  return out;
}

HeadParameters add_head(const ir::ModelShape& s, ParameterList& list) {
  HeadParameters out;
  out.norm = list.norm("norm");
  out.output = list.add({"output", s.vocabulary, s.hidden});
  return out;
}

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

bool writes_to_residual(const std::string& name) {
  return name == "attention.output" || name == "mlp.down" || name == "experts.down";
}

}  // namespace

TransformerParameters transformer_parameters(const ir::ModelShape& shape) {
  ParameterList list(shape);
  return add_transformer(shape, list);
}

HeadParameters head_parameters(const ir::ModelShape& shape) {
  ParameterList list(shape);
  return add_head(shape, list);
}

bool is_tied(const ir::ProgramHeader& header, BlockId block, std::size_t parameter) {
  return header.model.tied_embeddings && header.blocks[block.index()] == ir::BlockKind::head &&
         parameter == head_parameters(header.model).output;
}

std::vector<ParameterInfo> parameters_of(const ir::ProgramHeader& header, BlockId block) {
  const ir::ModelShape& s = header.model;
  ParameterList list(s);
  switch (header.blocks[block.index()]) {
    case ir::BlockKind::embedding:
      list.add({"token", s.vocabulary, s.hidden});
      if (s.positions > 0) list.add({"position", 0, std::int64_t{s.positions} * s.hidden});
      break;
    case ir::BlockKind::transformer:
    case ir::BlockKind::moe:
      add_transformer(s, list);
      break;
    case ir::BlockKind::head:
      add_head(s, list);
      break;
    case ir::BlockKind::convolution:
      ORRERY_CHECK(false, "block {} is of a kind that find_unsupported() names", block.value);
  }
  return list.take();
}

std::vector<UnitRange> held_slices(const ParameterInfo& info, const Place& at) {
  ORRERY_CHECK(0 <= at.position && at.position < at.degree, "position {} of {}", at.position,
               at.degree);
  const auto own_part = [&](std::int64_t length) -> UnitRange {
    if (at.degree > length && at.degree % length == 0) {
      const std::int64_t unit = at.position / (at.degree / length);
      return {unit, unit + 1};
    }
    return even_slice(length, at.degree, at.position);
  };
  if (info.split_length == 0) return {{0, 1}};
  if (info.experts == 0) return {own_part(info.split_length)};
  const std::int64_t width = info.split_length / info.experts;
  const UnitRange columns = own_part(width);
  UnitRange experts = even_slice(info.experts, at.expert_degree, at.expert_position);
  if (!at.expert_members.empty()) {
    experts = {0, 0};
    for (int member = 0; member <= at.expert_position; ++member) {
      experts.begin = experts.end;
      experts.end += at.expert_members[as_size(member)].experts;
    }
  }
  std::vector<UnitRange> out;
  for (std::int64_t expert = experts.begin; expert < experts.end; ++expert) {
    const UnitRange slice = {expert * width + columns.begin, expert * width + columns.end};
    if (!out.empty() && out.back().end == slice.begin) {
      out.back().end = slice.end;
    } else {
      out.push_back(slice);
    }
  }
  return out;
}

std::vector<double> initial_values(const ir::ProgramHeader& header, BlockId block,
                                   std::size_t parameter, std::int64_t begin, std::int64_t end) {
  if (is_tied(header, block, parameter)) return initial_values(header, {0}, kToken, begin, end);
  const ParameterInfo info = parameters_of(header, block)[parameter];
  const bool gain = ends_with(info.name, ".gain");
  std::vector<double> values(static_cast<std::size_t>(end - begin), gain ? 1.0 : 0.0);
  if (gain || ends_with(info.name, ".bias")) return values;
  const double deviation = writes_to_residual(info.name)
                               ? kInitialDeviation / std::sqrt(2.0 * header.model.layers)
                               : kInitialDeviation;
  const Rng of_parameter = Rng(header.seed)
                               .fork(static_cast<std::uint64_t>(block.value))
                               .fork(static_cast<std::uint64_t>(parameter));
  for (std::int64_t i = begin; i < end; ++i) {
    Rng rng = of_parameter.fork(static_cast<std::uint64_t>(i));
    values[static_cast<std::size_t>(i - begin)] = deviation * rng.normal();
  }
  return values;
}

}  // namespace orrery::executor
