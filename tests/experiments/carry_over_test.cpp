// Does a plan of one cluster's nodes go to the right nodes of another, and say so?
#include "experiments/study/carry_over.h"

#include <gtest/gtest.h>

#include "models/spec/library.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::carry_over_test {
namespace {

/// "2x4xA100-80GB" and so on: nodes named by their letter and number.
models::Cluster cluster(const std::vector<std::pair<int, std::string>>& nodes) {
  std::string text = "schema: orrery/cluster/1\nname: c\nnodes:\n";
  char name = 'a';
  for (const auto& [gpus, type] : nodes) {
    text += std::string("  - {name: ") + name++ + ", gpus: {type: " + type +
            ", count: " + std::to_string(gpus) +
            "}, pcie: [{link: pcie4-x16}], nics: [{link: " + "ethernet-1GBps, count: 1}]}\n";
  }
  const support::TempFolder folder;
  write_text_file(folder / "c.yaml", text);
  config::Diagnostics problems;
  models::Cluster out =
      models::load_cluster(folder / "c.yaml", support::library(), {"c.yaml", 0, 0}, problems);
  problems.raise();
  return out;
}

std::vector<DeviceId> ids(const std::vector<int>& numbers) {
  std::vector<DeviceId> out;
  for (const int number : numbers) out.push_back({number});
  return out;
}

std::vector<DeviceId> all(const models::Cluster& cluster) {
  std::vector<DeviceId> out;
  for (const models::Device& device : cluster.devices) out.push_back(device.id);
  return out;
}

/// One stage on each device.
ir::Plan plan_on(const std::vector<int>& devices) {
  ir::Plan plan;
  plan.cluster_hash = "old";
  plan.pipelines.resize(1);
  int block = 0;
  for (const int device : devices) {
    ir::Group group;
    group.devices = {{device}};
    ir::Segment segment;
    segment.first_block = segment.last_block = {block};
    segment.groups = {group};
    plan.pipelines[0].stages.push_back({{segment}});
    ++block;
  }
  return plan;
}

TEST(CarryOver, NodesGoToTheirOwnTypeThenToTheirSizeThenToLargerOnes) {
  const models::Cluster old = cluster({{2, "A100-80GB"}, {2, "RTX3090-24GB"}, {2, "V100-32GB"}});
  const models::Cluster now = cluster({{4, "H100-80GB"}, {2, "H100-80GB"}, {4, "RTX3090-24GB"}});
  const CarriedOver carried = carry_over(plan_on({0, 1, 2, 3, 5}), &old, now, all(now));
  EXPECT_EQ(carried.problem, "");
  EXPECT_EQ(carried.plan.cluster_hash, "");
  // a has the size of node b, b its type in node c, and one device of c is left for node a.
  EXPECT_EQ(ir::devices_of(carried.plan), ids({0, 4, 5, 6, 7}));
  EXPECT_EQ(carried.mapping,
            (std::vector<std::string>{"a (2 x A100-80GB) -> b (2 x H100-80GB)",
                                      "b (2 x RTX3090-24GB) -> c (2 x RTX3090-24GB)",
                                      "c (1 x V100-32GB) -> a (1 x H100-80GB)"}));
}

TEST(CarryOver, NodesThatGoAlikeAreOneLine) {
  const models::Cluster old = cluster({{2, "A100-80GB"}, {2, "A100-80GB"}, {2, "A100-80GB"}});
  const models::Cluster now = cluster({{2, "V100-32GB"}, {2, "H100-80GB"}, {2, "H100-80GB"}});
  const CarriedOver carried =
      carry_over(plan_on({0, 1, 2, 3}), &old, now, ids({2, 3, 4, 5}));  // Without the V100.
  EXPECT_EQ(ir::devices_of(carried.plan), ids({2, 3, 4, 5}));
  EXPECT_EQ(
      carried.mapping,
      (std::vector<std::string>{"a and b (2 x A100-80GB each) -> b and c (2 x H100-80GB each)"}));
}

TEST(CarryOver, WhatHasNoPlaceIsNamed) {
  const models::Cluster old = cluster({{4, "A100-80GB"}, {4, "A100-80GB"}});
  const models::Cluster now = cluster({{4, "A100-80GB"}, {2, "A100-80GB"}, {2, "A100-80GB"}});
  EXPECT_EQ(carry_over(plan_on({0, 1, 2, 3, 4, 5, 6}), &old, now, all(now)).problem,
            "no node is left for b (3 of its GPUs are used)");
  EXPECT_EQ(carry_over(plan_on({0, 1, 2, 3, 4, 5}), &old, now, all(now)).problem, "");
}

TEST(CarryOver, APlanThatDoesNotSayWhatItWasMadeForGoesByNumbers) {
  const models::Cluster now = cluster({{4, "A100-80GB"}});
  const CarriedOver carried = carry_over(plan_on({5, 9}), nullptr, now, ids({1, 2, 3}));
  EXPECT_EQ(ir::devices_of(carried.plan), ids({1, 2}));
  ASSERT_EQ(carried.mapping.size(), 1u);
  EXPECT_EQ(carried.mapping[0],
            "devices 5,9 -> 1-2 (2 x A100-80GB): the cluster that it was made for is not known");
  EXPECT_EQ(carry_over(plan_on({5, 9}), nullptr, now, ids({1})).problem,
            "the plan uses 2 devices, 1 are there");
}

}  // namespace
}  // namespace orrery::experiments::carry_over_test
