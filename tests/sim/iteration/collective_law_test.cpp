#include <gtest/gtest.h>

#include <map>
#include <string>

#include "models/cost/collective.h"
#include "models/ir/names.h"
#include "models/spec/topology.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::collective_law_test {
namespace {

using ir::CollectiveKind;

/// One device on each node, so that every edge has its own NIC.
models::Cluster nodes_of_one(int nodes) {
  ClusterShape shape;
  shape.nodes = nodes;
  shape.gpus = 1;
  return make_cluster(shape);
}

Bytes size_for(int members) { return Bytes{members * 1e7}; }

class Ring : public testing::TestWithParam<int> {};

TEST_P(Ring, EqualsItsClosedForm) {
  const int n = GetParam();
  const models::Cluster cluster = nodes_of_one(n);
  const models::Topology topology(cluster);
  const auto path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::broadcast}) {
    const ir::Program program = collective_program(kind, n, size_for(n));
    const Outcome run = simulate(cluster, make_workload(1), program);
    const Seconds expected = models::collective_time(kind, models::CollectiveAlgorithm::ring,
                                                     program.groups[0].devices, size_for(n), path);
    EXPECT_LT(relative_difference(run.iteration_time, expected.value), 1e-9)
        << ir::name_of(kind) << ": " << run.iteration_time << " and " << expected.value << " s";
    EXPECT_EQ(run.work.flows, kind == CollectiveKind::broadcast ? n - 1 : n);
  }
}

TEST_P(Ring, AllReduceTakesTwiceNMinusOneSteps) {
  const int n = GetParam();
  // PCIe and NIC, 4 us each: half of it on the way up, half on the way down.
  const double latency = 8e-6;
  const Outcome run = simulate(nodes_of_one(n), make_workload(1),
                               collective_program(CollectiveKind::all_reduce, n, size_for(n)));
  const double expected = 2.0 * (n - 1) * (size_for(n).value / n / 25e9 + latency);
  EXPECT_LT(relative_difference(run.iteration_time, expected), 1e-9)
      << run.iteration_time << " and " << expected << " s";
}

TEST_P(Ring, StepByStepEqualsAggregated) {
  const int n = GetParam();
  const models::Cluster cluster = nodes_of_one(n);
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    const ir::Program program = collective_program(kind, n, size_for(n));
    IterationOptions options;
    const Outcome aggregated = simulate(cluster, make_workload(1), program, options);
    options.ring = RingMode::stepwise;
    const Outcome stepwise = simulate(cluster, make_workload(1), program, options);
    EXPECT_LT(relative_difference(aggregated.iteration_time, stepwise.iteration_time), 1e-9)
        << aggregated.iteration_time << " and " << stepwise.iteration_time << " s";
    EXPECT_EQ(stepwise.work.flows, n * (n - 1) * (kind == CollectiveKind::all_reduce ? 2 : 1));
  }
}

/// All GPUs of two nodes, each with a NIC or behind one that they share.
double two_nodes(bool nic_per_gpu, RingMode ring) {
  ClusterShape shape;
  shape.nodes = 2;
  shape.gpus = 4;
  shape.nic_per_gpu = nic_per_gpu;
  IterationOptions options;
  options.ring = ring;
  return simulate(make_cluster(shape), make_workload(1),
                  collective_program(CollectiveKind::all_reduce, 8, 1_GiB), options)
      .iteration_time;
}

TEST(NicRings, UseTheNicsOfAllMembers) {
  const double shared = two_nodes(false, RingMode::aggregated);
  const double own = two_nodes(true, RingMode::aggregated);
  EXPECT_NEAR(shared / own, 4, 0.01);
  EXPECT_LT(relative_difference(own, two_nodes(true, RingMode::stepwise)), 0.01);
  EXPECT_LT(relative_difference(shared, two_nodes(false, RingMode::stepwise)), 0.01);
}

INSTANTIATE_TEST_SUITE_P(Members, Ring, testing::Values(2, 3, 4, 7, 8, 16));

TEST(LinkUse, AllReduceSendsTwiceNMinusOneNthsThroughEachNic) {
  constexpr int kMembers = 4;
  const Outcome run =
      simulate(nodes_of_one(kMembers), make_workload(1),
               collective_program(CollectiveKind::all_reduce, kMembers, size_for(kMembers)));
  int nics = 0;
  for (const auto& [link, bytes] : run.links) {
    EXPECT_DOUBLE_EQ(bytes, 2.0 * (kMembers - 1) / kMembers * size_for(kMembers).value) << link;
    if (link.find("/nic0/") != std::string::npos) ++nics;
  }
  EXPECT_EQ(nics, 2 * kMembers);
}

TEST(SlowLink, StretchesTheRingThatUsesIt) {
  const models::Cluster cluster = nodes_of_one(4);
  const ir::Program program = collective_program(CollectiveKind::all_reduce, 4, 1_GiB);
  const Outcome healthy = simulate(cluster, make_workload(1), program);
  IterationOptions options;
  options.slow_links = {{"node1/nic0/up", 4}};
  const Outcome slow = simulate(cluster, make_workload(1), program, options);
  EXPECT_NEAR(slow.iteration_time / healthy.iteration_time, 4, 0.01);
}

}  // namespace
}  // namespace orrery::sim::collective_law_test
