// Are micro-batches of lost stages spread evenly over peers, can the plans be lowered, and what
// does the bound on ReCycle's iteration say?
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "models/lower/lower.h"
#include "models/schedule/schedule.h"
#include "planners/recovery/recycle/reroutes.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::recycle_test {
namespace {

std::unique_ptr<World> nodes_of_one(int nodes, std::int64_t batch) {
  ir::ModelShape shape = small_model(8);
  shape.vocabulary = 8000;
  return std::make_unique<World>(with_storage(make_cluster({{"A", 100, 24, 1, 100, nodes}}, 5)),
                                 shape, batch, 512);
}

std::vector<DeviceId> without(const World& world, const std::vector<int>& lost) {
  std::vector<DeviceId> live = all_devices(world.cluster);
  for (const int device : lost) std::erase(live, DeviceId{device});
  return live;
}

/// Micro-batches that each pipeline computes at a stage.
std::map<int, int> loads(const ir::Plan& plan, int stage) {
  std::map<int, int> result;
  for (int p = 0; p < static_cast<int>(plan.pipelines.size()); ++p) {
    const ir::Pipeline& pipeline = plan.pipelines[static_cast<std::size_t>(p)];
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
  const auto world = nodes_of_one(16, 28);  // 4 pipelines of 4 stages, 7 micro-batches each.
  const ir::Plan plan = uniform_plan(*world, 4, 4, 1);
  Rng rng(5);
  int rerouted_plans = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<int> lost;
    for (int d = 0; d < 16; ++d) {
      if (rng.bernoulli(0.25)) lost.push_back(d);
    }
    const std::vector<DeviceId> live = without(*world, lost);
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
  const auto world = nodes_of_one(8, 16);
  const ir::Plan plan = uniform_plan(*world, 2, 4, 1);
  const auto hit = std::get<ir::Plan>(reroute(plan, without(*world, {1, 6})));
  const auto whole = std::get<ir::Plan>(reroute(hit, all_devices(world->cluster)));
  EXPECT_EQ(whole, plan);
}

TEST(RecycleReroutes, CanBeLowered) {
  auto world = nodes_of_one(12, 18);
  world->job.allowed.schedules.push_back(ir::ScheduleKind::zero_bubble);
  const ir::Plan plan = uniform_plan(*world, 3, 4, 1);
  ir::Plan rerouted = std::get<ir::Plan>(reroute(plan, without(*world, {2, 5})));
  for (const auto schedule : {ir::ScheduleKind::one_f_one_b, ir::ScheduleKind::zero_bubble}) {
    rerouted.schedule = schedule;
    EXPECT_TRUE(models::find_unsupported(rerouted).empty());
    const ir::Program program =
        models::lower(rerouted, world->cluster, world->workload, world->job, {});
    EXPECT_EQ(program.ranks.size(), 10U) << "the lost stages have no rank";
  }
}

// D = 3, P = 4, M = 6, F = 1, B = 2 [notes on ReCycle, C11]: 27 slots without a failure, and the
// survivors of a failed stage have 27 slots of work each, so that only staggering can hide it.
TEST(RecycleBound, WorkOfSurvivorsIsAsLongAsTheWholeFaultFreeIteration) {
  const std::vector<int> none(4, 0);
  EXPECT_DOUBLE_EQ(recycle_bound(3, 6, 1, 2, 0, none), 27);
  const auto world = nodes_of_one(12, 18);
  const ir::Plan plan = uniform_plan(*world, 3, 4, 1);
  for (int s = 0; s < 4; ++s) {
    const auto rerouted = std::get<ir::Plan>(reroute(plan, without(*world, {s})));
    for (const auto& [p, load] : loads(rerouted, s)) EXPECT_EQ(3 * load, p == 0 ? 0 : 27);
    std::vector<int> failed(4, 0);
    failed[static_cast<std::size_t>(s)] = 1;
    EXPECT_DOUBLE_EQ(recycle_bound(3, 6, 1, 1, 1, failed), s + 27.0);
    EXPECT_DOUBLE_EQ(recycle_bound(3, 6, 1, 1, 1, failed, true), 27) << "staggered";
  }
}

using Place = std::pair<int, int>;                   ///< Pipeline, stage.
using Pass = std::tuple<ir::OpKind, int, int, int>;  ///< Kind, pipeline, micro-batch, stage.
using PassOrder = std::map<Place, std::vector<Pass>>;

/// The passes of each live stage under the plan's schedule; the rerouted ones for a micro-batch
/// behind the own one.
PassOrder passes_of(const ir::Plan& plan, const std::vector<DeviceId>& live) {
  const auto stages = static_cast<int>(plan.pipelines.front().stages.size());
  PassOrder order;
  const auto dead = dead_stages(plan, live);
  for (int p = 0; p < static_cast<int>(plan.pipelines.size()); ++p) {
    for (int s = 0; s < stages; ++s) {
      if (std::count(dead.begin(), dead.end(), std::pair(p, s)) > 0) continue;
      for (const models::StagePass& pass :
           models::find_schedule(plan.schedule)
               ->passes(
                   {stages, s, plan.pipelines[static_cast<std::size_t>(p)].micro_batches, 1})) {
        order[{p, s}].emplace_back(pass.kind, p, pass.micro_batch, s);
        for (int q = 0; q < static_cast<int>(plan.pipelines.size()); ++q) {
          for (const ir::Reroute& r : plan.pipelines[static_cast<std::size_t>(q)].reroutes) {
            if (r.stage != s || r.to_pipeline != p || r.micro_batch != pass.micro_batch) continue;
            order[{p, s}].emplace_back(pass.kind, q, pass.micro_batch, s);
          }
        }
      }
    }
  }
  return order;
}

/// What must have ended before a pass, of another stage or on the same one.
std::optional<Pass> before(const Pass& pass, int stages) {
  const auto& [kind, p, m, s] = pass;
  if (kind == ir::OpKind::forward) {
    return s > 0 ? std::optional(Pass{kind, p, m, s - 1}) : std::nullopt;
  }
  if (kind == ir::OpKind::backward_weight) {
    return Pass{ir::OpKind::backward_input, p, m, s};
  }
  if (s + 1 < stages) return Pass{kind, p, m, s + 1};
  return Pass{ir::OpKind::forward, p, m, s};
}

/// One iteration, passes of one slot each (a whole backward pass of two): `clock` says when each
/// place begins, then when it ends.
void run_iteration(const PassOrder& order, bool split, int stages, std::map<Place, double>& clock) {
  std::map<Pass, double> ends;
  std::map<Place, std::size_t> next;
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& [place, passes] : order) {
      for (; next[place] < passes.size(); ++next[place]) {
        const Pass& pass = passes[next[place]];
        const std::optional<Pass> needs = before(pass, stages);
        if (needs && !ends.contains(*needs)) break;
        const bool whole = !split && std::get<0>(pass) != ir::OpKind::forward;
        clock[place] = std::max(clock[place], needs ? ends[*needs] : 0) + (whole ? 2 : 1);
        ends[pass] = clock[place];
        moved = true;
      }
    }
  }
  for (const auto& [place, passes] : order) EXPECT_EQ(next[place], passes.size()) << "stuck";
}

struct Slots {
  double together = 0;   ///< Until the last pass of an iteration has ended.
  double staggered = 0;  ///< Between iterations in which each stage, all copies of it together,
                         ///< begins when it has ended the one before.
};

Slots slots_of(const ir::Plan& plan, const std::vector<DeviceId>& live) {
  const PassOrder order = passes_of(plan, live);
  const bool split = plan.schedule == ir::ScheduleKind::zero_bubble;
  const auto stages = static_cast<int>(plan.pipelines.front().stages.size());
  std::map<Place, double> clock;
  std::vector<double> ends = {0};
  for (int iteration = 0; iteration < 12; ++iteration) {
    run_iteration(order, split, stages, clock);
    std::map<int, double> of_stage;
    for (const auto& [place, end] : clock) {
      of_stage[place.second] = std::max(of_stage[place.second], end);
    }
    for (auto& [place, end] : clock) end = of_stage[place.second];
    ends.push_back(0);
    for (const auto& [stage, end] : of_stage) ends.back() = std::max(ends.back(), end);
  }
  return {ends[1], ends[12] - ends[11]};
}

TEST(RecycleBound, HoldsForSplitAndWholeBackwardPassesAndSplittingIsFaster) {
  for (const auto& [pipelines, batch] : {std::pair(3, 18), std::pair(4, 64)}) {
    const auto world = nodes_of_one(4 * pipelines, batch);
    const ir::Plan plan = uniform_plan(*world, pipelines, 4, 1);
    for (int s = 0; s < 4; ++s) {
      const auto live = without(*world, {s});
      auto rerouted = std::get<ir::Plan>(reroute(plan, live));
      std::vector<int> failed(4, 0);
      failed[static_cast<std::size_t>(s)] = 1;
      const int micro_batches = batch / pipelines;
      const double bound = recycle_bound(pipelines, micro_batches, 1, 1, 1, failed);
      const double paced = recycle_bound(pipelines, micro_batches, 1, 1, 1, failed, true);
      const Slots whole = slots_of(rerouted, live);
      rerouted.schedule = ir::ScheduleKind::zero_bubble;
      const Slots split = slots_of(rerouted, live);
      EXPECT_GE(split.together, bound) << "stage " << s;
      EXPECT_LT(split.together, whole.together) << "stage " << s;
      EXPECT_GE(split.staggered, paced) << "stage " << s;
      EXPECT_LT(split.staggered, whole.staggered) << "stage " << s;
      // Whichever stage it is: one slot on top of whole micro-batches.
      EXPECT_EQ(split.staggered, 3 * std::ceil(paced / 3) + 1) << "stage " << s;
      EXPECT_EQ(split.together, split.staggered + (s + 1) / 2) << "stage " << s;
    }
  }
}

class RecycleLife : public testing::Test {
 protected:
  /// Three pipelines of four stages, given by the user.
  void start() {
    world = nodes_of_one(12, 18);
    input = std::make_unique<PolicyInput>(policy_input(*world));
    input->plan = uniform_plan(*world, 3, 4, 1);
    policy = make_policy("recycle", *input);
    ASSERT_NE(policy, nullptr);
    life = std::make_unique<JobLife>(*world, *input, *policy);
    life->train(100);
  }
  std::unique_ptr<World> world;
  std::unique_ptr<PolicyInput> input;
  std::unique_ptr<models::RecoveryPolicy> policy;
  std::unique_ptr<JobLife> life;
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
