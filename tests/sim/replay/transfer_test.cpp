#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "models/spec/topology.h"
#include "sim/flow/engine.h"
#include "sim/platform/platform.h"
#include "sim/replay/flow_transfer_timer.h"
#include "tests/sim/in_child.h"
#include "tests/sim/replay/support.h"

namespace orrery::sim::transfer_test {
namespace {

using ir::Location;
using models::StateTransfer;
using Sets = std::vector<std::vector<StateTransfer>>;

/// NVLink 200 GB/s, PCIe 50 GB/s, one NIC of 25 GB/s a node; host memory 100 GB/s, NVMe 4 GB/s read
/// and 2 GB/s write, object storage 6 GB/s with 1 s of latency, so that it stands out.
models::Cluster storage_cluster(int nodes, int gpus, models::BandwidthScope scope) {
  models::Cluster cluster = replay_cluster(nodes, gpus);
  for (models::Node& node : cluster.nodes) {
    node.host_memory_bandwidth = BytesPerSecond{100e9};
    node.nvme_read = BytesPerSecond{4e9};
    node.nvme_write = BytesPerSecond{2e9};
  }
  cluster.storage = models::ObjectStorage{BytesPerSecond{6e9}, scope, Seconds{1}};
  models::seal(cluster);
  return cluster;
}

struct Answers {
  std::vector<double> seconds;
  std::int64_t simulated = 0;
};

/// Times of the sets, one after another, in a process of its own.
Answers times(const models::Cluster& cluster, const Sets& sets,
              const std::vector<models::DegradedLinks>& degraded = {}) {
  const std::string text = in_child([&] {
    const models::Topology topology(cluster);
    const TransferPaths paths(cluster, topology);
    FlowEngine engine(make_platform(topology, cluster.size(), paths.extension()));
    const FlowTransferTimer timer(cluster, topology, paths, engine);
    std::string said;
    const auto links = [&](std::size_t i) {
      return i < degraded.size() ? degraded[i] : models::DegradedLinks{};
    };
    for (std::size_t i = 0; i < sets.size(); ++i) {
      said += fmt::format("{} ", timer.time(sets[i], links(i)).count);
    }
    return said + fmt::format("{}", timer.counts().simulated);
  });
  Answers answers;
  if (text.empty()) {
    answers.seconds.assign(sets.size(), -1);
    return answers;
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    std::size_t used = 0;
    answers.seconds.push_back(static_cast<double>(std::stoll(text.substr(at), &used)) / 1e9);
    at += used;
  }
  answers.simulated = std::stoll(text.substr(at));
  return answers;
}

StateTransfer move(Location from, int source, Location to, int destination, double gigabytes) {
  return {from, to, {source}, {destination}, Bytes{gigabytes * 1e9}};
}
StateTransfer from_cloud(int device, double gigabytes) {
  return move(Location::cloud, -1, Location::peer, device, gigabytes);
}

constexpr double kMicro = 30e-6;  ///< Latencies of links.

TEST(TransferTimer, ASharedCloudIsDividedAmongNodes) {
  const models::Cluster cluster = storage_cluster(3, 2, models::BandwidthScope::shared);
  const Answers answers =
      times(cluster, {{},
                      {from_cloud(0, 12)},
                      {from_cloud(0, 12), from_cloud(2, 12)},
                      {from_cloud(0, 12), from_cloud(2, 12), from_cloud(4, 12)}});
  EXPECT_EQ(answers.seconds[0], 0);
  for (int n = 1; n <= 3; ++n) {
    EXPECT_NEAR(answers.seconds[n], n * 12 / 6.0 + 1, kMicro);
  }
}

TEST(TransferTimer, ACloudPerNodeIsNotShared) {
  const models::Cluster cluster = storage_cluster(3, 2, models::BandwidthScope::per_node);
  const Answers answers = times(cluster, {{from_cloud(0, 12), from_cloud(2, 12), from_cloud(4, 12)},
                                          {from_cloud(0, 12), from_cloud(1, 12)},
                                          {move(Location::peer, 0, Location::cloud, -1, 12)}});
  EXPECT_NEAR(answers.seconds[0], 12 / 6.0 + 1, kMicro);
  EXPECT_NEAR(answers.seconds[1], 24 / 6.0 + 1, kMicro);
  EXPECT_NEAR(answers.seconds[2], 12 / 6.0 + 1, kMicro);
}

TEST(TransferTimer, StorageOfTheNodeAndOfOthersIsBoundedByTheSlowest) {
  const models::Cluster cluster = storage_cluster(2, 4, models::BandwidthScope::shared);
  const Answers answers = times(
      cluster, {{move(Location::nvme, 0, Location::peer, 0, 8)},  // NVMe 4 GB/s
                {move(Location::peer, 0, Location::nvme, 0, 8)},  // NVMe 2 GB/s
                {move(Location::nvme, 4, Location::peer, 0, 8)},  // over the network: NVMe still
                {move(Location::host_memory, 0, Location::peer, 0, 8)},  // PCIe 50 GB/s
                {move(Location::host_memory, 4, Location::peer, 0, 8)},  // NIC 25 GB/s
                {move(Location::peer, 4, Location::peer, 0, 8)},         // NIC 25 GB/s
                {move(Location::peer, 1, Location::peer, 0, 8)},         // NVLink 200 GB/s
                {move(Location::host_memory, 0, Location::nvme, 0, 8)},  // NVMe 2 GB/s
                {move(Location::host_memory, 0, Location::cloud, -1, 8)}});
  const std::vector<double> expected = {8 / 4.0,  8 / 2.0,   8 / 4.0, 8 / 50.0,   8 / 25.0,
                                        8 / 25.0, 8 / 200.0, 8 / 2.0, 8 / 6.0 + 1};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(answers.seconds[i], expected[i], kMicro) << "set " << i;
  }
}

TEST(TransferTimer, DevicesOfANodeShareItsHostMemory) {
  const models::Cluster cluster = storage_cluster(1, 4, models::BandwidthScope::shared);
  std::vector<StateTransfer> set;
  for (int d = 0; d < 4; ++d) set.push_back(move(Location::host_memory, d, Location::peer, d, 10));
  EXPECT_NEAR(times(cluster, {set}).seconds[0], 40 / 100.0, kMicro);
}

TEST(TransferTimer, DifferentKindsContendOnTheLinksThatTheyShare) {
  // 30 GB from the cloud (6 GB/s) and 38 GB from a peer share the NIC of 25 GB/s: 19 GB/s are left
  // for the peer, so it ends after 2 s; the cloud goes on to 5 s.
  const models::Cluster cluster = storage_cluster(2, 2, models::BandwidthScope::shared);
  const std::vector<StateTransfer> peer = {move(Location::peer, 2, Location::peer, 0, 38)};
  const Answers answers =
      times(cluster, {{from_cloud(1, 30), peer[0]},
                      peer,
                      {from_cloud(1, 30)},
                      // Two readers of one NIC, 12.5 GB/s each.
                      {peer[0], move(Location::peer, 2, Location::peer, 1, 38)}});
  EXPECT_NEAR(answers.seconds[0], 5 + 1, kMicro);
  EXPECT_NEAR(answers.seconds[1], 38 / 25.0, kMicro);
  EXPECT_NEAR(answers.seconds[2], 5 + 1, kMicro);
  EXPECT_NEAR(answers.seconds[3], 76 / 25.0, kMicro);
}

TEST(TransferTimer, EqualSetsOnOtherNodesAreRemembered) {
  const models::Cluster cluster = storage_cluster(4, 2, models::BandwidthScope::shared);
  const auto set = [](int a, int b) {
    return std::vector<StateTransfer>{move(Location::peer, a, Location::peer, b, 5),
                                      move(Location::nvme, a, Location::peer, b, 5)};
  };
  const Answers answers = times(cluster, {set(0, 2), set(6, 4), set(1, 3), set(0, 1)});
  EXPECT_EQ(answers.simulated, 2);
  EXPECT_EQ(answers.seconds[0], answers.seconds[1]);
  EXPECT_EQ(answers.seconds[0], answers.seconds[2]);
  EXPECT_NE(answers.seconds[0], answers.seconds[3]);
}

TEST(TransferTimer, ADegradedLinkSlowsTheTransfersOnItAndNoOthers) {
  const models::Cluster cluster = storage_cluster(4, 2, models::BandwidthScope::shared);
  const std::vector<StateTransfer> set = {move(Location::peer, 0, Location::peer, 2, 5)};
  const models::DegradedLinks on_way = {{"node0/nic0/up", 0.25}},
                              elsewhere = {{"node3/nic0/up", 0.1}};
  const Answers answers = times(cluster, {set, set, set, set}, {{}, on_way, elsewhere, {}});
  EXPECT_NEAR(answers.seconds[0], 5 / 25.0, kMicro);
  EXPECT_NEAR(answers.seconds[1], 4 * 5 / 25.0, kMicro);
  EXPECT_EQ(answers.seconds[2], answers.seconds[0]);
  EXPECT_EQ(answers.seconds[3], answers.seconds[0]);
  EXPECT_EQ(answers.simulated, 2);
}

TEST(TransferTimer, LargeSetsOnADegradedLinkTakeWhatItTakes) {
  const models::Cluster cluster = storage_cluster(600, 8, models::BandwidthScope::shared);
  std::vector<StateTransfer> set;
  for (int d = 0; d < cluster.size(); ++d) {
    set.push_back(move(Location::peer, d, Location::peer, (d + 8) % cluster.size(), 1));
  }
  const Answers answers = times(cluster, {set, set}, {{}, {{"node7/nic0/up", 0.5}}});
  EXPECT_NEAR(answers.seconds[0], 8 / 25.0, 1e-3);
  EXPECT_NEAR(answers.seconds[1], 2 * 8 / 25.0, 1e-3);
}

TEST(TransferTimer, LargeSetsTakeWhatTheirBusiestLinkTakes) {
  const models::Cluster cluster = storage_cluster(600, 8, models::BandwidthScope::shared);
  std::vector<StateTransfer> cloud, local;
  for (int d = 0; d < cluster.size(); ++d) {
    cloud.push_back(from_cloud(d, 1));
    local.push_back(move(Location::nvme, d, Location::peer, d, 1));
  }
  const Answers answers = times(cluster, {cloud, local});
  EXPECT_NEAR(answers.seconds[0], 4800 / 6.0 + 1, 1e-3);
  EXPECT_NEAR(answers.seconds[1], 8 / 4.0, 1e-3);
}

}  // namespace
}  // namespace orrery::sim::transfer_test
