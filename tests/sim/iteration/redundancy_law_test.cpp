/// What does a redundant copy of the next stage cost in time?
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/sim/iteration/support.h"

namespace orrery::sim::redundancy_law_test {
namespace {

/// A cluster whose communication takes no time that counts.
models::Cluster free_communication() {
  ClusterShape shape;
  shape.nvlink = shape.pcie = shape.nic = BytesPerSecond{1e18};
  shape.latency = Seconds{0};
  return make_cluster(shape);
}

/// Blocks by stage; a forward pass takes kBlockSeconds a block, a backward pass twice that.
ir::Plan chain(std::vector<int> blocks, int micro_batches, bool redundant) {
  int total = 0;
  for (const int count : blocks) total += count;
  PlanShape shape;
  shape.stages = static_cast<int>(blocks.size());
  shape.micro_batches = micro_batches;
  shape.blocks = std::move(blocks);
  ir::Plan plan = make_plan(shape, total);
  if (redundant) plan.redundancy = ir::Redundancy::next_stage;
  return plan;
}

/// By how many forward passes of one block redundancy makes an iteration longer.
double growth(const models::Cluster& cluster, const std::vector<int>& blocks, int micro_batches,
              Bytes activation = Bytes{8 << 20}) {
  int total = 0;
  for (const int count : blocks) total += count;
  const models::Workload workload = make_workload(total, activation);
  double times[2] = {};
  for (const bool redundant : {false, true}) {
    times[redundant ? 1 : 0] =
        simulate(cluster, workload, chain(blocks, micro_batches, redundant), true).iteration_time;
  }
  return (times[1] - times[0]) / kBlockSeconds;
}

TEST(Redundancy, WithoutBubblesEveryRedundantPassCostsItsTime) {
  const models::Cluster cluster = free_communication();
  for (const int stages : {2, 4}) {
    for (const int micro_batches : {16, 32}) {
      const double grown = growth(cluster, std::vector<int>(stages, 1), micro_batches);
      EXPECT_GE(grown, micro_batches - 1e-6) << stages << " stages";
      EXPECT_LE(grown, micro_batches + stages - 1 + 1e-6) << stages << " stages";
    }
  }
}

TEST(Redundancy, StagesThatWaitRunTheirRedundantPassesMeanwhile) {
  const models::Cluster cluster = free_communication();
  // The first stage runs three redundant blocks for each micro-batch while the second, which never
  // waits, runs one.
  for (const int micro_batches : {8, 32}) {
    const double grown = growth(cluster, {1, 3}, micro_batches);
    EXPECT_GE(grown, micro_batches - 1e-6);
    EXPECT_LE(grown, micro_batches + 3);
  }
  // A single micro-batch: all stages but the last wait for its gradients.
  EXPECT_NEAR(growth(cluster, {1, 1, 1, 1}, 1), 1, 1e-6);
  EXPECT_NEAR(growth(cluster, {2, 1, 1, 1}, 1), 2, 1e-6);
}

TEST(Redundancy, AStepEndsWhenTheLastGradientsHaveReachedTheirCopy) {
  const ClusterShape shape;
  const models::Cluster cluster = make_cluster(shape);
  const double seconds_per_byte = 1 / shape.nvlink.value;
  // Two matrices of the first stage, which is the last to end, cross NVLink.
  const double matrix = 4096 * 1024 * make_job().state_bytes.gradient;
  const double transfer = 2 * matrix * seconds_per_byte + shape.latency.value;
  EXPECT_NEAR(growth(cluster, {2, 1}, 1, Bytes{1}), 2 + transfer / kBlockSeconds, 1e-3);
  // The second stage's matrix goes the way of the last activation gradients, of equal size.
  const double shared = matrix * seconds_per_byte;
  EXPECT_NEAR(growth(cluster, {2, 1}, 1, Bytes{matrix}), 2 + (transfer + shared) / kBlockSeconds,
              1e-3);
}

TEST(Redundancy, CollapsedAndExpandedProgramsTakeTheSameTime) {
  const models::Cluster cluster = make_cluster({});
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.stages = 2;
  shape.tensor_parallel = 4;
  shape.micro_batches = 6;
  ir::Plan plan = make_plan(shape, 4);
  plan.redundancy = ir::Redundancy::next_stage;
  const double collapsed = simulate(cluster, workload, plan, true).iteration_time;
  const double expanded = simulate(cluster, workload, plan, false).iteration_time;
  EXPECT_LT(relative_difference(collapsed, expanded), 0.02);
}

}  // namespace
}  // namespace orrery::sim::redundancy_law_test
