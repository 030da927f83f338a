#include "models/sharding/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace orrery::models {
namespace {

using Shapes = std::vector<SymbolicShape>;
using Axes = std::vector<Axis>;
using ShapeResult = std::variant<SymbolicShape, DeductionProblem>;
using AxisResult = std::variant<Axis, DeductionProblem>;

DeductionProblem misfit(int input, const SymbolicShape& shape, const char* what) {
  return {input, fmt::format("input {} has shape {}, which {}", input, to_string(shape), what)};
}

std::string held(Axis axis) {
  if (axis == kDuplicate) return "whole";
  if (axis == kPartial) return "a summand";
  return fmt::format("split along dimension {}", axis);
}

DeductionProblem needs(int input, const std::string& why) {
  return {input,
          fmt::format("needs a communication operator before input {} because {}", input, why)};
}

/// Input `input` should be held as `wanted` on a level where it is held as axes[input].
DeductionProblem must_be(const Axes& axes, int input, Axis wanted, const char* where) {
  return needs(input, fmt::format("it is {} where {} it must be {}", held(axes[input]), where,
                                  held(wanted)));
}

/// The first input that is not held as wanted, or the output's axis.
AxisResult expect(const Axes& axes, const Axes& wanted, Axis output, const char* where) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != wanted[i]) return must_be(axes, static_cast<int>(i), wanted[i], where);
  }
  return output;
}

int last(const SymbolicShape& shape) { return static_cast<int>(shape.size()) - 1; }

DeductionProblem adds_up(int input) {
  return needs(input, "it is a summand, and the operator is not linear in it");
}

struct ShapeRule {
  const Shapes& in;

  ShapeResult operator()(const op::Dot&) const {
    if (in[0].empty()) return misfit(0, in[0], "has no dimension to contract");
    if (in[1].size() != 2) return misfit(1, in[1], "is no matrix");
    if (in[1][0] != in[0].back()) return misfit(1, in[1], "does not begin with what input 0 ends");
    SymbolicShape shape = in[0];
    shape.back() = in[1][1];
    return shape;
  }
  ShapeResult operator()(const op::BatchedDot&) const {
    if (in[0].size() < 2) return misfit(0, in[0], "has no dimension to contract");
    if (in[1].size() != 3) return misfit(1, in[1], "is no list of matrices");
    if (in[1][0] != in[0][0]) return misfit(1, in[1], "has other experts than input 0");
    if (in[1][1] != in[0].back()) return misfit(1, in[1], "does not begin with what input 0 ends");
    SymbolicShape shape = in[0];
    shape.back() = in[1][2];
    return shape;
  }
  ShapeResult operator()(const op::Unary&) const { return in[0]; }
  ShapeResult operator()(const op::Binary& binary) const {
    if (binary.leading < 0 || binary.leading > static_cast<int>(in[1].size()) ||
        in[1].size() > in[0].size()) {
      return misfit(1, in[1], "does not end input 0's");
    }
    const auto begun = in[1].begin() + binary.leading;
    if (!std::equal(in[1].begin(), begun, in[0].begin())) {
      return misfit(1, in[1], "does not begin as input 0's");
    }
    if (!std::equal(begun, in[1].end(), in[0].end() - (in[1].end() - begun))) {
      return misfit(1, in[1], "does not end input 0's");
    }
    return in[0];
  }
  ShapeResult operator()(const op::Sum& sum) const {
    if (sum.dimension < 0 || sum.dimension > last(in[0])) {
      return misfit(0, in[0], "has not the dimension to sum");
    }
    SymbolicShape shape = in[0];
    shape.erase(shape.begin() + sum.dimension);
    return shape;
  }
  ShapeResult operator()(const op::Reshape& reshape) const {
    std::size_t input = 0;
    std::size_t output = 0;
    for (const auto& group : reshape.groups) {
      std::optional<SymbolicSize> before(1);
      std::optional<SymbolicSize> after(1);
      for (int i = 0; i < group.inputs && input < in[0].size() && before; ++i) {
        before = product(*before, in[0][input++]);
      }
      for (int i = 0; i < group.outputs && output < reshape.shape.size() && after; ++i) {
        after = product(*after, reshape.shape[output++]);
      }
      if (!before || !after) return misfit(0, in[0], "has two symbols in one group");
      if (*before != *after) return misfit(0, in[0], "does not multiply to the new dimensions");
    }
    if (input != in[0].size() || output != reshape.shape.size()) {
      return misfit(0, in[0], "has other dimensions than the groups name");
    }
    return reshape.shape;
  }
  ShapeResult operator()(const op::Transpose& transpose) const {
    const std::set<int> all(transpose.order.begin(), transpose.order.end());
    if (all.size() != in[0].size() || transpose.order.size() != in[0].size() || *all.begin() != 0 ||
        *all.rbegin() != last(in[0])) {
      return misfit(0, in[0], "has other dimensions than the order names");
    }
    SymbolicShape shape;
    for (const int from : transpose.order) shape.push_back(in[0][from]);
    return shape;
  }
  ShapeResult operator()(const op::Norm&) const {
    if (in[0].empty()) return misfit(0, in[0], "has no dimension to norm");
    if (in[1].size() != 1 || in[1][0] != in[0].back()) {
      return misfit(1, in[1], "is no gain for input 0");
    }
    return in[0];
  }
  ShapeResult operator()(const op::Attention&) const {
    if (in[0].size() != 4) return misfit(0, in[0], "is not (samples, tokens, heads, width)");
    if (in[1].size() != 4 || in[1][0] != in[0][0] || in[1][1] != in[0][1] || in[1][3] != in[0][3]) {
      return misfit(1, in[1], "does not fit the queries");
    }
    const SymbolicSize& heads = in[0][2];
    const SymbolicSize& groups = in[1][2];
    if (heads.symbol() != groups.symbol() || groups.numerator() == 0 ||
        heads.numerator() * groups.denominator() % (groups.numerator() * heads.denominator()) !=
            0) {
      return misfit(1, in[1], "has heads that do not divide the queries'");
    }
    if (in[2] != in[1]) return misfit(2, in[2], "is not the keys'");
    return in[0];
  }
  ShapeResult operator()(const op::Embedding&) const {
    if (in[1].size() != 2) return misfit(1, in[1], "is no table");
    SymbolicShape shape = in[0];
    shape.push_back(in[1][1]);
    return shape;
  }
  ShapeResult operator()(const op::Dispatch& dispatch) const {
    if (in[0].size() != 3) return misfit(0, in[0], "is not (samples, tokens, width)");
    if (in[1].size() != 3 || in[1][0] != in[0][0] || in[1][1] != in[0][1]) {
      return misfit(1, in[1], "has not the scores of input 0's tokens");
    }
    return SymbolicShape{in[1][2], in[0][0], dispatch.rows, in[0][2]};
  }
  ShapeResult operator()(const op::Combine&) const {
    if (in[0].size() != 4) return misfit(0, in[0], "is not (experts, samples, rows, width)");
    if (in[1].size() != 3 || in[1][0] != in[0][1] || in[1][2] != in[0][0]) {
      return misfit(1, in[1], "has not the scores of input 0's experts and samples");
    }
    return SymbolicShape{in[1][0], in[1][1], in[0][3]};
  }
  ShapeResult operator()(const op::CrossEntropy&) const {
    if (in[0].empty()) return misfit(0, in[0], "has no classes");
    const SymbolicShape rows(in[0].begin(), in[0].end() - 1);
    if (in[1] != rows) return misfit(1, in[1], "has not one label per row of input 0");
    return rows;
  }
};

struct AxisRule {
  const Axes& axes;
  const Shapes& shapes;

  AxisResult operator()(const op::Dot&) const {
    const Axis a = axes[0];
    const Axis b = axes[1];
    if (a == kPartial) return expect(axes, {kPartial, kDuplicate}, kPartial, "input 0 is one");
    if (b == kPartial) return expect(axes, {kDuplicate, kPartial}, kPartial, "input 1 is one");
    if (a == last(shapes[0])) return expect(axes, {a, 0}, kPartial, "the product contracts");
    if (b == 0) return expect(axes, {last(shapes[0]), 0}, kPartial, "the product contracts");
    if (a >= 0) return expect(axes, {a, kDuplicate}, a, "input 0 is split by rows");
    return b == 1 ? last(shapes[0]) : kDuplicate;
  }
  AxisResult operator()(const op::BatchedDot&) const {
    const Axis a = axes[0];
    const Axis b = axes[1];
    const int contracted = last(shapes[0]);
    if (a == kPartial) return expect(axes, {kPartial, kDuplicate}, kPartial, "input 0 is one");
    if (b == kPartial) return expect(axes, {kDuplicate, kPartial}, kPartial, "input 1 is one");
    if (a == 0 || b == 0) return expect(axes, {0, 0}, 0, "experts are split");
    if (a == contracted || b == 1) {
      return expect(axes, {contracted, 1}, kPartial, "the product contracts");
    }
    if (a > 0) return expect(axes, {a, kDuplicate}, a, "input 0 is split by rows");
    return b == 2 ? contracted : kDuplicate;
  }
  AxisResult operator()(const op::Unary& unary) const {
    if (axes[0] == kPartial && !unary.linear) return adds_up(0);
    return axes[0];
  }
  AxisResult operator()(const op::Binary& binary) const {
    const int offset = static_cast<int>(shapes[0].size() - shapes[1].size());
    const Axis a = axes[0];
    const Axis b = axes[1];
    if (a == kPartial || b == kPartial) {
      const int summand = a == kPartial ? 0 : 1;
      if (binary.kind == op::Binary::Kind::other) return adds_up(summand);
      if (binary.kind == op::Binary::Kind::add) {
        return expect(axes, {kPartial, kPartial}, kPartial, "the other input is one");
      }
      return expect(axes, summand == 0 ? Axes{kPartial, kDuplicate} : Axes{kDuplicate, kPartial},
                    kPartial, "the other input is a summand");
    }
    Axis wanted = kDuplicate;
    if (a >= 0 && a < binary.leading) wanted = a;
    if (a >= offset + binary.leading) wanted = a - offset;
    return expect(axes, {a, wanted}, a, "input 0 lies so");
  }
  AxisResult operator()(const op::Sum& sum) const {
    if (axes[0] == sum.dimension) return kPartial;
    return axes[0] > sum.dimension ? axes[0] - 1 : axes[0];
  }
  AxisResult operator()(const op::Reshape& reshape) const {
    if (axes[0] < 0) return axes[0];
    int input = 0;
    int output = 0;
    for (const auto& group : reshape.groups) {
      if (axes[0] == input) return output;
      input += group.inputs;
      output += group.outputs;
      if (axes[0] < input) {
        return needs(
            0, fmt::format("dimension {} is split and not the outermost that is merged", axes[0]));
      }
    }
    return needs(0, "its split dimension is not named");
  }
  AxisResult operator()(const op::Transpose& transpose) const {
    if (axes[0] < 0) return axes[0];
    const auto& order = transpose.order;
    return static_cast<Axis>(std::find(order.begin(), order.end(), axes[0]) - order.begin());
  }
  AxisResult operator()(const op::Norm&) const {
    if (axes[0] == kPartial) return adds_up(0);
    if (axes[0] == last(shapes[0])) {
      return needs(0, "the normalized dimension is split");
    }
    return expect(axes, {axes[0], kDuplicate}, axes[0], "the norm applies it to each row");
  }
  AxisResult operator()(const op::Attention&) const {
    for (int i = 0; i < 3; ++i) {
      const Axis axis = axes[i];
      if (axis == kPartial) return adds_up(i);
      if (axis == 1 && i > 0) {
        return needs(i, "its tokens are split, and attention reads whole sequences");
      }
      if (axis == 3) return needs(i, "the width of its heads is split");
    }
    const bool whole = axes[1] == kDuplicate && axes[2] == kDuplicate;
    if (axes[0] == 1) {
      return expect(axes, {1, kDuplicate, kDuplicate}, 1, "the queries are parts of sequences");
    }
    if (axes[0] == 2 && whole) {
      if (shapes[1][2] == SymbolicSize(1)) return 2;
      return needs(1, fmt::format("it is whole with {} heads, of which each part of the queries' "
                                  "heads needs its own",
                                  to_string(shapes[1][2])));
    }
    return expect(axes, {axes[0], axes[0], axes[0]}, axes[0], "queries, keys and values meet");
  }
  AxisResult operator()(const op::Embedding&) const {
    if (axes[0] == kPartial) return adds_up(0);
    if (axes[0] >= 0) return expect(axes, {axes[0], kDuplicate}, axes[0], "the tokens are split");
    if (axes[1] == 0 || axes[1] == kPartial) return kPartial;
    return axes[1] == 1 ? static_cast<int>(shapes[0].size()) : kDuplicate;
  }
  AxisResult operator()(const op::Dispatch&) const {
    const Axis tokens = axes[0];
    if (axes[1] == kPartial) return adds_up(1);
    if (axes[1] == 2) return needs(1, "its experts are split, and tokens choose among all");
    if (tokens == 0 || tokens == 1) {
      return expect(axes, {tokens, tokens}, tokens + 1, "the tokens are split");
    }
    return expect(axes, {tokens, kDuplicate}, tokens == 2 ? 3 : tokens, "the tokens are whole");
  }
  AxisResult operator()(const op::Combine&) const {
    const Axis rows = axes[0];
    if (axes[1] == kPartial) return adds_up(1);
    if (rows == 0) return expect(axes, {0, kDuplicate}, kPartial, "the experts are split");
    if (rows == 1 || rows == 2) {
      return expect(axes, {rows, rows - 1}, rows - 1, "the rows are split");
    }
    return expect(axes, {rows, kDuplicate}, rows == 3 ? 2 : rows, "the rows are whole");
  }
  AxisResult operator()(const op::CrossEntropy&) const {
    if (axes[0] == kPartial) return adds_up(0);
    if (axes[0] == last(shapes[0])) return needs(0, "its classes are split");
    return expect(axes, {axes[0], axes[0]}, axes[0], "input 0 lies so");
  }
};

}  // namespace

std::string_view name_of(const OperatorType& type) {
  static constexpr std::array<std::string_view, 13> kNames{
      "dot",       "unary",     "binary",        "sum",         "reshape",  "transpose", "norm",
      "attention", "embedding", "cross-entropy", "batched dot", "dispatch", "combine"};
  return kNames.at(type.index());
}

std::size_t inputs_of(const OperatorType& type) {
  static constexpr std::array<std::size_t, 13> kInputs{2, 1, 2, 1, 1, 1, 2, 3, 2, 2, 2, 2, 2};
  return kInputs.at(type.index());
}

ShapeResult shape_of(const OperatorType& type, const Shapes& inputs) {
  return std::visit(ShapeRule{inputs}, type);
}

AxisResult axis_of(const OperatorType& type, const Axes& axes, const Shapes& shapes) {
  return std::visit(AxisRule{axes, shapes}, type);
}

}  // namespace orrery::models
