/// Each operator and each communication of an annotated transformer does on the devices what it
/// does on the whole: from inputs that lie as annotated, its devices make an output that lies so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "models/sharding/communicate.h"
#include "models/sharding/specialize.h"
#include "models/sharding/transformer.h"
#include "tests/models/sharding/interpreter.h"
#include "tests/models/sharding/number_operators.h"
#include "tests/models/sharding/random_transformer.h"

namespace orrery::models::testing::transformer_law_test {
namespace {

constexpr int kTokens = 16;

/// A graph with numbers in its shapes.
struct Machine {
  const Graph& graph;
  const SpecializedGraph& special;
  Rng& rng;

  const Annotation& annotation(int tensor) const { return graph.tensors[tensor].type.annotation; }
  const Shape& shape(int tensor) const { return special.shapes[tensor]; }

  /// Indices for the inputs that look something up.
  Values values(const GraphOperator& operation, std::size_t input) const {
    Values all = random_values(rng, shape(operation.inputs[input]));
    const auto* type = std::get_if<OperatorType>(&operation.type);
    int bound = 0;
    if (type && std::holds_alternative<op::Embedding>(*type) && input == 0) {
      bound = static_cast<int>(shape(operation.inputs[1])[0]);
    }
    if (type && std::holds_alternative<op::CrossEntropy>(*type) && input == 1) {
      bound = static_cast<int>(shape(operation.inputs[0]).back());
    }
    for (double& value : all) value = bound > 0 ? draw(rng, 0, bound - 1) : value;
    return all;
  }

  /// The first difference, or "".
  std::string compute(const GraphOperator& operation) const {
    const auto& type = std::get<OperatorType>(operation.type);
    std::vector<Block> wholes;
    std::vector<Buffers> buffers;
    std::vector<std::map<int, BoxPiece>> held(operation.inputs.size());
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const int tensor = operation.inputs[i];
      wholes.push_back(whole(shape(tensor), values(operation, i)));
      buffers.push_back(materialize(annotation(tensor), shape(tensor), wholes.back().values, rng));
      for (const auto& piece : pieces(annotation(tensor), shape(tensor))) {
        held[i][piece.device] = piece;
      }
    }
    const Values expected = std::visit(NumberOperator{wholes}, type).values;
    Buffers results;
    const Shape& of = shape(operation.output);
    for (const auto& piece : pieces(annotation(operation.output), of)) {
      std::vector<Block> local;
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        local.push_back(piece_of(held[i].at(piece.device), shape(operation.inputs[i]), buffers[i]));
      }
      const Values numbers = std::visit(NumberOperator{local}, type).values;
      if (static_cast<std::int64_t>(numbers.size()) != volume(piece.box)) {
        return fmt::format("device {} computes {} numbers for {}", piece.device, numbers.size(),
                           to_string(piece.box));
      }
      auto& places = results[piece.device];
      places.resize(expected.size());
      auto number = numbers.begin();
      for_each_element(piece.box, of, [&](std::size_t e) { places[e] = *number++; });
    }
    return compare(annotation(operation.output), of, expected, results).value_or("");
  }

  std::string move(const ResolvedCommunication& communication) const {
    const auto& operation = graph.operators[communication.operation];
    const Shape& of = shape(operation.output);
    const Values expected = random_values(rng, of);
    Buffers buffers = materialize(communication.from, of, expected, rng);
    if (const auto problem = execute(communication.steps, of, buffers)) return *problem;
    return compare(communication.to, of, expected, buffers).value_or("");
  }
};

/// Kinds of operators met, by the last part of their names.
using Met = std::map<std::string, int>;

/// Checks one case, or says why it is refused.
std::string check(const TransformerCase& made, Rng& rng, Met& met) {
  auto built = transformer_graph(made.model, made.plan);
  if (const auto* problem = std::get_if<GraphProblem>(&built)) return problem->reason;
  const Graph& graph = std::get<Graph>(built);
  auto bound = specialize(graph, binding_of(made.plan, kTokens, kTokens / 2));
  if (const auto* problem = std::get_if<GraphProblem>(&bound)) return problem->reason;
  const auto& special = std::get<SpecializedGraph>(bound);
  const Machine machine{graph, special, rng};
  for (const GraphOperator& operation : graph.operators) {
    if (!std::holds_alternative<OperatorType>(operation.type)) continue;
    EXPECT_EQ(machine.compute(operation), "") << operation.name;
  }
  for (const auto& communication : special.communications) {
    const auto& name = graph.operators[communication.operation].name;
    EXPECT_EQ(machine.move(communication), "") << name;
    ++met[name.substr(name.rfind('.') + 1)];
  }
  return "";
}

/// Draws until `wanted` cases are checked; those of which an even part does not exist are refused.
void check_cases(std::uint64_t seed, const TransformerFeatures& features, int wanted,
                 const std::set<std::string>& operators) {
  Rng rng(seed);
  Met met;
  int checked = 0;
  int drawn = 0;
  for (; checked < wanted && drawn < 50 * wanted; ++drawn) {
    const auto made = TransformerMaker(rng, features).make(draw(rng, 1, 2), 2);
    const std::string refusal = check(made, rng, met);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "case " << drawn;
    checked += refusal.empty() ? 1 : 0;
    const bool uneven = refusal.empty() || refusal.find("do not divide") != std::string::npos ||
                        refusal.find("has no") != std::string::npos ||
                        refusal.find("remainder") != std::string::npos ||
                        refusal.find("unequal parts") != std::string::npos ||
                        refusal.find("shard group") != std::string::npos;
    ASSERT_TRUE(uneven) << refusal;
  }
  EXPECT_EQ(checked, wanted) << drawn << " drawn";
  for (const std::string& name : operators) EXPECT_GT(met[name], 0) << name;
}

TEST(TransformerLaw, DenseModelsComputeOnDevicesWhatTheyComputeWhole) {
  check_cases(31, {}, 30, {"gather", "reduce", "receive", "exchange", "gradient"});
}

TEST(TransformerLaw, ExpertsComputeOnDevicesWhatTheyComputeWhole) {
  check_cases(32, {.few_heads = false, .experts = true}, 20,
              {"dispatch", "combine", "gather", "reduce", "exchange", "gradient"});
}

TEST(TransformerLaw, ZeroAndTiedEmbeddingsAddUpAndComeBack) {
  check_cases(33, {.tied = true, .zero = true}, 30, {"gradient", "refresh", "whole"});
}

}  // namespace
}  // namespace orrery::models::testing::transformer_law_test
