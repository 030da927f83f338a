#include "experiments/execution/calibrate.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "models/spec/library.h"

namespace orrery::experiments::calibrate_test {
namespace {

models::Cluster load(const std::string& name) {
  config::Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  models::Cluster cluster = models::load_cluster(name, library, {}, diagnostics);
  diagnostics.raise();
  return cluster;
}

/// experiments/executor/netlab_4.yaml of the source tree.
models::Cluster load_lab() {
  return load(models::default_library_root() + "/../../experiments/executor/netlab_4.yaml");
}

TEST(CalibratedCluster, LinksAreNamedByTheNarrowestOnTheirPath) {
  const models::Cluster lab = load_lab();
  EXPECT_EQ(narrowest_class(lab, DeviceId{0}, DeviceId{1}), "emulated-1g");
  EXPECT_EQ(narrowest_class(lab, DeviceId{0}, DeviceId{2}), "emulated-500m");
  EXPECT_EQ(narrowest_class(lab, DeviceId{3}, DeviceId{2}), "emulated-200m");
  EXPECT_EQ(narrowest_class(lab, DeviceId{0}, DeviceId{3}), "") << "the pair has its own limit";
  EXPECT_EQ(narrowest_class(load("a100_8"), DeviceId{0}, DeviceId{7}), "nvlink3");
}

TEST(CalibratedCluster, NodesArePairedInBothDirections) {
  std::set<std::pair<int, int>> pairs;
  for (const executor::BenchPair& pair : bench_pairs(load_lab())) {
    EXPECT_TRUE(pairs.insert({pair.source.value, pair.destination.value}).second);
  }
  EXPECT_EQ(pairs.size(), 12u);
  for (const auto& [a, b] : pairs) EXPECT_TRUE(pairs.contains({b, a}));
}

TEST(CalibratedCluster, InsideANodeOnePairForEachLinkClass) {
  const auto pairs = bench_pairs(load("a100_8"));
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs.front().link_class, "nvlink3");
  EXPECT_EQ(pairs.front().source, pairs.back().destination);
}

TEST(CalibratedCluster, MessagesThroughHostMemoryAreNoneOfTheClustersLinks) {
  const models::Cluster node = load("a100_8");
  const auto pairs = bench_pairs(node, InsideNodes::loopback);
  ASSERT_EQ(pairs.size(), 2u);
  for (const executor::BenchPair& pair : pairs) EXPECT_EQ(pair.link_class, "loopback");
  const auto groups = bench_groups(node, InsideNodes::loopback);
  ASSERT_FALSE(groups.empty());
  for (const executor::BenchGroup& group : groups) EXPECT_EQ(group.link_class, "loopback");
  // Between nodes they cross the network.
  const models::Cluster nodes = load("hexiscale_240");
  std::set<std::string> between;
  for (const executor::BenchPair& pair : bench_pairs(nodes, InsideNodes::loopback)) {
    const bool inside = nodes.device(pair.source).node == nodes.device(pair.destination).node;
    EXPECT_EQ(pair.link_class == "loopback", inside);
    if (!inside) between.insert(pair.link_class);
  }
  EXPECT_FALSE(between.empty());
}

TEST(CalibratedCluster, LargeClustersAreNotPairedCompletely) {
  const models::Cluster cluster = load("hexiscale_240");
  ASSERT_GT(cluster.nodes.size(), kMostPairedNodes);
  std::size_t between = 0;
  for (const executor::BenchPair& pair : bench_pairs(cluster)) {
    between += cluster.device(pair.source).node != cluster.device(pair.destination).node ? 1 : 0;
  }
  EXPECT_EQ(between, 2 * (cluster.nodes.size() - 1));
}

TEST(CalibratedCluster, GroupsStandInsideNodesAndOverNodes) {
  const models::Cluster lab = load_lab();
  std::set<std::size_t> sizes;
  for (const executor::BenchGroup& group : bench_groups(lab)) sizes.insert(group.devices.size());
  EXPECT_EQ(sizes, (std::set<std::size_t>{2, 4}));
  for (const executor::BenchGroup& group : bench_groups(load("a100_8"))) {
    EXPECT_EQ(group.link_class, "nvlink3");
    sizes.insert(group.devices.size());
  }
  EXPECT_TRUE(sizes.contains(8));
}

}  // namespace
}  // namespace orrery::experiments::calibrate_test
