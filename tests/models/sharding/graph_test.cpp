#include "models/sharding/graph.h"

#include <gtest/gtest.h>

#include "models/sharding/pipelines.h"
#include "models/sharding/specialize.h"

namespace orrery::models::testing::graph_test {
namespace {

const SymbolicSize kBatch("B");

Annotation one(std::vector<int> devices, DistributedStates states) {
  return {{{std::move(devices), std::move(states)}}, kDuplicate, {}};
}

std::string annotation_of(const Graph& graph, int tensor) {
  return to_string(graph.tensors[tensor].type.annotation);
}

/// Figure 2, left: splitting the contracted dimension makes the product Partial.
TEST(Deduce, DotOverASplitDimensionIsPartial) {
  Graph graph;
  const int x = graph.leaf("x", {kBatch, 8, 4}, one({0, 1}, {{2, 2}}));
  const int w = graph.leaf("w", {4, 6}, one({0, 1}, {{0, 2}}));
  const int y = graph.apply("y", op::Dot{}, {x, w});
  ASSERT_FALSE(deduce(graph));
  EXPECT_EQ(annotation_of(graph, y), "{0,1}: P x 2");
  EXPECT_EQ(to_string(graph.tensors[2].type.shape), "(B, 8, 6)");
}

/// Figure 11, right: HDim 0 of the activation and -1 of the weight give HDim 0.
TEST(Deduce, HDimOfTheActivationSurvivesTheDot) {
  Graph graph;
  const int x =
      graph.leaf("x", {kBatch, 8, 4}, {{{{0, 1}, {{kDuplicate, 2}}}, {{2}, {}}}, 0, {3, 1}});
  const int w = graph.leaf("w", {4, 6}, {{{{0, 1}, {{1, 2}}}, {{2}, {}}}, kDuplicate, {}});
  const int y = graph.apply("y", op::Dot{}, {x, w});
  ASSERT_FALSE(deduce(graph));
  EXPECT_EQ(annotation_of(graph, y), "{0,1}: S2 x 2 | {2}: -; HDim 0 (3:1)");
}

/// Figure 10: an input with fewer subgroups is converted to the largest HSize.
TEST(Deduce, InputsAreUnifiedToTheLargestHSize) {
  Graph graph;
  const int x =
      graph.leaf("x", {kBatch, 8, 4}, {{{{0, 1}, {{kDuplicate, 2}}}, {{2}, {}}}, 0, {2, 1}});
  const int w = graph.leaf("w", {4, 6}, one({0, 1, 2}, {{kDuplicate, 3}}));
  const int y = graph.apply("y", op::Dot{}, {x, w});
  ASSERT_FALSE(deduce(graph));
  EXPECT_EQ(annotation_of(graph, y), "{0,1}: D x 2 | {2}: -; HDim 0 (2:1)");
}

TEST(Deduce, UnevenGroupsOfASplitGiveShares) {
  const auto converted = with_groups(one({0, 1, 2, 3, 4}, {{0, 5}}), {{0, 1, 2, 3}, {4}});
  ASSERT_TRUE(converted);
  EXPECT_EQ(to_string(*converted), "{0,1,2,3}: S0 x 4 | {4}: -; HDim 0 (4:1)");
  EXPECT_FALSE(with_groups(one({0, 1, 2, 3}, {{0, 2}, {1, 2}}), {{0}, {1, 2, 3}}));
  const auto inner = with_groups(one({0, 1, 2, 3}, {{0, 2}, {1, 2}}), {{0, 2}, {1, 3}});
  ASSERT_TRUE(inner);
  EXPECT_EQ(to_string(*inner), "{0,2}: S0 x 2 | {1,3}: S0 x 2; HDim 1");
}

std::string reason(Graph& graph) {
  const auto problem = deduce(graph);
  return problem ? problem->reason : "";
}

TEST(Deduce, SaysBeforeWhichInputACommunicationOperatorBelongs) {
  Graph other_devices;
  const int a = other_devices.leaf("a", {kBatch, 4}, one({0}, {}));
  const int b = other_devices.leaf("b", {kBatch, 4}, one({1}, {}));
  other_devices.apply("sum", op::Binary{}, {a, b});
  EXPECT_EQ(reason(other_devices),
            "sum: needs a communication operator before input 1 because it lies on {1} and input 0 "
            "on {0}");

  Graph summand;
  const int p = summand.leaf("p", {kBatch, 4}, one({0, 1}, {{kPartial, 2}}));
  summand.apply("gelu", op::Unary{}, {p});
  EXPECT_EQ(reason(summand),
            "gelu: needs a communication operator before input 0 because it is a summand, and the "
            "operator is not linear in it (subgroup 0)");

  Graph whole;
  const int x = whole.leaf("x", {kBatch, 4}, one({0, 1}, {{1, 2}}));
  const int w = whole.leaf("w", {4, 6}, one({0, 1}, {{kDuplicate, 2}}));
  whole.apply("dot", op::Dot{}, {x, w});
  EXPECT_EQ(reason(whole),
            "dot: needs a communication operator before input 1 because it is whole where the "
            "product contracts it must be split along dimension 0 (subgroup 0)");
}

/// Four query heads on two devices, two key-value heads on each: the second device's queries would
/// meet the first head.
TEST(Deduce, QueriesMustMeetTheirKeyValueHeads) {
  const auto attention = [](int key_heads, const Annotation& keys) {
    Graph graph;
    const int q = graph.leaf("q", {kBatch, 8, 4, 2}, one({0, 1, 2, 3}, {{2, 4}}));
    const int k = graph.leaf("k", {kBatch, 8, key_heads, 2}, keys);
    graph.apply("attention", op::Attention{}, {q, k, k});
    return reason(graph);
  };
  EXPECT_EQ(attention(4, one({0, 1, 2, 3}, {{2, 4}})), "");
  EXPECT_EQ(attention(2, one({0, 1, 2, 3}, {{2, 2}, {kDuplicate, 2}})), "");
  EXPECT_EQ(attention(1, one({0, 1, 2, 3}, {{kDuplicate, 4}})), "");
  EXPECT_EQ(attention(2, one({0, 1, 2, 3}, {{kDuplicate, 4}})),
            "attention: needs a communication operator before input 1 because it is whole with 2 "
            "heads, of which each part of the queries' heads needs its own (subgroup 0)");
  EXPECT_EQ(attention(2, one({0, 1, 2, 3}, {{kDuplicate, 2}, {2, 2}})),
            "attention: needs a communication operator before input 1 because it is whole with 2 "
            "heads, of which each part of the queries' heads needs its own (subgroup 0)");
}

TEST(Deduce, QueriesMayBePartsOfSequencesAndKeysMayNot) {
  Graph graph;
  const int q = graph.leaf("q", {kBatch, 8, 4, 2}, one({0, 1}, {{1, 2}}));
  const int k = graph.leaf("k", {kBatch, 8, 4, 2}, one({0, 1}, {{kDuplicate, 2}}));
  const int y = graph.apply("ring", op::Attention{}, {q, k, k});
  ASSERT_FALSE(deduce(graph));
  EXPECT_EQ(annotation_of(graph, y), "{0,1}: S1 x 2");
  graph.apply("parts", op::Attention{}, {q, q, q});
  EXPECT_EQ(reason(graph),
            "parts: needs a communication operator before input 1 because its tokens are split, "
            "and attention reads whole sequences (subgroup 0)");
}

TEST(Deduce, TokensChooseAmongAllExperts) {
  Graph graph;
  const int x = graph.leaf("x", {kBatch, 8, 4}, one({0, 1}, {{1, 2}}));
  const int scores = graph.leaf("scores", {kBatch, 8, 6}, one({0, 1}, {{1, 2}}));
  const int rows = graph.apply("rows", op::Dispatch{SymbolicSize("C")}, {x, scores});
  const int w = graph.leaf("w", {6, 4, 5}, one({0, 1}, {{0, 2}}));
  const int moved = graph.communicate("dispatch", rows, one({0, 1}, {{0, 2}}));
  const int y = graph.apply("y", op::BatchedDot{}, {moved, w});
  ASSERT_FALSE(deduce(graph));
  EXPECT_EQ(annotation_of(graph, rows), "{0,1}: S2 x 2");
  EXPECT_EQ(to_string(graph.tensors[y].type.shape), "(6, B, C, 5)");
  EXPECT_EQ(annotation_of(graph, y), "{0,1}: S0 x 2");

  Graph split = graph;
  split.apply("early", op::BatchedDot{}, {rows, w});
  EXPECT_EQ(reason(split),
            "early: needs a communication operator before input 0 because it is split along "
            "dimension 2 where experts are split it must be split along dimension 0 (subgroup 0)");
  const int whole = graph.leaf("whole", {kBatch, 8, 4}, one({0, 1}, {{kDuplicate, 2}}));
  const int some = graph.leaf("some", {kBatch, 8, 6}, one({0, 1}, {{2, 2}}));
  graph.apply("choice", op::Dispatch{SymbolicSize("C")}, {whole, some});
  EXPECT_EQ(reason(graph),
            "choice: needs a communication operator before input 1 because its experts are split, "
            "and tokens choose among all (subgroup 0)");
}

TEST(Deduce, SymbolsThatDisagreeAreRefused) {
  Graph graph;
  const int a = graph.leaf("a", {kBatch, 4}, one({0}, {}));
  const int b = graph.leaf("b", {kBatch.scaled(1, 2), 4}, one({0}, {}));
  graph.apply("sum", op::Binary{}, {a, b});
  EXPECT_EQ(reason(graph), "sum: input 1 has shape (B/2, 4), which does not end input 0's");
}

TEST(Deduce, InvalidAnnotationsOfLeavesAreRefused) {
  Graph graph;
  graph.leaf("a", {kBatch, 4}, one({0, 1}, {{2, 2}}));
  EXPECT_EQ(reason(graph),
            "a: its annotation is invalid: subgroup 0: axis 2 of a tensor of 2 dimensions");
}

/// A linear layer whose input is gathered and whose output moves on: Figure 9 in small.
TEST(Specialize, DevicesKeepTheirOperatorsAndCommOpsAreReplaced) {
  Graph graph;
  const int x = graph.leaf("x", {kBatch, 8, 4}, one({0, 1}, {{1, 2}}));
  const int w = graph.leaf("w", {4, 6}, one({0, 1}, {{1, 2}}));
  const int whole = graph.communicate("gather", x, one({0, 1}, {{kDuplicate, 2}}));
  const int y = graph.apply("y", op::Dot{}, {whole, w});
  graph.communicate("send", y, one({2, 3}, {{2, 2}}));
  ASSERT_FALSE(deduce(graph));
  const auto special = std::get<SpecializedGraph>(specialize(graph, {{"B", 2}}));
  EXPECT_EQ(special.devices.at(0).size(), 5U);
  ASSERT_EQ(special.devices.at(3).size(), 1U);
  EXPECT_EQ(special.devices.at(3)[0].operation, 4);
  EXPECT_EQ(to_string(special.devices.at(3)[0].part), "[0,2)x[0,8)x[3,6)");
  const auto counts = launches(special, Frequency::micro_batch);
  EXPECT_EQ(counts.at(CommunicationKind::all_gather), 1);
  EXPECT_EQ(counts.at(CommunicationKind::send_receive), 2);
  EXPECT_EQ(std::get<GraphProblem>(specialize(graph, {})).reason, "x: B: no value for B");
}

/// Tokens split before, heads split after: sends inside the group, then on to another one.
TEST(Pipelines, SendsInsideAGroupStayInTheStage) {
  Graph graph;
  const int x = graph.leaf("x", {kBatch, 8, 4}, one({0, 1}, {{1, 2}}));
  const int heads = graph.communicate("exchange", x, one({0, 1}, {{2, 2}}));
  const int next = graph.communicate("send", heads, one({2, 3}, {{2, 2}}));
  graph.communicate("exchange back", next, one({2, 3}, {{1, 2}}));
  ASSERT_FALSE(deduce(graph));
  const auto special = std::get<SpecializedGraph>(specialize(graph, {{"B", 2}}));
  EXPECT_EQ(launches(special, Frequency::micro_batch).at(CommunicationKind::batched_send_receive),
            4);
  const auto built = build_pipelines(special);
  ASSERT_TRUE(std::holds_alternative<std::vector<DevicePipeline>>(built));
  EXPECT_EQ(std::get<std::vector<DevicePipeline>>(built),
            (std::vector<DevicePipeline>{{{{0, 1}, {2, 3}}}}));
}

/// What runs once per step joins nothing: the gradients of two pipelines, the paper's id=1.
TEST(Pipelines, CommunicationOfAStepJoinsNothing) {
  Graph graph;
  const int x = graph.leaf("x", {4}, one({0, 1}, {{kPartial, 2}}));
  graph.communicate("gradient", x, one({0, 1}, {{kDuplicate, 2}}), Frequency::step);
  ASSERT_FALSE(deduce(graph));
  const auto special = std::get<SpecializedGraph>(specialize(graph, {}));
  EXPECT_EQ(std::get<std::vector<DevicePipeline>>(build_pipelines(special)),
            (std::vector<DevicePipeline>{{{{0}}}, {{{1}}}}));
}

TEST(Pipelines, ACollectiveAcrossTwoStagesIsReported) {
  Graph graph;
  const int x = graph.leaf("x", {4}, one({0}, {}));
  graph.communicate("send", x, one({1}, {}));
  const int y = graph.leaf("y", {4}, one({0, 1}, {{kPartial, 2}}));
  graph.communicate("sum", y, one({0, 1}, {{kDuplicate, 2}}));
  ASSERT_FALSE(deduce(graph));
  const auto special = std::get<SpecializedGraph>(specialize(graph, {}));
  EXPECT_EQ(std::get<NoPipelines>(build_pipelines(special)).reason,
            "devices 0 and 1 meet in a collective, and stand in different stages of one pipeline");
}

TEST(Specialize, RefusedCommunicationNamesItsOperator) {
  Graph graph;
  const int x = graph.leaf("x", {kBatch, 4}, one({0, 1}, {{kPartial, 2}}));
  graph.communicate("move", x, one({2}, {}));
  ASSERT_FALSE(deduce(graph));
  EXPECT_EQ(std::get<GraphProblem>(specialize(graph, {{"B", 2}})).reason,
            "move: subgroup 0 holds 2 summands, which sends cannot add on other devices");
}

}  // namespace
}  // namespace orrery::models::testing::graph_test
