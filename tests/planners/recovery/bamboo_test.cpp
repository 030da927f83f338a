// Does the shadow of a lost stage take over with what it has, which losses are fatal, and when does
// Bamboo form new pipelines?
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "models/lower/lower.h"
#include "planners/recovery/bamboo/shadows.h"
#include "planners/recovery/kit/answer.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::bamboo_test {
namespace {

ir::Plan redundant(const World& world, int replicas, int stages) {
  ir::Plan plan = uniform_plan(world, replicas, stages, 1);
  plan.redundancy = ir::Redundancy::next_stage;
  return plan;
}

TEST(BambooShadows, TheStageBeforeComputesForBoth) {
  const auto world = equal_nodes({8, 16});
  const ir::Plan plan = redundant(*world, 2, 4);
  const std::vector<DeviceId> live = all_but(*world, {2});
  const ShadowOutcome outcome = take_over(plan, live, common_cut(plan));
  ASSERT_TRUE(outcome.plan) << outcome.fatal;
  EXPECT_EQ(plan_faults(*world, *outcome.plan, live), "");
  ASSERT_EQ(outcome.plan->pipelines[0].stages.size(), 3U);
  const ir::Stage& merged = outcome.plan->pipelines[0].stages[1];
  EXPECT_EQ(ir::devices_of(merged), (std::vector<DeviceId>{{1}}));
  EXPECT_TRUE(is_overloaded(merged, common_cut(plan)));
  EXPECT_EQ(count_overloaded(*outcome.plan, common_cut(plan)), 1);
  EXPECT_TRUE(models::find_unsupported(*outcome.plan).empty());
  EXPECT_EQ(outcome.plan->pipelines[1], plan.pipelines[1]);
  EXPECT_EQ(ir::global_batch(*outcome.plan), ir::global_batch(plan));
}

TEST(BambooShadows, TheFirstStageGoesToTheSecondWithACopyFromTheLast) {
  const auto world = equal_nodes({8, 16});
  const ir::Plan plan = redundant(*world, 2, 4);
  const std::vector<DeviceId> live = all_but(*world, {0});
  const ShadowOutcome outcome = take_over(plan, live, common_cut(plan));
  ASSERT_TRUE(outcome.plan) << outcome.fatal;
  EXPECT_EQ(plan_faults(*world, *outcome.plan, live), "");
  EXPECT_EQ(ir::devices_of(outcome.plan->pipelines[0].stages[0]), (std::vector<DeviceId>{{1}}));
}

TEST(BambooShadows, TwoNeighborsAreFatalAndTwoOthersAreNot) {
  const auto world = equal_nodes({8, 16});
  const ir::Plan plan = redundant(*world, 2, 4);
  for (int a = 0; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) {
      const bool one_pipeline = a / 4 == b / 4;
      const int apart = (b - a + 4) % 4;
      const bool neighbors = one_pipeline && (apart == 1 || apart == 3);
      const std::vector<DeviceId> live = all_but(*world, {a, b});
      const ShadowOutcome outcome = take_over(plan, live, common_cut(plan));
      EXPECT_EQ(outcome.plan.has_value(), !neighbors) << a << " and " << b;
      if (outcome.plan) {
        EXPECT_EQ(plan_faults(*world, *outcome.plan, live), "") << a << " and " << b;
        EXPECT_EQ(outcome.taken_over, 2);
      }
    }
  }
}

TEST(BambooShadows, WhoHasTakenOverIsNoShadowAnyMore) {
  const auto world = equal_nodes({8, 16});
  const ir::Plan plan = redundant(*world, 2, 4);
  const ShadowOutcome first = take_over(plan, all_but(*world, {2}), common_cut(plan));
  ASSERT_TRUE(first.plan);
  // Node 1 runs stages 1 and 2: its own loss is fatal, and that of stage 3, whose copy node 2 kept.
  EXPECT_FALSE(take_over(*first.plan, all_but(*world, {1, 2}), common_cut(plan)).plan);
  EXPECT_FALSE(take_over(*first.plan, all_but(*world, {2, 3}), common_cut(plan)).plan);
  // Stage 0 is shadowed by stage 3, the other pipeline is whole.
  EXPECT_TRUE(take_over(*first.plan, all_but(*world, {0, 2}), common_cut(plan)).plan);
  EXPECT_TRUE(take_over(*first.plan, all_but(*world, {2, 6}), common_cut(plan)).plan);
}

TEST(BambooShadows, CopiesLieWithTheStageBeforeAndAreEnoughForATakeOver) {
  const auto world = equal_nodes({8, 16});
  const PolicyInput input = policy_input(*world);
  const auto plan = std::make_shared<const ir::Plan>(redundant(*world, 1, 4));
  models::StateReplica copy;
  copy.iteration = 10;
  copy.layout = plan;
  copy.lost_shards = {2};
  const models::StateReplica shadows = shadow_copy(copy, common_cut(*plan));
  EXPECT_EQ(shadows.stored_on, (std::vector<DeviceId>{{3}, {0}, {1}, {2}}));
  EXPECT_EQ(shadows.lost_shards,
            (std::vector<std::uint32_t>{3}));  // Node 2 kept the copy of stage 3.
  models::JobState state;
  state.iteration = 10;
  state.live = all_but(*world, {2});
  state.replicas = {copy, shadows};
  const ShadowOutcome outcome = take_over(*plan, state.live, common_cut(*plan));
  ASSERT_TRUE(outcome.plan);
  Resumption resumption;
  resumption.plan = std::make_shared<const ir::Plan>(*outcome.plan);
  resumption.order = {StateSource::own_gpu, StateSource::peer_gpu};
  const models::RecoveryDecision decision = resume(input, state, resumption);
  EXPECT_EQ(decision.resume_iteration, 10);
  EXPECT_TRUE(decision.transfers.empty()) << "the shadow has all that it needs";
  state.replicas = {copy};
  EXPECT_EQ(resume(input, state, resumption).resume_iteration, 0) << "one pipeline, no shadow";
}

TEST(BambooRules, AreThoseOfTheSimulator) {
  // 3 pipelines of 8; pipelines, stages, overloaded, waiting.
  EXPECT_FALSE(should_reconfigure({3, 8, 0, 0}));
  EXPECT_FALSE(should_reconfigure({3, 8, 0, 7}));
  EXPECT_TRUE(should_reconfigure({3, 8, 0, 8})) << "one more pipeline";
  EXPECT_TRUE(should_reconfigure({3, 8, 1, 1})) << "as many wait";
  EXPECT_TRUE(should_reconfigure({3, 8, 1, 0})) << "2 / 23 > 5 %";
  EXPECT_FALSE(should_reconfigure({8, 8, 1, 0})) << "2 / 63 < 5 %";
  EXPECT_TRUE(should_reconfigure({8, 8, 2, 0})) << "4 / 62 > 5 %";
}

class BambooLife : public PolicyLife {
 protected:
  void start(int nodes) {
    PolicyLife::start("bamboo", equal_nodes({nodes, 16}), {{"stages", "4"}});
  }
  int device(std::size_t pipeline, std::size_t stage) const {
    return ir::devices_of(life->state().plan->pipelines[pipeline].stages[stage]).front().value;
  }
};

TEST_F(BambooLife, ALossWithoutReconfigurationStallsNobodyAndKeepsTheIteration) {
  start(48);
  ASSERT_EQ(life->state().plan->redundancy, ir::Redundancy::next_stage);
  ASSERT_EQ(life->state().plan->pipelines.size(), 12U);
  const int lost = device(0, 2);
  // The test's own law does not know of copies of the next stage: asked, not fired.
  models::JobState state = life->state();
  std::erase(state.live, DeviceId{lost});
  const ir::ClusterEvent event = device_event(ir::EventKind::fail, lost);
  const models::RecoveryDecision decision = policy->on_events(state, {&event, 1});
  EXPECT_EQ(decision.action, models::RecoveryDecision::Action::resume);
  EXPECT_EQ(decision.resume_iteration, 100);
  for (const models::RecoveryPhase& phase : decision.phases) EXPECT_EQ(phase.duration.count, 0);
  EXPECT_TRUE(decision.transfers.empty());
  EXPECT_EQ(count_overloaded(*decision.plan, common_cut(*state.plan)), 1);
  EXPECT_TRUE(models::find_unsupported(*decision.plan).empty());
  EXPECT_EQ(decision.plan->redundancy, ir::Redundancy::next_stage);
}

TEST_F(BambooLife, NeighborsLostTogetherGoBackToTheCheckpointThoughOtherPipelinesHaveTheLayers) {
  start(48);
  life->train(25);
  ir::ClusterEvent event = device_event(ir::EventKind::leave, device(1, 1));
  event.scope.devices.push_back({device(1, 2)});
  ASSERT_EQ(life->fire(event), "");
  EXPECT_EQ(life->decision().resume_iteration, 120) << "the last checkpoint";
  ASSERT_FALSE(life->decision().transfers.empty());
  for (const models::StateTransfer& t : life->decision().transfers) {
    EXPECT_EQ(t.from, ir::Location::cloud);
  }
}

TEST_F(BambooLife, JoinsWaitUntilTheyMakeAPipeline) {
  start(15);
  ASSERT_EQ(life->state().plan->pipelines.size(), 3U);
  // Nodes 12 to 14 wait. One leaves and comes back: nothing happens.
  ASSERT_EQ(life->fire(device_event(ir::EventKind::leave, 14)), "");
  EXPECT_EQ(life->decision().action, models::RecoveryDecision::Action::proceed);
  ASSERT_EQ(life->fire(device_event(ir::EventKind::join, 14)), "");
  EXPECT_EQ(life->decision().action, models::RecoveryDecision::Action::proceed);
  // One of the pipeline is lost: as many wait as are overloaded, new pipelines at once.
  ASSERT_EQ(life->fire(device_event(ir::EventKind::leave, 5)), "");
  EXPECT_EQ(life->state().plan->pipelines.size(), 3U);
  EXPECT_EQ(count_overloaded(*life->state().plan, common_cut(*life->state().plan)), 0);
  EXPECT_EQ(life->state().plan->pipelines.front().stages.size(), 4U);
}

TEST(BambooFirstPlan, TakesHalfMoreStagesThanTheModelNeeds) {
  const auto world = equal_nodes({12, 16, 1, 2.9});
  const PolicyInput input = policy_input(*world);
  const auto policy = make_policy("bamboo", input);
  ASSERT_NE(policy, nullptr);
  const auto first = policy->first_plan(all_devices(world->cluster));
  const auto& plan = std::get<models::PlanPointer>(first);
  EXPECT_EQ(plan_faults(*world, *plan, all_devices(world->cluster)), "");
  EXPECT_GE(plan->pipelines.front().stages.size(), 3U);
}

}  // namespace
}  // namespace orrery::planners::bamboo_test
