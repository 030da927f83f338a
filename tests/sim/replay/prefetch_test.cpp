// Does a replay look ahead to the plan after the next events, and is the result the same if it
// cannot?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/sim/replay/support.h"

namespace orrery::sim::prefetch_test {
namespace {

using ir::EventKind;

/// Says ahead of time what it will answer.
class PredictablePolicy final : public TestPolicy {
 public:
  models::PlanPointer plan_to_prefetch(const models::JobState& state,
                                       Events events) const override {
    asked_ahead.push_back(state);
    const TestPolicy copy = *this;  // does not count as asked
    return copy.on_events(state, events).plan;
  }
  mutable std::vector<models::JobState> asked_ahead;
};

/// Writes down what it is asked, by the number of devices of the plan; iterations of 10 s.
class Notes final : public IterationTimer {
 public:
  Seconds time(const ir::Plan& plan, const IterationConditions&) const override {
    text += fmt::format("time {} ", ir::devices_of(plan).size());
    return Seconds{10};
  }
  void prefetch(const ir::Plan& plan, const IterationConditions& conditions) const override {
    text += fmt::format("prefetch {} ", ir::devices_of(plan).size());
    for (const auto& device : conditions.slow) text += fmt::format("slow {} ", device.factor);
    for (const auto& [link, factor] : conditions.degraded_links) {
      text += fmt::format("{} {} ", link, factor);
    }
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

TEST(Prefetch, ThePlanAfterTheNextLossIsPrefetchedWhileTheOneBeforeItRuns) {
  const models::Cluster cluster = replay_cluster(1, 4);
  EventList events(cluster, 1000);
  events.devices(100, EventKind::fail, {3});
  events.devices(500, EventKind::fail, {2});
  const PredictablePolicy policy;
  EXPECT_EQ(notes(events.trace, cluster, policy),
            "time 4 prefetch 3 "             // the start
            "prefetch 3 prefetch 2 time 3 "  // the first loss
            "prefetch 2 time 2 ");           // the last one
  ReplayOptions measured;
  measured.measured_planning = true;
  EXPECT_EQ(notes(events.trace, cluster, policy, measured),
            "time 4 prefetch 3 time 3 prefetch 2 time 2 ")
      << "a search done ahead of time would be missing from the measured planning";
}

TEST(Prefetch, LooksPastEventsThatChangeNoPlanAndKnowsTheirHealth) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 1000);
  events.devices(100, EventKind::slow, {0}, 0.5);
  events.link(200, EventKind::degrade, "node0/nic0/up", 0.25);
  events.devices(300, EventKind::fail, {3});
  const PredictablePolicy policy;
  EXPECT_EQ(notes(events.trace, cluster, policy).substr(0, 46),
            "time 4 prefetch 3 slow 0.5 node0/nic0/up 0.25 ");
  const models::JobState& then = policy.asked_ahead.at(2);
  EXPECT_EQ(then.now, at_second(300));
  EXPECT_EQ(then.live.size(), 3U);
  EXPECT_TRUE(then.training);
  EXPECT_FALSE(then.announced);
  ASSERT_EQ(then.replicas.size(), 1U);
  EXPECT_EQ(then.replicas.front().lost_shards, std::vector<std::uint32_t>{3});
}

TEST(Prefetch, APendingSwitchIsPrefetchedAtOnceAndLookedBeyond) {
  const models::Cluster cluster = replay_cluster(1, 4);
  EventList events(cluster, 1000);
  events.node(100, EventKind::notice, 0, 600);
  events.devices(500, EventKind::fail, {1});
  PredictablePolicy policy;
  policy.answer = [](const models::JobState& state, auto batch) {
    models::RecoveryDecision decision = resume(plan_on(state.live), state.iteration);
    if (batch[0].kind == EventKind::fail) return decision;
    decision.plan = plan_on(std::vector<int>{0, 1});
    decision.run_on = seconds(50);
    return decision;
  };
  EXPECT_EQ(notes(events.trace, cluster, policy),
            "time 4 prefetch 2 "      // at the start: what it will answer to the notice
            "prefetch 2 prefetch 3 "  // at the notice: the switch, and the loss after it
            "prefetch 2 time 2 "      // the switch
            "prefetch 3 time 3 ");    // the loss
  EXPECT_EQ(ir::devices_of(*policy.asked_ahead.at(1).plan).size(), 2U);
}

TEST(Prefetch, EventsAfterTheHorizonAndWaitingJobsAreNotAsked) {
  const models::Cluster cluster = replay_cluster(1, 2);
  EventList events(cluster, 100);
  events.devices(50, EventKind::fail, {0, 1});
  events.devices(120, EventKind::repair, {0, 1});
  PredictablePolicy policy;
  EXPECT_EQ(notes(events.trace, cluster, policy), "time 2 ");
  EXPECT_EQ(policy.asked_ahead.size(), 1U);
}

}  // namespace
}  // namespace orrery::sim::prefetch_test
