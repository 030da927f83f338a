#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/planners/support.h"

namespace orrery::planners::hexiscale_test {
namespace {

std::string why(const PlannerResult& result) {
  const auto* no = std::get_if<models::Infeasible>(&result.outcome);
  return no == nullptr ? "" : no->constraint + ": " + no->witness;
}

/// The plan of Figure 1 (bottom): [TP2 A, B, C] = [30, 5, 5] with 14 micro-batches and [A, B, B, C]
/// = [25, 5, 5, 5] with 10. Devices: A 0-2, B 3-5, C 6-7.
ir::Plan published_case_study(const World& world) {
  const auto stage = [&](std::vector<int> devices, int first, int last) {
    ir::Group group;
    for (const int d : devices) group.devices.push_back(DeviceId{d});
    group.tensor_parallel = static_cast<int>(devices.size());
    ir::Segment segment;
    segment.first_block = BlockId{first == 1 ? 0 : first};
    segment.last_block = BlockId{last == 40 ? 41 : last};
    segment.groups = {group};
    segment.recompute = ir::Recompute::full;
    return ir::Stage{{segment}};
  };
  ir::Pipeline first;
  first.micro_batches = 14;
  first.stages = {stage({0, 1}, 1, 30), stage({3}, 31, 35), stage({6}, 36, 40)};
  ir::Pipeline second;
  second.micro_batches = 10;
  second.stages = {stage({2}, 1, 25), stage({4}, 26, 30), stage({5}, 31, 35), stage({7}, 36, 40)};
  ir::Plan plan;
  plan.pipelines = {first, second};
  EXPECT_EQ(world.defects(plan), "");
  return plan;
}

TEST(Hexiscale, IsNotWorseThanThePublishedCaseStudyPlan) {
  const World world(case_study_cluster(), llama2_13b(), 24);
  const ir::Plan published = published_case_study(world);
  const double paper = world.paper_estimate(published).value;
  const PlannerResult result = run_planner("hexiscale", world.input(), {{"evaluate_top", "1"}});
  ASSERT_NE(plan_of(result), nullptr) << why(result);
  EXPECT_TRUE(world.verdict(*plan_of(result)).fits());
  EXPECT_LE(world.paper_estimate(*plan_of(result)).value, paper);
  RecordProperty("published_estimate", fmt::format("{:.3f}", paper));
  RecordProperty("published_memory", world.verdict(published).explain());
  RecordProperty("found_estimate", fmt::format("{:.3f}", result.report.estimate->value));
}

TEST(Hexiscale, IsNotWorseThanThePublishedPlanWhereThatOneFits) {
  // The same machines with ample memory, as the case study assumes.
  const World world(make_cluster({{"A800", 312, 800, 3, 200, 1},
                                  {"RTX4090", 165.2, 240, 3, 32, 1},
                                  {"RTX3090", 80, 240, 2, 16, 1}},
                                 1),
                    llama2_13b(), 24);
  const ir::Plan published = published_case_study(world);
  ASSERT_TRUE(world.verdict(published).fits());
  const PlannerResult result = run_planner("hexiscale", world.input(), {{"evaluate_top", "1"}});
  ASSERT_NE(plan_of(result), nullptr) << why(result);
  EXPECT_LE(world.paper_estimate(*plan_of(result)).value, world.paper_estimate(published).value);
}

TEST(Hexiscale, FindsThePublishedKindOfPlanWithTwoPipelines) {
  // Batches and memory as in the paper, but data parallelism nearly free: two pipelines must pay.
  const World world(make_cluster({{"A800", 312, 800, 3, 200, 1},
                                  {"RTX4090", 165.2, 240, 3, 200, 1},
                                  {"RTX3090", 80, 240, 2, 200, 1}},
                                 200),
                    llama2_13b(), 24);
  const PlannerResult result = run_planner("hexiscale", world.input());
  ASSERT_NE(plan_of(result), nullptr) << why(result);
  const auto& pipelines = plan_of(result)->pipelines;
  EXPECT_GE(pipelines.size(), 2U);
}

TEST(Hexiscale, TheEstimateIsTheCostModelOfThePaper) {
  const World world(mixed_cluster(64), llama2_13b(), 256);
  const PlannerResult result = run_planner("hexiscale", world.input(), {{"rounds", "10"}});
  ASSERT_NE(plan_of(result), nullptr) << why(result);
  EXPECT_DOUBLE_EQ(result.report.estimate->value, world.paper_estimate(*plan_of(result)).value);
  EXPECT_EQ(plan_of(result)->predicted->iteration_time, *result.report.estimate);
}

TEST(Hexiscale, MoreRoundsAreNeverWorse) {
  // Up to 4 pipelines are enumerated in the same order whatever the number of rounds.
  const World world(mixed_cluster(64), llama_30b(), 256);
  double before = kNever;
  for (const char* rounds : {"14", "20", "40", "80"}) {
    const auto result =
        run_planner("hexiscale", world.input(), {{"rounds", rounds}, {"evaluate_top", "1"}});
    ASSERT_NE(plan_of(result), nullptr) << why(result);
    EXPECT_LE(result.report.estimate->value, before) << rounds;
    before = result.report.estimate->value;
  }
}

TEST(Hexiscale, IsAsGoodAsTheGridOnHomogeneousClusters) {
  for (const double between : {1.0, 10.0, 100.0}) {
    World world(make_cluster({{"A800", 312, 80, 8, 200, 4}}, between), llama2_13b(), 256);
    world.job.allowed.recompute = {ir::Recompute::full};  // As the paper's cost model assumes.
    world.job.allowed.max_micro_batch_size = 1;
    const auto grid = run_planner("megatron_grid", world.input());
    const auto found = run_planner("hexiscale", world.input(), {{"evaluate_top", "1"}});
    ASSERT_NE(plan_of(grid), nullptr) << why(grid);
    ASSERT_NE(plan_of(found), nullptr) << why(found);
    EXPECT_LE(found.report.estimate->value, 1.1 * world.paper_estimate(*plan_of(grid)).value)
        << between << " GB/s";
  }
}

TEST(Hexiscale, WithoutRecomputeAQuarterOfTheWorkIsSaved) {
  // Eq. 6: 72 instead of 96; the network is fast enough not to matter.
  const World world(make_cluster({{"X", 100, 800, 4, 1000, 2}}, 1000), llama2_13b(), 64);
  const auto with = run_planner("hexiscale", world.input());
  const auto without = run_planner("hexiscale", world.input(), {{"recompute", "weakest"}});
  ASSERT_NE(plan_of(with), nullptr) << why(with);
  ASSERT_NE(plan_of(without), nullptr) << why(without);
  EXPECT_NEAR(without.report.estimate->value / with.report.estimate->value, 0.75, 0.02);
}

TEST(Hexiscale, BeatsTheGridOnTheMixOfThePaper) {
  const World world(mixed_cluster(240), llama_30b(), 1024);
  const auto grid = run_planner("megatron_grid", world.input());
  const auto found = run_planner("hexiscale", world.input(), {{"rounds", "30"}});
  ASSERT_NE(plan_of(grid), nullptr) << why(grid);
  ASSERT_NE(plan_of(found), nullptr) << why(found);
  const models::Evaluator& judge = world.input().evaluator;
  EXPECT_LT(judge.evaluate(*plan_of(found)).iteration_time.value,
            judge.evaluate(*plan_of(grid)).iteration_time.value);
}

TEST(Hexiscale, FasterPipelinesTakeLargerBatches) {
  // Two machines that differ threefold, each a pipeline or more of its own.
  const World world(make_cluster({{"Fast", 300, 80, 4, 200, 1}, {"Slow", 100, 80, 4, 200, 1}}, 100),
                    small_model(8), 64, 2048);
  const auto result =
      run_planner("hexiscale", world.input(), {{"max_imbalance", "2"}, {"cut", "minimize"}});
  ASSERT_NE(plan_of(result), nullptr) << why(result);
  int fast = 0;
  int slow = 0;
  for (const ir::Pipeline& chain : plan_of(result)->pipelines) {
    bool mixed = false;
    const std::string first = world.cluster.gpu(ir::devices_of(chain.stages[0])[0]).name;
    for (const ir::Stage& stage : chain.stages) {
      mixed = mixed || world.cluster.gpu(ir::devices_of(stage)[0]).name != first;
    }
    if (!mixed) (first == "Fast" ? fast : slow) += chain.micro_batches;
  }
  EXPECT_EQ(fast + slow, 64);
  EXPECT_GT(slow, 0);
  EXPECT_GT(fast, 2 * slow);
}

TEST(Hexiscale, AConvolutionalNetworkIsRefused) {
  World world(make_cluster({{"X", 100, 80, 4, 100, 1}}, 5), small_model(8), 16);
  world.workload.shape.hidden = 0;
  const PlannerResult result = run_planner("hexiscale", world.input());
  EXPECT_NE(why(result).find("cost model"), std::string::npos) << why(result);
}

TEST(Hexiscale, EverySwitchGivesValidPlansThatFit) {
  const World world(mixed_cluster(64), llama2_13b(), 128);
  const std::vector<std::pair<std::string, std::vector<std::string>>> switches = {
      {"partition", {"random"}},
      {"tensor_parallel", {"1", "2", "4"}},
      {"num_pipelines", {"random_walk_public"}},
      {"cut", {"compare_costs", "minimize", "maximize"}},
      {"edges", {"inverse_public"}},
      {"group_count", {"binomial_public"}},
      {"candidates", {"public_lists"}},
      {"stage_order", {"last_path_public"}},
      {"batches", {"equal_public"}},
      {"cost_factors", {"public"}},
      {"memory", {"equation_11"}},
      {"recompute", {"strongest"}},
      {"micro_batch_size", {"2"}},
      {"tau", {"1", "4"}},
  };
  for (const auto& [name, values] : switches) {
    for (const std::string& value : values) {
      const auto result =
          run_planner("hexiscale", world.input(), {{"rounds", "20"}, {name, value}});
      if (plan_of(result) == nullptr) {
        // Eq. 11 counts neither embedding nor activations in flight: its plans may not fit.
        EXPECT_EQ(name, "memory") << value << ": " << why(result);
        continue;
      }
      EXPECT_EQ(world.defects(*plan_of(result)), "") << name << " " << value;
      EXPECT_TRUE(world.verdict(*plan_of(result)).fits()) << name << " " << value;
    }
  }
}

TEST(Hexiscale, OneDegreeHoldsForAllStagesAndLeavesTheRestOfAMachineIdle) {
  // Machines of 3, 3 and 2 GPUs: one GPU of the first and of the second is left over.
  const World world(make_cluster({{"A800", 312, 800, 3, 200, 1},
                                  {"RTX4090", 165.2, 240, 3, 32, 1},
                                  {"RTX3090", 80, 240, 2, 16, 1}},
                                 1),
                    llama2_13b(), 24);
  const PlannerResult result = run_planner("hexiscale", world.input(), {{"tensor_parallel", "2"}});
  ASSERT_NE(plan_of(result), nullptr) << why(result);
  std::size_t devices = 0;
  for (const ir::Pipeline& pipeline : plan_of(result)->pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      EXPECT_EQ(stage.segments[0].groups[0].tensor_parallel, 2);
      devices += stage.segments[0].groups[0].devices.size();
    }
  }
  EXPECT_EQ(devices, 6u);
  // A degree that no machine can form leaves no pipeline.
  const PlannerResult none = run_planner("hexiscale", world.input(), {{"tensor_parallel", "4"}});
  EXPECT_EQ(plan_of(none), nullptr);
}

TEST(Hexiscale, ARandomPartitionIsNotBetterThanTheGraphPartition) {
  const World world(mixed_cluster(64), llama2_13b(), 128);
  const PlannerResult graph = run_planner("hexiscale", world.input(), {{"evaluate_top", "1"}});
  const PlannerResult dealt =
      run_planner("hexiscale", world.input(), {{"evaluate_top", "1"}, {"partition", "random"}});
  ASSERT_NE(plan_of(graph), nullptr) << why(graph);
  ASSERT_NE(plan_of(dealt), nullptr) << why(dealt);
  EXPECT_LE(graph.report.estimate->value, dealt.report.estimate->value);
}

TEST(Hexiscale, LayersByMemoryIgnoreTheComputePower) {
  // Two machines of equal memory, one three times as fast: the public code shares evenly.
  const World world(make_cluster({{"Fast", 300, 4, 1, 100, 1}, {"Slow", 100, 4, 1, 100, 1}}, 50),
                    small_model(12), 8, 1024);
  const auto layers = [&](const char* rule) {
    // One pipeline only: there is no memory for a second.
    const auto result = run_planner("hexiscale", world.input(), {{"layers", rule}});
    std::vector<int> counts;
    for (const ir::Stage& stage : plan_of(result)->pipelines.front().stages) {
      counts.push_back(stage.segments[0].last_block.value - stage.segments[0].first_block.value);
    }
    std::sort(counts.begin(), counts.end());
    return counts;
  };
  EXPECT_EQ(layers("by_memory_public"), (std::vector<int>{6, 6}));
  EXPECT_EQ(layers("by_compute"), (std::vector<int>{3, 9}));
}

RC_GTEST_PROP(Hexiscale, PlansOfArbitraryClustersAreValidAndFit, ()) {
  std::vector<Machines> machines;
  const int types = *rc::gen::inRange(1, 4);
  for (int t = 0; t < types; ++t) {
    machines.push_back({fmt::format("T{}", t), static_cast<double>(*rc::gen::inRange(50, 400)),
                        static_cast<double>(*rc::gen::inRange(2, 20)), *rc::gen::inRange(1, 9),
                        static_cast<double>(*rc::gen::inRange(8, 300)), *rc::gen::inRange(1, 4)});
  }
  World world(make_cluster(machines, static_cast<double>(*rc::gen::inRange(1, 50))),
              small_model(*rc::gen::inRange(1, 25)), *rc::gen::inRange(1, 40), 1024);
  world.job.allowed.zero_stages = {*rc::gen::inRange(0, 4)};
  if (*rc::gen::arbitrary<bool>()) world.job.allowed.schedules = {ir::ScheduleKind::gpipe};
  if (*rc::gen::arbitrary<bool>()) world.job.allowed.recompute = {ir::Recompute::none};
  for (const char* evaluate_top : {"1", "4"}) {
    const PlannerResult result =
        run_planner("hexiscale", world.input(), {{"rounds", "6"}, {"evaluate_top", evaluate_top}});
    if (plan_of(result) == nullptr) {
      RC_ASSERT(!why(result).empty());
      continue;
    }
    RC_ASSERT(world.defects(*plan_of(result)) == "");
    RC_ASSERT(world.verdict(*plan_of(result)).fits());
    // The paper's search uses all; one degree for all stages may leave some out.
    if (evaluate_top[0] == '1') {
      RC_ASSERT(ir::devices_of(*plan_of(result)).size() == world.cluster.devices.size());
    }
  }
}

/// Likes tensor-parallel groups of one size and dislikes the estimate of HexiScale: plans are as
/// slow as their largest group is large, and three times that with groups of several sizes.
class LikesEqualGroups final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    int smallest = std::numeric_limits<int>::max();
    int largest = 0;
    for (const ir::Pipeline& pipeline : plan.pipelines) {
      for (const ir::Stage& stage : pipeline.stages) {
        const int degree = stage.segments[0].groups[0].tensor_parallel;
        smallest = std::min(smallest, degree);
        largest = std::max(largest, degree);
      }
    }
    models::Evaluation result;
    const double stages = static_cast<double>(plan.pipelines.front().stages.size());
    result.iteration_time =
        Seconds{largest + stages / 100 + (smallest == largest ? 0 : 2 * largest)};
    return result;
  }
  std::string name() const override { return "likes equal groups"; }
};

TEST(Hexiscale, FreeDegreesAreNeverWorseThanOneDegreeOfAsManyFinalists) {
  const LikesEqualGroups likes;
  for (const int gpus : {24, 64}) {
    const World world(mixed_cluster(gpus), llama2_13b(), 128);
    const PlannerInput given = world.input();
    for (const models::Evaluator* evaluator :
         {static_cast<const models::Evaluator*>(&likes), &given.evaluator}) {
      const PlannerInput input{world.cluster, world.topology, world.workload, world.job,
                               world.profile, *evaluator,     given.devices,  3};
      const auto time = [&](const Options& more) -> double {
        Options options = {{"rounds", "12"}};
        options.insert(options.end(), more.begin(), more.end());
        const PlannerResult result = run_planner("hexiscale", input, options);
        if (plan_of(result) == nullptr) return kNever;
        return evaluator->evaluate(*plan_of(result)).iteration_time.value;
      };
      // Five searches take turns: the free one and one for each degree.
      const double free = time({{"evaluate_top", "20"}});
      EXPECT_TRUE(std::isfinite(free));
      if (evaluator == &likes) {
        EXPECT_LT(free, time({{"evaluate_top", "1"}})) << "the estimate alone cannot know this";
      }
      for (const char* degree : {"1", "2", "4", "8"}) {
        EXPECT_LE(free, time({{"tensor_parallel", degree}, {"evaluate_top", "4"}}))
            << gpus << " GPUs, TP " << degree << ", " << evaluator->name();
      }
    }
  }
}

TEST(Hexiscale, ThePaperSearchesOnceAndBoundDegreesStayBound) {
  const World world(mixed_cluster(64), llama2_13b(), 128);
  const auto examined = [&](const Options& more) {
    Options options = {{"rounds", "6"}};
    options.insert(options.end(), more.begin(), more.end());
    return run_planner("hexiscale", world.input(), options).report;
  };
  const SearchReport once = examined({{"evaluate_top", "1"}});
  EXPECT_GT(examined({}).plans_examined, once.plans_examined);
  EXPECT_EQ(examined({}).work, once.work);
  EXPECT_TRUE(once.notes.empty());
  for (const char* top : {"1", "4"}) {
    EXPECT_EQ(examined({{"tensor_parallel", "2"}, {"evaluate_top", top}}).plans_examined,
              examined({{"tensor_parallel", "2"}, {"evaluate_top", "1"}}).plans_examined);
    EXPECT_EQ(examined({{"candidates", "public_lists"}, {"evaluate_top", top}}).plans_examined,
              examined({{"candidates", "public_lists"}, {"evaluate_top", "1"}}).plans_examined);
  }
}

}  // namespace
}  // namespace orrery::planners::hexiscale_test
