#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/base/rng.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::expansion_law_test {
namespace {

/// A switch joins the GPUs of a node, and each has its own PCIe path and NIC.
models::Cluster private_paths() {
  ClusterShape shape;
  shape.nodes = 4;
  shape.gpus = 8;
  return make_cluster(shape);
}

void expect_equal(const Outcome& collapsed, const Outcome& expanded, const std::string& what) {
  EXPECT_LT(relative_difference(collapsed.iteration_time, expanded.iteration_time), 1e-9)
      << what << ": collapsed " << collapsed.iteration_time << ", expanded "
      << expanded.iteration_time << " s";
}

TEST(Expansion, ClosedFormOfCollapsedEqualsFlowsOfExpanded) {
  const models::Workload workload = make_workload(4);
  const models::Cluster cluster = private_paths();
  for (const int tensor_parallel : {1, 2, 4}) {
    for (const int pipelines : {1, 2, 4}) {
      PlanShape shape;
      shape.tensor_parallel = tensor_parallel;
      shape.pipelines = pipelines;
      shape.micro_batches = 3;
      const ir::Plan plan = make_plan(shape, 4);
      expect_equal(simulate(cluster, workload, plan, true),
                   simulate(cluster, workload, plan, false),
                   "tp " + std::to_string(tensor_parallel) + " dp " + std::to_string(pipelines));
    }
  }
}

/// The second stage is the slow one, so that activations arrive while it computes and not while its
/// inner collectives use NVLink.
TEST(Expansion, ClosedFormOfCollapsedEqualsFlowsOfExpandedAcrossStages) {
  const models::Workload workload = make_workload(6, Bytes{1 << 20});
  const models::Cluster cluster = private_paths();
  for (const auto transfer :
       {ir::ActivationTransfer::leader_broadcast, ir::ActivationTransfer::sliced}) {
    PlanShape shape;
    shape.stages = 2;
    shape.blocks = {2, 4};
    shape.tensor_parallel = 4;
    shape.micro_batches = 6;
    shape.transfer = transfer;
    const ir::Plan plan = make_plan(shape, 6);
    expect_equal(simulate(cluster, workload, plan, true), simulate(cluster, workload, plan, false),
                 transfer == ir::ActivationTransfer::sliced ? "sliced" : "leader broadcast");
  }
}

TEST(Expansion, FlowsOfCollapsedEqualFlowsOfExpanded) {
  const models::Cluster cluster = private_paths();
  Rng rng(7);
  for (int i = 0; i < 24; ++i) {
    PlanShape shape;
    shape.tensor_parallel = 1 << rng.integer(0, 2);
    shape.stages = static_cast<int>(rng.integer(1, 3));
    shape.pipelines = static_cast<int>(rng.integer(1, 2));
    shape.micro_batches = static_cast<int>(rng.integer(1, 6));
    shape.samples = static_cast<int>(rng.integer(1, 2));
    shape.schedule = rng.bernoulli(0.5) ? ir::ScheduleKind::gpipe : ir::ScheduleKind::one_f_one_b;
    shape.transfer = rng.bernoulli(0.5) ? ir::ActivationTransfer::sliced
                                        : ir::ActivationTransfer::leader_broadcast;
    const models::Workload workload = make_workload(6);
    const ir::Plan plan = make_plan(shape, 6);
    IterationOptions options;
    options.inner = InnerMode::aggregated;
    expect_equal(simulate(cluster, workload, plan, true, options),
                 simulate(cluster, workload, plan, false, options), "plan " + std::to_string(i));
  }
}

TEST(Expansion, LinksCarryTheSameBytes) {
  const models::Cluster cluster = private_paths();
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.tensor_parallel = 4;
  shape.stages = 2;
  shape.pipelines = 2;
  const ir::Plan plan = make_plan(shape, 4);
  const Outcome collapsed = simulate(cluster, workload, plan, true);
  const Outcome expanded = simulate(cluster, workload, plan, false);
  ASSERT_EQ(collapsed.links.size(), expanded.links.size());
  for (std::size_t i = 0; i < collapsed.links.size(); ++i) {
    EXPECT_EQ(collapsed.links[i].first, expanded.links[i].first);
    EXPECT_LT(relative_difference(collapsed.links[i].second, expanded.links[i].second), 1e-6)
        << collapsed.links[i].first << ": " << collapsed.links[i].second << " and "
        << expanded.links[i].second;
  }
}

TEST(Expansion, ContentionOnASharedPcieBusShowsOnlyInFlows) {
  ClusterShape bus;
  bus.has_nvlink = false;
  bus.shared_pcie = true;
  const models::Cluster cluster = make_cluster(bus);
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.tensor_parallel = 4;
  shape.pipelines = 2;
  const ir::Plan plan = make_plan(shape, 4);
  const Outcome collapsed = simulate(cluster, workload, plan, true);
  const Outcome expanded = simulate(cluster, workload, plan, false);
  // Each ring has four edges, and two groups share the bus.
  EXPECT_GT(expanded.iteration_time, 1.5 * collapsed.iteration_time);
  EXPECT_LT(expanded.iteration_time, 8 * collapsed.iteration_time);
}

TEST(InnerCollectives, PerBlockEqualAggregatedWhenNothingElseUsesTheLinks) {
  const models::Cluster cluster = private_paths();
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.tensor_parallel = 4;
  shape.pipelines = 2;
  const ir::Plan plan = make_plan(shape, 4);
  IterationOptions options;
  options.inner = InnerMode::aggregated;
  const Outcome aggregated = simulate(cluster, workload, plan, false, options);
  options.inner = InnerMode::per_block;
  const Outcome per_block = simulate(cluster, workload, plan, false, options);
  expect_equal(aggregated, per_block, "inner");
  // Eight all-reduces in each pass, on four edges.
  EXPECT_EQ(per_block.work.flows - aggregated.work.flows, 2 * 4 * 2 * 7 * 4);
}

TEST(InnerCollectives, TakeTheClosedFormOfTheirRing) {
  const models::Cluster cluster = private_paths();
  constexpr int kBlocks = 3, kMicroBatches = 5;
  const models::Workload workload = make_workload(kBlocks);
  PlanShape shape;
  shape.tensor_parallel = 4;
  shape.micro_batches = kMicroBatches;
  const ir::Plan plan = make_plan(shape, kBlocks);
  // Ring over 4 devices: 6 steps of a quarter of 8 MiB at 200 GB/s, 2 us each; NVLink alone.
  const double ring = 6 * ((8 << 20) / 4 / 200e9 + 2e-6);
  const double passes = 2.0 * kMicroBatches * kBlocks * 2 * ring;
  for (const bool collapsed : {true, false}) {
    const Outcome run = simulate(cluster, workload, plan, collapsed);
    for (const ir::RankBreakdown& rank : run.ranks) {
      EXPECT_NEAR(static_cast<double>(rank.tensor_parallel.count), passes * 1e9, 20)
          << (collapsed ? "collapsed" : "expanded");
      EXPECT_NEAR(static_cast<double>(rank.compute.count),
                  kMicroBatches * kBlocks * 3 * kBlockSeconds / 4 * 1e9, 20);
    }
  }
}

}  // namespace
}  // namespace orrery::sim::expansion_law_test
