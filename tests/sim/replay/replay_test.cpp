#include "sim/replay/replay.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/sim/replay/support.h"

namespace orrery::sim::replay_test {
namespace {

using ir::EventKind;
using ir::Location;
using Kind = models::RecoveryPhase::Kind;

/// Buckets in seconds, in the order of Bucket.
std::vector<double> walls(const ReplayResult& result) {
  std::vector<double> seconds;
  for (const Nanoseconds part : result.wall)
    seconds.push_back(static_cast<double>(part.count) / 1e9);
  return seconds;
}

std::vector<double> buckets(double productive, double degraded, double rolled_back,
                            double checkpoint, double detect, double decide, double move_state,
                            double reinitialize, double idle) {
  return {productive, degraded,   rolled_back,  checkpoint, detect,
          decide,     move_state, reinitialize, idle};
}

std::string text(const std::vector<models::StateReplica>& replicas) {
  std::string out;
  for (const models::StateReplica& replica : replicas) {
    out += fmt::format("{}@{}", static_cast<int>(replica.location), replica.iteration);
    for (const std::uint32_t lost : replica.lost_shards) out += fmt::format("-{}", lost);
    out += ' ';
  }
  return out;
}

/// Detect 1 s, decide 2 s, transfers 7 s and splitting 3 s, new communicators 4 s, warm-up 5 s.
std::vector<models::RecoveryPhase> all_phases() {
  return {phase(Kind::detect, 1), phase(Kind::decide, 2), phase(Kind::move_state, 3),
          phase(Kind::reinitialize, 4), phase(Kind::warm_up, 5)};
}

models::RecoveryDecision from_peer(std::int64_t iteration, const std::vector<DeviceId>& live) {
  models::RecoveryDecision decision = resume(plan_on(live), iteration, all_phases());
  decision.transfers = {{Location::cloud, Location::peer, {}, live.front(), 1_GB}};
  return decision;
}

TEST(Replay, WithoutEventsAllIsProductive) {
  const models::Cluster cluster = replay_cluster(2, 2);
  const EventList events(cluster, 1000);
  const ReplayResult result = run(cluster, events.trace, TestPolicy{});
  EXPECT_EQ(walls(result), buckets(1000, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(result.iterations, 100);
  EXPECT_EQ(result.samples, 100 * 8);
  EXPECT_EQ(result.tokens, 100 * 8 * 100);
  EXPECT_DOUBLE_EQ(result.ettr, 1);
  EXPECT_DOUBLE_EQ(result.goodput, 1);
  EXPECT_DOUBLE_EQ(result.dollars.value, 4 * 3.6 * 1000);
  EXPECT_TRUE(result.priced);
  EXPECT_EQ(result.interruptions, 0);
  ASSERT_EQ(result.spans.size(), 1U);
  EXPECT_EQ(result.spans[0].iterations, 100);
}

TEST(Replay, AnIterationThatTheHorizonCutsOffIsBookedButDoesNotCount) {
  const models::Cluster cluster = replay_cluster(1, 2);
  const ReplayResult result = run(cluster, EventList(cluster, 1006).trace, TestPolicy{});
  EXPECT_EQ(walls(result), buckets(1006, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(result.iterations, 100);
  EXPECT_LT(result.goodput, 1);
}

TEST(Replay, GoodputIsMeasuredAgainstTheFastestPlanThatTrained) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 1000);
  events.node(500, EventKind::join, 1);
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto) {
    return resume(plan_on(state.live), state.iteration);
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(result.samples, 50 * 4 + 50 * 8);
  EXPECT_DOUBLE_EQ(result.goodput, 600 / 800.0);
}

/// Transfers take 7 s on healthy links, longer by the factor of a degraded one.
class LinkTimer final : public models::TransferTimer {
 public:
  Nanoseconds time(const std::vector<models::StateTransfer>& transfers,
                   const models::DegradedLinks& degraded_links = {}) const override {
    if (transfers.empty()) return {};
    return seconds(degraded_links.empty() ? 7 : 7 / degraded_links.front().second);
  }
};

TEST(Replay, TransfersGoOverTheLinksAsTheyAreWhenTheyStart) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 1000);
  events.link(50, EventKind::degrade, "node0/nic0/up", 0.5);
  events.devices(105, EventKind::fail, {3});
  events.link(400, EventKind::restore, "node0/nic0/up");
  events.devices(505, EventKind::fail, {2});
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto asked) {
    if (asked.front().kind != EventKind::fail) return proceed();
    return from_peer(state.iteration, state.live);
  };
  const FixedIterationTimer iterations(Seconds{10});
  const LinkTimer transfers;
  const models::Job job = replay_job();
  const ReplayResult result =
      replay({cluster, job, events.trace, policy, iterations, transfers}, {});
  EXPECT_EQ(wall(result, Bucket::move_state), (14 + 3) + (7 + 3));
}

TEST(Replay, AFailureLosesTheIterationInFlightAndBooksEachPhase) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 1000);
  events.devices(105, EventKind::fail, {3});
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto) {
    return from_peer(state.iteration, state.live);
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  // 22 s of stall; 127 .. 1000 are 87 iterations and 3 s.
  EXPECT_EQ(walls(result), buckets(100 + 873, 0, 5, 0, 1, 2, 10, 9, 0));
  EXPECT_EQ(result.iterations, 10 + 87);
  EXPECT_EQ(result.samples, 10 * 8 + 87 * 6);
  EXPECT_EQ(result.interruptions, 1);
  ASSERT_EQ(result.log.size(), 1U);
  EXPECT_EQ(result.log[0].stall, seconds(22));
  EXPECT_EQ(result.log[0].cause, "fail");
  EXPECT_EQ(policy.asked.at(0).iteration, 10);
  EXPECT_TRUE(policy.asked.at(0).training);
  EXPECT_EQ(text(policy.asked.at(0).replicas), "1@10-3 ");
}

TEST(Replay, AnEventAtTheEndOfAnIterationFindsItFinished) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 300);
  events.devices(100, EventKind::fail, {1});
  TestPolicy policy;
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(wall(result, Bucket::rolled_back), 0);
  EXPECT_EQ(policy.asked.at(0).iteration, 10);
  EXPECT_EQ(result.iterations, 30);
}

TEST(Replay, EventsAtTimeZeroMakeTheInitialState) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 100);
  events.node(0, EventKind::join, 1).devices(0, EventKind::fail, {0});
  std::swap(events.trace.events[0], events.trace.events[1]);
  TestPolicy policy;
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_TRUE(policy.asked.empty());
  EXPECT_EQ(walls(result), buckets(100, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(result.points.front().in_plan, 3);
}

TEST(Replay, ANoticeAtTimeZeroIsTold) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 100);
  events.node(0, EventKind::notice, 1, 60);
  TestPolicy policy;
  run(cluster, events.trace, policy);
  ASSERT_EQ(policy.asked.size(), 1U);
  EXPECT_EQ(policy.asked[0].leaving.size(), 2U);
  EXPECT_EQ(policy.asked[0].leaving[0].at, at_second(60));
}

TEST(Replay, EventsAtTheHorizonDoNotHappen) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 100);
  events.devices(100, EventKind::fail, {0, 1});
  const ReplayResult result = run(cluster, events.trace, TestPolicy{});
  EXPECT_EQ(result.events, 0);
  EXPECT_EQ(result.iterations, 10);
}

TEST(Replay, WaitsIdleUntilDevicesCome) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 200);
  events.node(0, EventKind::join, 0).node(40, EventKind::join, 1);
  events.trace.events.erase(events.trace.events.begin());
  events.node(60, EventKind::leave, 0).node(90, EventKind::join, 0);
  TestPolicy policy;
  policy.needs = 4;
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(result.first_plan_problem, "devices: too few");
  EXPECT_EQ(walls(result), buckets(20 + 110, 0, 0, 0, 0, 0, 0, 0, 70));
  EXPECT_EQ(result.interruptions, 1);
  EXPECT_EQ(result.log.at(0).stall, seconds(30));
  // While nothing runs, devices that are there are spare.
  EXPECT_DOUBLE_EQ(result.device_hours.in_plan[0], 130.0 * 4 / 3600);
  EXPECT_DOUBLE_EQ(result.device_hours.spare, 70.0 * 2 / 3600);
  EXPECT_DOUBLE_EQ(result.device_hours.absent, 70.0 * 2 / 3600);
}

TEST(Replay, RollingBackRebooksIterationsAndKeepsCheckpointStalls) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 1000);
  events.job(255, EventKind::fail);
  TestPolicy policy;
  policy.levels = {level(Location::cloud, 10, 5, 20)};
  policy.answer = [](const models::JobState& state, auto) {
    return resume(state.plan, state.replicas.at(0).iteration);
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  // 10 iterations and a stall take 105 s: at 255 s 24 iterations are done, 5 s are in flight, and
  // the newest checkpoint is of iteration 20.
  EXPECT_EQ(text(policy.asked.at(0).replicas), "4@20 4@10 ");
  EXPECT_EQ(policy.asked.at(0).iteration, 24);
  EXPECT_EQ(result.log.at(0).rolled_back, 4);
  // 745 s are left: 7 cycles of 105 s and 10 s.
  EXPECT_EQ(walls(result), buckets(200 + 700 + 10, 0, 45, 10 + 35, 0, 0, 0, 0, 0));
  EXPECT_EQ(result.iterations, 20 + 71);
}

TEST(Replay, RollsBackOverSeveralRuns) {
  const models::Cluster cluster = replay_cluster(1, 4);
  EventList events(cluster, 400);
  events.devices(100, EventKind::fail, {3}).devices(200, EventKind::fail, {2});
  events.job(300, EventKind::fail);
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto events_now) {
    const bool job = events_now[0].scope.kind == ir::EventScope::Kind::job;
    return resume(plan_on(state.live), job ? 7 : state.iteration);
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(walls(result), buckets(70 + 100, 0, 230, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(result.samples, 7 * 8 + 10 * 4);
  EXPECT_EQ(result.log.back().rolled_back, 23);
  ASSERT_EQ(result.spans.size(), 3U);
  EXPECT_EQ(result.spans[1].bucket, Bucket::rolled_back);
  EXPECT_EQ(result.spans[1].first_iteration, 8);
  EXPECT_EQ(result.spans[1].iterations, 23);
}

TEST(Replay, ACheckpointWaitsForTheOneBeforeIt) {
  const models::Cluster cluster = replay_cluster(1, 2);
  TestPolicy policy;
  // A cycle is 10 s of training; persisting takes 25 s: each checkpoint but the first waits 15 s
  // less the stall of 2 s.
  policy.levels = {level(Location::cloud, 1, 2, 25)};
  const ReplayResult result = run(cluster, EventList(cluster, 10 + 2 + 25 * 100).trace, policy);
  EXPECT_EQ(result.iterations, 101);
  EXPECT_EQ(wall(result, Bucket::checkpoint), 2 + 100 * 15);
}

TEST(Replay, ACopyThatIsBeingPersistedIsLostWithItsSource) {
  const models::Cluster cluster = replay_cluster(2, 1);
  for (const double fails : {34.0, 36.0}) {
    EventList events(cluster, 100);
    events.node(fails, EventKind::fail, 1);
    TestPolicy policy;
    policy.levels = {level(Location::cloud, 1, 1, 3)};  // stalls start at 10, 21, 32 s
    run(cluster, events.trace, policy);
    EXPECT_EQ(text(policy.asked.at(0).replicas), fails < 35 ? "1@3-1 4@2 4@1 " : "1@3-1 4@3 4@2 ");
  }
}

TEST(Replay, HostMemoryDiesWithItsNodeAndNotWithItsDevice) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 100);
  events.devices(25, EventKind::fail, {0}).devices(45, EventKind::fail, {1});
  TestPolicy policy;
  policy.levels = {level(Location::host_memory, 1, 0, 0), level(Location::nvme, 2, 0, 0)};
  // Shares lie on the neighboring node.
  policy.levels[1].stored_on = {{2}, {3}, {0}, {1}};
  policy.answer = [&](const models::JobState& state, auto) {
    policy.levels.clear();
    return resume(plan_on(state.live), state.iteration);
  };
  run(cluster, events.trace, policy);
  EXPECT_EQ(text(policy.asked.at(0).replicas), "1@2-0 2@2 3@2 2@1 ");
  EXPECT_EQ(text(policy.asked.at(1).replicas), "1@4-0 2@2-0-1 3@2-2-3 2@1-0-1 ");
}

TEST(Replay, DevicesComeBackEmpty) {
  const models::Cluster cluster = replay_cluster(2, 1);
  EventList events(cluster, 100);
  events.node(25, EventKind::fail, 1).node(40, EventKind::repair, 1);
  TestPolicy policy;
  policy.needs = 2;
  policy.levels = {level(Location::host_memory, 1, 0, 0)};
  run(cluster, events.trace, policy);
  EXPECT_EQ(text(policy.asked.at(1).replicas), "1@2-1 2@2-1 2@1-1 ");
  EXPECT_FALSE(policy.asked.at(1).training);
}

TEST(Replay, CopiesOfIterationsThatWereRolledBackAreForgotten) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 200);
  events.job(55, EventKind::fail).job(60, EventKind::fail);
  TestPolicy policy;
  policy.levels = {level(Location::cloud, 2, 0, 0)};
  policy.answer = [](const models::JobState& state, auto) { return resume(state.plan, 3); };
  run(cluster, events.trace, policy);
  EXPECT_EQ(text(policy.asked.at(0).replicas), "4@4 4@2 ");
  EXPECT_EQ(text(policy.asked.at(1).replicas), "4@2 ");
}

TEST(Replay, AnEventInAnyPhaseInterruptsTheRecovery) {
  const models::Cluster cluster = replay_cluster(1, 4);
  // After the failure at 100 s: detect to 101, decide to 103, move to 113, communicators to 117,
  // warm-up to 122.
  struct Case {
    double second;
    std::vector<double> partial;  ///< Detect, decide, move state, re-initialize.
    const char* replicas;
  };
  for (const Case& c : {Case{100.5, {0.5, 0, 0, 0}, "1@10-3 "}, Case{102, {1, 1, 0, 0}, "1@10-3 "},
                        Case{105, {1, 2, 2, 0}, "1@10-3 "}, Case{113, {1, 2, 10, 0}, "1@10 "},
                        Case{114, {1, 2, 10, 1}, "1@10 "}, Case{121, {1, 2, 10, 8}, "1@10 "}}) {
    EventList events(cluster, 300);
    events.devices(100, EventKind::fail, {3}).devices(c.second, EventKind::repair, {3});
    TestPolicy policy;
    policy.answer = [&](const models::JobState& state, auto) {
      return from_peer(state.iteration, state.live);
    };
    const ReplayResult result = run(cluster, events.trace, policy);
    const double rest = 300 - c.second - 22;
    EXPECT_EQ(walls(result), buckets(100 + rest, 0, 0, 0, 1 + c.partial[0], 2 + c.partial[1],
                                     10 + c.partial[2], 9 + c.partial[3], 0))
        << "event at " << c.second;
    ASSERT_EQ(policy.asked.size(), 2U);
    EXPECT_FALSE(policy.asked[1].training);
    EXPECT_EQ(text(policy.asked[1].replicas), c.replicas) << "event at " << c.second;
    EXPECT_EQ(policy.asked[1].iteration_time.value, 0);  // It does not train.
    ASSERT_EQ(result.log.size(), 1U);
    EXPECT_EQ(result.log[0].stall, seconds(c.second - 100 + 22));
  }
}

TEST(Replay, ARecoveryThatTheHorizonCutsOffStaysBookedByPhase) {
  const models::Cluster cluster = replay_cluster(1, 4);
  EventList events(cluster, 106);
  events.devices(100, EventKind::fail, {3});
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto) {
    return from_peer(state.iteration, state.live);
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(walls(result), buckets(100, 0, 0, 0, 1, 2, 3, 0, 0));
  EXPECT_EQ(result.log.at(0).stall, seconds(6));
}

TEST(Replay, ARecoveryGoesOnWhenThePolicyProceedsAndLatecomersAreToldAtItsEnd) {
  const models::Cluster cluster = replay_cluster(1, 4);
  EventList events(cluster, 300);
  events.devices(100, EventKind::fail, {3}).devices(105, EventKind::repair, {3});
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto) {
    return state.training ? from_peer(state.iteration, state.live) : proceed();
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(walls(result), buckets(256, 0, 0, 0, 2, 4, 20, 18, 0));
  EXPECT_EQ(result.points.back().in_plan, 4);
  // A policy that does not want them is asked once.
  int asked = 0;
  policy.answer = [&](const models::JobState& state, auto events_now) {
    ++asked;
    const bool lost = events_now.front().kind == EventKind::fail;
    return lost ? from_peer(state.iteration, state.live) : proceed();
  };
  const ReplayResult without = run(cluster, events.trace, policy);
  EXPECT_EQ(walls(without), buckets(278, 0, 0, 0, 1, 2, 10, 9, 0));
  EXPECT_EQ(without.points.back().in_plan, 3);
  EXPECT_EQ(asked, 3);
}

TEST(Replay, APlannedSwitchLosesNothing) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 300);
  events.node(52, EventKind::notice, 1, 120).node(172, EventKind::leave, 1);
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto batch) {
    if (batch[0].kind == EventKind::leave) return proceed();
    models::RecoveryDecision decision =
        resume(plan_on(std::vector<int>{0, 1}), 0, {phase(Kind::reinitialize, 4)});
    decision.run_on = seconds(15);
    EXPECT_TRUE(state.training);
    return decision;
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  // Runs on to 67 s, and to the end of the iteration at 70 s.
  EXPECT_EQ(walls(result), buckets(296, 0, 0, 0, 0, 0, 0, 4, 0));
  EXPECT_EQ(result.log.at(0).at, at_second(70));
  EXPECT_EQ(result.log.at(0).rolled_back, 0);
  EXPECT_EQ(result.samples, 7 * 8 + 22 * 4);
}

TEST(Replay, AFailureWhileThePlanRunsOnInterruptsTheSwitch) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 200);
  events.node(52, EventKind::notice, 1, 60).devices(58, EventKind::fail, {0});
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto batch) {
    if (batch[0].kind == EventKind::fail) {
      EXPECT_TRUE(state.training);
      return resume(plan_on(std::vector<int>{1, 2, 3}), state.iteration);
    }
    models::RecoveryDecision decision = resume(plan_on(std::vector<int>{0, 1}), 0);
    decision.run_on = seconds(15);
    return decision;
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(walls(result), buckets(192, 0, 8, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(result.points.back().in_plan, 3);
}

TEST(Replay, ASwitchWhosePlanDiedIsDropped) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 200);
  events.node(0, EventKind::leave, 1).node(20, EventKind::join, 1).node(30, EventKind::leave, 1);
  TestPolicy policy;
  policy.answer = [](const models::JobState&, auto batch) {
    if (batch[0].kind == EventKind::leave) return proceed();
    models::RecoveryDecision decision = resume(plan_on(std::vector<int>{0, 1, 2, 3}), 0);
    decision.run_on = seconds(50);
    return decision;
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(result.interruptions, 0);
  EXPECT_EQ(result.iterations, 20);
}

TEST(Replay, WhatIterationsTakeLongerThanTheReferenceIsDegraded) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 200);
  events.devices(55, EventKind::slow, {1}, 0.5).devices(120, EventKind::restore, {1});
  TestPolicy policy;
  const ReplayResult result = run(cluster, events.trace, policy);
  // The sixth iteration is half done at 55 s: it ends at 65 s. Two more end at 85 and 105 s; the
  // ninth is three quarters done at 120 s and ends at 122.5 s.
  EXPECT_EQ(result.iterations, 16);
  EXPECT_DOUBLE_EQ(wall(result, Bucket::degraded), 5 + 20 + 7.5);
  EXPECT_DOUBLE_EQ(wall(result, Bucket::productive), 200 - 32.5);
  EXPECT_EQ(result.interruptions, 0);
  EXPECT_EQ(policy.asked.at(0).slow.size(), 1U);
}

TEST(Replay, AnIterationThatChangesSpeedTwiceKeepsWhatItHasDone) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 100);
  events.devices(5, EventKind::slow, {1}, 0.01).devices(6, EventKind::restore, {1});
  const ReplayResult result = run(cluster, events.trace, TestPolicy{});
  // Of the first iteration 0.501 is done at 6 s: it ends at 10.99 s, the others each 10 s later.
  EXPECT_EQ(result.iterations, 9);
  EXPECT_NEAR(wall(result, Bucket::degraded), 0.99, 1e-6);
}

TEST(Replay, ASlowJobIsSlowOnAllDevicesOnTopOfSingleOnes) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 200);
  events.devices(10, EventKind::slow, {1}, 0.5).job(20, EventKind::slow, 0.8);
  events.job(30, EventKind::restore);
  TestPolicy policy;
  run(cluster, events.trace, policy);
  using Slow = std::vector<models::SlowDevice>;
  EXPECT_EQ(policy.asked.at(1).slow, (Slow{{{0}, 0.8}, {{1}, 0.4}}));
  EXPECT_EQ(policy.asked.at(2).slow, (Slow{{{1}, 0.5}}));
}

TEST(Replay, ALossIsToldBeforeTheReturnAtTheSameInstant) {
  const models::Cluster cluster = replay_cluster(2, 1);
  EventList events(cluster, 100);
  events.node(45, EventKind::leave, 1).node(45, EventKind::join, 1);
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto) {
    return resume(plan_on(state.live), state.iteration, {phase(Kind::reinitialize, 2)});
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  ASSERT_EQ(policy.asked.size(), 2U);
  EXPECT_EQ(policy.asked[0].live.size(), 1U);
  EXPECT_EQ(text(policy.asked[1].replicas), "1@4-1 ");
  EXPECT_EQ(result.points.back().in_plan, 2);
  EXPECT_EQ(result.interruptions, 1);
}

TEST(Replay, PricesFollowTheTrace) {
  const models::Cluster cluster = replay_cluster(2, 1);
  EventList events(cluster, 100);
  events.node(40, EventKind::restore, 0);
  events.last().price = DollarsPerSecond{2.0};
  events.node(70, EventKind::leave, 1);
  ReplayOptions options;
  options.spot_prices = true;
  const ReplayResult result = run(cluster, events.trace, TestPolicy{}, options);
  EXPECT_DOUBLE_EQ(result.dollars.value, 40 * 2 * 1.2 + 30 * (2.0 + 1.2) + 30 * 2.0);
}

TEST(Replay, DevicesOfStagesThatAreSkippedMayBeDead) {
  const models::Cluster cluster = replay_cluster(1, 3);
  EventList events(cluster, 100);
  events.devices(50, EventKind::fail, {2}).devices(70, EventKind::repair, {2});
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto batch) {
    if (batch[0].kind == EventKind::repair) return proceed();
    auto plan = std::make_shared<ir::Plan>(*state.plan);
    plan->pipelines[2].reroutes = {{0, 0, 0}, {0, 1, 1}};
    return resume(plan, state.iteration);
  };
  const ReplayResult result = run(cluster, events.trace, policy);
  EXPECT_EQ(result.iterations, 10);
  EXPECT_EQ(result.points.back().in_plan, 2);
  EXPECT_EQ(text(policy.asked.at(1).replicas), "1@7-2 ");
}

TEST(Replay, MeasuredPlanningTakesTheTimeOfThePolicy) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 1000);
  events.devices(100, EventKind::fail, {1});
  TestPolicy policy;
  policy.answer = [](const models::JobState& state, auto) {
    return resume(plan_on(state.live), state.iteration, {phase(Kind::decide, 300)});
  };
  ReplayOptions options;
  options.measured_planning = true;
  const ReplayResult result = run(cluster, events.trace, policy, options);
  EXPECT_GT(wall(result, Bucket::decide), 0);
  EXPECT_LT(wall(result, Bucket::decide), 10);
}

TEST(ReplayDeath, ProceedingWithoutADeviceOfThePlanAborts) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 100);
  events.devices(50, EventKind::fail, {1});
  TestPolicy policy;
  policy.answer = [](const models::JobState&, auto) { return proceed(); };
  EXPECT_DEATH(run(cluster, events.trace, policy), "proceeds at .* lost a device");
  policy.answer = [](const models::JobState& state, auto) { return resume(state.plan, 0); };
  EXPECT_DEATH(run(cluster, events.trace, policy), "dead device");
  policy.answer = [](const models::JobState& state, auto) {
    return resume(plan_on(state.live), state.iteration + 1);
  };
  EXPECT_DEATH(run(cluster, events.trace, policy), "resumes from iteration 6");
}

TEST(FixedTimers, FollowTablesAndLoads) {
  const FixedIterationTimer table({{2, 4.0}, {4, 6.0}});
  EXPECT_DOUBLE_EQ(table.time(*plan_on(std::vector<int>{0, 1, 2}), {}).value, 6 / 4.0);
  EXPECT_DOUBLE_EQ(table.time(*plan_on(std::vector<int>{0, 1, 2, 3}), {.slow = {{{3}, 0.5}}}).value,
                   8 / 6.0 * 2);
  const FixedTransferTimer rate(BytesPerSecond{1e9});
  EXPECT_EQ(rate.time({}), Nanoseconds{});
  EXPECT_EQ(rate.time({{Location::cloud, Location::peer, {}, {0}, 1_GB},
                       {Location::cloud, Location::peer, {}, {0}, 2_GB},
                       {Location::peer, Location::cloud, {1}, {}, 2_GB}}),
            seconds(3));
}

}  // namespace
}  // namespace orrery::sim::replay_test
