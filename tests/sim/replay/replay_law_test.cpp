// Laws of the engine: whatever a trace and a policy do, every nanosecond is accounted for once;
// jumping over iterations and checkpoints gives what walking gives.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/rng.h"
#include "tests/sim/replay/support.h"

namespace orrery::sim::replay_law_test {
namespace {

using ir::EventKind;
using ir::Location;
using Kind = models::RecoveryPhase::Kind;

/// Any legal decision, drawn again for each (seed, instant).
class RandomPolicy final : public models::RecoveryPolicy {
 public:
  explicit RandomPolicy(std::uint64_t seed) : rng_(seed) {}
  std::string name() const override { return "random"; }

  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const override {
    Rng rng = rng_.fork(1);
    if (live.empty() || rng.bernoulli(0.2)) return models::Infeasible{"random", "no"};
    return some_of(live, rng);
  }

  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds time) const override {
    Rng rng = rng_.fork(static_cast<std::uint64_t>(plan.pipelines.size() * 1000 + 7) +
                        static_cast<std::uint64_t>(time.value * 1e6));
    std::vector<models::CheckpointLevel> levels;
    const auto count = rng.integer(0, 3);
    for (int i = 0; i < count; ++i) {
      const Location location = std::vector<Location>{Location::host_memory, Location::nvme,
                                                      Location::cloud}[rng.integer(0, 2)];
      levels.push_back(level(location, rng.integer(1, 6), rng.bernoulli(0.3) ? 0 : rng.uniform(),
                             rng.uniform() * 30));
      if (rng.bernoulli(0.5)) {
        levels.back().background = {
            {Location::host_memory, Location::cloud, {0}, {}, Bytes{rng.uniform() * 1e11}}};
      }
    }
    return levels;
  }

  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const override {
    Rng rng = rng_.fork(static_cast<std::uint64_t>(state.now.nanoseconds) ^ 0x5bd1e995);
    const bool job = std::any_of(events.begin(), events.end(), [](const auto& event) {
      return event.kind == EventKind::fail && event.scope.kind == ir::EventScope::Kind::job;
    });
    const bool intact = state.plan != nullptr && !job && lives(*state.plan, state.live);
    if (intact && state.training && rng.bernoulli(0.4)) return proceed();
    if (state.live.empty() || rng.bernoulli(0.2)) return wait();
    models::RecoveryDecision decision =
        resume(some_of(state.live, rng), rng.integer(0, state.iteration));
    if (intact && state.training && rng.bernoulli(0.3)) {
      decision.run_on = seconds(rng.uniform() * 60);
    }
    for (const Kind kind : {Kind::detect, Kind::decide, Kind::move_state, Kind::reinitialize}) {
      if (rng.bernoulli(0.3)) continue;
      decision.phases.push_back(phase(kind, rng.bernoulli(0.2) ? 0 : rng.uniform() * 20));
      if (kind == Kind::move_state) {
        decision.transfers = {{Location::cloud, Location::peer, {}, state.live.back(), 1_GB}};
      }
    }
    return decision;
  }

 private:
  static bool lives(const ir::Plan& plan, const std::vector<DeviceId>& live) {
    const std::vector<DeviceId> devices = ir::devices_of(plan);
    return std::includes(live.begin(), live.end(), devices.begin(), devices.end());
  }
  static models::PlanPointer some_of(const std::vector<DeviceId>& live, Rng& rng) {
    std::vector<DeviceId> chosen;
    for (const DeviceId device : live) {
      if (rng.bernoulli(0.7)) chosen.push_back(device);
    }
    if (chosen.empty()) chosen.push_back(live.front());
    return plan_on(chosen);
  }

  Rng rng_;
};

traces::Trace random_trace(const models::Cluster& cluster, Rng rng) {
  EventList events(cluster, 100 + 1900 * rng.uniform());
  const double whole = rng.bernoulli(0.5) ? 10 : 1e-9;  // ends of iterations, or anywhere
  const auto count = rng.integer(0, 40);
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    times.push_back(std::floor(rng.uniform() * 2100 / whole) * whole);
  }
  std::sort(times.begin(), times.end());
  for (const double time : times) {
    const auto what = rng.integer(0, 9);
    const int device = static_cast<int>(rng.integer(0, cluster.size() - 1));
    const int node =
        static_cast<int>(rng.integer(0, static_cast<std::int64_t>(cluster.nodes.size()) - 1));
    switch (what) {
      case 0:
        events.devices(time, EventKind::fail, {device});
        break;
      case 1:
        events.devices(time, EventKind::repair, {device});
        break;
      case 2:
        events.node(time, EventKind::notice, node, 30);
        break;
      case 3:
        events.node(time, EventKind::leave, node);
        break;
      case 4:
        events.node(time, EventKind::join, node);
        break;
      case 5:
        events.devices(time, EventKind::slow, {device}, 0.3 + 0.6 * rng.uniform());
        break;
      case 6:
        events.devices(time, EventKind::restore, {device});
        break;
      case 7:
        events.job(time, EventKind::fail);
        break;
      case 8:
        events.job(time, EventKind::slow, 0.9);
        break;
      default:
        events.link(time, EventKind::degrade, "node0/nic0/up", 0.5);
        break;
    }
    if (rng.bernoulli(0.2)) events.last().price = DollarsPerSecond{rng.uniform()};
  }
  return events.trace;
}

RC_GTEST_PROP(ReplayLaw, EveryNanosecondIsBookedOnce, (bool background)) {
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  const models::Cluster cluster = replay_cluster(3, 2);
  const traces::Trace trace = random_trace(cluster, Rng(seed));
  const RandomPolicy policy(seed);
  ReplayOptions options;
  options.background_transfers = background;
  const ReplayResult result = run(cluster, trace, policy, options);

  Nanoseconds sum;
  for (const Nanoseconds part : result.wall) sum += part;
  RC_ASSERT(sum == trace.horizon);
  std::array<Nanoseconds, kBuckets> spans{};
  Instant at;
  std::int64_t counted = 0;
  for (const ReplaySpan& span : result.spans) {
    RC_ASSERT(span.start == at);
    RC_ASSERT(span.end > span.start);
    spans[index_of(span.bucket)] += span.end - span.start;
    if (span.bucket == Bucket::productive) counted += span.iterations;
    at = span.end;
  }
  RC_ASSERT(at == Instant{trace.horizon.count});
  RC_ASSERT(spans == result.wall);
  RC_ASSERT(counted == result.iterations);

  double hours = result.device_hours.spare + result.device_hours.absent;
  for (const double part : result.device_hours.in_plan) hours += part;
  const double expected = cluster.size() * to_seconds(trace.horizon).value / 3600;
  RC_ASSERT(std::abs(hours - expected) <= 1e-9 * expected);
  for (std::size_t i = 1; i < result.points.size(); ++i) {
    RC_ASSERT(result.points[i - 1].at < result.points[i].at);
  }
  Nanoseconds stalls, accounted;
  for (const InterruptionRecord& record : result.log) stalls += record.stall;
  for (const Bucket bucket :
       {Bucket::detect, Bucket::decide, Bucket::move_state, Bucket::reinitialize, Bucket::idle}) {
    accounted += result.wall[index_of(bucket)];
  }
  RC_ASSERT(stalls <= accounted);  // what comes before the first training is in no record
  if (result.first_plan_problem.empty()) RC_ASSERT(stalls == accounted);
}

RC_GTEST_PROP(ReplayLaw, EqualInputsGiveEqualResults, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  const models::Cluster cluster = replay_cluster(3, 2);
  const traces::Trace trace = random_trace(cluster, Rng(seed));
  const auto text = [&] {
    const ReplayResult result = run(cluster, trace, RandomPolicy(seed));
    std::string out = fmt::format("{:a} {} {} {}\n", result.dollars.value, result.iterations,
                                  result.samples, result.decisions);
    for (const ReplaySpan& span : result.spans) {
      out += fmt::format("{} {} {} {}\n", name_of(span.bucket), span.start.nanoseconds,
                         span.iterations, span.what);
    }
    return out;
  };
  RC_ASSERT(text() == text());
}

/// Iteration by iteration, checkpoint by checkpoint.
struct Walk {
  std::int64_t done = 0;
  std::int64_t checkpoint = 0;
  std::string replicas;  ///< At the end.

  Walk(std::int64_t iteration, const std::vector<models::CheckpointLevel>& levels,
       std::int64_t end) {
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> written(levels.size());
    for (std::int64_t now = 0; now + iteration <= end;) {
      now += iteration;
      ++done;
      for (std::size_t i = 0; i < levels.size(); ++i) {
        if (done % levels[i].every != 0) continue;
        const std::int64_t before = written[i].empty() ? 0 : written[i].back().second;
        const std::int64_t start = std::max(now, before);
        const std::int64_t stop = start + levels[i].stall.count;
        checkpoint += std::min(stop, end) - now;
        now = stop;
        if (stop > end) break;
        written[i].push_back({done, start + std::max(levels[i].stall, levels[i].persist).count});
      }
    }
    for (std::size_t i = 0; i < levels.size(); ++i) {
      std::erase_if(written[i], [&](const auto& one) { return one.second > end; });
      const std::size_t size = written[i].size();
      for (std::size_t k = size; k-- > (size > 2 ? size - 2 : 0);) {
        replicas += fmt::format("{}@{} ", i, written[i][k].first);
      }
    }
  }
};

RC_GTEST_PROP(ReplayLaw, JumpsGiveWhatWalkingGives, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  Rng rng(seed);
  const models::Cluster cluster = replay_cluster(1, 1);
  TestPolicy policy;
  // One level for each location, so that replicas tell their level.
  const std::vector<Location> locations = {Location::host_memory, Location::nvme, Location::cloud};
  const auto count = rng.integer(0, 3);
  for (int i = 0; i < count; ++i) {
    policy.levels.push_back(level(locations[i], rng.integer(1, 9),
                                  static_cast<double>(rng.integer(0, 4)) / 2,
                                  static_cast<double>(rng.integer(0, 120)) / 2));
  }
  const double end = static_cast<double>(rng.integer(1, 20000)) / 2;
  EventList events(cluster, end);
  events.node(end, EventKind::notice, 0, 1e6);
  events.trace.horizon = seconds(end + 1);
  run(cluster, events.trace, policy);
  events.trace.events.clear();
  events.trace.horizon = seconds(end);
  const ReplayResult result = run(cluster, events.trace, policy);

  const Walk walk(10 * kSecond, policy.levels, seconds(end).count);
  RC_ASSERT(result.iterations == walk.done);
  RC_ASSERT(result.wall[index_of(Bucket::checkpoint)].count == walk.checkpoint);
  std::string replicas;
  for (std::size_t i = 0; i < policy.levels.size(); ++i) {
    for (const models::StateReplica& replica : policy.asked.at(0).replicas) {
      if (replica.location == locations[i]) replicas += fmt::format("{}@{} ", i, replica.iteration);
    }
  }
  RC_ASSERT(replicas == walk.replicas);
}

/// An interval of time is another number of iterations under each plan.
RC_GTEST_PROP(ReplayLaw, PlansThatChangeDoNotPutOffACheckpoint, ()) {
  Rng rng(*rc::gen::arbitrary<std::uint32_t>());
  const models::Cluster cluster = replay_cluster(4, 1);
  std::array<std::int64_t, 4> every{};
  for (std::int64_t& one : every) one = rng.integer(20, 60);
  TestPolicy policy;
  policy.levels = {level(Location::cloud, 1, 1, 1)};
  policy.every = [&](const ir::Plan& plan) { return every[ir::devices_of(plan).size() - 1]; };
  EventList events(cluster, 6000);
  for (int node = 1; node < 4; ++node) {
    double now = 0;
    while ((now += static_cast<double>(rng.integer(20, 900))) < 5900) {
      events.node(now, EventKind::leave, node);
      if ((now += static_cast<double>(rng.integer(20, 900))) >= 5900) break;
      events.node(now, EventKind::join, node);
    }
  }
  std::stable_sort(events.trace.events.begin(), events.trace.events.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  for (std::size_t i = 0; i < events.trace.events.size(); ++i) {
    events.trace.events[i].sequence = static_cast<std::int64_t>(i);
  }
  run(cluster, events.trace, policy);
  const std::int64_t most = *std::max_element(every.begin(), every.end());
  for (const models::JobState& state : policy.asked) {
    std::int64_t newest = 0;
    for (const models::StateReplica& replica : state.replicas) {
      if (replica.location == Location::cloud) newest = std::max(newest, replica.iteration);
    }
    RC_ASSERT(state.iteration - newest <= most);
  }
}

}  // namespace
}  // namespace orrery::sim::replay_law_test
