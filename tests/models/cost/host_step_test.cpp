#include "models/cost/host_step.h"

#include <gtest/gtest.h>

#include "tests/worlds/clusters.h"
#include "tests/worlds/plans.h"

namespace orrery::models::host_step_test {
namespace {

/// Two nodes of four devices, two behind each PCIe switch.
Cluster pairs(bool shared_slot = false, const std::string& uplink = "") {
  Cluster cluster = worlds::bare_cluster({{0, 0, 0, 0}, {0, 0, 0, 0}}, {worlds::round_gpu()});
  cluster.links["slot"] = {"slot", BytesPerSecond{20e9}, {}, 0.5, shared_slot, ""};
  cluster.links["uplink"] = {"uplink", BytesPerSecond{8e9}, {}, 1, false, ""};
  for (Node& node : cluster.nodes) {
    node.pcie = {{{0, 1}, "slot", uplink}, {{2, 3}, "slot", uplink}};
    node.host_memory = 1_GiB;
    node.host_memory_bandwidth = BytesPerSecond{60e9};
  }
  return cluster;
}

std::pair<double, double> share(const Cluster& cluster, const std::vector<int>& used, int device) {
  const HostShare one = HostShares(cluster, worlds::devices(used)).of({device});
  return {one.link.value, one.memory.value};
}

TEST(HostShare, SlotsAreOfOneDeviceUplinksAndMemoryOfAllThatAreUsed) {
  EXPECT_EQ(share(pairs(), {0, 1, 2, 3, 4}, 1), std::pair(10e9, 15e9));
  EXPECT_EQ(share(pairs(), {0, 1, 2, 3, 4}, 4), std::pair(10e9, 60e9));
  EXPECT_EQ(share(pairs(true), {0, 1, 2}, 0), std::pair(5e9, 20e9));
  EXPECT_EQ(share(pairs(true), {0, 1, 2}, 2), std::pair(10e9, 20e9));
  EXPECT_EQ(share(pairs(false, "uplink"), {0, 1, 2}, 0), std::pair(4e9, 20e9));
  EXPECT_EQ(share(pairs(false, "uplink"), {0, 1, 2}, 2), std::pair(8e9, 20e9));
}

TEST(HostStep, TheSlowestOfGradientsDownTheStepAndParametersUpCounts) {
  const StateBytes bytes;  // 2, 2, 4 and 8
  const auto step = [&](double link, double memory, const StateBytes& of) {
    return host_step({BytesPerSecond{link}, BytesPerSecond{memory}}, 1e9, of).value;
  };
  EXPECT_DOUBLE_EQ(step(1e9, 1e15, bytes), 2);
  EXPECT_DOUBLE_EQ(step(1e9, 1e15, {.weight = 2, .gradient = 4}), 4);
  EXPECT_DOUBLE_EQ(step(1e9, 1e15, {.weight = 4, .gradient = 2}), 4);
  EXPECT_DOUBLE_EQ(step(1e15, 1e9, bytes), 32);  // Each of the 16 bytes is read and written.
  EXPECT_DOUBLE_EQ(host_bytes(1e9, bytes).value, 14e9);
}

TEST(HostShare, WhatTheClusterLacksIsNamed) {
  Cluster cluster = pairs();
  EXPECT_EQ(lacks_host(cluster, {0}), "");
  cluster.nodes[0].host_memory_bandwidth = {};
  EXPECT_EQ(lacks_host(cluster, {0}), "host_memory");
  EXPECT_EQ(lacks_host(cluster, {4}), "");
  cluster.nodes[1].pcie.clear();
  EXPECT_EQ(lacks_host(cluster, {4}), "pcie");
}

}  // namespace
}  // namespace orrery::models::host_step_test
