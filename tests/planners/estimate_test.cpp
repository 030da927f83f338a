#include "planners/kit/estimate.h"

#include <gtest/gtest.h>

#include "models/cost/collective.h"
#include "models/schedule/closed_form.h"
#include "planners/kit/plan_parts.h"
#include "tests/planners/support.h"

namespace orrery::planners::estimate_test {
namespace {

/// `pipelines` x `stages` single devices, layers split evenly.
ir::Plan chain_plan(const World& world, int pipelines, int stages, int micro_batches) {
  const int layers = count_layers(world.workload) / stages;
  ir::Plan plan;
  int device = 0;
  for (int p = 0; p < pipelines; ++p) {
    ir::Pipeline chain;
    chain.micro_batches = micro_batches;
    for (int s = 0; s < stages; ++s) {
      ir::Segment segment = segment_of_layers(world.workload, s * layers, layers);
      segment.groups = {{{DeviceId{device++}}}};
      chain.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(chain);
  }
  return plan;
}

TEST(PlanEstimate, OneDeviceIsItsComputeAndOptimizer) {
  const World world(make_cluster({{"X", 100, 80, 4, 100, 1}}, 5), small_model(4), 8, 1024);
  const models::Pricer pricer(world.cluster, world.workload, world.job, world.profile);
  Seconds compute;
  for (int b = 0; b < world.workload.size(); ++b) {
    models::BlockQuery query;
    query.block = BlockId{b};
    compute += pricer.block(query);
    query.pass = ir::Pass::backward;
    compute += pricer.block(query);
  }
  const Seconds expected =
      8 * compute + pricer.optimizer(0, static_cast<double>(models::parameters(world.workload)));
  const PlanEstimator estimator(world.input());
  EXPECT_NEAR(estimator.estimate(chain_plan(world, 1, 1, 8)).value, expected.value,
              1e-9 * expected.value);
}

TEST(PlanEstimate, ReplicasAddOneAllReduceOfTheGradient) {
  const World world(make_cluster({{"X", 100, 80, 4, 100, 1}}, 5), small_model(4), 8, 1024);
  const PlanEstimator estimator(world.input());
  const double one = estimator.estimate(chain_plan(world, 1, 1, 4)).value;
  const double two = estimator.estimate(chain_plan(world, 2, 1, 4)).value;
  const std::vector<DeviceId> ring = {DeviceId{0}, DeviceId{1}};
  const Seconds reduce = models::collective_time(
      ir::CollectiveKind::all_reduce, models::CollectiveAlgorithm::ring, ring,
      Bytes{2.0 * static_cast<double>(models::parameters(world.workload))},
      [&](DeviceId a, DeviceId b) { return world.topology.path(a, b); });
  EXPECT_NEAR(two - one, reduce.value, 1e-9 * two);
}

TEST(PlanEstimate, EveryRoundOfSynchronizationAddsAnAllReduceOfTheGradient) {
  World world(make_cluster({{"X", 100, 80, 4, 100, 1}}, 5), small_model(4), 8, 1024);
  const auto estimate = [&](int rounds, int zero) {
    world.job.gradient_synchronizations = rounds;
    ir::Plan plan = chain_plan(world, 2, 1, 4);
    for (ir::Pipeline& chain : plan.pipelines) chain.stages[0].segments[0].zero.stage = zero;
    return PlanEstimator(world.input()).estimate(plan).value;
  };
  const double one = estimate(1, 0);
  const double two = estimate(2, 0);
  EXPECT_GT(two, one);
  EXPECT_NEAR(estimate(3, 0) - two, two - one, 1e-9 * one);
  // Four micro-batches have four rounds.
  EXPECT_NEAR(estimate(9, 0) - one, 3 * (two - one), 1e-9 * one);
  EXPECT_EQ(estimate(9, 0), estimate(models::kEveryMicroBatch, 0));
  // ZeRO repeats the reduce-scatter and gathers parameters once.
  EXPECT_NEAR(estimate(2, 1) - estimate(1, 1), (two - one) / 2, 1e-9 * one);
}

TEST(PlanEstimate, AMoreMicroBatchCostsOnePeriodOfTheLongestStage) {
  const World world(make_cluster({{"X", 100, 80, 4, 100, 1}}, 5), small_model(8), 8, 1024);
  const PlanEstimator estimator(world.input());
  const double four = estimator.estimate(chain_plan(world, 1, 4, 4)).value;
  const double five = estimator.estimate(chain_plan(world, 1, 4, 5)).value;
  const double six = estimator.estimate(chain_plan(world, 1, 4, 6)).value;
  EXPECT_GT(five, four);
  EXPECT_NEAR(six - five, five - four, 1e-9 * six);
}

TEST(PlanParts, RangesOfLayersCoverAllBlocksOnce) {
  const World world(make_cluster({{"X", 100, 80, 1, 100, 1}}, 5), small_model(7), 8, 1024);
  const ir::Segment first = segment_of_layers(world.workload, 0, 3);
  const ir::Segment last = segment_of_layers(world.workload, 3, 4);
  EXPECT_EQ(first.first_block.value, 0);
  EXPECT_EQ(first.last_block.value, 3);
  EXPECT_EQ(last.first_block.value, 4);
  EXPECT_EQ(last.last_block.value, 8);
}

TEST(PlanParts, TensorDegreesDivideHeadsAndRespectTheJob) {
  World world(make_cluster({{"X", 100, 80, 8, 100, 1}}, 5), llama_30b(), 8);
  EXPECT_EQ(tensor_degrees(world.workload, world.job, 8), (std::vector<int>{1, 2, 4}));
  world.job.allowed.max_tensor_parallel = 2;
  EXPECT_EQ(tensor_degrees(world.workload, world.job, 8), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace orrery::planners::estimate_test
