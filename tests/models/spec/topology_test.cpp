#include "models/spec/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/models/spec/support.h"

namespace orrery::models::topology_test {
namespace {

constexpr double kUs = 1e-6;

/// Two nodes of four GPUs on one leaf, a third on another; two PCIe switches; NVLink on pairs.
const char* const kMixed = R"(schema: orrery/cluster/1
name: mixed
nodes:
  - name: a
    count: 2
    gpus: {type: A100, count: 4}
    domains: {link: nvlink, members: [0, 1]}
    pcie:
      - {members: [0, 1], link: pcie, uplink: pcie-uplink}
      - {members: [2, 3], link: pcie, uplink: pcie-uplink}
    nics: {link: ib, count: 2}
  - name: b
    gpus: {type: A100, count: 2}
    domains: {link: nvlink}
    nics: {link: ib}
    leaf: 7
  - name: c
    gpus: {type: MI250, count: 2}
    pcie: {link: pcie}
    nics: {link: ib}
    leaf: 7
fabric: {leaf_uplink: 8 GB/s, leaf_latency: 1 us, spine_latency: 3 us}
overrides: [{between: [a-0, b], bandwidth: 1 GB/s, latency: 50 us}]
host_staging: [{vendors: [nvidia, amd], bandwidth: 2 GB/s, latency: 20 us}]
)";

class TopologyTest : public ::testing::Test {
 protected:
  std::vector<std::string> names(int a, int b) const {
    std::vector<LinkId> links;
    topology.route({a}, {b}, links);
    std::vector<std::string> out;
    for (const LinkId link : links) out.push_back(topology.name_of(link));
    return out;
  }
  void expect(int a, int b, PathClass kind, double gigabytes, double latency_us) const {
    const Path path = topology.path({a}, {b});
    EXPECT_EQ(path.kind, kind);
    EXPECT_DOUBLE_EQ(path.bandwidth.value, gigabytes * 1e9);
    EXPECT_NEAR(path.latency.value, latency_us * kUs, 1e-12);
  }
  Cluster cluster = cluster_of(kMixed);
  Topology topology{cluster};
};

using Names = std::vector<std::string>;

TEST(Rails, ALeafWhoseNodesHaveFewerNicsThanRailsHasNoLinkWithoutBandwidth) {
  std::string text = kMixed;
  text.replace(text.find("leaf_uplink: 8 GB/s"), 19, "rails: 2, leaf_oversubscription: 2");
  const Cluster cluster = cluster_of(text.c_str());
  const Topology topology(cluster);
  for (const LinkId link : topology.links().ids()) {
    EXPECT_GT(topology.links()[link].bandwidth.value, 0) << topology.name_of(link);
  }
}

TEST_F(TopologyTest, ADeviceReachesItselfWithoutLinks) {
  EXPECT_EQ(names(3, 3), Names{});
  EXPECT_EQ(topology.path({3}, {3}).kind, PathClass::same_device);
  EXPECT_EQ(topology.path({3}, {3}).latency, Seconds{});
}

TEST_F(TopologyTest, ACommonDomainComesFirstAndAchievesItsEfficiency) {
  EXPECT_EQ(names(0, 1), (Names{"a-0/gpu0/nvlink/up", "a-0/gpu1/nvlink/down"}));
  expect(0, 1, PathClass::nvlink, 150, 2);
}

TEST_F(TopologyTest, OneSwitchIsCrossedWithoutItsUplink) {
  EXPECT_EQ(names(2, 3), (Names{"a-0/gpu2/slot/up", "a-0/gpu3/slot/down"}));
  expect(2, 3, PathClass::pcie, 32, 4);
}

TEST_F(TopologyTest, TwoSwitchesAreJoinedByTheirUplinks) {
  EXPECT_EQ(names(1, 2), (Names{"a-0/gpu1/slot/up", "a-0/pcie0/uplink/up", "a-0/pcie1/uplink/down",
                                "a-0/gpu2/slot/down"}));
  expect(1, 2, PathClass::pcie, 20, 5);
}

TEST_F(TopologyTest, NodesOfALeafMeetThere) {
  EXPECT_EQ(names(0, 7), (Names{"a-0/gpu0/slot/up", "a-0/pcie0/uplink/up", "a-0/nic0/up",
                                "a-1/nic1/down", "a-1/pcie1/uplink/down", "a-1/gpu3/slot/down"}));
  expect(0, 7, PathClass::network, 20, 4 + 1 + 5 + 1);
}

TEST_F(TopologyTest, NodesOfDifferentLeavesShareTheLeafUplinks) {
  EXPECT_EQ(names(4, 8), (Names{"a-1/gpu0/slot/up", "a-1/pcie0/uplink/up", "a-1/nic0/up",
                                "leaf0/up", "leaf7/down", "b/nic0/down"}));
  expect(4, 8, PathClass::network, 8, 2 + 0.5 + 5 + 1 + 1 + 3);
}

TEST_F(TopologyTest, AnOverrideLimitsThePairAndSetsItsNetworkLatency) {
  EXPECT_EQ(names(0, 9), (Names{"a-0/gpu0/slot/up", "a-0/pcie0/uplink/up", "a-0/nic0/up",
                                "leaf0/up", "a-0/to/b", "leaf7/down", "b/nic0/down"}));
  expect(0, 9, PathClass::network, 1, 2 + 0.5 + 50);
  EXPECT_EQ(names(9, 0)[2], "b/to/a-0");
  EXPECT_DOUBLE_EQ(topology.path({4}, {9}).bandwidth.value, 8e9);
}

TEST_F(TopologyTest, WithoutPcieThereIsNoSlotLink) { EXPECT_EQ(names(8, 4).front(), "b/nic0/up"); }

TEST_F(TopologyTest, VendorsWithoutACommonLibraryAreStagedThroughTheHost) {
  EXPECT_EQ(names(8, 10), (Names{"b/gpu0/staging-nvidia-amd/up", "b/nic0/up", "c/nic0/down",
                                 "c/gpu0/staging-nvidia-amd/down", "c/gpu0/slot/down"}));
  expect(8, 10, PathClass::host_staged, 2, 20 + 5 + 1 + 2);
}

TEST_F(TopologyTest, PathsAreSymmetric) {
  for (int a = 0; a < cluster.size(); ++a) {
    for (int b = 0; b < cluster.size(); ++b) {
      const Path there = topology.path({a}, {b}), back = topology.path({b}, {a});
      EXPECT_EQ(there.kind, back.kind);
      EXPECT_EQ(there.bandwidth, back.bandwidth);
      EXPECT_NEAR(there.latency.value, back.latency.value, 1e-15);
      EXPECT_EQ(names(a, b).size(), names(b, a).size());
    }
  }
}

TEST_F(TopologyTest, OppositeDirectionsShareNoLink) {
  std::vector<LinkId> there, back;
  topology.route({0}, {9}, there);
  topology.route({9}, {0}, back);
  for (const LinkId link : there) EXPECT_EQ(std::count(back.begin(), back.end(), link), 0);
}

TEST_F(TopologyTest, GpusAreSpreadOverTheNicsInOrder) {
  EXPECT_TRUE(topology.share_nic({0}, {1}));
  EXPECT_FALSE(topology.share_nic({1}, {2}));
  EXPECT_TRUE(topology.share_nic({2}, {3}));
  EXPECT_FALSE(topology.share_nic({0}, {4}));
}

TEST_F(TopologyTest, ANodeOwnsItsPortsSlotsUplinksNicsAndStaging) {
  // 2 ports, 4 slots, 2 uplinks, 2 NICs, 4 staging paths, both ways; no leaf, no pair override.
  EXPECT_EQ(topology.links_of({0}).size(), 2u * (2 + 4 + 2 + 2 + 4));
  for (const LinkId link : topology.links_of({0})) {
    EXPECT_TRUE(topology.name_of(link).starts_with("a-0/"));
    EXPECT_EQ(topology.node_of(link), NodeId{0});
  }
}

TEST(Topology, ASharedMediumIsOneLinkForAllMembers) {
  const Cluster cluster = cluster_of(R"(schema: orrery/cluster/1
name: bus
nodes: [{name: n, gpus: {type: A100, count: 3}, domains: {link: bus}}]
)");
  const Topology topology(cluster);
  EXPECT_EQ(topology.links().size(), 1u);
  std::vector<LinkId> links;
  topology.route({0}, {1}, links);
  topology.route({2}, {1}, links);
  EXPECT_EQ(links, (std::vector<LinkId>{{0}, {0}}));
  EXPECT_NEAR(topology.path({0}, {1}).latency.value, 6 * kUs, 1e-15);
}

TEST(Topology, EveryTwoGpusOfAMeshHaveALinkOfTheirOwn) {
  const Cluster cluster = cluster_of(R"(schema: orrery/cluster/1
name: m
links: {fabric: {bandwidth: 64 GB/s, latency: 3 us, efficiency: 0.5, mesh: true, source: test}}
nodes:
  - name: a
    gpus: {type: A100, count: 4}
    domains: {link: fabric}
    nics: {link: ib}
)");
  const Topology topology(cluster);
  std::vector<LinkId> seen;
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      if (a == b) continue;
      std::vector<LinkId> links;
      topology.route({a}, {b}, links);
      ASSERT_EQ(links.size(), 1U);
      EXPECT_EQ(topology.name_of(links[0]), fmt::format("a/gpu{}/fabric/to/gpu{}", a, b));
      EXPECT_EQ(topology.find(topology.name_of(links[0])), links[0]);
      seen.push_back(links[0]);
      const Path path = topology.path({a}, {b});
      EXPECT_TRUE(path.mesh);
      EXPECT_EQ(path.kind, PathClass::nvlink);
      EXPECT_DOUBLE_EQ(path.bandwidth.value, 32e9);
      EXPECT_NEAR(path.latency.value, 3 * kUs, 1e-12);
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST(Topology, OnlyADomainIsAMesh) {
  EXPECT_NE(problems_of(R"(schema: orrery/cluster/1
name: m
links: {fabric: {bandwidth: 64 GB/s, latency: 3 us, mesh: true, source: test}}
nodes:
  - name: a
    gpus: {type: A100, count: 4}
    domains: {link: nvlink}
    nics: {link: fabric}
)")
                .find("c.yaml:8:18: 'fabric' is a mesh (only GPUs of a domain are a mesh)"),
            std::string::npos);
}

TEST(Topology, TheFastestOfSeveralCommonDomainsIsTaken) {
  const Cluster cluster = cluster_of(R"(schema: orrery/cluster/1
name: two
nodes: [{name: n, gpus: {type: A100, count: 2}, domains: [{link: pcie}, {link: nvlink}]}]
)");
  EXPECT_EQ(Topology(cluster).path({0}, {1}).kind, PathClass::nvlink);
}

TEST(Topology, ADomainOfAPcieClassCountsAsPcie) {
  const Cluster cluster = cluster_of(R"(schema: orrery/cluster/1
name: two
nodes: [{name: n, gpus: {type: A100, count: 2}, domains: {link: pcie, bandwidth: 24 GB/s}}]
)");
  const Path path = Topology(cluster).path({0}, {1});
  EXPECT_EQ(path.kind, PathClass::pcie);
  EXPECT_DOUBLE_EQ(path.bandwidth.value, 24e9);
}

TEST(Topology, AnUnlimitedSpineWithLatencyIsNoBottleneck) {
  const Cluster cluster = cluster_of(R"(schema: orrery/cluster/1
name: leaves
nodes:
  - {name: n, count: 4, gpus: {type: A100}, nics: {link: ib}, nodes_per_leaf: 2}
fabric: {leaf_latency: 1 us, spine_latency: 2 us}
)");
  const Topology topology(cluster);
  std::vector<LinkId> links;
  topology.route({1}, {2}, links);
  ASSERT_EQ(links.size(), 4u);
  EXPECT_TRUE(topology.links()[links[1]].uncontended);
  EXPECT_DOUBLE_EQ(topology.path({1}, {2}).bandwidth.value, 25e9);
  EXPECT_NEAR(topology.path({0}, {1}).latency.value, 6 * kUs, 1e-15);
  EXPECT_NEAR(topology.path({1}, {2}).latency.value, 9 * kUs, 1e-15);
}

TEST(Topology, TheLastOverrideOfAPairCounts) {
  const Cluster cluster = cluster_of(R"(schema: orrery/cluster/1
name: pairs
nodes: [{name: n, count: 3, gpus: {type: A100}, nics: {link: ib}}]
overrides:
  - {between: [n, n], bandwidth: 2 GB/s}
  - {between: [n-2, n-0], bandwidth: 3 GB/s}
)");
  const Topology topology(cluster);
  EXPECT_DOUBLE_EQ(topology.path({0}, {1}).bandwidth.value, 2e9);
  EXPECT_DOUBLE_EQ(topology.path({0}, {2}).bandwidth.value, 3e9);
  EXPECT_DOUBLE_EQ(topology.path({2}, {0}).bandwidth.value, 3e9);
}

}  // namespace
}  // namespace orrery::models::topology_test
