#include <gtest/gtest.h>

#include <vector>

#include "models/base/ids.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::pipeline_law_test {
namespace {

/// A cluster whose communication takes no time that counts.
models::Cluster free_communication() {
  ClusterShape shape;
  shape.nodes = 2;
  shape.nvlink = shape.pcie = shape.nic = BytesPerSecond{1e18};
  shape.latency = Seconds{0};
  return make_cluster(shape);
}

class Bubble : public testing::TestWithParam<ir::ScheduleKind> {};

TEST_P(Bubble, IsStagesMinusOneOverMicroBatchesPlusStagesMinusOne) {
  const models::Cluster cluster = free_communication();
  for (const auto& [stages, micro_batches] :
       std::vector<std::pair<int, int>>{{1, 4}, {2, 1}, {2, 8}, {4, 4}, {4, 16}, {8, 32}}) {
    const models::Workload workload = make_workload(stages);
    PlanShape shape;
    shape.stages = stages;
    shape.micro_batches = micro_batches;
    shape.schedule = GetParam();
    const Outcome run = simulate(cluster, workload, make_plan(shape, stages), true);
    const double slots = micro_batches + stages - 1;
    EXPECT_NEAR(run.iteration_time, slots * 3 * kBlockSeconds, 1e-6 * run.iteration_time)
        << stages << " stages, " << micro_batches << " micro-batches";
    ASSERT_EQ(run.ranks.size(), as_size(stages));
    for (const ir::RankBreakdown& rank : run.ranks) {
      const double bubble =
          static_cast<double>(rank.bubble.count) / static_cast<double>(run.duration);
      EXPECT_NEAR(bubble, (stages - 1) / slots, 1e-5)
          << stages << " stages, " << micro_batches << " micro-batches";
    }
  }
}

TEST(SplitBubble, OfInterleavingIsDividedByTheVirtualStages) {
  const models::Cluster cluster = free_communication();
  for (const int chunks : {2, 4}) {
    const models::Workload workload = make_workload(4 * chunks);
    PlanShape shape;
    shape.stages = 4;
    shape.micro_batches = 8;
    ir::Plan plan = make_plan(shape, 4);
    plan.schedule = ir::ScheduleKind::interleaved_one_f_one_b;
    plan.virtual_stages = chunks;
    for (int s = 0; s < 4; ++s) {
      std::vector<ir::Segment>& segments = plan.pipelines[0].stages[s].segments;
      segments.resize(chunks, segments.front());
      for (int c = 0; c < chunks; ++c) {
        ir::Segment& segment = segments[c];
        segment.virtual_stage = c;
        segment.first_block = segment.last_block = {c * 4 + s};
      }
    }
    const Outcome run = simulate(cluster, workload, plan, true);
    EXPECT_NEAR(run.iteration_time, (8.0 * chunks + 3) * 3 * kBlockSeconds, 1e-6);
  }
}

TEST(SplitBubble, OfZeroBubbleIsAThirdOf1F1Bs) {
  const models::Cluster cluster = free_communication();
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.stages = 4;
  shape.micro_batches = 8;
  shape.schedule = ir::ScheduleKind::zero_bubble;
  const Outcome run = simulate(cluster, workload, make_plan(shape, 4), true);
  // Forward, input's and weights' gradients take as long as each other: (p - 1)(1 + 1 - 1).
  EXPECT_NEAR(run.iteration_time, (8.0 * 3 + 3) * kBlockSeconds, 1e-6);
  shape.schedule = ir::ScheduleKind::one_f_one_b;
  const Outcome plain = simulate(cluster, workload, make_plan(shape, 4), true);
  EXPECT_NEAR(plain.iteration_time, (8.0 + 3) * 3 * kBlockSeconds, 1e-6);
}

TEST(SplitBubble, OfZbVIsTheFillOfHalfAStage) {
  PlanShape shape;
  shape.stages = shape.micro_batches = 4;
  ir::Plan plan = make_plan(shape, 4);
  plan.schedule = ir::ScheduleKind::zb_v;
  plan.virtual_stages = 2;
  for (int s = 0; s < 4; ++s) {
    std::vector<ir::Segment>& segments = plan.pipelines[0].stages[s].segments;
    segments.resize(2, segments.front());
    segments[1].virtual_stage = 1;
    segments[0].first_block = segments[0].last_block = {s};
    segments[1].first_block = segments[1].last_block = {7 - s};
  }
  const Outcome run = simulate(free_communication(), make_workload(8), plan, true);
  EXPECT_NEAR(run.iteration_time, (4.0 * 2 * 3 + 3) * kBlockSeconds, 1e-6);
}

/// `stages` stages of one block on a device each, every block on two of them.
ir::Plan both_ways(int stages, int micro_batches) {
  PlanShape shape;
  shape.stages = stages;
  shape.micro_batches = micro_batches;
  ir::Plan plan = make_plan(shape, stages);
  plan.schedule = ir::ScheduleKind::dual_pipe;
  plan.virtual_stages = 2;
  for (int s = 0; s < stages; ++s) {
    std::vector<ir::Segment>& segments = plan.pipelines[0].stages[s].segments;
    segments.resize(2, segments.front());
    segments[1].virtual_stage = 1;
    segments[0].first_block = segments[0].last_block = {s};
    segments[1].first_block = segments[1].last_block = {stages - 1 - s};
  }
  return plan;
}

TEST(SplitBubble, OfDualPipeIsHalfThePapersForPassesThatAreNotPaired) {
  for (const int stages : {2, 4, 8}) {
    const Outcome run =
        simulate(free_communication(), make_workload(stages), both_ways(stages, 2 * stages), true);
    EXPECT_NEAR(run.iteration_time, (2.0 * stages * 3 + stages / 2 - 1) * kBlockSeconds, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Bubble,
                         testing::Values(ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b));

TEST(Pipelines, NEqualPipelinesOfOneGroupEqualOnePipelineOfNGroups) {
  ClusterShape nodes;
  nodes.nodes = 2;
  const models::Cluster cluster = make_cluster(nodes);
  const models::Workload workload = make_workload(4);
  for (const int tensor_parallel : {1, 2}) {
    for (const int n : {2, 3}) {
      PlanShape apart, together;
      apart.stages = together.stages = 2;
      apart.tensor_parallel = together.tensor_parallel = tensor_parallel;
      apart.pipelines = n;
      together.groups = n;
      const ir::Plan one_group = make_plan(apart, 4);
      ir::Plan n_groups = make_plan(together, 4);
      // The same devices for the same work.
      for (int p = 0; p < n; ++p) {
        for (std::size_t s = 0; s < 2; ++s) {
          const std::size_t g = p;
          n_groups.pipelines[0].stages[s].segments[0].groups[g].devices =
              one_group.pipelines[g].stages[s].segments[0].groups[0].devices;
        }
      }
      const Outcome a = simulate(cluster, workload, one_group, true);
      const Outcome b = simulate(cluster, workload, n_groups, true);
      EXPECT_LT(relative_difference(a.iteration_time, b.iteration_time), 1e-9)
          << a.iteration_time << " and " << b.iteration_time << " s, n = " << n;
      EXPECT_GT(a.iteration_time, 5 * 3 * 2 * kBlockSeconds / tensor_parallel);
    }
  }
}

TEST(Pipelines, OneForwardOneBackwardHoldsFewerActivationsThanGPipe) {
  const models::Cluster cluster = free_communication();
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.stages = 4;
  shape.micro_batches = 8;
  const Outcome interleaved = simulate(cluster, workload, make_plan(shape, 4), true);
  shape.schedule = ir::ScheduleKind::gpipe;
  const Outcome gpipe = simulate(cluster, workload, make_plan(shape, 4), true);
  const double kept = 4.0 * (8 << 20);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const double states = gpipe.peak_memory[stage] - 8 * kept;
    EXPECT_DOUBLE_EQ(interleaved.peak_memory[stage] - states, static_cast<double>(4 - stage) * kept)
        << "stage " << stage;
  }
}

}  // namespace
}  // namespace orrery::sim::pipeline_law_test
