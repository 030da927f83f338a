// Does the faster path rank first, and does a switch take it?
#include "models/reshard/link_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/base/rng.h"
#include "models/reshard/reshard_plan.h"
#include "models/spec/library.h"
#include "tests/models/reshard/slow_bandwidth.h"

namespace orrery::models::link_ranks_test {
namespace {

constexpr double kGbps = 1e9 / 8;

void add_link(Cluster& cluster, const std::string& name, double bandwidth, bool shared = false) {
  cluster.links[name] = {name, BytesPerSecond{bandwidth}, Seconds{1e-6}, 1, shared, ""};
}

/// Nodes of four GPUs, each with its own PCIe slot and an NVLink port. By node: the NICs' link.
Cluster cluster_of(const std::vector<std::vector<std::string>>& nics) {
  Cluster cluster;
  cluster.gpu_types.resize(1);
  cluster.gpu_types[0].name = "gpu";
  cluster.gpu_types[0].vendor = "vendor";
  add_link(cluster, "nvlink", 400e9);
  add_link(cluster, "pcie", 60e9);
  for (const double gbps : {100, 200, 400}) {
    add_link(cluster, "ib" + std::to_string(static_cast<int>(gbps)), gbps * kGbps);
  }
  for (const std::vector<std::string>& links : nics) {
    Node node;
    node.name = "node" + std::to_string(cluster.nodes.size());
    node.gpu_types.assign(4, 0);
    node.domains = {{{0, 1, 2, 3}, "nvlink"}};
    node.pcie = {{{0, 1, 2, 3}, "pcie", ""}};
    for (const std::string& link : links) node.nics.push_back({link, {}});
    cluster.nodes.push_back(node);
  }
  seal(cluster);
  return cluster;
}

const std::vector<std::string> kOneSlow = {"ib100"};
const std::vector<std::string> kFourFast(4, "ib400");

TEST(LinkRanks, TheFasterNicComesFirstAndNvlinkBeforeBoth) {
  const Cluster cluster = cluster_of({kOneSlow, kFourFast, kFourFast});
  const Topology topology(cluster);
  LinkRanks ranks(cluster, topology);
  EXPECT_LT(ranks(9, 8), ranks(4, 8));
  EXPECT_LT(ranks(4, 8), ranks(0, 8));
  EXPECT_EQ(ranks(4, 8), ranks(7, 11));
  EXPECT_EQ(ranks(0, 8), ranks(4, 0)) << "the receiver's own NIC limits it";
  EXPECT_EQ(LinkRanks::kind_of(ranks(9, 8)), PathClass::nvlink);
  EXPECT_EQ(LinkRanks::kind_of(ranks(0, 8)), PathClass::network);
}

// 400 Gb/s between four are 100 each: less than 200 for each alone.
TEST(LinkRanks, ASharedNicCountsWithTheShareOfOneGpu) {
  const Cluster cluster = cluster_of({{"ib400"}, std::vector<std::string>(4, "ib200"), kFourFast});
  const Topology topology(cluster);
  LinkRanks ranks(cluster, topology);
  EXPECT_LT(ranks(4, 8), ranks(0, 8));
  EXPECT_GT(topology.path({0}, {8}).bandwidth, topology.path({4}, {8}).bandwidth);
}

TEST(LinkRanks, SharesOfLinksDivideNicsUplinksAndMedia) {
  Cluster cluster = cluster_of({{"ib400", "ib400"}, kFourFast});
  add_link(cluster, "bus", 80e9, true);
  cluster.nodes[0].pcie = {{{0, 1, 2}, "pcie", "pcie"}, {{3}, "pcie", ""}};
  cluster.nodes[1].domains[0].link = "bus";
  seal(cluster);
  const Topology topology(cluster);
  const std::vector<BytesPerSecond> shares = shares_of_links(cluster, topology);
  std::map<std::string, double> by_name;
  for (const LinkId link : topology.links().ids()) {
    by_name[topology.name_of(link)] = shares[link.index()].value;
  }
  EXPECT_DOUBLE_EQ(by_name["node0/nic0/up"], 200 * kGbps);
  EXPECT_DOUBLE_EQ(by_name["node1/nic3/down"], 400 * kGbps);
  EXPECT_DOUBLE_EQ(by_name["node0/pcie0/uplink/up"], 20e9);
  EXPECT_DOUBLE_EQ(by_name["node0/gpu0/slot/up"], 60e9);
  EXPECT_DOUBLE_EQ(by_name["node0/gpu0/nvlink/up"], 400e9);
  EXPECT_DOUBLE_EQ(by_name["node1/domain0/bus"], 20e9);
}

TEST(LinkRanks, BandwidthsThatDifferByRoundingAreEqual) {
  Cluster cluster = cluster_of({kFourFast, kFourFast, kFourFast});
  add_link(cluster, "ib400b", 400 * kGbps * (1 + 1e-12));
  add_link(cluster, "ib400c", 400 * kGbps * (1 - 1e-5));
  for (Nic& nic : cluster.nodes[1].nics) nic.link = "ib400b";
  cluster.nodes.push_back(cluster.nodes[0]);
  cluster.nodes[3].name = "node3";
  for (Nic& nic : cluster.nodes[3].nics) nic.link = "ib400c";
  seal(cluster);
  const Topology topology(cluster);
  LinkRanks ranks(cluster, topology);
  EXPECT_EQ(ranks(4, 8), ranks(0, 8));
  EXPECT_LT(ranks(0, 8), ranks(12, 8));
}

TEST(LinkRanks, ALimitBetweenTwoNodesCounts) {
  Cluster cluster = cluster_of({kFourFast, kFourFast, kFourFast});
  cluster.overrides.push_back({{0}, {2}, BytesPerSecond{1e9}, {}});
  seal(cluster);
  const Topology topology(cluster);
  LinkRanks ranks(cluster, topology);
  EXPECT_LT(ranks(4, 8), ranks(0, 8));
  EXPECT_EQ(ranks(4, 8), ranks(0, 4));
}

TEST(LinkRanks, StoresOfNodesLimitWhatIsReadFromThem) {
  Cluster cluster = cluster_of({kFourFast, kFourFast, kFourFast});
  cluster.nodes[0].nvme_read = {4e9};
  cluster.nodes[1].nvme_read = {12e9};
  cluster.nodes[0].host_memory_bandwidth = {400e9};
  cluster.nodes[1].host_memory_bandwidth = {300e9};
  seal(cluster);
  const Topology topology(cluster);
  LinkRanks nvme(cluster, topology, ir::Location::nvme);
  EXPECT_LT(nvme(4, 8), nvme(0, 8));
  LinkRanks host(cluster, topology, ir::Location::host_memory);
  EXPECT_EQ(host(4, 8), host(0, 8)) << "the NIC is narrower than both";
  LinkRanks gpu(cluster, topology);
  EXPECT_EQ(gpu(4, 8), gpu(0, 8));
}

/// Any mixture of NICs, PCIe trees, media, vendors, leaves and limits between nodes.
Cluster random_cluster(Rng& rng) {
  const auto some = [&](std::int64_t most) { return rng.integer(0, most); };
  const std::vector<std::string> classes = {"ib100", "ib200", "ib400"};
  std::vector<std::vector<std::string>> nics;
  const std::int64_t nodes = 2 + some(3);
  for (std::int64_t n = 0; n < nodes; ++n) {
    const std::string link = classes[some(2)];
    nics.emplace_back(1 + some(3), link);
  }
  Cluster cluster = cluster_of(nics);
  add_link(cluster, "bus", 100e9, true);
  add_link(cluster, "pcie-bus", 30e9, true);
  add_link(cluster, "upi", 40e9);
  cluster.gpu_types.push_back(cluster.gpu_types[0]);
  cluster.gpu_types[1].name = "other";
  cluster.gpu_types[1].vendor = "another";
  cluster.host_staging = {{"vendor", "another", BytesPerSecond{8e9}, Seconds{1e-5}}};
  for (Node& node : cluster.nodes) {
    if (rng.bernoulli(0.3)) node.domains = {{{0, 1}, "nvlink"}};
    if (rng.bernoulli(0.3)) node.domains = {{{0, 1, 2}, "bus"}};
    if (rng.bernoulli(0.4)) node.pcie = {{{0, 1, 2}, "pcie", "upi"}, {{3}, "pcie", "upi"}};
    if (rng.bernoulli(0.2)) node.pcie = {{{0, 1, 2, 3}, "pcie-bus", ""}};
    if (rng.bernoulli(0.3)) node.gpu_types.assign(4, 1);
    if (rng.bernoulli(0.2)) node.gpu_types[0] = 1;
    node.leaf = static_cast<int>(some(1));
  }
  if (rng.bernoulli(0.4)) cluster.fabric.leaf_uplink = BytesPerSecond{10e9};
  if (rng.bernoulli(0.4)) cluster.overrides.push_back({{0}, {1}, BytesPerSecond{2e9}, {}});
  seal(cluster);
  return cluster;
}

TEST(LinkRanks, OrderPathsLikeTheSlowReference) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Cluster cluster = random_cluster(rng);
    const Topology topology(cluster);
    const SlowBandwidth slow(cluster, topology);
    LinkRanks ranks(cluster, topology);
    for (int receiver = 0; receiver < cluster.size(); ++receiver) {
      for (int a = 0; a < cluster.size(); ++a) {
        if (a == receiver) continue;
        const PathClass kind = topology.path({a}, {receiver}).kind;
        ASSERT_EQ(LinkRanks::kind_of(ranks(a, receiver)), kind);
        for (int b = 0; b < cluster.size(); ++b) {
          if (b == receiver) continue;
          const double x = slow(a, receiver), y = slow(b, receiver);
          const PathClass other = topology.path({b}, {receiver}).kind;
          const bool tie = std::abs(x - y) < 1e-9 * x;
          const bool first = tie ? kind < other : x > y;
          ASSERT_EQ(ranks(a, receiver) < ranks(b, receiver), first)
              << a << " and " << b << " to " << receiver << ": " << x << " and " << y;
        }
      }
    }
  }
}

ir::Plan replicas(const std::vector<int>& first_devices, int blocks) {
  ir::Plan plan;
  for (const int first : first_devices) {
    ir::Segment segment;
    segment.first_block = {0};
    segment.last_block = {blocks - 1};
    segment.groups.resize(1);
    segment.groups[0].tensor_parallel = 4;
    for (int i = 0; i < 4; ++i) segment.groups[0].devices.push_back({first + i});
    plan.pipelines.emplace_back().stages.push_back({{segment}});
  }
  return plan;
}

Workload llama() {
  config::Diagnostics diagnostics;
  const Library library = load_library(default_library_root(), diagnostics);
  Job job;
  job.global_batch = 8;
  job.sequence_length = 4096;
  Workload workload = load_workload("llama2_13b", job, library, {}, diagnostics);
  diagnostics.raise();
  return workload;
}

double sent(const ReshardPlan& plan, int first, int last) {
  double bytes = 0;
  for (const DeviceTraffic& device : plan.devices) {
    if (device.device.value >= first && device.device.value <= last) {
      bytes += sum(device.sent).value;
    }
  }
  return bytes;
}

// Node 0 reaches others through one NIC of 100 Gb/s, node 1 through four of 400.
TEST(SwitchOverMixedNics, OnlyTheNodeWithTheFastNicsSends) {
  const Cluster cluster = cluster_of({kOneSlow, kFourFast, kFourFast});
  const Workload workload = llama();
  const int blocks = workload.size();
  const ReshardPlan plan = plan_reshard(replicas({0, 4}, blocks), replicas({0, 8}, blocks), cluster,
                                        Topology(cluster), workload, {});
  EXPECT_EQ(sent(plan, 0, 3), 0);
  EXPECT_GT(sent(plan, 4, 7), 0);
  EXPECT_DOUBLE_EQ(sent(plan, 4, 7), sum(plan.moved).value);
}

TEST(SwitchOverMixedNics, EqualNicsShareTheLoad) {
  const Cluster cluster = cluster_of({kFourFast, kFourFast, kFourFast});
  const Workload workload = llama();
  const int blocks = workload.size();
  const ReshardPlan plan = plan_reshard(replicas({0, 4}, blocks), replicas({0, 8}, blocks), cluster,
                                        Topology(cluster), workload, {});
  EXPECT_NEAR(sent(plan, 0, 3) / sum(plan.moved).value, 0.5, 0.02);
}

// Devices 4 and 5 send to a slow receiver and to a fast one through the same NICs: what the one has
// sent to the slow receiver counts when the fast one is served.
TEST(SwitchOverMixedNics, BytesToSlowAndFastReceiversAreOneLoad) {
  const Cluster cluster = cluster_of({kOneSlow, kFourFast, kFourFast});
  const Topology topology(cluster);
  LinkRanks ranks(cluster, topology);
  ASSERT_NE(ranks(4, 0), ranks(4, 8));
  const BatchedPlan plan = plan_sends({{10, {4, 5}, {0}}, {10, {4, 5}, {8}}}, ranks.heuristics());
  ASSERT_EQ(plan.sends.size(), 2u);
  EXPECT_EQ(plan.sends[0].source, 4);
  EXPECT_EQ(plan.sends[1].source, 5);
}

}  // namespace
}  // namespace orrery::models::link_ranks_test
