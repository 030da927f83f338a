// Do background transfers of checkpoints slow the iterations that they overlap with, and no others?
#include <gtest/gtest.h>

#include "tests/sim/replay/support.h"

namespace orrery::sim::background_test {
namespace {

using ir::EventKind;
using ir::Location;

/// Stalls of 2 s, then transfers of 40 GB for 20 s.
models::CheckpointLevel with_transfers(std::int64_t every) {
  models::CheckpointLevel result = level(Location::cloud, every, 2, 22);
  result.background = {{Location::host_memory, Location::cloud, {0}, {}, 10_GB},
                       {Location::host_memory, Location::cloud, {1}, {}, 30_GB}};
  return result;
}

TEST(Background, TransfersSlowTheWholeIterationsThatTheyTake) {
  const models::Cluster cluster = replay_cluster(1, 2);
  // Five of 10 s; then, after each checkpoint, two of 12 s (20 s of transfers, 2 GB/s) and three.
  const EventList events(cluster, 52 + 3 * (2 * 12 + 3 * 10 + 2));
  TestPolicy policy;
  policy.levels = {with_transfers(5)};
  ReplayOptions options;
  options.background_transfers = true;
  const ReplayResult result = run(cluster, events.trace, policy, options);
  EXPECT_EQ(result.iterations, 20);
  EXPECT_EQ(wall(result, Bucket::productive), 200);
  EXPECT_EQ(wall(result, Bucket::degraded), 12);
  EXPECT_EQ(wall(result, Bucket::checkpoint), 8);
  options.background_transfers = false;
  const ReplayResult without = run(cluster, events.trace, policy, options);
  EXPECT_EQ(wall(without, Bucket::degraded), 0);
}

TEST(Background, TransfersWithoutAPauseSlowAllIterationsAndCyclesAreSkipped) {
  const models::Cluster cluster = replay_cluster(1, 2);
  constexpr int kCycles = 100'000;
  const EventList events(cluster, 22 + kCycles * (2 * 12.0 + 2));
  TestPolicy policy;
  policy.levels = {with_transfers(2)};
  policy.levels.front().persist = seconds(19);  // less than the two iterations that they overlap
  ReplayOptions options;
  options.background_transfers = true;
  const ReplayResult result = run(cluster, events.trace, policy, options);
  EXPECT_EQ(result.iterations, 2 + 2 * kCycles);
  EXPECT_EQ(wall(result, Bucket::degraded), 4 * kCycles);
  EXPECT_EQ(wall(result, Bucket::checkpoint), 2 * (kCycles + 1));
}

TEST(Background, TransfersOutliveAChangeOfSpeedAndEndWithTheirPlan) {
  const models::Cluster cluster = replay_cluster(1, 4);
  EventList events(cluster, 124);
  events.devices(57, EventKind::slow, {0}, 0.5);
  events.devices(76, EventKind::fail, {3});
  TestPolicy policy;
  policy.levels = {with_transfers(5)};
  ReplayOptions options;
  options.background_transfers = true;
  const ReplayResult result = run(cluster, events.trace, policy, options);
  // The sixth begins at 52 s with 12 s and has 7 of them left; they become 7/12 of 20 + 2 s. The
  // seventh, still slowed by the transfers, is lost; then two of 20 s without any.
  EXPECT_NEAR(wall(result, Bucket::rolled_back), 76 - (57 + 7 * 22 / 12.0), 1e-6);
  EXPECT_EQ(result.iterations, 6 + 2);
}

}  // namespace
}  // namespace orrery::sim::background_test
