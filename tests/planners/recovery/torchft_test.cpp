// Does only the replica that lost a device stop, and does it join again with a peer's weights?
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "planners/recovery/torchft/replicas.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::torchft_test {
namespace {

std::vector<int> micro_batches(const ir::Plan& plan) {
  std::vector<int> result;
  for (const ir::Pipeline& pipeline : plan.pipelines) result.push_back(pipeline.micro_batches);
  return result;
}

TEST(SurvivingPipelines, ShareTheBatchEvenlyThoughTheyHadUnequalShares) {
  const auto world = equal_nodes({6, 8, 2});
  ir::Plan plan = uniform_plan(*world, 4, 2, 1);
  for (int p = 0; p < 4; ++p) plan.pipelines[p].micro_batches = 2;
  std::vector<DeviceId> live = all_devices(world->cluster);
  std::erase(live, DeviceId{0});
  const auto three = std::get<ir::Plan>(surviving_pipelines(plan, world->cluster, live));
  EXPECT_EQ(micro_batches(three), (std::vector<int>{3, 3, 2}));
  EXPECT_EQ(world->defects(three), "");
  // The one with two is no slower than those with three.
  std::erase(live, DeviceId{2});
  const auto two = std::get<ir::Plan>(surviving_pipelines(three, world->cluster, live));
  EXPECT_EQ(micro_batches(two), (std::vector<int>{4, 4}));
  EXPECT_TRUE(
      std::holds_alternative<models::Infeasible>(surviving_pipelines(plan, world->cluster, {})));
}

TEST(AddedPipelines, TakeUnusedDevicesGroupByGroupInsideANode) {
  const auto world = equal_nodes({4, 8, 2});
  ir::Plan plan = uniform_plan(*world, 2, 2, 2);
  const ir::Plan whole = plan;
  plan.pipelines.pop_back();
  plan.pipelines.front().micro_batches = 8;
  std::vector<DeviceId> live = all_devices(world->cluster);
  std::erase(live, DeviceId{5});
  EXPECT_EQ(add_pipelines(plan, nullptr, world->cluster, live), 0)
      << "a group needs both GPUs of a node";
  EXPECT_EQ(add_pipelines(plan, nullptr, world->cluster, all_devices(world->cluster)), 1);
  EXPECT_EQ(plan.pipelines, whole.pipelines);
}

/// Two nodes B and two nodes A, two GPUs each: a pipeline of two stages on either kind, of which
/// A's takes three times as many micro-batches. `spare`: one more node A.
std::unique_ptr<World> unequal_world(bool spare = false) {
  ir::ModelShape shape = small_model(8);
  shape.vocabulary = 8000;
  return std::make_unique<World>(
      with_storage(
          make_cluster({{"B", 60, 24, 2, 50, 2}, {"A", 100, 24, 2, 100, spare ? 3 : 2}}, 5)),
      shape, 8, 512);
}

ir::Plan unequal_plan(const World& world) {
  ir::Plan plan = uniform_plan(world, 2, 2, 2);
  plan.pipelines[0].micro_batches = 2;
  plan.pipelines[1].micro_batches = 6;
  return plan;
}

TEST(UnequalReplicas, EachComesBackAsItWas) {
  const auto world = unequal_world();
  const ir::Plan whole = unequal_plan(*world);
  ASSERT_EQ(world->defects(whole), "");
  const std::vector<DeviceId> all = all_devices(world->cluster);
  for (const int lost : {0, 3, 4, 7}) {
    std::vector<DeviceId> live = all;
    std::erase(live, DeviceId{lost});
    ir::Plan plan = std::get<ir::Plan>(surviving_pipelines(whole, world->cluster, live));
    ASSERT_EQ(plan.pipelines.size(), 1U);
    EXPECT_EQ(plan.pipelines.front().micro_batches, 8);
    EXPECT_EQ(add_pipelines(plan, nullptr, world->cluster, all), 0) << "a copy finds no such GPUs";
    // The survivor alone is of one kind with itself in the first plan: speeds compare.
    EXPECT_EQ(add_pipelines(plan, &whole, world->cluster, all), 1) << "GPU " << lost;
    EXPECT_EQ(plan.pipelines, whole.pipelines) << "GPU " << lost;
  }
}

TEST(UnequalReplicas, AForeignPlanIsNoHome) {
  const auto world = unequal_world();
  const ir::Plan whole = unequal_plan(*world);
  ir::Plan plan = whole;
  plan.pipelines.pop_back();
  ir::Plan foreign = whole;
  foreign.pipelines.erase(foreign.pipelines.begin());  // Nothing of the running plan's kind.
  EXPECT_EQ(add_pipelines(plan, &foreign, world->cluster, all_devices(world->cluster)), 0);
  foreign = whole;
  for (ir::Pipeline& pipeline : foreign.pipelines) pipeline.micro_batch_size = 2;
  EXPECT_EQ(add_pipelines(plan, &foreign, world->cluster, all_devices(world->cluster)), 0);
}

TEST(UnequalReplicas, OwnDevicesComeBeforeSparesAndSharesKeepTheirRatio) {
  const auto world = unequal_world(true);
  const ir::Plan whole = unequal_plan(*world);
  ir::Plan plan = whole;
  plan.pipelines.pop_back();
  plan.pipelines.front().micro_batches = 8;
  const std::vector<DeviceId> all = all_devices(world->cluster);
  ir::Plan back = plan;
  EXPECT_EQ(add_pipelines(back, &whole, world->cluster, all), 1);
  EXPECT_EQ(back.pipelines, whole.pipelines) << "the spare node is no whole pipeline";
  // Without one of its nodes it begins on the spare one.
  std::vector<DeviceId> live = all;
  std::erase(live, DeviceId{5});
  ir::Plan moved = plan;
  EXPECT_EQ(add_pipelines(moved, &whole, world->cluster, live), 1);
  EXPECT_EQ(micro_batches(moved), (std::vector<int>{2, 6})) << "as fast as on the own node";
  EXPECT_EQ(world->defects(moved), "");
}

TEST(UnequalReplicas, LeaveAndRejoinRestoresThePlan) {
  const auto world = unequal_world();
  PolicyInput input = policy_input(*world);
  input.plan = unequal_plan(*world);
  const auto policy = make_policy("torchft", input);
  ASSERT_NE(policy, nullptr);
  for (const int lost : {0, 6}) {
    JobLife life(*world, input, *policy);
    life.train(100);
    ASSERT_EQ(life.fire(device_event(ir::EventKind::fail, lost)), "");
    EXPECT_EQ(life.state().plan->pipelines.size(), 1U);
    life.train(10);
    ASSERT_EQ(life.fire(device_event(ir::EventKind::repair, lost)), "");
    EXPECT_EQ(life.state().plan->pipelines, input.plan->pipelines) << "GPU " << lost;
  }
}

class TorchftLife : public PolicyLife {
 protected:
  void start(int count = 6) {
    auto nodes = equal_nodes({count, 12, 2});
    const ir::Plan plan = uniform_plan(*nodes, 3, 2, 2);
    PolicyLife::start("torchft", std::move(nodes), {}, plan);
  }
};

TEST_F(TorchftLife, TheOthersGoOnWithTheWholeBatch) {
  start();
  ASSERT_EQ(life->fire(device_event(ir::EventKind::fail, 5)), "");
  EXPECT_EQ(life->decision().resume_iteration, 100);
  EXPECT_TRUE(life->decision().transfers.empty());
  ASSERT_EQ(life->state().plan->pipelines.size(), 2U);
  EXPECT_EQ(micro_batches(*life->state().plan), (std::vector<int>{6, 6}));
  Seconds stall;
  for (const models::RecoveryPhase& phase : life->decision().phases) {
    stall += to_seconds(phase.duration);
  }
  EXPECT_DOUBLE_EQ(stall.value, 10) << "detection and quorum";
}

TEST_F(TorchftLife, TheReplicaJoinsAgainWithWeightsOfAPeer) {
  start();
  ASSERT_EQ(life->fire(device_event(ir::EventKind::fail, 5)), "");
  life->train(10);
  ASSERT_EQ(life->fire(device_event(ir::EventKind::repair, 5)), "");
  EXPECT_EQ(life->state().plan->pipelines.size(), 3U);
  EXPECT_EQ(life->decision().run_on, Nanoseconds{0});
  ASSERT_FALSE(life->decision().transfers.empty());
  for (const models::StateTransfer& t : life->decision().transfers) {
    EXPECT_EQ(t.from, ir::Location::peer);
    EXPECT_TRUE(t.destination.value >= 4 && t.destination.value <= 7) << t.destination.value;
  }
}

TEST_F(TorchftLife, WithoutAnyReplicaItPlansAnew) {
  start();
  life->train(20);
  ir::ClusterEvent event = device_event(ir::EventKind::fail, 0);
  event.scope.devices = {{0}, {4}, {8}};
  ASSERT_EQ(life->fire(event), "");
  EXPECT_EQ(life->decision().action, models::RecoveryDecision::Action::resume);
  EXPECT_GT(searches, 0);
}

TEST_F(TorchftLife, SparesFillTheUsersPlanBeforeAnotherIsSearched) {
  start(9);
  life->train(20);
  ir::ClusterEvent event = device_event(ir::EventKind::fail, 0);
  event.scope.devices = {{0}, {4}, {8}};
  ASSERT_EQ(life->fire(event), "");
  ASSERT_EQ(life->decision().action, models::RecoveryDecision::Action::resume);
  EXPECT_EQ(life->state().plan->pipelines.size(), 3U);
  EXPECT_EQ(ir::devices_of(*life->state().plan).size(), 12U);
  EXPECT_EQ(searches, 0);
}

}  // namespace
}  // namespace orrery::planners::torchft_test
