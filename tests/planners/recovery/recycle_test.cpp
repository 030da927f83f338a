// Are micro-batches of lost stages spread evenly over peers, can the plans be lowered, and does the
// policy use them?
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/lower/lower.h"
#include "planners/recovery/recycle/reroutes.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::recycle_test {
namespace {

/// Micro-batches that each pipeline computes at a stage.
std::map<int, int> loads(const ir::Plan& plan, int stage) {
  std::map<int, int> result;
  for (int p = 0; p < static_cast<int>(plan.pipelines.size()); ++p) {
    const ir::Pipeline& pipeline = plan.pipelines[p];
    result[p] += pipeline.micro_batches;
    for (const ir::Reroute& reroute : pipeline.reroutes) {
      if (reroute.stage != stage) continue;
      --result[p];
      ++result[reroute.to_pipeline];
    }
  }
  return result;
}

TEST(RecycleReroutes, SpreadEvenlyOverLivePeersWhateverIsLost) {
  const auto world = equal_nodes({16, 28});  // 4 pipelines of 4 stages, 7 micro-batches each.
  const ir::Plan plan = uniform_plan(*world, 4, 4, 1);
  Rng rng(5);
  int rerouted_plans = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<int> lost;
    for (int d = 0; d < 16; ++d) {
      if (rng.bernoulli(0.25)) lost.push_back(d);
    }
    const std::vector<DeviceId> live = all_but(*world, lost);
    std::map<int, int> dead_of_stage;
    for (const int d : lost) ++dead_of_stage[d % 4];
    const bool possible = std::all_of(dead_of_stage.begin(), dead_of_stage.end(),
                                      [](const auto& dead) { return dead.second < 4; });
    const auto made = reroute(plan, live);
    ASSERT_EQ(std::holds_alternative<ir::Plan>(made), possible) << "round " << round;
    if (!possible) continue;
    ++rerouted_plans;
    const ir::Plan& rerouted = std::get<ir::Plan>(made);
    EXPECT_EQ(plan_faults(*world, rerouted, live), "") << "round " << round;
    for (int s = 0; s < 4; ++s) {
      int least = 1000;
      int most = 0;
      for (const auto& [p, load] : loads(rerouted, s)) {
        const bool dead = std::count(lost.begin(), lost.end(), p * 4 + s) > 0;
        if (dead) {
          EXPECT_EQ(load, 0);
        } else {
          least = std::min(least, load);
          most = std::max(most, load);
        }
      }
      EXPECT_LE(most - least, 1) << "stage " << s << ", round " << round;
    }
  }
  EXPECT_GT(rerouted_plans, 100);
}

TEST(RecycleReroutes, RepairedStagesComputeAgain) {
  const auto world = equal_nodes({8, 16});
  const ir::Plan plan = uniform_plan(*world, 2, 4, 1);
  const auto hit = std::get<ir::Plan>(reroute(plan, all_but(*world, {1, 6})));
  const auto whole = std::get<ir::Plan>(reroute(hit, all_devices(world->cluster)));
  EXPECT_EQ(whole, plan);
}

TEST(RecycleReroutes, CanBeLowered) {
  auto world = equal_nodes({12, 18});
  world->job.allowed.schedules.push_back(ir::ScheduleKind::zero_bubble);
  const ir::Plan plan = uniform_plan(*world, 3, 4, 1);
  ir::Plan rerouted = std::get<ir::Plan>(reroute(plan, all_but(*world, {2, 5})));
  for (const auto schedule : {ir::ScheduleKind::one_f_one_b, ir::ScheduleKind::zero_bubble}) {
    rerouted.schedule = schedule;
    EXPECT_TRUE(models::find_unsupported(rerouted).empty());
    const ir::Program program =
        models::lower(rerouted, world->cluster, world->workload, world->job, {});
    EXPECT_EQ(program.ranks.size(), 10U) << "the lost stages have no rank";
  }
}

class RecycleLife : public PolicyLife {
 protected:
  /// Three pipelines of four stages, given by the user.
  void start() {
    auto nodes = equal_nodes({12, 18});
    const ir::Plan plan = uniform_plan(*nodes, 3, 4, 1);
    PolicyLife::start("recycle", std::move(nodes), {}, plan);
  }
};

TEST_F(RecycleLife, NothingMovesAtALossAndTheBackwardPassIsDecoupled) {
  start();
  ASSERT_EQ(life->fire(device_event(ir::EventKind::fail, 6)), "");
  EXPECT_EQ(life->decision().resume_iteration, 100);
  EXPECT_TRUE(life->decision().transfers.empty());
  EXPECT_EQ(life->state().plan->schedule, ir::ScheduleKind::zero_bubble);
  EXPECT_EQ(life->state().plan->pipelines.size(), 3U);
}

TEST_F(RecycleLife, AllItsPlansAreStaggeredUnlessTheOptionSaysTogether) {
  start();
  ASSERT_EQ(life->state().plan->optimizer, ir::OptimizerStart::staggered);
  for (const char* value : {"staggered", "together"}) {
    const auto expected = std::string(value) == "together" ? ir::OptimizerStart::together
                                                           : ir::OptimizerStart::staggered;
    for (const bool users : {true, false}) {
      PolicyInput given = *input;
      if (!users) given.plan.reset();
      const auto other = make_policy("recycle", given, {{"optimizer", value}});
      JobLife with(*world, given, *other);
      with.train(10);
      EXPECT_EQ(with.state().plan->optimizer, expected) << "undisturbed";
      ASSERT_EQ(with.fire(device_event(ir::EventKind::fail, 6)), "");
      EXPECT_EQ(with.state().plan->optimizer, expected) << "without a stage";
      ASSERT_EQ(with.fire(device_event(ir::EventKind::repair, 6)), "");
      EXPECT_EQ(with.state().plan->optimizer, expected) << "whole again";
    }
  }
}

TEST_F(RecycleLife, UndisturbedPlansKeepTheirScheduleAndReroutesSayHowTheyRun) {
  start();
  EXPECT_EQ(life->state().plan->schedule, ir::ScheduleKind::one_f_one_b);
  ASSERT_EQ(life->fire(device_event(ir::EventKind::fail, 6)), "");
  EXPECT_NE(life->decision().reason.find("backward passes decoupled"), std::string::npos)
      << life->decision().reason;
  ASSERT_EQ(life->fire(device_event(ir::EventKind::repair, 6)), "");
  EXPECT_EQ(life->state().plan->schedule, ir::ScheduleKind::one_f_one_b);
}

TEST_F(RecycleLife, APlanThatShardsStateIsNotBegunWith) {
  start();
  PolicyInput given = *input;
  given.plan->pipelines[1].stages[0].segments[0].zero.stage = 1;
  const auto made = find_policy("recycle")->make(given, {});
  const auto* why = std::get_if<models::Infeasible>(&made);
  ASSERT_NE(why, nullptr);
  EXPECT_EQ(why->witness, "the plan has ZeRO-1, but stages that take over must be whole");
}

TEST_F(RecycleLife, WithoutDecouplingItSaysWhy) {
  start();
  const std::map<std::string, std::string> why = {{"never", "option decoupled_backward"},
                                                  {"if_allowed", "the job allows no zero_bubble"}};
  for (const auto& [value, reason] : why) {
    const auto other = make_policy("recycle", *input, {{"decoupled_backward", value}});
    JobLife with(*world, *input, *other);
    with.train(10);
    ASSERT_EQ(with.fire(device_event(ir::EventKind::fail, 6)), "");
    EXPECT_EQ(with.state().plan->schedule, ir::ScheduleKind::one_f_one_b);
    EXPECT_NE(with.decision().reason.find("decoupled backward off: " + reason), std::string::npos)
        << with.decision().reason;
  }
}

TEST_F(RecycleLife, ADeviceThatComesBackGetsItsStageFromAPeer) {
  start();
  ASSERT_EQ(life->fire(device_event(ir::EventKind::fail, 6)), "");
  life->train(10);
  ASSERT_EQ(life->fire(device_event(ir::EventKind::repair, 6)), "");
  const models::RecoveryDecision& decision = life->decision();
  EXPECT_EQ(decision.run_on, Nanoseconds{0});
  ASSERT_FALSE(decision.transfers.empty());
  for (const models::StateTransfer& t : decision.transfers) {
    EXPECT_EQ(t.destination, DeviceId{6});
    EXPECT_EQ(t.source.value % 4, 2) << "another stage has not its layers";
  }
  ir::Plan whole = *life->state().plan;
  whole.optimizer = input->plan->optimizer;
  EXPECT_EQ(whole, *input->plan);
}

TEST_F(RecycleLife, WithoutAPeerItGoesBackToTheCheckpointOnANewPlan) {
  start();
  life->train(25);
  ir::ClusterEvent event = device_event(ir::EventKind::fail, 2);
  event.scope.devices = {{2}, {6}, {10}};
  ASSERT_EQ(life->fire(event), "");
  EXPECT_EQ(life->decision().resume_iteration, 120) << "the last checkpoint";
  for (const ir::Pipeline& pipeline : life->state().plan->pipelines) {
    EXPECT_TRUE(pipeline.reroutes.empty());
  }
}

}  // namespace
}  // namespace orrery::planners::recycle_test
