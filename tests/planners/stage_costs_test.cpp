#include "planners/kit/stage_costs.h"

#include <gtest/gtest.h>

#include "models/schedule/closed_form.h"
#include "planners/kit/estimate.h"
#include "planners/kit/plan_parts.h"
#include "tests/planners/support.h"

namespace orrery::planners::stage_costs_test {
namespace {

const World& world() {
  static const World result(make_cluster({{"X", 300, 80, 4, 200, 1}, {"Y", 100, 40, 4, 32, 1}}, 5),
                            small_model(12), 32, 1024);
  return result;
}

std::vector<DeviceId> devices(int first, int count) {
  std::vector<DeviceId> result;
  for (int i = 0; i < count; ++i) result.push_back(DeviceId{first + i});
  return result;
}

/// Two stages of tensor-parallel groups, 5 and 7 layers.
ir::Plan two_stages(const StageShape& shape, int micro_batches) {
  ir::Plan plan;
  ir::Pipeline chain;
  chain.micro_batches = micro_batches;
  chain.micro_batch_size = shape.samples;
  for (int s = 0; s < 2; ++s) {
    ir::Segment segment = segment_of_layers(world().workload, s == 0 ? 0 : 5, s == 0 ? 5 : 7);
    ir::Group group;
    group.devices = devices(4 * s, shape.tensor_parallel);
    group.tensor_parallel = shape.tensor_parallel;
    group.sequence = shape.sequence;
    group.samples = shape.samples;
    segment.groups = {group};
    segment.recompute = shape.recompute;
    segment.zero.stage = shape.zero_stage;
    chain.stages.push_back({{segment}});
  }
  plan.pipelines = {chain};
  return plan;
}

StageShape stage(int number, StageShape shape) {
  shape.first = number == 0 ? 0 : 5;
  shape.layers = number == 0 ? 5 : 7;
  shape.in_flight = number == 0 ? 2 : 1;
  return shape;
}

std::vector<StageShape> shapes() {
  std::vector<StageShape> result;
  for (const int tensor : {1, 2, 4}) {
    for (const int samples : {1, 2}) {
      for (const auto recompute :
           {ir::Recompute::none, ir::Recompute::selective, ir::Recompute::full}) {
        StageShape shape;
        shape.tensor_parallel = tensor;
        shape.samples = samples;
        shape.recompute = recompute;
        if (tensor > 1) shape.sequence = ir::SequenceParallelism::megatron;
        result.push_back(shape);
      }
    }
  }
  return result;
}

TEST(StageCosts, AddUpToTheEstimateOfThePlan) {
  const PlannerInput input = world().input();
  const StageCosts costs(input);
  const PlanEstimator estimator(world().input());
  for (const StageShape& shape : shapes()) {
    const int micro_batches = 32 / shape.samples;
    const auto group = [&](int s) { return devices(4 * s, shape.tensor_parallel); };
    const Seconds hop =
        costs.hop(group(0), group(1), 5, shape.samples, ir::ActivationTransfer::leader_broadcast);
    const Seconds stages[] = {costs.passes(group(0), stage(0, shape)).both() + 2.0 * hop,
                              costs.passes(group(1), stage(1, shape)).both()};
    const Seconds expected =
        models::pipeline_time(stages, micro_batches) +
        std::max(costs.optimizer(0, stage(0, shape)), costs.optimizer(1, stage(1, shape)));
    EXPECT_NEAR(estimator.estimate(two_stages(shape, micro_batches)).value, expected.value,
                1e-9 * expected.value);
  }
}

TEST(StageCosts, MemoryIsWhatTheVerdictCounts) {
  const PlannerInput input = world().input();
  const StageCosts costs(input);
  for (StageShape shape : shapes()) {
    for (const int zero : {0, 1, 3}) {
      shape.zero_stage = zero;
      const ir::MemoryVerdict verdict = world().verdict(two_stages(shape, 32 / shape.samples));
      ASSERT_EQ(verdict.by_gpu_type.size(), 2u);
      for (int s = 0; s < 2; ++s) {
        const ir::MemoryUse& use = verdict.by_gpu_type[s];
        EXPECT_NEAR((use.have - use.need).value,
                    (costs.capacity(s) - costs.memory(stage(s, shape))).value, 1);
      }
    }
  }
}

TEST(StageCosts, AStageFitsIfItFitsOnEveryMember) {
  const World small(make_cluster({{"X", 300, 80, 1, 200, 1}, {"Y", 100, 2, 1, 32, 1}}, 5),
                    small_model(12), 32, 1024);
  const PlannerInput input = small.input();
  const StageCosts costs(input);
  StageShape shape;
  shape.layers = 12;
  shape.tensor_parallel = 2;
  EXPECT_TRUE(costs.fits(devices(0, 1), shape));
  EXPECT_FALSE(costs.fits(devices(0, 2), shape));
}

TEST(StageCosts, GradientsAddUpToTheModel) {
  const PlannerInput input = world().input();
  const StageCosts costs(input);
  const Bytes all = costs.gradients(0, 12);
  EXPECT_EQ(all, costs.gradients(0, 5) + costs.gradients(5, 7));
  EXPECT_EQ(all.value, 2.0 * static_cast<double>(models::parameters(world().workload)));
}

}  // namespace
}  // namespace orrery::planners::stage_costs_test
