/// Does the emulated network get what the simulator reads from the cluster file?
#include "experiments/execution/netlab.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/config/diagnostics.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"

namespace orrery::experiments::netlab_test {
namespace {

models::Cluster load(const std::string& name) {
  config::Diagnostics diagnostics;
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  models::Cluster cluster = models::load_cluster(name, library, {}, diagnostics);
  diagnostics.raise();
  return cluster;
}

/// Every two nodes of one device each: the path of the simulator is that of the emulation.
void expect_same_paths(const models::Cluster& cluster) {
  const executor::NetlabSpec spec = netlab_of(cluster);
  const models::Topology topology(cluster);
  ASSERT_EQ(executor::find_problems(spec), std::vector<std::string>{});
  for (const models::Device& a : cluster.devices) {
    for (const models::Device& b : cluster.devices) {
      if (a.node == b.node) continue;
      const models::Path path = topology.path(a.id, b.id);
      const int from = a.node.value, to = b.node.value;
      BytesPerSecond rate =
          std::min(spec.nodes[a.node.index()].rate, spec.nodes[b.node.index()].rate);
      for (const executor::NetlabPair& pair : spec.pairs) {
        if (pair.rate && std::minmax(pair.a, pair.b) == std::minmax(from, to)) {
          rate = std::min(rate, *pair.rate);
        }
      }
      EXPECT_DOUBLE_EQ(rate.value, path.bandwidth.value) << from << "-" << to;
      EXPECT_NEAR(executor::netlab_latency(spec, from, to).value, path.latency.value, 1e-12)
          << from << "-" << to;
    }
  }
}

TEST(NetlabOf, ThePathsAreThoseOfTheSimulator) {
  models::Cluster cluster = load("experiments/executor/netlab_4.yaml");
  expect_same_paths(cluster);
  cluster.nodes[2].leaf = cluster.nodes[3].leaf = 7;
  cluster.fabric.leaf_latency = {20e-6};
  cluster.fabric.spine_latency = {50e-6};
  models::seal(cluster);
  expect_same_paths(cluster);
}

TEST(NetlabOf, LeavesShareTheirUplinks) {
  models::Cluster cluster = load("experiments/executor/netlab_4.yaml");
  EXPECT_TRUE(netlab_of(cluster).uplinks.empty());
  cluster.nodes[2].leaf = cluster.nodes[3].leaf = 7;
  cluster.fabric.leaf_uplink = {50e6};
  const executor::NetlabSpec spec = netlab_of(cluster);
  ASSERT_EQ(spec.uplinks.size(), 2u);
  EXPECT_EQ(spec.uplinks[0].rate.value, 50e6);
  EXPECT_EQ(spec.nodes[1].uplink, 0);
  EXPECT_EQ(spec.nodes[2].uplink, 1);
}

TEST(NetlabOf, SlowdownsDifferAsTheDevicesDo) {
  const executor::NetlabSpec spec = netlab_of(load("experiments/executor/netlab_4.yaml"));
  const std::vector<double> slowdowns = executor::netlab_slowdowns(spec, 8);
  EXPECT_NEAR(slowdowns[0], 1, 1e-12);
  EXPECT_NEAR(slowdowns[1], 1.5, 1e-12);
  EXPECT_NEAR(slowdowns[3], 3, 1e-12);
}

TEST(NetlabOf, WhatIsNotEmulatedIsSaid) {
  const models::Cluster cluster = load("hexiscale_case_study");
  EXPECT_EQ(netlab_differences(cluster).size(), 3u);  // devices of each node
  EXPECT_TRUE(netlab_differences(load("experiments/executor/netlab_4.yaml")).empty());
}

}  // namespace
}  // namespace orrery::experiments::netlab_test
