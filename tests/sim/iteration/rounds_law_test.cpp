/// What does an optimizer step cost that does not accumulate gradients?
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/lower/lower.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::rounds_law_test {
namespace {

double iteration(const models::Cluster& cluster, const models::Workload& workload,
                 const ir::Plan& plan, int rounds) {
  models::Job job = make_job();
  job.gradient_synchronizations = rounds;
  const ir::Program program = models::lower(plan, cluster, workload, job, {.collapsed = true});
  EXPECT_EQ(ir::find_defect(program), "");
  return simulate(cluster, workload, program).iteration_time;
}

TEST(Rounds, OfASingleStageCostOneSynchronizationEachWhereNothingIsHidden) {
  const models::Cluster cluster = make_cluster({});
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.pipelines = 2;
  const ir::Plan plan = make_plan(shape, 4);
  // GPipe's backward passes follow each other: none hides a collective.
  ir::Plan gpipe = plan;
  gpipe.schedule = ir::ScheduleKind::gpipe;
  shape.pipelines = 1;
  const double alone = iteration(cluster, workload, make_plan(shape, 4), 1);
  const double once = iteration(cluster, workload, gpipe, 1) - alone;
  EXPECT_GT(once, 0);
  EXPECT_NEAR(iteration(cluster, workload, gpipe, 2) - alone, 2 * once, 1e-9);
  EXPECT_NEAR(iteration(cluster, workload, gpipe, 4) - alone, 4 * once, 1e-9);
}

/// Where links are shared a flow that is held back may speed up others: by so much at most.
constexpr double kAnomaly = 1e-2;

RC_GTEST_PROP(Rounds, AreNeverFasterThanAccumulation, ()) {
  ClusterShape nodes;
  nodes.nodes = 2;
  nodes.nic = BytesPerSecond{*rc::gen::element(1e9, 5e9, 25e9)};
  nodes.nic_per_gpu = *rc::gen::arbitrary<bool>();
  const models::Cluster cluster = make_cluster(nodes);
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.pipelines = *rc::gen::inRange(1, 4);
  shape.stages = *rc::gen::inRange(1, 4);
  shape.tensor_parallel = shape.pipelines * shape.stages <= 4 ? *rc::gen::element(1, 2) : 1;
  shape.schedule = *rc::gen::element(ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b,
                                     ir::ScheduleKind::zero_bubble);
  shape.overlap = *rc::gen::arbitrary<bool>();
  shape.micro_batches = *rc::gen::inRange(1, 7);
  ir::Plan plan = make_plan(shape, 4);
  for (ir::Pipeline& pipeline : plan.pipelines) pipeline.micro_batches = *rc::gen::inRange(2, 7);
  const double accumulated = iteration(cluster, workload, plan, 1);
  const int rounds = *rc::gen::inRange(2, 5);
  const double often = iteration(cluster, workload, plan, rounds);
  RC_ASSERT(often >= accumulated * (1 - kAnomaly));
}

}  // namespace
}  // namespace orrery::sim::rounds_law_test
