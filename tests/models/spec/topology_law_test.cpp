/// What two devices of a fabric of two or three levels see of each other, and what is left for each
/// when all send at once, against closed forms.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/base/ids.h"
#include "models/spec/topology.h"
#include "tests/models/spec/support.h"

namespace orrery::models::topology_law_test {
namespace {

constexpr double kNic = 25e9;

/// Equal nodes in leaves of `nodes_per_leaf`, and these in pods of `leaves_per_pod`.
struct World {
  int nodes = 1, gpus = 1, nics = 1, nodes_per_leaf = 1;
  Cluster cluster;

  const Fabric& fabric() const { return cluster.fabric; }
  int node(int device) const { return device / gpus; }
  int leaf(int device) const { return node(device) / nodes_per_leaf; }
  int nic(int device) const { return device % gpus * nics / gpus; }
  int rail(int device) const { return nic(device) % fabric().rails; }
  int pod(int device) const { return fabric().pod_of(leaf(device)); }
  /// NICs on one switch of a leaf; the last leaf may have fewer nodes.
  int nics_below(int leaf_number, int rail_number) const {
    const int on_leaf = std::min(nodes_per_leaf, nodes - leaf_number * nodes_per_leaf);
    return on_leaf * ((nics - rail_number + fabric().rails - 1) / fabric().rails);
  }
  double leaf_uplink(int leaf_number, int rail_number) const {
    if (fabric().leaf_uplink.value > 0) return fabric().leaf_uplink.value;
    const double below = kNic * nics_below(leaf_number, rail_number);
    return fabric().leaf_oversubscription > 0 ? below / fabric().leaf_oversubscription : below;
  }
  double spine_uplink(int pod_number) const {
    if (fabric().spine_uplink.value > 0) return fabric().spine_uplink.value;
    double below = 0;
    const int leaves = (nodes + nodes_per_leaf - 1) / nodes_per_leaf;
    for (int l = 0; l < leaves; ++l) {
      if (fabric().pod_of(l) != pod_number) continue;
      for (int r = 0; r < fabric().rails; ++r) below += leaf_uplink(l, r);
    }
    return fabric().spine_oversubscription > 0 ? below / fabric().spine_oversubscription : below;
  }
};

World random_world() {
  World world;
  world.nodes = *rc::gen::inRange(2, 25);
  world.gpus = *rc::gen::element(1, 2, 4, 8);
  world.nics = *rc::gen::inRange(1, world.gpus + 1);
  world.nodes_per_leaf = *rc::gen::inRange(1, 5);
  std::string fabric = fmt::format("rails: {}", *rc::gen::inRange(1, world.nics + 1));
  switch (*rc::gen::inRange(0, 3)) {
    case 1:
      fabric += fmt::format(", leaf_uplink: {} GB/s", *rc::gen::element(5, 20, 300));
      break;
    case 2:
      fabric += fmt::format(", leaf_oversubscription: {}", *rc::gen::element(1, 2, 7));
      break;
    default:
      break;
  }
  fabric += fmt::format(", leaf_latency: {} us, spine_latency: {} us", *rc::gen::element(0, 1, 3),
                        *rc::gen::element(0, 2, 5));
  if (*rc::gen::arbitrary<bool>()) {
    fabric += fmt::format(", leaves_per_pod: {}, core_latency: {} us", *rc::gen::inRange(1, 4),
                          *rc::gen::element(0, 4, 9));
    switch (*rc::gen::inRange(0, 3)) {
      case 1:
        fabric += fmt::format(", spine_uplink: {} GB/s", *rc::gen::element(3, 50, 500));
        break;
      case 2:
        fabric += fmt::format(", spine_oversubscription: {}", *rc::gen::element(1, 3, 7));
        break;
      default:
        break;
    }
  }
  world.cluster =
      cluster_of(fmt::format(R"(schema: orrery/cluster/1
name: c
nodes:
  - name: n
    count: {}
    gpus: {{type: A100, count: {}}}
    domains: {{link: nvlink}}
    nics: {{link: ib, count: {}}}
    nodes_per_leaf: {}
fabric: {{{}}}
)",
                             world.nodes, world.gpus, world.nics, world.nodes_per_leaf, fabric));
  return world;
}

RC_GTEST_PROP(TopologyLaw, APathPassesTheSwitchesBetweenItsEnds, ()) {
  const World world = random_world();
  RC_ASSERT(world.cluster.size() == world.nodes * world.gpus);
  const Topology topology(world.cluster);
  const Fabric& fabric = world.fabric();
  for (int a = 0; a < world.cluster.size(); ++a) {
    for (int b = 0; b < world.cluster.size(); ++b) {
      if (world.node(a) == world.node(b)) continue;
      double bandwidth = kNic;
      Seconds latency = Seconds{5e-6} + fabric.leaf_latency;
      const bool same_switch = world.leaf(a) == world.leaf(b) && world.rail(a) == world.rail(b);
      if (!same_switch) {
        latency += fabric.leaf_latency + fabric.spine_latency;
        bandwidth = std::min({bandwidth, world.leaf_uplink(world.leaf(a), world.rail(a)),
                              world.leaf_uplink(world.leaf(b), world.rail(b))});
      }
      if (world.pod(a) != world.pod(b)) {
        latency += fabric.spine_latency + fabric.core_latency;
        bandwidth = std::min(
            {bandwidth, world.spine_uplink(world.pod(a)), world.spine_uplink(world.pod(b))});
      }
      const Path path = topology.path({a}, {b});
      RC_ASSERT(std::abs(path.bandwidth.value / bandwidth - 1) < 1e-12);
      RC_ASSERT(std::abs(path.latency.value - latency.value) < 1e-15);
    }
  }
}

/// Each device sends to the one `by` nodes further on, all at once: what is left of the links is
/// the closed form of a fabric whose switches are full.
RC_GTEST_PROP(TopologyLaw, SwitchesAreSharedByAllThatIsBelowThem, ()) {
  const World world = random_world();
  const Topology topology(world.cluster);
  const int by = *rc::gen::inRange(1, world.nodes);
  const int size = world.cluster.size();
  std::vector<int> flows(topology.links().size(), 0);
  std::vector<std::vector<LinkId>> routes(size);
  std::map<std::pair<int, int>, int> over_leaf, into_leaf;  // By leaf and rail.
  std::map<int, int> over_pod, into_pod;
  std::vector<int> out_of_nic(as_size(world.nodes * world.nics), 0);
  const auto to = [&](int a) { return (a + by * world.gpus) % size; };
  for (int a = 0; a < size; ++a) {
    const int b = to(a);
    topology.route({a}, {b}, routes[a]);
    for (const LinkId link : routes[a]) ++flows[link.index()];
    ++out_of_nic[as_size(world.node(a) * world.nics + world.nic(a))];
    if (world.leaf(a) != world.leaf(b)) {
      ++over_leaf[{world.leaf(a), world.rail(a)}];
      ++into_leaf[{world.leaf(b), world.rail(b)}];
    }
    if (world.pod(a) == world.pod(b)) continue;
    ++over_pod[world.pod(a)];
    ++into_pod[world.pod(b)];
  }
  for (int a = 0; a < size; ++a) {
    const int b = to(a);
    double left = 1e300, expected = 1e300;
    for (const LinkId link : routes[a]) {
      if (topology.links()[link].uncontended) continue;
      left = std::min(left, topology.links()[link].bandwidth.value / flows[link.index()]);
    }
    const auto share = [&](double bandwidth, int users) {
      expected = std::min(expected, bandwidth / users);
    };
    share(kNic, out_of_nic[as_size(world.node(a) * world.nics + world.nic(a))]);
    if (world.leaf(a) != world.leaf(b) && world.fabric().limits_leaves()) {
      const std::pair from{world.leaf(a), world.rail(a)}, into{world.leaf(b), world.rail(b)};
      share(world.leaf_uplink(from.first, from.second), over_leaf.at(from));
      share(world.leaf_uplink(into.first, into.second), into_leaf.at(into));
    }
    if (world.pod(a) != world.pod(b) && world.fabric().limits_pods()) {
      share(world.spine_uplink(world.pod(a)), over_pod.at(world.pod(a)));
      share(world.spine_uplink(world.pod(b)), into_pod.at(world.pod(b)));
    }
    RC_ASSERT(std::abs(left / expected - 1) < 1e-12);
  }
}

RC_GTEST_PROP(TopologyLaw, LinksAreFoundByTheirNamesAndBelongToTheirNodes, ()) {
  const World world = random_world();
  const Topology topology(world.cluster);
  for (const LinkId link : topology.links().ids()) {
    RC_ASSERT(topology.find(topology.name_of(link)) == link);
  }
  std::set<LinkId> of_nodes;
  for (int n = 0; n < world.nodes; ++n) {
    for (const LinkId link : topology.links_of({n})) {
      RC_ASSERT(topology.node_of(link) == NodeId{n});
      RC_ASSERT(of_nodes.insert(link).second);
    }
  }
  for (const LinkId link : topology.links().ids()) {
    RC_ASSERT(topology.node_of(link).valid() == (of_nodes.count(link) == 1));
  }
}

TEST(TopologyNames, NoLinkHasANameThatNoneHas) {
  const Topology topology(cluster_of(R"(schema: orrery/cluster/1
name: c
nodes: [{name: leaf0, count: 2, gpus: {type: A100}, nics: {link: ib}, nodes_per_leaf: 1}]
fabric: {spine_latency: 1 us}
)"));
  EXPECT_TRUE(topology.find("leaf0/up").valid());
  EXPECT_FALSE(topology.find("leaf0").valid());
  EXPECT_FALSE(topology.find("leaf2/up").valid());
  EXPECT_FALSE(topology.find("leaf0-0/nic1/up").valid());
}

}  // namespace
}  // namespace orrery::models::topology_law_test
