// What several jobs come to under one trace of failures when they slow each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/replay/replay_together.h"
#include "tests/sim/replay/support.h"
#include "traces/split.h"

namespace orrery::sim::together_test {
namespace {

using ir::EventKind;

/// All jobs take `factor` times as long as soon as two train.
class Constant final : public InterferenceTimer {
 public:
  explicit Constant(double factor) : factor_(factor) {}
  std::vector<double> slowdowns(std::span<const RunningJob> running) const override {
    asked.emplace_back();
    for (const RunningJob& one : running) asked.back().push_back(one.job);
    return std::vector<double>(running.size(), running.size() > 1 ? factor_ : 1.0);
  }
  mutable std::vector<std::vector<std::size_t>> asked;

 private:
  double factor_;
};

/// Jobs on nodes 0 and 1, and 2 and 3, of two GPUs each.
struct World {
  models::Cluster cluster = replay_cluster(4, 2);
  models::Job job = replay_job();
  std::vector<TestPolicy> policies{2};
  FixedIterationTimer iterations{Seconds{10}};
  FixedTransferTimer transfers{seconds(7)};

  std::vector<traces::Trace> traces_of(const traces::Trace& trace) const {
    std::vector<std::vector<DeviceId>> parts(2);
    for (const models::Device& device : cluster.devices) {
      parts[device.id.value < 4 ? 0 : 1].push_back(device.id);
    }
    return traces::split(trace, cluster, parts);
  }
  std::vector<JobReplay> run(const traces::Trace& trace,
                             const InterferenceTimer& interference) const {
    const std::vector<traces::Trace> own = traces_of(trace);
    std::vector<ReplayInput> inputs;
    for (std::size_t i = 0; i < 2; ++i) {
      inputs.push_back({cluster, job, own[i], policies[i], iterations, transfers});
    }
    return replay_together(inputs, {.horizon = {}, .record_spans = true}, interference);
  }
};

std::vector<std::int64_t> key(const ReplayResult& result) {
  std::vector<std::int64_t> all = {result.iterations, result.samples, result.events,
                                   result.interruptions, result.decisions};
  for (const Nanoseconds part : result.wall) all.push_back(part.count);
  for (const ReplaySpan& span : result.spans) all.push_back(span.end.nanoseconds);
  return all;
}

TEST(ReplayTogether, WithoutInterferenceEachJobComesToWhatItComesToAlone) {
  World world;
  EventList events(world.cluster, 5000);
  events.node(105, EventKind::fail, 0).node(733, EventKind::fail, 3);
  events.node(1111, EventKind::repair, 0).node(2222, EventKind::leave, 2);
  events.job(3000, EventKind::fail);
  for (TestPolicy& policy : world.policies) {
    policy.levels = {level(ir::Location::cloud, 5, 1, 4)};
    policy.answer = nullptr;
  }
  const std::vector<JobReplay> both = world.run(events.trace, Constant(1));
  const std::vector<traces::Trace> own = world.traces_of(events.trace);
  for (std::size_t i = 0; i < 2; ++i) {
    const ReplayResult alone = replay(
        {world.cluster, world.job, own[i], world.policies[i], world.iterations, world.transfers},
        {.horizon = {}, .record_spans = true});
    EXPECT_EQ(key(both[i].result), key(alone)) << "job " << i;
    EXPECT_EQ(both[i].lost_to_others.value, 0);
    EXPECT_GT(alone.interruptions, 0);
  }
}

TEST(ReplayTogether, IterationsTakeLongerForAsLongAsTheOtherJobTrains) {
  World world;
  for (TestPolicy& policy : world.policies) policy.needs = 4;
  EventList events(world.cluster, 2000);
  events.node(1000, EventKind::fail, 2);  // The second job waits from then on.
  const Constant half(2);
  const std::vector<JobReplay> both = world.run(events.trace, half);
  // 20 s an iteration until then, 10 s after it.
  EXPECT_EQ(both[0].result.iterations, 1000 / 20 + 1000 / 10);
  EXPECT_EQ(both[1].result.iterations, 1000 / 20);
  EXPECT_NEAR(both[0].lost_to_others.value, 500, 1e-6);
  EXPECT_NEAR(both[1].lost_to_others.value, 500, 1e-6);
  // The reference is an iteration alone: what the other costs is degraded time.
  EXPECT_DOUBLE_EQ(both[0].result.reference.value, 10);
  EXPECT_NEAR(wall(both[0].result, Bucket::degraded), 500, 1e-6);
  EXPECT_EQ(half.asked, (std::vector<std::vector<std::size_t>>{{0, 1}, {0}}));
}

TEST(ReplayTogether, ARecoveryOfTheOtherJobGivesTimeBackToTheNanosecond) {
  World world;
  world.policies[1].answer = [](const models::JobState& state, TestPolicy::Events) {
    return resume(plan_on(std::vector<int>{4, 5}), state.iteration,
                  {phase(models::RecoveryPhase::Kind::detect, 100)});
  };
  EventList events(world.cluster, 2100);
  events.node(1000, EventKind::fail, 3);
  const std::vector<JobReplay> both = world.run(events.trace, Constant(2));
  // 100 s in which the other recovers.
  EXPECT_EQ(both[0].result.iterations, 1000 / 20 + 100 / 10 + 1000 / 20);
  EXPECT_EQ(both[1].result.iterations, 1000 / 20 + 1000 / 20);
}

TEST(Split, AnAbsentNodeThatTwoJobsShareIsAbsentForBoth) {
  const models::Cluster cluster = replay_cluster(2, 2);
  EventList events(cluster, 100);
  events.node(50, EventKind::join, 1);
  const std::vector<traces::Trace> parts =
      traces::split(events.trace, cluster, {{{0}, {1}, {2}}, {{3}}});
  EXPECT_EQ(parts[0].events.front().scope.devices, (std::vector<DeviceId>{{2}, {3}}));
  EXPECT_EQ(parts[0].events.back().scope.devices, std::vector<DeviceId>{{2}});
  EXPECT_EQ(parts[1].events.front().scope.devices, (std::vector<DeviceId>{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(parts[1].events.back().scope.devices, std::vector<DeviceId>{{3}});
}

TEST(Split, GivesEachPartItsOwnEventsAndTheGpusOfOthersLeaveAtTheStart) {
  const models::Cluster cluster = replay_cluster(3, 2);
  EventList events(cluster, 100);
  events.node(1, EventKind::fail, 0).node(2, EventKind::fail, 1).node(3, EventKind::fail, 2);
  events.devices(4, EventKind::slow, {1, 2}, 0.5).link(5, EventKind::degrade, "x", 0.5);
  events.job(6, EventKind::slow, 0.9);
  for (int i = 0; i < 60; ++i) events.job(10 + i, EventKind::fail);
  // Half of node 1 each; node 2 is nobody's.
  const std::vector<traces::Trace> parts =
      traces::split(events.trace, cluster, {{{0}, {1}, {2}}, {{3}}});
  ASSERT_EQ(parts.size(), 2U);
  const auto count = [](const traces::Trace& trace, EventKind kind, ir::EventScope::Kind scope) {
    return std::count_if(trace.events.begin(), trace.events.end(), [&](const auto& event) {
      return event.kind == kind && event.scope.kind == scope;
    });
  };
  using Scope = ir::EventScope::Kind;
  EXPECT_EQ(parts[0].events.front().scope.devices, (std::vector<DeviceId>{{3}, {4}, {5}}));
  EXPECT_EQ(parts[1].events.front().scope.devices,
            (std::vector<DeviceId>{{0}, {1}, {2}, {4}, {5}}));
  EXPECT_EQ(count(parts[0], EventKind::fail, Scope::node), 1);
  EXPECT_EQ(count(parts[0], EventKind::fail, Scope::devices), 1);
  EXPECT_EQ(count(parts[1], EventKind::fail, Scope::node), 0);
  EXPECT_EQ(count(parts[1], EventKind::fail, Scope::devices), 1);
  EXPECT_EQ(count(parts[0], EventKind::slow, Scope::devices), 1);
  EXPECT_EQ(count(parts[1], EventKind::slow, Scope::devices), 0);
  for (const traces::Trace& part : parts) {
    EXPECT_EQ(count(part, EventKind::degrade, Scope::link), 1);
    EXPECT_EQ(count(part, EventKind::slow, Scope::job), 1);
  }
  // Three of six GPUs, one of six, two of six: failures of the job go where their GPU is.
  const auto first = count(parts[0], EventKind::fail, Scope::job);
  const auto second = count(parts[1], EventKind::fail, Scope::job);
  EXPECT_GT(first, second);
  EXPECT_GT(second, 0);
  EXPECT_LT(first + second, 60);
}

}  // namespace
}  // namespace orrery::sim::together_test
