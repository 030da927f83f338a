// Nodes whose GPUs are a mesh: each two have a link of their own, and no switch joins them.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "models/cost/collective.h"
#include "models/ir/names.h"
#include "models/spec/topology.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::mesh_law_test {
namespace {

using ir::CollectiveKind;

constexpr double kLink = 50e9;
constexpr double kLatency = 3e-6;

models::Cluster mesh(int nodes, int gpus) {
  ClusterShape shape;
  shape.nodes = nodes;
  shape.gpus = gpus;
  shape.nic_per_gpu = true;
  models::Cluster cluster = make_cluster(shape);
  for (models::Node& node : cluster.nodes) {
    for (models::LinkDomain& domain : node.domains) domain.link = "fabric";
  }
  models::LinkClass& link = cluster.links["fabric"];
  link.name = "fabric";
  link.bandwidth = BytesPerSecond{kLink};
  link.latency = Seconds{kLatency};
  link.mesh = true;
  return cluster;
}

std::vector<DeviceId> first_devices(int count) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < count; ++i) devices.push_back({i});
  return devices;
}

TEST(Mesh, AMessageTakesTheLinkOfItsPairAlone) {
  ir::Transfer transfer;
  transfer.source = {0};
  transfer.destination = {3};
  transfer.bytes = Bytes{1e9};
  const Outcome run = simulate(mesh(1, 4), make_workload(1), message_program({transfer}));
  EXPECT_LT(relative_difference(run.iteration_time, kLatency + 1e9 / kLink), 1e-9);
}

class MeshOf : public testing::TestWithParam<int> {};

/// All p - 1 links of a member carry a p-th at once.
TEST_P(MeshOf, CollectivesUseAllLinks) {
  const int p = GetParam();
  const models::Cluster cluster = mesh(1, p);
  const models::Topology topology(cluster);
  const auto path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
  const double bytes = p * p * 5e7;  // whole bytes for each pair
  for (const auto& [kind, steps] :
       {std::pair{CollectiveKind::all_reduce, 2}, std::pair{CollectiveKind::all_gather, 1},
        std::pair{CollectiveKind::reduce_scatter, 1}}) {
    const double expected = steps * (bytes / p / kLink + kLatency);
    const double closed = models::collective_time(kind, models::CollectiveAlgorithm::ring,
                                                  first_devices(p), Bytes{bytes}, path)
                              .value;
    EXPECT_NEAR(closed / expected, 1, 1e-12) << ir::name_of(kind);
    for (const RingMode mode : {RingMode::aggregated, RingMode::stepwise}) {
      IterationOptions options;
      options.ring = mode;
      const Outcome run =
          simulate(cluster, make_workload(1), collective_program(kind, p, Bytes{bytes}), options);
      EXPECT_NEAR(run.iteration_time / expected, 1, 1e-9) << ir::name_of(kind);
    }
  }
  const double each = bytes / p / p;
  const double all_to_all =
      models::collective_time(CollectiveKind::all_to_all, models::CollectiveAlgorithm::ring,
                              first_devices(p), Bytes{bytes}, path)
          .value;
  EXPECT_NEAR(all_to_all / (each / kLink + kLatency), 1, 1e-12);
  const Outcome run = simulate(cluster, make_workload(1),
                               collective_program(CollectiveKind::all_to_all, p, Bytes{bytes}));
  EXPECT_NEAR(run.iteration_time / all_to_all, 1, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Members, MeshOf, testing::Values(2, 3, 4, 8));

TEST(Mesh, RingsBetweenNodesShareNoLink) {
  for (const int gpus : {2, 4, 8}) {
    const models::Cluster cluster = mesh(2, gpus);
    const models::Topology topology(cluster);
    const auto path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
    const auto group = first_devices(2 * gpus);
    const auto rings = models::nic_rings(group, path);
    ASSERT_EQ(static_cast<int>(rings.size()), gpus);
    std::map<LinkId, int> uses;
    std::vector<LinkId> links;
    for (const std::vector<DeviceId>& ring : rings) {
      for (std::size_t i = 0; i < ring.size(); ++i) {
        topology.route(ring[i], ring[(i + 1) % ring.size()], links);
      }
    }
    for (const LinkId link : links) ++uses[link];
    for (const auto& [link, count] : uses) EXPECT_EQ(count, 1) << topology.name_of(link);
    const Bytes bytes{gpus * 2e8};
    const double closed =
        models::collective_time(CollectiveKind::all_reduce, models::CollectiveAlgorithm::ring,
                                group, bytes, path)
            .value;
    const Outcome run = simulate(cluster, make_workload(1),
                                 collective_program(CollectiveKind::all_reduce, 2 * gpus, bytes));
    EXPECT_NEAR(run.iteration_time / closed, 1, 1e-9) << gpus;
  }
}

}  // namespace
}  // namespace orrery::sim::mesh_law_test
