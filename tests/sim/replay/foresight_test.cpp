// Does a replay look ahead to the plan after the next events, and is the result the same if it
// cannot?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/sim/replay/support.h"

namespace orrery::sim::foresight_test {
namespace {

using ir::EventKind;

/// Says beforehand what it will answer.
class Foreseeing final : public TestPolicy {
 public:
  models::PlanPointer plan_to_prefetch(const models::JobState& state,
                                       Events events) const override {
    foreseen.push_back(state);
    const TestPolicy beside = *this;  // what it is asked here is not asked
    return beside.on_events(state, events).plan;
  }
  mutable std::vector<models::JobState> foreseen;
};

/// Writes down what is asked for, by the devices of the plan; iterations of 10 s.
class Notes final : public IterationTimer {
 public:
  Seconds time(const ir::Plan& plan, const std::vector<models::SlowDevice>&,
               const std::vector<std::pair<std::string, double>>&) const override {
    text += fmt::format("time {} ", ir::devices_of(plan).size());
    return Seconds{10};
  }
  Seconds time_beside(const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
                      const models::DegradedLinks& links,
                      const std::vector<models::StateTransfer>&) const override {
    return time(plan, slow, links);
  }
  void prefetch(const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
                const std::vector<std::pair<std::string, double>>& links) const override {
    text += fmt::format("expect {} ", ir::devices_of(plan).size());
    for (const models::SlowDevice& device : slow) text += fmt::format("slow {} ", device.factor);
    for (const auto& [link, factor] : links) text += fmt::format("{} {} ", link, factor);
  }
  mutable std::string text;
};

std::string notes(const traces::Trace& trace, const models::Cluster& cluster,
                  const models::RecoveryPolicy& policy, const ReplayOptions& options = {}) {
  const Notes iterations;
  const FixedTransferTimer transfers(seconds(7));
  replay({cluster, replay_job(), trace, policy, iterations, transfers}, options);
  return iterations.text;
}

TEST(Foresight, ThePlanAfterTheNextLossIsExpectedWhileTheOneBeforeItRuns) {
  const models::Cluster cluster = replay_cluster(1, 4);
  EventList events(cluster, 1000);
  events.devices(100, EventKind::fail, {3});
  events.devices(500, EventKind::fail, {2});
  const Foreseeing policy;
  EXPECT_EQ(notes(events.trace, cluster, policy),
            "time 4 expect 3 "           // the start
            "expect 3 expect 2 time 3 "  // the first loss
            "expect 2 time 2 ");         // the last one
  ReplayOptions measured;
  measured.measured_planning = true;
  EXPECT_EQ(notes(events.trace, cluster, policy, measured),
            "time 4 expect 3 time 3 expect 2 time 2 ")
      << "a search done beforehand would be missing from what planning takes";
}

TEST(Foresight, LooksPastEventsThatChangeNoPlanAndKnowsTheirHealth) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 1000);
  events.devices(100, EventKind::slow, {0}, 0.5);
  events.link(200, EventKind::degrade, "node0/nic0/up", 0.25);
  events.devices(300, EventKind::fail, {3});
  const Foreseeing policy;
  EXPECT_EQ(notes(events.trace, cluster, policy).substr(0, 44),
            "time 4 expect 3 slow 0.5 node0/nic0/up 0.25 ");
  const models::JobState& then = policy.foreseen.at(2);
  EXPECT_EQ(then.now, at_second(300));
  EXPECT_EQ(then.live.size(), 3U);
  EXPECT_TRUE(then.training);
  EXPECT_FALSE(then.announced);
  ASSERT_EQ(then.replicas.size(), 1U);
  EXPECT_EQ(then.replicas.front().lost_shards, std::vector<std::uint32_t>{3});
}

TEST(Foresight, ASwitchThatTrainingRunsOnToIsExpectedAtOnceAndLookedBeyond) {
  const models::Cluster cluster = replay_cluster(1, 4);
  EventList events(cluster, 1000);
  events.node(100, EventKind::notice, 0, 600);
  events.devices(500, EventKind::fail, {1});
  Foreseeing policy;
  policy.answer = [](const models::JobState& state, auto batch) {
    models::RecoveryDecision decision = resume(plan_on(state.live), state.iteration);
    if (batch[0].kind == EventKind::fail) return decision;
    decision.plan = plan_on(std::vector<int>{0, 1});
    decision.run_on = seconds(50);
    return decision;
  };
  EXPECT_EQ(notes(events.trace, cluster, policy),
            "time 4 expect 2 "    // at the start: what it will answer to the notice
            "expect 2 expect 3 "  // at the notice: the switch, and the loss after it
            "expect 2 time 2 "    // the switch
            "expect 3 time 3 ");  // the loss
  EXPECT_EQ(ir::devices_of(*policy.foreseen.at(1).plan).size(), 2U);
}

TEST(Foresight, EventsAfterTheHorizonAndWaitingJobsAreNotAsked) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 100);
  events.devices(50, EventKind::fail, {0, 1});
  events.devices(120, EventKind::repair, {0, 1});
  Foreseeing policy;
  EXPECT_EQ(notes(events.trace, cluster, policy), "time 2 ");
  EXPECT_EQ(policy.foreseen.size(), 1U);
}

}  // namespace
}  // namespace orrery::sim::foresight_test
