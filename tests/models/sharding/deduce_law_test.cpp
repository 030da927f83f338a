/// Deduction is sound: what the devices compute on their pieces is what the deduced annotation
/// says.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "models/sharding/deduce.h"
#include "tests/models/sharding/interpreter.h"
#include "tests/models/sharding/number_operators.h"
#include "tests/models/sharding/random_annotations.h"

namespace orrery::models::testing::deduce_law_test {
namespace {

struct Case {
  OperatorType type;
  std::vector<Shape> shapes;
  /// Inputs that are indices below a bound, as tokens are.
  std::vector<std::int64_t> bounds = {0, 0, 0};
};

std::vector<Case> cases() {
  using Kind = op::Binary::Kind;
  return {
      {op::Dot{}, {{4, 6, 4}, {4, 6}}},
      {op::Dot{}, {{4, 8}, {8, 4}}},
      {op::Unary{false}, {{4, 6}}},
      {op::Unary{true}, {{4, 6}}},
      {op::Binary{Kind::add}, {{4, 2, 4}, {4, 2, 4}}},
      {op::Binary{Kind::add}, {{4, 2, 4}, {4}}},
      {op::Binary{Kind::multiply}, {{4, 6}, {4, 6}}},
      {op::Binary{Kind::other}, {{4, 6}, {6}}},
      {op::Sum{0}, {{4, 6, 2}}},
      {op::Sum{1}, {{4, 6, 2}}},
      {op::Reshape{{{1, 1}, {1, 2}}, {4, 4, 2}}, {{4, 8}}},
      {op::Reshape{{{2, 1}, {1, 1}}, {8, 6}}, {{4, 2, 6}}},
      {op::Transpose{{1, 2, 0}}, {{4, 2, 6}}},
      {op::Norm{}, {{4, 2, 4}, {4}}},
      {op::Attention{}, {{2, 2, 8, 2}, {2, 2, 4, 2}, {2, 2, 4, 2}}},
      {op::Attention{}, {{2, 4, 4, 1}, {2, 4, 1, 1}, {2, 4, 1, 1}}},
      {op::Attention{}, {{2, 2, 8, 1}, {2, 2, 2, 1}, {2, 2, 2, 1}}},
      {op::Embedding{}, {{4, 2}, {8, 4}}, {8, 0, 0}},
      {op::BatchedDot{}, {{4, 2, 4, 4}, {4, 4, 4}}},
      {op::Binary{Kind::add, 1}, {{4, 2, 4}, {4, 4}}},
      {op::Dispatch{4}, {{4, 8, 2}, {4, 8, 4}}},
      {op::Combine{}, {{4, 4, 4, 2}, {4, 8, 4}}},
      {op::CrossEntropy{}, {{4, 2, 3}, {4, 2}}, {0, 3, 0}},
  };
}

/// Merges levels of one axis that are neighbors.
DistributedStates states_of(const std::vector<AxisShards>& levels) {
  DistributedStates states;
  for (const AxisShards& level : levels) {
    if (!states.empty() && states.back().axis == level.axis) {
      states.back().shards *= level.shards;
    } else {
      states.push_back(level);
    }
  }
  return states;
}

/// Annotations of all inputs on the same devices: each level has any axis for each input.
std::vector<Annotation> random_inputs(Rng& rng, const Case& c) {
  std::vector<Annotation> all(c.shapes.size());
  const int subgroups = draw(rng, 1, 3);
  const auto axis = [&](std::size_t i) {
    const bool index = c.bounds[i] > 0;  // Tokens and labels have no summands.
    return draw(rng, index ? kDuplicate : kPartial, static_cast<int>(c.shapes[i].size()) - 1);
  };
  const bool shared = rng.bernoulli(0.5);
  const std::vector<std::int64_t> shares{1, draw(rng, 1, 2), draw(rng, 1, 2)};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].hetero_axis = axis(i);
    if (shared && all[i].hetero_axis >= 0 && rng.bernoulli(0.9)) {
      all[i].shares.assign(shares.begin(), shares.begin() + subgroups);
    }
  }
  int next = 0;
  for (int s = 0; s < subgroups; ++s) {
    std::vector<std::vector<AxisShards>> levels(all.size());
    int devices = 1;
    for (int level = draw(rng, 0, 2); level > 0; --level) {
      devices *= 2;
      for (std::size_t i = 0; i < all.size(); ++i) levels[i].push_back({axis(i), 2});
    }
    std::vector<int> group(devices);
    std::iota(group.begin(), group.end(), next);
    next += devices;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].subgroups.push_back({group, states_of(levels[i])});
    }
  }
  for (Annotation& annotation : all) {  // Some inputs come with fewer, larger subgroups.
    if (!rng.bernoulli(0.2)) continue;
    if (auto one = condensed(annotation)) annotation = *one;
  }
  return all;
}

SymbolicShape symbolic(const Shape& shape) { return {shape.begin(), shape.end()}; }

TEST(DeduceLaw, OperatorsOnPiecesGiveThePiecesThatAreDeduced) {
  Rng rng(11);
  for (const Case& c : cases()) {
    int checked = 0;
    std::map<Axis, int> outputs;
    for (int n = 0; n < 20000 && checked < 400; ++n) {
      const auto annotations = random_inputs(rng, c);
      std::vector<TensorType> inputs;
      bool valid = true;
      for (std::size_t i = 0; i < annotations.size(); ++i) {
        valid = valid && !validate(annotations[i], c.shapes[i]);
        inputs.push_back({symbolic(c.shapes[i]), annotations[i]});
      }
      if (!valid) continue;
      const auto result = deduce(c.type, inputs);
      if (std::holds_alternative<DeductionProblem>(result)) continue;
      const auto& output = std::get<TensorType>(result);
      const Shape out_shape = std::get<Shape>(bind(output.shape, {}));
      const auto where =
          fmt::format("{}: {} and {} -> {}", name_of(c.type), to_string(annotations[0]),
                      to_string(annotations.back()), to_string(output.annotation));
      ASSERT_EQ(validate(output.annotation, out_shape).value_or(""), "") << where;
      std::vector<Block> wholes;
      std::vector<Buffers> buffers;
      std::vector<std::map<int, BoxPiece>> held(inputs.size());
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        Values values = random_values(rng, c.shapes[i]);
        for (double& value : values) {
          if (c.bounds[i] > 0) value = draw(rng, 0, static_cast<int>(c.bounds[i]) - 1);
        }
        wholes.push_back(whole(c.shapes[i], values));
        buffers.push_back(materialize(annotations[i], c.shapes[i], values, rng));
        for (const auto& piece : pieces(annotations[i], c.shapes[i])) {
          held[i][piece.device] = piece;
        }
      }
      const Values expected = std::visit(NumberOperator{wholes}, c.type).values;
      Buffers outputs_held;
      for (const auto& piece : pieces(output.annotation, out_shape)) {
        std::vector<Block> local;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          local.push_back(piece_of(held[i].at(piece.device), c.shapes[i], buffers[i]));
        }
        const Values numbers = std::visit(NumberOperator{local}, c.type).values;
        ASSERT_EQ(static_cast<std::int64_t>(numbers.size()), volume(piece.box)) << where;
        auto& places = outputs_held[piece.device];
        places.resize(expected.size());
        auto number = numbers.begin();
        for_each_element(piece.box, out_shape, [&](std::size_t e) { places[e] = *number++; });
      }
      ASSERT_EQ(compare(output.annotation, out_shape, expected, outputs_held).value_or(""), "")
          << where;
      ++checked;
      for (const Subgroup& subgroup : output.annotation.subgroups) {
        for (const AxisShards& entry : subgroup.states) ++outputs[entry.axis];
      }
    }
    EXPECT_GE(checked, 100) << name_of(c.type);
    EXPECT_GE(outputs.size(), 2U) << name_of(c.type);
  }
}

TEST(DeduceLaw, OtherDeviceGroupsSayTheSameLayout) {
  Rng rng(12);
  int checked = 0;
  for (int n = 0; n < 20000; ++n) {
    const Shape shape = random_shape(rng);
    const Annotation annotation = random_annotation(rng, shape, 8, true);
    const auto one = condensed(annotation);
    if (!one || annotation.hetero_size() == 1) continue;
    std::vector<std::vector<int>> groups;
    for (const Subgroup& subgroup : annotation.subgroups) groups.push_back(subgroup.devices);
    ASSERT_EQ(validate(*one, shape).value_or(""), "") << to_string(*one);
    const auto again = with_groups(*one, groups);
    ASSERT_TRUE(again) << to_string(annotation) << "\n" << to_string(*one);
    auto before = pieces(annotation, shape);
    auto after = pieces(*one, shape);
    for (std::size_t j = 0; j < before.size(); ++j) {
      ASSERT_EQ(before[j].device, after[j].device);
      ASSERT_EQ(before[j].box, after[j].box) << to_string(annotation) << "\n" << to_string(*one);
    }
    const Values values = random_values(rng, shape);
    ASSERT_EQ(compare(*again, shape, values, materialize(*one, shape, values, rng)).value_or(""),
              "")
        << to_string(*one) << "\n"
        << to_string(*again);
    ++checked;
  }
  EXPECT_GE(checked, 500);
}

}  // namespace
}  // namespace orrery::models::testing::deduce_law_test
