// Hetu's restart-free switching: the volumes are those of the fused plan switch, no iteration but
// the one in flight is lost, every GPU works, and without an owner a checkpoint is loaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "models/base/ids.h"
#include "models/reshard/reshard_plan.h"
#include "planners/recovery/kit/switching.h"
#include "tests/planners/recovery/switching_support.h"

namespace orrery::planners::hetu_test {
namespace {

using Action = models::RecoveryDecision::Action;
using Kind = models::RecoveryPhase::Kind;

const std::vector<StateSource> kGpus = {StateSource::own_gpu, StateSource::peer_gpu};

ir::Plan published(const std::string& name) {
  config::Diagnostics diagnostics;
  ir::Plan plan = models::load_plan("experiments/hetu/plans/" + name + ".yaml", diagnostics);
  diagnostics.raise();
  return plan;
}

models::JobState state(const SwitchingWorld& world, const models::PlanPointer& plan,
                       const std::vector<DeviceId>& lost) {
  models::JobState out;
  out.iteration = 41;
  out.plan = plan;
  out.training = true;
  for (int d = 0; d < world.cluster.size(); ++d) {
    if (std::find(lost.begin(), lost.end(), DeviceId{d}) == lost.end()) out.live.push_back({d});
  }
  out.iteration_time = world.evaluator.evaluate(*plan).iteration_time;
  out.replicas = {copy_of(plan, ir::Location::peer, 41, lost)};
  return out;
}

/// The kit against models/reshard, device by device and source by source.
void expect_equal_volumes(const SwitchingWorld& world, const std::string& from,
                          const std::string& to, const std::vector<DeviceId>& lost) {
  const auto before = shared(published(from));
  const ir::Plan after = published(to);
  for (const models::ReshardBytes& bytes :
       {models::weight_bytes(world.job), models::all_state_bytes(world.job)}) {
    const models::ReshardPlan fused =
        models::plan_reshard(*before, after, world.cluster, world.topology, world.workload,
                             {bytes, models::ReshardVariant::fused, lost});
    const Restore restore =
        plan_restore(world.input(), state(world, before, lost), after, {41, kGpus, bytes});
    EXPECT_TRUE(restore.complete()) << restore.witness;
    const double moved = models::sum(fused.moved).value;
    EXPECT_NEAR(restore.from[index_of(StateSource::peer_gpu)].value, moved, 1e-9 * moved)
        << from << " " << to;
    std::map<std::pair<DeviceId, DeviceId>, double> messages;
    for (const models::ReshardMessage& message : fused.messages) {
      messages[{message.source, message.destination}] += message.bytes.value;
    }
    std::map<std::pair<DeviceId, DeviceId>, double> transfers;
    for (const models::StateTransfer& transfer : restore.transfers) {
      transfers[{transfer.source, transfer.destination}] += transfer.bytes.value;
    }
    ASSERT_EQ(transfers.size(), messages.size());
    for (const auto& [pair, bytes_sent] : messages) {
      EXPECT_NEAR(transfers[pair], bytes_sent, 1e-9 * bytes_sent + 1)
          << pair.first.value << " to " << pair.second.value;
    }
  }
}

TEST(HetuRecovery, VolumesEqualTheFusedSwitch) {
  const SwitchingWorld homogeneous("hetu_32h20", "hetu_32b", 64, 4096);
  expect_equal_volumes(homogeneous, "c1", "c2", range(31, 31));
  expect_equal_volumes(homogeneous, "c2", "c3", range(24, 31));
  const SwitchingWorld mixed("hetu", "hetu_32b", 64, 4096);
  expect_equal_volumes(mixed, "c4", "c5", range(40, 47));
  expect_equal_volumes(mixed, "c5", "c6", join(range(15, 15), range(40, 47)));
  expect_equal_volumes(mixed, "c6", "c7", join(range(8, 15), range(40, 47)));
}

class HetuRecoveryTest : public ::testing::Test {
 protected:
  models::RecoveryDecision decide(const models::JobState& at, const ir::ClusterEvent& event,
                                  const Options& options = {}) const {
    return world.decide("hetu", at, event, options);
  }
  SwitchingWorld world{"hetu_32h20", "hetu_32b", 64, 4096};
};

// 7.2: one GPU fails, all others go on; only the iteration in flight is lost.
TEST_F(HetuRecoveryTest, AllGpusThatAreLeftGoOnWithoutRestart) {
  const auto before = shared(published("c1"));
  const models::JobState at = state(world, before, range(31, 31));
  const models::RecoveryDecision decision = decide(at, event(ir::EventKind::fail, range(31, 31)));
  ASSERT_EQ(decision.action, Action::resume);
  EXPECT_EQ(decision.resume_iteration, 41);
  EXPECT_EQ(ir::devices_of(*decision.plan), range(0, 30));
  EXPECT_EQ(decision.plan->pipelines.size(), 2u);
  EXPECT_EQ(duration_of(decision, Kind::reinitialize), to_nanoseconds(Seconds{10}));
  EXPECT_EQ(duration_of(decision, Kind::detect), to_nanoseconds(Seconds{600}));
  for (const models::StateTransfer& transfer : decision.transfers) {
    EXPECT_EQ(transfer.from, ir::Location::peer);
    EXPECT_NE(transfer.source, (DeviceId{31}));
  }
  const models::ReshardPlan fused =
      models::plan_reshard(*before, *decision.plan, world.cluster, world.topology, world.workload,
                           {models::all_state_bytes(world.job), {}, range(31, 31)});
  double moved = 0;
  for (const models::StateTransfer& transfer : decision.transfers) moved += transfer.bytes.value;
  EXPECT_NEAR(moved, models::sum(fused.moved).value, 1e-9 * moved);
}

TEST_F(HetuRecoveryTest, WithoutMomentsThreeSevenths) {
  const models::JobState at = state(world, shared(published("c1")), range(31, 31));
  const auto sum = [&](const char* bytes) {
    double moved = 0;
    for (const models::StateTransfer& transfer :
         decide(at, event(ir::EventKind::fail, range(31, 31)), {{"bytes", bytes}}).transfers) {
      moved += transfer.bytes.value;
    }
    return moved;
  };
  EXPECT_NEAR(sum("weights_and_master") / sum("all"), 6.0 / 14.0, 1e-9);
}

// Both pipelines lose a GPU of the stage that holds the same layers.
TEST_F(HetuRecoveryTest, WithoutAnOwnerTheCheckpointIsLoaded) {
  const auto before = shared(published("c1"));
  const std::vector<DeviceId> lost = {{15}, {31}};
  models::JobState at = state(world, before, lost);
  at.replicas.push_back(copy_of(before, ir::Location::nvme, 30));
  const models::RecoveryDecision decision = decide(at, event(ir::EventKind::fail, lost));
  ASSERT_EQ(decision.action, Action::resume);
  EXPECT_EQ(decision.resume_iteration, 30);
  EXPECT_EQ(duration_of(decision, Kind::reinitialize), to_nanoseconds(Seconds{300}));
  EXPECT_NE(decision.reason.find("without owner"), std::string::npos);
  for (const models::StateTransfer& transfer : decision.transfers) {
    EXPECT_EQ(transfer.from, ir::Location::nvme);
  }
}

// Different quarters of the layers: each slice still has an owner.
TEST_F(HetuRecoveryTest, TwoLossesInDifferentSlicesNeedNoCheckpoint) {
  const std::vector<DeviceId> lost = {{14}, {31}};
  const models::JobState at = state(world, shared(published("c1")), lost);
  const models::RecoveryDecision decision = decide(at, event(ir::EventKind::fail, lost));
  EXPECT_EQ(decision.resume_iteration, 41);
  EXPECT_EQ(ir::devices_of(*decision.plan).size(), 30u);
}

// 7.2: with optimizer states sharded "there must be data loss upon GPU failures".
TEST(HetuRecovery, ZeroNeedsTheCheckpoint) {
  const SwitchingWorld world("hetu_32h20", "hetu_32b", 64, 4096, {0, 1});
  ir::Plan sharded = published("c1");
  for (ir::Pipeline& pipeline : sharded.pipelines) {
    for (ir::Stage& stage : pipeline.stages) stage.segments.front().zero.stage = 1;
  }
  const models::JobState at = state(world, shared(sharded), range(31, 31));
  const models::RecoveryDecision decision =
      world.decide("hetu", at, event(ir::EventKind::fail, range(31, 31)));
  EXPECT_EQ(decision.resume_iteration, 0);
  EXPECT_NE(decision.reason.find("without owner"), std::string::npos);
}

TEST(HetuRecovery, AJobThatNeedsZeroCannotHaveIt) {
  const SwitchingWorld world("hetu_32h20", "hetu_32b", 64, 4096, {1});
  const auto made = find_policy("hetu")->make(world.input(), {});
  const auto* no = std::get_if<models::Infeasible>(&made);
  ASSERT_NE(no, nullptr);
  EXPECT_EQ(no->constraint, "ZeRO off");
}

TEST(HetuRecovery, AnotherPlannerMakesPlansOfWholeReplicas) {
  const SwitchingWorld world("hetu_32h20", "hetu_32b", 64, 4096, {0, 1});
  const models::JobState at = state(world, shared(published("c1")), range(31, 31));
  const models::RecoveryDecision decision =
      world.decide("hetu", at, event(ir::EventKind::fail, range(31, 31)),
                   {{"planner", "whale"}, {"planner_options", "evaluate_top=1"}});
  ASSERT_EQ(decision.action, Action::resume);
  EXPECT_EQ(decision.plan->planner, "whale");
  EXPECT_TRUE(runs_on(*decision.plan, range(0, 30)));
  for (const ir::Pipeline& pipeline : decision.plan->pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) EXPECT_EQ(segment.zero.stage, 0);
    }
  }
  EXPECT_FALSE(find_policy("hetu")->check({{"planner", "nobody"}}).empty());
  EXPECT_FALSE(find_policy("hetu")->check({{"planner_options", "evaluate_tops=1"}}).empty());
}

TEST_F(HetuRecoveryTest, AFailedJobLosesAllGpuMemory) {
  const auto before = shared(published("c1"));
  models::JobState at = state(world, before, {});
  at.replicas = {copy_of(before, ir::Location::nvme, 40)};
  ir::ClusterEvent crash = event(ir::EventKind::fail, {});
  crash.scope.kind = ir::EventScope::Kind::job;
  const models::RecoveryDecision decision = decide(at, crash);
  EXPECT_EQ(decision.resume_iteration, 40);
  EXPECT_EQ(*decision.plan, *before);
  EXPECT_EQ(duration_of(decision, Kind::decide).count, 0);
}

TEST_F(HetuRecoveryTest, AnIdleGpuMayFail) {
  const auto before = shared(published("c3"));  // Devices 0-23.
  const models::JobState at = state(world, before, range(31, 31));
  EXPECT_EQ(decide(at, event(ir::EventKind::fail, range(31, 31))).action, Action::proceed);
}

TEST_F(HetuRecoveryTest, NewDevicesAreUsedIfThatPays) {
  const models::JobState at = state(world, shared(published("c3")), {});
  const ir::ClusterEvent repair = event(ir::EventKind::repair, range(24, 31));
  EXPECT_EQ(decide(at, repair, {{"horizon", "11"}}).action, Action::proceed);
  const models::RecoveryDecision decision =
      decide(at, repair, {{"horizon", "100000"}, {"decide", "1"}});
  ASSERT_EQ(decision.action, Action::resume);
  EXPECT_EQ(ir::devices_of(*decision.plan), range(0, 31));
  EXPECT_EQ(decision.run_on, to_nanoseconds(Seconds{1}));
  EXPECT_EQ(duration_of(decision, Kind::detect).count, 0);
}

TEST_F(HetuRecoveryTest, WhatHitsNothingLeavesARecoveryAlone) {
  models::JobState at = state(world, shared(published("c3")), {});
  at.training = false;
  EXPECT_EQ(decide(at, event(ir::EventKind::restore, range(0, 0))).action, Action::proceed);
  EXPECT_EQ(decide(at, event(ir::EventKind::repair, range(24, 31))).action, Action::proceed);
}

TEST_F(HetuRecoveryTest, ARecoveryThatIsHitBeginsAnewWithItsPlan) {
  const auto plan = shared(published("c1"));
  models::JobState at = state(world, plan, {});
  at.training = false;
  const models::RecoveryDecision decision = decide(at, event(ir::EventKind::fail, {}));
  ASSERT_EQ(decision.action, Action::resume);
  EXPECT_EQ(*decision.plan, *plan);
  EXPECT_TRUE(decision.transfers.empty());
  EXPECT_EQ(duration_of(decision, Kind::decide).count, 0);
}

}  // namespace
}  // namespace orrery::planners::hetu_test
