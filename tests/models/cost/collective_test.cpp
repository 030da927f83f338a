#include "models/cost/collective.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "tests/models/cost/two_level.h"
#include "tests/worlds/clusters.h"
#include "tests/worlds/plans.h"

namespace orrery::models::collective_test {
namespace {

using ir::CollectiveKind;
using worlds::devices;

constexpr CollectiveKind kRingKinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                         CollectiveKind::reduce_scatter, CollectiveKind::broadcast};
constexpr CollectiveAlgorithm kAlgorithms[] = {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree,
                                               CollectiveAlgorithm::hierarchical};

/// Every edge has its own bandwidth and latency.
Path uneven(DeviceId a, DeviceId b) {
  if (a == b) return {};
  const int mix = (7 * a.value + 13 * b.value) % 11;
  return {BytesPerSecond{1e9 * (1 + mix)}, Seconds{1e-6 * (1 + mix % 5)}, PathClass::network};
}

Path even(DeviceId a, DeviceId b) {
  if (a == b) return {};
  return {10_GBps, Seconds{2e-6}, PathClass::nvlink};
}

std::vector<DeviceId> first(int count) {
  std::vector<DeviceId> result;
  for (int i = 0; i < count; ++i) result.push_back({i});
  return result;
}

Seconds longest_flow(const std::vector<FlowEdge>& flows, const PathFunction& path) {
  Seconds longest;
  for (const FlowEdge& flow : flows) {
    const Path edge = path(flow.source, flow.destination);
    longest = std::max(longest, edge.latency + flow.bytes / edge.bandwidth + flow.extra_latency);
  }
  return longest;
}

TEST(Ring, AllReduceIsTheTextbookForm) {
  const Seconds time = collective_time(CollectiveKind::all_reduce, CollectiveAlgorithm::ring,
                                       first(4), 4000000000_B, even);
  EXPECT_NEAR(time.value, 2 * 3 * (1e9 / 10e9 + 2e-6), 1e-12);
}

TEST(Ring, NarrowestEdgeDecides) {
  const auto path = [](DeviceId a, DeviceId b) {
    Path edge = even(a, b);
    if (a.value == 2) edge.bandwidth = 1_GBps;
    return edge;
  };
  const Seconds time = collective_time(CollectiveKind::all_gather, CollectiveAlgorithm::ring,
                                       first(4), 4000000000_B, path);
  EXPECT_NEAR(time.value, 3 * 1.0 + 2e-6, 1e-12);
}

RC_GTEST_PROP(Ring, ClosedFormEqualsItsLongestFlow, ()) {
  const int count = *rc::gen::inRange(2, 20);
  const Bytes bytes{1e3 * *rc::gen::inRange(1, 1000000)};
  for (const CollectiveKind kind : kRingKinds) {
    const double closed =
        collective_time(kind, CollectiveAlgorithm::ring, first(count), bytes, even).value;
    const double flows =
        longest_flow(collective_flows(kind, first(count), bytes, even), even).value;
    RC_ASSERT(std::abs(closed - flows) <= 1e-12 * closed);
  }
}

RC_GTEST_PROP(Ring, FlowsOfUnequalEdgesEndByTheClosedForm, ()) {
  const int count = *rc::gen::inRange(2, 20);
  const Bytes bytes{1e3 * *rc::gen::inRange(1, 1000000)};
  for (const CollectiveKind kind : kRingKinds) {
    const double closed =
        collective_time(kind, CollectiveAlgorithm::ring, first(count), bytes, uneven).value;
    const auto edges = collective_flows(kind, first(count), bytes, uneven);
    RC_ASSERT(std::abs(closed - longest_flow(edges, uneven).value) <= 1e-12 * closed);
    for (const FlowEdge& edge : edges) RC_ASSERT(edge.extra_latency.value >= 0);
  }
}

TEST(Ring, AllReduceIsReduceScatterAndAllGather) {
  const auto time = [](CollectiveKind kind, const PathFunction& path) {
    return collective_time(kind, CollectiveAlgorithm::ring, first(6), 6000_B, path).value;
  };
  EXPECT_DOUBLE_EQ(
      time(CollectiveKind::all_reduce, even),
      time(CollectiveKind::reduce_scatter, even) + time(CollectiveKind::all_gather, even));
  // No member waits for all others between the two.
  EXPECT_LT(time(CollectiveKind::all_reduce, uneven), time(CollectiveKind::reduce_scatter, uneven) +
                                                          time(CollectiveKind::all_gather, uneven));
}

/// Devices 4n to 4n + 3 on node n; device i of a node uses NIC i / `per_nic`.
PathFunction four_per_node(int per_nic) {
  return [per_nic](DeviceId a, DeviceId b) {
    if (a == b) return Path{};
    const bool inside = a.value / 4 == b.value / 4;
    Path path{inside ? 100_GBps : 10_GBps, Seconds{inside ? 1e-6 : 5e-6},
              inside ? PathClass::nvlink : PathClass::network};
    path.source_node = {a.value / 4};
    path.destination_node = {b.value / 4};
    path.source_nic = a.value % 4 / per_nic;
    return path;
  };
}

TEST(NicRings, LeaveEachNodeThroughNicsOfTheirOwn) {
  const auto path = four_per_node(2);
  const auto rings = nic_rings(first(12), path);
  ASSERT_EQ(rings.size(), 2U);
  for (const std::size_t boundary : {3U, 7U, 11U}) {
    std::set<int> out;
    std::set<int> in;
    for (const auto& ring : rings) {
      const DeviceId from = ring[boundary];
      const DeviceId to = ring[(boundary + 1) % 12];
      EXPECT_NE(from.value / 4, to.value / 4);
      out.insert(path(from, to).source_nic);
      in.insert(path(to, from).source_nic);
    }
    EXPECT_EQ(out.size(), 2U);
    EXPECT_EQ(in.size(), 2U);
  }
  for (const auto& ring : rings) {
    EXPECT_EQ(std::set<DeviceId>(ring.begin(), ring.end()).size(), 12U);
  }
}

TEST(NicRings, AreAsManyAsTheNodeWithFewestNicsHas) {
  const auto path = four_per_node(1);
  EXPECT_EQ(nic_rings(devices({0, 1, 2, 3, 4, 5}), path).size(), 2U);
  EXPECT_EQ(nic_rings(devices({0, 1, 2, 3, 4}), path).size(), 1U);
}

TEST(NicRings, AreTheGroupInsideANodeAndOutOfNodeOrder) {
  const auto path = four_per_node(1);
  for (const auto& group : {devices({0, 1, 2, 3}), devices({0, 4, 1, 5}), devices({0, 4, 8})}) {
    EXPECT_EQ(nic_rings(group, path), std::vector<std::vector<DeviceId>>{group});
  }
  EXPECT_EQ(nic_rings(first(8), even).size(), 1U);
}

TEST(NicRings, CarryEqualSharesOfTheTensor) {
  const auto time = [](int per_nic) {
    return collective_time(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, first(8),
                           8000000000_B, four_per_node(per_nic))
        .value;
  };
  EXPECT_NEAR(time(4), 14 * (1e9 / 10e9), 1e-4);
  EXPECT_NEAR(time(1), 14 * (1e9 / 4 / 10e9), 1e-4);
  const auto flows =
      collective_flows(CollectiveKind::all_reduce, first(8), 8000000000_B, four_per_node(1));
  ASSERT_EQ(flows.size(), 4U * 8);
  for (const FlowEdge& flow : flows) EXPECT_NEAR(flow.bytes.value, 14 * 1e9 / 4, 1);
}

TEST(Collective, OneMemberTakesNoTimeAndNoFlow) {
  for (const CollectiveAlgorithm algorithm : kAlgorithms) {
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
          CollectiveKind::broadcast, CollectiveKind::all_to_all}) {
      EXPECT_EQ(collective_time(kind, algorithm, first(1), 1_GiB, even), Seconds{});
      EXPECT_TRUE(collective_flows(kind, first(1), 1_GiB, even).empty());
    }
  }
}

TEST(Collective, NoAlgorithmBeatsTheVolumeBound) {
  // Each member has to send at least (p-1)/p of the tensor to reduce or gather it.
  for (const CollectiveAlgorithm algorithm : kAlgorithms) {
    for (const CollectiveKind kind : kRingKinds) {
      for (const int count : {2, 3, 8, 17}) {
        const double volume = kind == CollectiveKind::all_reduce  ? 2.0 * (count - 1) / count
                              : kind == CollectiveKind::broadcast ? 1.0
                                                                  : 1.0 * (count - 1) / count;
        EXPECT_GE(collective_time(kind, algorithm, first(count), 10000000000_B, even).value,
                  volume * (1 - 1e-12));
      }
    }
  }
}

TEST(Tree, PaysLogarithmicLatency) {
  const Seconds time = collective_time(CollectiveKind::all_reduce, CollectiveAlgorithm::tree,
                                       first(17), Bytes{}, even);
  EXPECT_NEAR(time.value, 2 * 5 * 2e-6, 1e-15);
}

TEST(Hierarchical, RunsOneRingPerSliceBetweenNodes) {
  const Cluster cluster = worlds::bare_cluster({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}});
  const auto path = two_level(cluster, {100_GBps, 1.0_us}, {10_GBps, 5.0_us});
  const Seconds time = collective_time(CollectiveKind::all_reduce,
                                       CollectiveAlgorithm::hierarchical, first(12), 12_GB, path);
  const double inside = 3 * (3e9 / 100e9 + 1e-6);
  const double between = 2 * 2 * (1e9 / 10e9 + 5e-6);  // three members, slices of 3 GB
  EXPECT_NEAR(time.value, 2 * inside + between, 1e-9);
}

TEST(Hierarchical, IsTheRingOnOneNodeAndOnOneDevicePerNode) {
  const Cluster together = worlds::one_node(5);
  const Cluster apart = worlds::bare_cluster({{0}, {0}, {0}, {0}, {0}});
  for (const Cluster& cluster : {together, apart}) {
    const auto path = two_level(cluster, {100_GBps, 1.0_us}, {10_GBps, 5.0_us});
    for (const CollectiveKind kind : kRingKinds) {
      EXPECT_DOUBLE_EQ(
          collective_time(kind, CollectiveAlgorithm::hierarchical, first(5), 1_GiB, path).value,
          collective_time(kind, CollectiveAlgorithm::ring, first(5), 1_GiB, path).value);
    }
  }
}

TEST(Hierarchical, BroadcastGoesOverFirstMembersThenInsideNodes) {
  const Cluster cluster = worlds::bare_cluster({{0, 0}, {0, 0, 0, 0}, {0, 0, 0}});
  const auto path = two_level(cluster, {100_GBps, 1.0_us}, {10_GBps, 5.0_us});
  const Seconds time = collective_time(CollectiveKind::broadcast, CollectiveAlgorithm::hierarchical,
                                       first(9), 10_GB, path);
  EXPECT_NEAR(time.value, (1.0 + 2 * 5e-6) + (0.1 + 3 * 1e-6), 1e-9);
}

TEST(AllToAll, BusiestPortDecides) {
  // Member 0 sends 30 GB in all, member 2 receives 21 GB.
  const std::vector<double> bytes = {0, 10e9, 20e9, 0, 0, 1e9, 0, 0, 0};
  const Seconds time = collective_time(CollectiveKind::all_to_all, CollectiveAlgorithm::ring,
                                       first(3), Bytes{}, even, bytes);
  EXPECT_NEAR(time.value, 3.0 + 2e-6, 1e-9);
  const auto flows = collective_flows(CollectiveKind::all_to_all, first(3), Bytes{}, even, bytes);
  ASSERT_EQ(flows.size(), 3u);
  EXPECT_EQ(flows[1].destination, DeviceId{2});
  EXPECT_EQ(flows[1].bytes, 20_GB);
}

TEST(AllToAll, WithoutPeerBytesEveryPairGetsAnEqualShare) {
  const auto flows = collective_flows(CollectiveKind::all_to_all, first(4), 16_GB, even);
  ASSERT_EQ(flows.size(), 12u);
  for (const FlowEdge& flow : flows) EXPECT_EQ(flow.bytes, 1_GB);
}

TEST(PointToPoint, IsLatencyAndBytesOverBandwidth) {
  EXPECT_NEAR(point_to_point_time({0}, {1}, 10_GB, even).value, 1.0 + 2e-6, 1e-12);
  EXPECT_EQ(point_to_point_time({1}, {1}, 10_GB, even), Seconds{});
}

RC_GTEST_PROP(RingOrder, CrossesEachNodeBoundaryOnce, ()) {
  const auto nodes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 5));
  std::vector<DeviceId> all;
  for (std::size_t i = 0; i < nodes.size(); ++i) all.push_back({static_cast<std::int32_t>(i)});
  const auto node_of = [&](DeviceId device) { return NodeId{nodes[device.index()]}; };
  std::vector<DeviceId> order = ring_order(all, node_of);
  int crossings = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (node_of(order[i]) != node_of(order[(i + 1) % order.size()])) ++crossings;
  }
  const int distinct = static_cast<int>(std::set<int>(nodes.begin(), nodes.end()).size());
  RC_ASSERT(crossings == (distinct > 1 ? distinct : 0));
  std::sort(order.begin(), order.end());
  RC_ASSERT(order == all);
}

}  // namespace
}  // namespace orrery::models::collective_test
