/// What sequence parallelism, experts, shared heads, biases, tied embeddings and ZeRO become in an
/// annotated transformer.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/sharding/pipelines.h"
#include "models/sharding/transformer.h"
#include "tests/models/sharding/random_transformer.h"
#include "tests/models/sharding/transformer_helpers.h"

namespace orrery::models::testing::transformer_features_test {
namespace {

TEST(TransformerFeatures, PipelinesComeOutOfPlansWithEveryKindOfParallelism) {
  Rng rng(22);
  int compared = 0;
  for (int n = 0; n < 120; ++n) {
    const TransformerFeatures features{
        .experts = n % 2 == 0, .tied = true, .zero = n % 3 == 0, .widest = 8};
    auto made = TransformerMaker(rng, features).make(draw(rng, 1, 4), 55440);
    if (made.model.experts > 0) made.model.experts = 16;
    const auto built = transformer_graph(made.model, made.plan);
    if (std::holds_alternative<GraphProblem>(built)) continue;  // See the refusals below.
    const auto special = specialize(std::get<Graph>(built), binding_of(made.plan, 64, 64));
    ASSERT_TRUE(std::holds_alternative<SpecializedGraph>(special))
        << std::get<GraphProblem>(special).reason;
    const auto pipelines = build_pipelines(std::get<SpecializedGraph>(special));
    ASSERT_TRUE(std::holds_alternative<std::vector<DevicePipeline>>(pipelines))
        << std::get<NoPipelines>(pipelines).reason;
    EXPECT_EQ(text(std::get<std::vector<DevicePipeline>>(pipelines)), text(stages_of(made.plan)))
        << n;
    ++compared;
  }
  EXPECT_GT(compared, 60);
}

/// One stage of tensor-parallel degree 2 with two parts of each sequence.
ir::Plan plan_of_parts(ir::SequenceParallelism sequence) {
  ir::Group group = group_of({0, 1, 2, 3}, false, 1);
  group.tensor_parallel = 2;
  group.sequence = sequence;
  group.sequence_degree = 2;
  ir::Pipeline pipeline;
  pipeline.stages.push_back({{segment_of(0, 0, {group})}});
  return plan_of({pipeline});
}

/// Devices 0 and 1 have the first half of the tokens, 2 and 3 the second.
TEST(TransformerFeatures, UlyssesSendsBetweenPartsOfTheSequence) {
  const auto plan = plan_of_parts(ir::SequenceParallelism::ulysses);
  const Graph graph = graph_of(toy_model(1), plan);
  const SpecializedGraph special = specialized(graph, plan);
  int found = 0;
  for (const auto& communication : special.communications) {
    const auto& name = graph.operators[communication.operation].name;
    if (name.find(".exchange") == std::string::npos) continue;
    ++found;
    ASSERT_EQ(communication.steps.size(), 1U);
    EXPECT_EQ(communication.steps[0].kind, Kind::batched_send_receive);
    auto pairs = groups(communication.steps[0]);
    std::sort(pairs.begin(), pairs.end());
    EXPECT_EQ(pairs, (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {2, 0}, {3, 1}})) << name;
  }
  EXPECT_EQ(found, 4);
}

TEST(TransformerFeatures, RingGroupsGatherKeysAndValuesOnly) {
  const auto plan = plan_of_parts(ir::SequenceParallelism::ring);
  const Graph graph = graph_of(toy_model(1), plan);
  const SpecializedGraph special = specialized(graph, plan);
  EXPECT_EQ(kinds_of(graph, special, "key.exchange"), (std::set<Kind>{Kind::all_gather}));
  EXPECT_EQ(kinds_of(graph, special, "value.exchange"), (std::set<Kind>{Kind::all_gather}));
  EXPECT_TRUE(kinds_of(graph, special, "query.exchange").empty());
  EXPECT_TRUE(kinds_of(graph, special, "attention.exchange").empty());
}

/// Each half of the group adds up the gradients of its own key-value head; two devices of a half
/// saw other queries.
TEST(TransformerFeatures, SharedKeyValueHeadsHaveAGradientForEachDevice) {
  ir::Pipeline pipeline;
  pipeline.stages.push_back({{segment_of(0, 0, {group_of({0, 1, 2, 3}, false, 1)})}});
  const auto plan = plan_of({pipeline});
  auto model = toy_model(1);
  model.kv_heads = 2;
  const Graph graph = graph_of(model, plan);
  const SpecializedGraph special = specialized(graph, plan);
  for (const auto& communication : special.communications) {
    const auto& name = graph.operators[communication.operation].name;
    if (name != "0.attention.key.gradient") continue;
    EXPECT_EQ(to_string(communication.from), "{0,2,1,3}: P x 2, S1 x 2");
    EXPECT_EQ(groups(communication.steps[0]), (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
    return;
  }
  ADD_FAILURE() << "no gradient";
}

TEST(TransformerFeatures, EndsOfATiedMatrixAddUpTheirGradients) {
  const auto plan = plan_of({pipeline_of(1, 1, {{0, 1, 0, 2}, {2, 3, 3, 5}})});
  auto model = toy_model(6);
  model.tied_embeddings = true;
  const Graph graph = graph_of(model, plan);
  const SpecializedGraph special = specialized(graph, plan);
  int found = 0;
  for (const auto& communication : special.communications) {
    const auto& name = graph.operators[communication.operation].name;
    if (name.find("table") == std::string::npos) continue;
    ++found;
    EXPECT_EQ(name, "embedding.table.gradient");
    EXPECT_EQ(communication.frequency, Frequency::step);
    EXPECT_EQ(groups(communication.steps[0]), (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  }
  EXPECT_EQ(found, 1);
}

TEST(TransformerFeatures, OneDeviceWithBothEndsOfATiedMatrixSendsNothing) {
  ir::Pipeline pipeline;
  pipeline.stages.push_back({{segment_of(0, 5, {group_of({0, 1}, true, 1)})}});
  const auto plan = plan_of({pipeline});
  auto model = toy_model(6);
  model.tied_embeddings = true;
  const Graph graph = graph_of(model, plan);
  for (const auto& operation : graph.operators) {
    EXPECT_NE(operation.name, "head.table");
    EXPECT_NE(operation.name, "embedding.table.gradient");
  }
}

TEST(TransformerFeatures, BiasesOfContractedProductsAreAddedToTheSum) {
  const auto plan = hetu_c2();
  auto model = toy_model(60);
  model.biases = true;
  const Graph graph = graph_of(model, plan);
  for (const auto& operation : graph.operators) {
    if (operation.name != "10.mlp.down.biased") continue;
    const std::size_t sum = operation.inputs[0];
    EXPECT_EQ(graph.operators[sum].name, "10.mlp.reduce");
    EXPECT_FALSE(has_partial(graph.tensors[sum].type.annotation));
    return;
  }
  ADD_FAILURE() << "no bias";
}

/// Groups 0, 1 and 2, 3 hold half of the experts each; rows are known when the step runs.
TEST(TransformerFeatures, RowsOfExpertsAreASizeBoundAtRunTime) {
  ir::Pipeline pipeline;
  pipeline.micro_batch_size = 2;
  pipeline.stages.push_back(
      {{segment_of(0, 0, {group_of({0, 1}, true, 1), group_of({2, 3}, true, 1)})}});
  pipeline.stages[0].segments[0].expert_parallel = 2;
  const auto plan = plan_of({pipeline});
  auto model = toy_model(1);
  model.experts = 4;
  model.top_k = 2;
  EXPECT_EQ(rows_per_expert(model, kToySequence), 8);
  const Graph graph = graph_of(model, plan);
  for (const auto& operation : graph.operators) {
    if (operation.name != "0.experts.dispatch") continue;
    EXPECT_EQ(to_string(graph.tensors[operation.output].type.shape), "(4, B, C, 32)");
  }
  const auto unbound = specialize(graph, binding_of(plan, kToySequence));
  ASSERT_TRUE(std::holds_alternative<GraphProblem>(unbound));
  EXPECT_EQ(std::get<GraphProblem>(unbound).reason, "0.experts.rows: C: no value for C");
  const auto uneven = specialize(graph, binding_of(plan, kToySequence, 7));
  ASSERT_TRUE(std::holds_alternative<GraphProblem>(uneven));
  EXPECT_EQ(std::get<GraphProblem>(uneven).reason,
            "0.experts.rows: subgroup 0: 2 shards do not divide the 7 of dimension 2");
  const auto bound = specialize(graph, binding_of(plan, kToySequence, 8));
  ASSERT_TRUE(std::holds_alternative<SpecializedGraph>(bound));
  const auto& special = std::get<SpecializedGraph>(bound);
  EXPECT_EQ(kinds_of(graph, special, "dispatch"), (std::set<Kind>{Kind::batched_send_receive}));
  EXPECT_EQ(kinds_of(graph, special, "experts.gather"), (std::set<Kind>{Kind::all_gather}));
  EXPECT_EQ(kinds_of(graph, special, "experts.reduce"), (std::set<Kind>{Kind::reduce_scatter}));
  EXPECT_EQ(kinds_of(graph, special, "combine"), (std::set<Kind>{Kind::batched_send_receive}));
}

TEST(TransformerFeatures, ShardGroupsScatterInsideAndAddUpBetween) {
  std::vector<ir::Pipeline> pipelines;
  for (int p = 0; p < 4; ++p) {
    ir::Pipeline pipeline;
    pipeline.stages.push_back({{segment_of(0, 0, {group_of({2 * p, 2 * p + 1}, false, 1)})}});
    pipeline.stages[0].segments[0].zero = {1, 2};
    pipelines.push_back(std::move(pipeline));
  }
  const auto plan = plan_of(pipelines);
  const Graph graph = graph_of(toy_model(1), plan);
  const SpecializedGraph special = specialized(graph, plan);
  int found = 0;
  for (const auto& communication : special.communications) {
    const auto& name = graph.operators[communication.operation].name;
    if (name != "0.mlp.up.gradient") continue;
    ++found;
    ASSERT_EQ(communication.steps.size(), 3U);
    EXPECT_EQ(communication.steps[0].kind, Kind::reduce_scatter);
    EXPECT_EQ(groups(communication.steps[0]), (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
    EXPECT_EQ(groups(communication.steps[1]), (std::vector<std::vector<int>>{{4, 6}, {5, 7}}));
    EXPECT_EQ(communication.steps[2].kind, Kind::split_all_reduce);
    EXPECT_EQ(groups(communication.steps[2]),
              (std::vector<std::vector<int>>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace orrery::models::testing::transformer_features_test
