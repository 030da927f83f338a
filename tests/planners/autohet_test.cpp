/// The planner's parts and switches, budgets, and odd inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planners/autohet/costs.h"
#include "planners/autohet/mapping.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"

namespace orrery::planners::autohet_test {
namespace {

/// GPU type names of each pipeline's stages, pipelines sorted: "H800" or "A100 A100".
std::vector<std::string> shape_of(const World& world, const ir::Plan& plan) {
  std::vector<std::string> result;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    std::string text;
    for (const ir::Stage& stage : pipeline.stages) {
      if (!text.empty()) text += " ";
      text += world.cluster.gpu(devices_of(stage).front()).name;
    }
    result.push_back(text);
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// Every number of groups holds the optimum's, so it can only be better by Eq. 1.
TEST(Autohet, EveryCountIsNeverWorseThanTheOptimumOfEq3) {
  int better = 0;
  for (std::uint64_t n = 0; n < 80; ++n) {
    const auto world = tiny_world(n);
    const auto one = run_planner("autohet", world->input());
    const auto all = run_planner("autohet", world->input(), {{"device_grouping", "every_count"}});
    ASSERT_EQ(plan_of(one) != nullptr, plan_of(all) != nullptr) << n;
    if (plan_of(one) == nullptr) continue;
    EXPECT_LE(all.report.estimate->value, one.report.estimate->value * (1 + 1e-12)) << n;
    better += all.report.estimate->value < one.report.estimate->value * (1 - 1e-9);
  }
  EXPECT_GT(better, 0);
}

TEST(Autohet, PartitionForEq1IsNeverSlowerThanForTheBottleneck) {
  for (std::uint64_t n = 0; n < 80; ++n) {
    const auto world = tiny_world(n);
    // One pipeline, so that no other part of Eq. 1 differs.
    const auto run = [&](const char* load_balance) {
      return run_planner("autohet", world->input(),
                         {{"device_grouping", "off"}, {"load_balance", load_balance}});
    };
    const auto bottleneck = run("bottleneck");
    const auto pipeline = run("pipeline");
    const auto even = run("off");
    ASSERT_EQ(plan_of(bottleneck) != nullptr, plan_of(pipeline) != nullptr) << n;
    if (plan_of(bottleneck) == nullptr) continue;
    EXPECT_LE(pipeline.report.estimate->value, bottleneck.report.estimate->value * (1 + 1e-12));
    if (plan_of(even) == nullptr) continue;
    EXPECT_LE(pipeline.report.estimate->value, even.report.estimate->value * (1 + 1e-12)) << n;
  }
}

const models::Cluster& uneven_cluster() {
  static const models::Cluster kCluster =
      make_cluster({{"Strong", 400, 80, 4, 200, 1}, {"Weak", 100, 80, 4, 100, 1}}, 10);
  return kCluster;
}

TEST(Autohet, SwitchesOffWhatThePaperSwitchesOff) {
  const World world(uneven_cluster(), small_model(16), 32, 1024);
  const auto off = run_planner("autohet", world.input(), {{"device_grouping", "off"}});
  ASSERT_NE(plan_of(off), nullptr);
  EXPECT_EQ(plan_of(off)->pipelines.size(), 1u);
  const Options one = {{"device_grouping", "off"}, {"tensor_links", "node"}};
  const auto names = [&](const char* mapping) {
    Options options = one;
    options.emplace_back("mapping", mapping);
    const auto result = run_planner("autohet", world.input(), options);
    return shape_of(world, *plan_of(result)).front();
  };
  EXPECT_EQ(names("on").substr(0, 4), "Weak") << "weak GPUs to early stages";
  EXPECT_EQ(names("off").substr(0, 6), "Strong") << "in the order of the file";
  const auto even =
      run_planner("autohet", world.input(), {{"device_grouping", "off"}, {"load_balance", "off"}});
  std::set<int> layers;
  for (const ir::Stage& stage : plan_of(even)->pipelines[0].stages) {
    const auto& s = stage.segments[0];
    const bool ends = s.first_block.value == 0;
    const bool tail = s.last_block.value == world.workload.size() - 1;
    layers.insert(s.last_block.value - s.first_block.value + 1 - (ends ? 1 : 0) - (tail ? 1 : 0));
  }
  EXPECT_LE(*layers.rbegin() - *layers.begin(), 1);
}

TEST(AutohetMapping, PeersShareANodeWhereOneHasEnough) {
  // Kind 0 on nodes 0 (2 units) and 1 (3 units), kind 1 on node 2 (1 unit) and 3 (2 units).
  std::vector<AutohetUnit> units;
  const auto add = [&](int node, int kind, int count) {
    for (int i = 0; i < count; ++i) {
      units.push_back({{DeviceId{static_cast<int>(units.size())}}, NodeId{node}, kind});
    }
  };
  add(0, 0, 2);
  add(1, 0, 3);
  add(2, 1, 1);
  add(3, 1, 2);
  // Three groups: only node 1 has three of kind 0; then the rest, stage by stage.
  const auto three = map_groups(units, {{2, 1}, {2, 1}, {1, 1}}, true);
  EXPECT_EQ(three, (std::vector<std::vector<int>>{{2, 0, 6}, {3, 1, 7}, {4, 5}}));
  // Two groups: node 0, then node 1, then one of node 1 is left over.
  const auto two = map_groups(units, {{3, 1}, {2, 2}}, true);
  EXPECT_EQ(two, (std::vector<std::vector<int>>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  const auto off = map_groups(units, {{3, 1}, {2, 2}}, false);
  EXPECT_EQ(off, (std::vector<std::vector<int>>{{0, 1, 2, 5}, {3, 4, 6, 7}}));
}

TEST(AutohetCosts, PowersOfTwoAddUpToTheLayers) {
  const World world(uneven_cluster(), small_model(13), 32, 1024);
  const PlannerInput input = world.input();
  const StageCosts costs(input);
  for (const auto how :
       {AutohetSettings::LayerTime::powers_of_two, AutohetSettings::LayerTime::sum}) {
    AutohetSettings settings;
    settings.layer_time = how;
    AutohetRound round;
    round.tensor = 2;
    const AutohetCosts autohet(input, settings, round, costs,
                               *autohet_units(input, 2, settings.tensor_links));
    ASSERT_EQ(autohet.kinds().size(), 2u);
    EXPECT_LT(autohet.kinds()[0].power, autohet.kinds()[1].power);
    for (const AutohetUnit& unit : autohet.units()) {
      for (int first = 0; first < 13; ++first) {
        for (int n = 1; first + n <= 13; ++n) {
          StageShape shape;
          shape.first = first;
          shape.layers = n;
          shape.tensor_parallel = 2;
          const double direct = costs.passes(unit.devices, shape).both().value;
          EXPECT_NEAR(autohet.stage_time(unit.kind, first, n).value, direct, 1e-9 * direct)
              << first << " " << n;
        }
      }
    }
  }
}

TEST(Autohet, OnlyDimensionsThatDivideEveryNodeAreValid) {
  // 5 and 3 GPUs: "preventing the formation of TP groups" (V-A2).
  const World odd(make_cluster({{"A", 100, 80, 5, 200, 1}, {"B", 200, 80, 3, 200, 1}}, 10),
                  small_model(8), 16, 1024);
  const auto result = run_planner("autohet", odd.input());
  ASSERT_NE(plan_of(result), nullptr);
  for (const ir::Pipeline& pipeline : plan_of(result)->pipelines) {
    for (const ir::Stage& stage : pipeline.stages) EXPECT_EQ(devices_of(stage).size(), 1u);
  }
  ASSERT_FALSE(result.report.constraints.empty());
  EXPECT_EQ(result.report.constraints[0].witness, "TP 2, TP 4");
}

TEST(Autohet, ReturnsOnTheLargeMix) {
  const World world(mixed_cluster(240), llama_30b(), 1024);
  const auto result = run_planner("autohet", world.input(), {{"search_limit", "200000"}});
  ASSERT_NE(plan_of(result), nullptr);
  EXPECT_EQ(devices_of(*plan_of(result)).size(), 240u);
  EXPECT_EQ(world.defects(*plan_of(result)), "");
  EXPECT_FALSE(result.report.complete) << "so hard a grouping is cut short, and the report says so";
  EXPECT_FALSE(result.report.notes.empty());
  const auto again = run_planner("autohet", world.input(), {{"search_limit", "200000"}});
  EXPECT_EQ(*plan_of(again), *plan_of(result));
}

}  // namespace
}  // namespace orrery::planners::autohet_test
