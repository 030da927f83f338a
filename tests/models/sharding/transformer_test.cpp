/// From annotations alone the plan's pipelines and the paper's operators come out.
#include "models/sharding/transformer.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/models/sharding/hetu_plans.h"
#include "tests/models/sharding/random_annotations.h"
#include "tests/models/sharding/transformer_helpers.h"

namespace orrery::models::testing::transformer_test {
namespace {

TEST(TransformerGraph, PipelinesOfHetusElasticPlansComeOutOfTheAnnotations) {
  for (const auto& plan : {hetu_c1(), hetu_c2(), hetu_c6()}) {
    EXPECT_EQ(built(toy_model(60), plan), text(stages_of(plan)));
  }
}

TEST(TransformerGraph, OperatorsOfC2AreThoseThatThePaperNames) {
  const auto plan = hetu_c2();
  const Graph graph = graph_of(toy_model(60), plan);
  const SpecializedGraph special = specialized(graph, plan);
  EXPECT_EQ(kinds_of(graph, special, "mlp.gather"), (std::set<Kind>{Kind::all_gather}));
  EXPECT_EQ(kinds_of(graph, special, "mlp.reduce"), (std::set<Kind>{Kind::reduce_scatter}));
  EXPECT_EQ(kinds_of(graph, special, ".receive"),
            (std::set<Kind>{Kind::send_receive, Kind::batched_send_receive}));
  EXPECT_EQ(kinds_of(graph, special, "10.mlp.up.gradient"), (std::set<Kind>{Kind::all_reduce}));
  EXPECT_EQ(kinds_of(graph, special, "50.mlp.up.gradient"),
            (std::set<Kind>{Kind::split_all_reduce}));
  EXPECT_EQ(kinds_of(graph, special, "58.mlp.gain.gradient"),
            (std::set<Kind>{Kind::all_reduce, Kind::split_all_reduce}));
  const auto counts = launches(special, Frequency::micro_batch);
  EXPECT_EQ(counts.at(Kind::send_receive), 5 * 4);  // Five borders between groups of four.
}

/// Gains of layers 56 to 59: an all-reduce in the group of four comes before the split one.
TEST(TransformerGraph, GainsAreReducedInTheGroupFirst) {
  const auto plan = hetu_c2();
  const Graph graph = graph_of(toy_model(60), plan);
  const SpecializedGraph special = specialized(graph, plan);
  int found = 0;
  for (const auto& communication : special.communications) {
    if (graph.operators[communication.operation].name != "56.mlp.gain.gradient") {
      continue;
    }
    ++found;
    ASSERT_EQ(communication.steps.size(), 3U);
    EXPECT_EQ(communication.steps[0].kind, Kind::all_reduce);
    EXPECT_EQ(communication.steps[0].devices, (std::vector<int>{12, 13, 14, 15}));
    EXPECT_EQ(communication.steps[1].kind, Kind::identity);
    EXPECT_EQ(communication.steps[2].kind, Kind::split_all_reduce);
    EXPECT_EQ(communication.steps[2].phase, 1);
    EXPECT_EQ(groups(communication.steps[2]).size(), 4U);
  }
  EXPECT_EQ(found, 1);
}

TEST(TransformerGraph, ZeroAddsSplitReduceScatterAndSplitAllGather) {
  auto plan = hetu_c2();
  for (auto& pipeline : plan.pipelines) {
    for (auto& stage : pipeline.stages) stage.segments.front().zero.stage = 1;
  }
  const Graph graph = graph_of(toy_model(60), plan);
  const SpecializedGraph special = specialized(graph, plan);
  EXPECT_EQ(kinds_of(graph, special, "50.mlp.up.gradient"),
            (std::set<Kind>{Kind::split_reduce_scatter}));
  EXPECT_EQ(kinds_of(graph, special, "50.mlp.up.refresh"),
            (std::set<Kind>{Kind::split_all_gather}));
  EXPECT_EQ(kinds_of(graph, special, "10.mlp.up.gradient"), (std::set<Kind>{Kind::reduce_scatter}));
  EXPECT_EQ(kinds_of(graph, special, "10.mlp.gain.gradient"),
            (std::set<Kind>{Kind::all_reduce, Kind::split_reduce_scatter}));
}

/// The annotation of a gain's summands is what Sum deduces over tokens and samples.
TEST(TransformerGraph, GradientsOfGainsLieAsDeductionSays) {
  const auto plan = hetu_c2();
  Graph graph = graph_of(toy_model(60), plan);
  int product = -1;
  for (const auto& operation : graph.operators) {
    if (operation.name == "56.mlp.norm") product = operation.output;
  }
  ASSERT_GE(product, 0);
  const int tokens = graph.apply("sum over tokens", op::Sum{1}, {product});
  const int samples = graph.apply("sum over samples", op::Sum{0}, {tokens});
  ASSERT_FALSE(deduce(graph));
  const auto type = [&](int tensor) { return graph.tensors[tensor].type; };
  for (const auto& operation : graph.operators) {
    if (operation.name == "56.mlp.gain.summands") {
      EXPECT_EQ(to_string(type(samples).annotation), to_string(type(operation.output).annotation));
    }
  }
}

TEST(TransformerGraph, EachDeviceKeepsItsOperatorsOnly) {
  const auto plan = hetu_c2();
  const Graph graph = graph_of(toy_model(60), plan);
  const SpecializedGraph special = specialized(graph, plan);
  ASSERT_EQ(special.devices.size(), 31U);
  for (const auto& local : special.devices.at(30)) {
    const auto& name = graph.operators[local.operation].name;
    const bool own = name.substr(0, 2) >= "56" || name.substr(0, 4) == "head" || name == "loss" ||
                     name == "labels";
    EXPECT_TRUE(own) << name;
  }
  EXPECT_FALSE(special.devices.at(30).empty());
}

ir::Plan random_plan(Rng& rng, int layers) {
  ir::Plan plan;
  auto order = random_devices(rng, 64, 64);
  for (int i = 64; i < 72; ++i) order.push_back(i);  // Three pipelines of three stages of TP 8.
  auto next = order.begin();
  const bool interleaved = rng.bernoulli(0.3);
  for (int p = draw(rng, 1, 3); p > 0; --p) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = draw(rng, 1, 5);
    pipeline.micro_batch_size = draw(rng, 1, 3);
    const int stages = draw(rng, interleaved ? 2 : 1, 3);
    const int chunks = stages * (interleaved ? 2 : 1);
    for (int s = 0; s < stages; ++s) {
      const int degree = 1 << draw(rng, 0, 3);
      std::vector<int> devices(next, next + degree);
      next += degree;
      const auto group = group_of(devices, rng.bernoulli(0.5), pipeline.micro_batch_size);
      ir::Stage stage;
      for (int chunk = s; chunk < chunks; chunk += stages) {
        stage.segments.push_back(
            segment_of(layers * chunk / chunks, layers * (chunk + 1) / chunks - 1, {group}));
        stage.segments.back().virtual_stage = chunk / stages;
      }
      pipeline.stages.push_back(std::move(stage));
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

TEST(TransformerGraph, PipelinesOfRandomPlansComeOutOfTheAnnotations) {
  Rng rng(21);
  for (int n = 0; n < 150; ++n) {
    const int layers = draw(rng, 6, 8);
    const auto plan = random_plan(rng, layers);
    ASSERT_EQ(built(toy_model(layers), plan), text(stages_of(plan))) << n;
  }
}

TEST(TransformerGraph, GroupsOfAStageMeetInTheNextOne) {
  ir::Pipeline pipeline;
  pipeline.micro_batch_size = 4;
  pipeline.stages.push_back(
      {{segment_of(0, 2, {group_of({0, 1}, true, 2), group_of({2}, true, 2)})}});
  pipeline.stages.push_back({{segment_of(3, 5, {group_of({4, 5, 6, 7}, true, 4)})}});
  const auto plan = plan_of({pipeline});
  EXPECT_EQ(built(toy_model(6), plan), "[ 0 1 2 ][ 4 5 6 7 ]\n");
}

TEST(TransformerGraph, GroupsThatShareNoMicroBatchArePipelinesOfTheirOwn) {
  ir::Pipeline pipeline;
  pipeline.micro_batch_size = 4;
  pipeline.stages.push_back(
      {{segment_of(0, 5, {group_of({0, 1}, true, 2), group_of({2, 3}, true, 2)})}});
  const auto plan = plan_of({pipeline});
  EXPECT_EQ(built(toy_model(6), plan), "[ 0 1 ]\n[ 2 3 ]\n");
}

TEST(TransformerGraph, RefusesWhatItCannotSay) {
  auto model = toy_model(60);
  auto plan = hetu_c1();
  const auto reason = [&] {
    const auto result = transformer_graph(model, plan);
    const auto* problem = std::get_if<GraphProblem>(&result);
    return problem ? problem->reason : std::string("accepted");
  };
  EXPECT_EQ(reason(), "accepted");
  model.layers = 57;
  EXPECT_EQ(reason(), "plan: 60 blocks for 57 layers");
  model = toy_model(60);
  plan.pipelines[1].stages[2].segments[0].last_block = BlockId{43};
  EXPECT_EQ(reason(), "plan: block 44 sees 32 of 64 samples");
  plan = hetu_c1();
  plan.pipelines[0].reroutes.push_back({0, 3, 1});
  EXPECT_EQ(reason(),
            "plan: reroutes are a state of a recovery, single micro-batches on other devices; an "
            "annotation says where all of them lie");
  plan = hetu_c1();
  const auto segment = [&]() -> ir::Segment& { return plan.pipelines[0].stages[0].segments[0]; };
  segment().groups[0].sequence_degree = 2;
  EXPECT_EQ(reason(), "plan: 4 devices for tensor_parallel 4 x sequence_degree 2");
  segment().groups[0].tensor_parallel = 2;
  EXPECT_EQ(reason(), "plan: sequence_degree 2 without Ulysses or ring");
  plan = hetu_c1();
  segment().zero.stage = 1;
  EXPECT_EQ(reason(), "plan: the holders of block 0 differ in ZeRO");
  plan = hetu_c1();
  segment().expert_parallel = 2;
  EXPECT_EQ(reason(), "plan: expert parallelism of a model without experts");
  model.experts = 4;
  model.top_k = 1;
  EXPECT_EQ(reason(), "plan: expert_parallel 2 for 1 groups");
  model = toy_model(60);
  model.kv_heads = 3;
  plan = hetu_c1();
  EXPECT_EQ(reason(), "plan: 3 key-value heads on 4 devices");
}

TEST(TransformerGraph, RefusesGroupsThatShareExpertsUnequally) {
  ir::Pipeline pipeline;
  pipeline.micro_batch_size = 3;
  pipeline.stages.push_back(
      {{segment_of(0, 5, {group_of({0, 1}, true, 2), group_of({2, 3}, true, 1)})}});
  pipeline.stages[0].segments[0].expert_parallel = 2;
  auto model = toy_model(6);
  model.experts = 4;
  model.top_k = 1;
  const auto result = transformer_graph(model, plan_of({pipeline}));
  ASSERT_TRUE(std::holds_alternative<GraphProblem>(result));
  EXPECT_EQ(std::get<GraphProblem>(result).reason,
            "plan: groups that share experts differ in samples, degrees or numbers of experts: "
            "their devices would hold unequal parts inside one subgroup, where an annotation has "
            "equal ones only");
}

/// Copies 0 to 2 with degrees 4, 2 and 2: the first shard group joins two kinds of states.
TEST(TransformerGraph, RefusesShardGroupsOfUnequalCopiesBesideOthers) {
  std::vector<ir::Pipeline> pipelines;
  int next = 0;
  for (const int degree : {4, 2, 2}) {
    std::vector<int> devices(degree);
    std::iota(devices.begin(), devices.end(), next);
    next += degree;
    ir::Pipeline pipeline;
    pipeline.stages.push_back({{segment_of(0, 5, {group_of(devices, false, 1)})}});
    pipeline.stages[0].segments[0].zero = {1, 2};
    pipelines.push_back(std::move(pipeline));
  }
  const auto plan = plan_of(pipelines);
  const auto result = transformer_graph(toy_model(6), plan);
  ASSERT_TRUE(std::holds_alternative<GraphProblem>(result));
  EXPECT_EQ(std::get<GraphProblem>(result).reason,
            "plan: a ZeRO shard group of embedding.table has copies of different states beside "
            "another shard group: two tiers cannot say copies in groups in a whole");
}

TEST(TransformerGraph, PartsThatDoNotDivideAreRefusedWhenNumbersAreBound) {
  const auto graph = graph_of(toy_model(60), hetu_c1());
  const auto bound = specialize(graph, {{"B", 64}, {"S", 6}});
  ASSERT_TRUE(std::holds_alternative<GraphProblem>(bound));
  EXPECT_EQ(std::get<GraphProblem>(bound).reason,
            "embedding.reduce: subgroup 0: 4 shards do not divide the 6 of dimension 1");
}

}  // namespace
}  // namespace orrery::models::testing::transformer_test
