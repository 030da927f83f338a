// Does a whole replay of generated failures and of spot machines run through under every policy,
// with all wall and device time accounted for, and the same again? Replay aborts where a decision
// breaks the contract of RecoveryDecision.
#include "sim/replay/replay.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "models/spec/library.h"
#include "sim/replay/fixed_timer.h"
#include "tests/planners/recovery/family.h"
#include "traces/generate/generate.h"

namespace orrery::planners::replay_test {
namespace {

constexpr std::uint64_t kSeeds = 20;
constexpr std::int64_t kHour = std::int64_t{3600} * 1'000'000'000;

traces::TraceGenerator generator(const char* name, const std::vector<std::string>& changes) {
  config::Diagnostics diagnostics;
  traces::TraceGenerator made =
      traces::load_generator(name, models::default_library_root(), changes, {}, {}, diagnostics);
  diagnostics.raise();
  return made;
}

/// About 40 failures, 4 announced maintenances and 4 slow devices a day.
traces::TraceGenerator failures() { return generator("llama3", {"failures.rate=6000"}); }

/// Machines that stay for three hours and come back after one, most announced.
traces::TraceGenerator spot(double notice) {
  traces::TraceGenerator made = generator("spot", {});
  for (traces::SpotType& type : made.spot) {
    type.leaves_per_hour = 0.3;
    type.away = Seconds{3600};
    type.burst = 1.5;
    type.start = 1.0;
    type.notice = Seconds{notice};
  }
  return made;
}

/// A policy that does not say beforehand what it will answer.
class Shortsighted final : public models::RecoveryPolicy {
 public:
  explicit Shortsighted(const models::RecoveryPolicy& policy) : policy_(policy) {}
  std::string name() const override { return policy_.name(); }
  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const override {
    return policy_.first_plan(live);
  }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds time) const override {
    return policy_.checkpoints(plan, time);
  }
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const override {
    return policy_.on_events(state, events);
  }

 private:
  const models::RecoveryPolicy& policy_;
};

class ReplayedPolicy : public testing::TestWithParam<const RecoveryEntry*> {
 protected:
  sim::ReplayResult replay(const models::RecoveryPolicy& policy,
                           const traces::TraceGenerator& generator, std::uint64_t seed) const {
    const traces::Trace trace = traces::generate(
        generator, traces::nodes_of_cluster(world_->cluster), Nanoseconds{24 * kHour}, seed);
    const sim::FixedIterationTimer iterations({{1, 0.5}, {2, 1}, {4, 1.9}, {6, 2.7}, {8, 3.4}});
    const sim::FixedTransferTimer transfers(BytesPerSecond{1e8});
    return sim::replay({world_->cluster, world_->job, trace, policy, iterations, transfers}, {});
  }

  std::unique_ptr<World> world_ = recovery_world();
  PolicyInput input_ = policy_input(*world_);
};

void expect_accounted(const sim::ReplayResult& result, std::int64_t devices) {
  const std::int64_t sum =
      std::accumulate(result.wall.begin(), result.wall.end(), std::int64_t{0},
                      [](std::int64_t all, Nanoseconds one) { return all + one.count; });
  EXPECT_EQ(sum, result.horizon.count);
  const auto& hours = result.device_hours;
  const double all =
      std::accumulate(hours.in_plan.begin(), hours.in_plan.end(), 0.0) + hours.spare + hours.absent;
  EXPECT_NEAR(all, to_seconds(result.horizon).value / 3600 * static_cast<double>(devices), 1e-6);
  EXPECT_GE(result.ettr, 0);
  EXPECT_LE(result.ettr, 1);
  EXPECT_GT(result.events, 20) << "nothing happened";
}

void expect_same(const sim::ReplayResult& a, const sim::ReplayResult& b) {
  EXPECT_EQ(a.wall, b.wall);
  EXPECT_EQ(a.iterations, b.iterations);
  EXPECT_EQ(a.device_hours.in_plan, b.device_hours.in_plan);
  ASSERT_EQ(a.log.size(), b.log.size());
  for (std::size_t i = 0; i < a.log.size(); ++i) {
    EXPECT_EQ(a.log[i].at, b.log[i].at);
    EXPECT_EQ(a.log[i].reason, b.log[i].reason);
    EXPECT_EQ(a.log[i].stall, b.log[i].stall);
  }
}

TEST_P(ReplayedPolicy, AccountsForAllTimeUnderFailuresAndSpotMachinesAndDoesTheSameAgain) {
  const auto policy = make_policy(GetParam()->name, input_);
  ASSERT_NE(policy, nullptr);
  for (const traces::TraceGenerator& made : {failures(), spot(120), spot(1800)}) {
    std::int64_t iterations = 0;
    std::string last;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(made.name + ", seed " + std::to_string(seed));
      const sim::ReplayResult result = replay(*policy, made, seed);
      expect_accounted(result, world_->cluster.size());
      iterations += result.iterations;
      if (!result.log.empty()) last = result.log.back().reason;
      if (seed > 1) continue;
      const auto fresh = make_policy(GetParam()->name, input_);
      expect_same(result, replay(Shortsighted(*fresh), made, seed));
    }
    EXPECT_GT(iterations, 0) << made.name << ": it never trained; last: " << last;
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, ReplayedPolicy,
                         testing::ValuesIn(recovery_catalog().begin(), recovery_catalog().end()),
                         [](const auto& entry) { return std::string(entry.param->name); });

}  // namespace
}  // namespace orrery::planners::replay_test
