// Does each node learn which devices may run on its machine?
#include "executor/launcher/neighbors.h"

#include <gtest/gtest.h>

namespace orrery::executor::neighbors_test {
namespace {

LaunchOptions with_devices(const std::vector<int>& plan, const std::vector<int>& all) {
  LaunchOptions o;
  for (const int device : plan) {
    ir::Rank rank;
    rank.device = {device};
    o.first.program.ranks.push_back(rank);
  }
  for (const int device : all) o.devices.push_back({device});
  return o;
}

int in_pairs(DeviceId device) { return device.value / 2; }

TEST(Neighbors, OnOneMachineAreTheDevicesOfItsPlans) {
  LaunchOptions o = with_devices({1, 0}, {0, 1, 2, 3});
  const auto here = [](DeviceId) { return 0; };
  ASSERT_EQ(find_neighbors(o, here).size(), 1u);
  EXPECT_EQ(find_neighbors(o, here).front().devices, (std::vector<int>{0, 1}));
  EXPECT_FALSE(find_neighbors(o, here).front().emulated_nodes);
  o.switches.push_back({3, {with_devices({2}, {}).first.program, "two"}});
  EXPECT_EQ(find_neighbors(o, here).front().devices, (std::vector<int>{0, 1, 2}));
  o.settings.elastic = true;  // The next plan may use any.
  EXPECT_EQ(find_neighbors(o, here).front().devices, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Neighbors, OfHostsAreThoseOfTheSameHost) {
  LaunchOptions o = with_devices({0, 1, 2, 3}, {0, 1, 2, 3});
  o.hosts = {{"a", 2}, {"b", 2}};
  const auto all = find_neighbors(o, in_pairs);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].devices, (std::vector<int>{0, 1}));
  EXPECT_EQ(all[1].devices, (std::vector<int>{2, 3}));
  EXPECT_FALSE(all[0].emulated_nodes || all[1].emulated_nodes);
}

TEST(Neighbors, OfEmulatedNodesAreThoseOfTheWholeMachine) {
  LaunchOptions o = with_devices({0, 1, 2, 3}, {0, 1, 2, 3});
  o.hosts = {{"a", 2, {"--netlab"}}, {"b", 2, {"--netlab"}}};
  for (const Neighbors& one : find_neighbors(o, in_pairs)) {
    EXPECT_EQ(one.devices, (std::vector<int>{0, 1, 2, 3}));
    EXPECT_TRUE(one.emulated_nodes);
  }
}

}  // namespace
}  // namespace orrery::executor::neighbors_test
