#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planners/kit/data_parallel.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"

namespace orrery::planners::fsdp_test {
namespace {

/// Shard groups of all devices and, where `hybrid`, of nodes that give equally many.
std::vector<int> shard_groups(const World& world, const ir::Plan& plan, bool hybrid) {
  std::vector<int> result = {0};
  if (!hybrid) return result;
  std::vector<int> in_node(world.cluster.nodes.size(), 0);
  const auto devices = ir::devices_of(plan);
  for (const DeviceId d : devices) ++in_node[world.cluster.device(d).node.index()];
  in_node.erase(std::remove(in_node.begin(), in_node.end(), 0), in_node.end());
  const bool equal = std::equal(in_node.begin() + 1, in_node.end(), in_node.begin());
  if (equal && in_node.size() > 1) result.push_back(in_node.front());
  return result;
}

/// All plans on exactly `data` devices.
double brute_force(const World& world, int data, bool hybrid) {
  const PlannerInput input = world.input();
  const DataParallel plans(input, false);
  double best = kNever;
  for (int size = 1; size <= world.job.allowed.max_micro_batch_size; ++size) {
    if (world.job.global_batch % (data * size) != 0) continue;
    for (const auto recompute : world.job.allowed.recompute) {
      DataParallelSetting setting = {data, 1, size, 3, 0, recompute};
      for (const int group : shard_groups(world, plans.build(setting), hybrid)) {
        setting.shard_group = group;
        const ir::Plan plan = plans.build(setting);
        EXPECT_EQ(world.defects(plan), "");
        if (!world.verdict(plan).fits()) continue;
        best = std::min(best, plans.estimate(setting).value);
      }
    }
  }
  return best;
}

TEST(Fsdp, EqualsBruteForceOnTheFamily) {
  int plans = 0;
  for (std::uint64_t number = 0; number < 240; ++number) {
    const auto world = tiny_world(number);
    world->job.allowed.zero_stages = {0, 3};
    const bool hybrid = number % 2 == 1;
    double best = kNever;
    for (int data = world->cluster.size(); data > 0 && !std::isfinite(best); --data) {
      best = brute_force(*world, data, hybrid);
    }
    const PlannerResult result =
        run_planner("fsdp", world->input(), {{"sharding", hybrid ? "both" : "full"}});
    const ir::Plan* plan = plan_of(result);
    ASSERT_EQ(plan != nullptr, std::isfinite(best)) << number;
    if (plan == nullptr) continue;
    ++plans;
    EXPECT_EQ(complaint(*world, world->input(), result), "") << number;
    EXPECT_NEAR(result.report.estimate->value, best, 1e-9 * best) << number;
    for (const ir::Pipeline& p : plan->pipelines) {
      EXPECT_EQ(p.stages[0].segments[0].zero.stage, 3);
      EXPECT_EQ(p.micro_batches, plan->pipelines[0].micro_batches);
    }
  }
  EXPECT_GT(plans, 180);
}

TEST(Fsdp, HybridShardingTradesMemoryForSlowLinksBetweenNodes) {
  World world(make_cluster({{"X", 100, 24, 4, 100, 2}}, 0.5), small_model(6), 16, 512);
  world.job.allowed.zero_stages = {3};
  const auto full = run_planner("fsdp", world.input());
  const auto hybrid = run_planner("fsdp", world.input(), {{"sharding", "hybrid"}});
  const auto& a = std::get<ir::Plan>(full.outcome);
  const auto& b = std::get<ir::Plan>(hybrid.outcome);
  EXPECT_EQ(b.pipelines[0].stages[0].segments[0].zero.shard_group, 4);
  EXPECT_LT(*hybrid.report.estimate, *full.report.estimate);
  EXPECT_LT(a.predicted->peak_memory, b.predicted->peak_memory);
  const auto both = run_planner("fsdp", world.input(), {{"sharding", "both"}});
  EXPECT_EQ(std::get<ir::Plan>(both.outcome), b);
  const auto pairs = run_planner("fsdp", world.input(), {{"shard_group", "2"}});
  const auto& two = std::get<ir::Plan>(pairs.outcome);
  EXPECT_EQ(two.pipelines[0].stages[0].segments[0].zero.shard_group, 2);
  const auto odd = run_planner("fsdp", world.input(), {{"shard_group", "3"}, {"use_all", "yes"}});
  EXPECT_EQ(std::get<models::Infeasible>(odd.outcome).constraint, "shard groups");
}

TEST(Fsdp, ABatchThatDoesNotDivideIsNotExpressibleWithTheNearestThatDoes) {
  World world(make_cluster({{"X", 100, 24, 4, 100, 3}}, 100), small_model(6), 64, 512);
  world.job.allowed.zero_stages = {3};
  const auto result = run_planner("fsdp", world.input(), {{"data_parallel", "12"}});
  const auto& no = std::get<models::Infeasible>(result.outcome);
  EXPECT_EQ(no.constraint, "not expressible");
  EXPECT_NE(no.witness.find("DP 12 x micro-batch 1 does not divide a batch of 64"),
            std::string::npos)
      << no.witness;
  EXPECT_NE(no.witness.find("nearest legal: DP8, micro-batch 1 on 8 of 12 devices"),
            std::string::npos)
      << no.witness;
  // Without the wish: eight replicas, four GPUs idle.
  const auto free = run_planner("fsdp", world.input());
  EXPECT_EQ(std::get<ir::Plan>(free.outcome).pipelines.size(), 8U);
}

}  // namespace
}  // namespace orrery::planners::fsdp_test
