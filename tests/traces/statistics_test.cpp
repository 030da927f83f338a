#include "traces/statistics.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/traces/support.h"

namespace orrery::traces::statistics_test {
namespace {

TraceStatistics of(const std::string& text) { return statistics_of(read_text(text)); }

TEST(TraceStatistics, OfASmallTraceByHand) {
  config::Diagnostics diagnostics;
  std::vector<AvailabilityPoint> points;
  const TraceStatistics s = statistics_of_file(
      "tests/traces/small.csv", [](const Trace&) {},
      [&](const AvailabilityPoint& point) { points.push_back(point); }, diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << all(diagnostics);
  EXPECT_EQ(s.events, 12);
  EXPECT_EQ(s.failures, 3);
  EXPECT_EQ(s.unexpected, 3);
  EXPECT_EQ(s.announced, 1);
  EXPECT_DOUBLE_EQ(s.mtbf_hours, 10.0 / 3);
  // a1 is gone from 7320 s to 4 h, h0 from 7 h on, one GPU of a0 from 1 h to 5 h.
  const double away = 4 - 7320.0 / 3600;
  EXPECT_NEAR(s.all.node_hours, 30 - away - 3, 1e-9);
  EXPECT_NEAR(s.all.gpu_hours, 240 - 8 * away - 24 - 4, 1e-9);
  EXPECT_NEAR(s.mttf_1024_gpus_hours, s.all.gpu_hours / 1024 / 3, 1e-12);
  EXPECT_NEAR(s.per_1000_node_days, 3 / (s.all.node_hours / 24) * 1000, 1e-9);
  ASSERT_EQ(s.types.size(), 2u);
  EXPECT_EQ(s.types[0].gpu_type, "A100-80GB");
  EXPECT_EQ(s.types[1].departures, 1);
  EXPECT_NEAR(s.types[1].mean_nodes, 0.7, 1e-12);
  EXPECT_NEAR(s.types[1].quantiles.front().devices, 0, 1e-12);
  EXPECT_NEAR(s.types[1].quantiles[3].devices, 0, 1e-12);  // p25: gone for 30 % of the time.
  EXPECT_NEAR(s.types[1].quantiles[4].devices, 1, 1e-12);  // p50
  // Start, end, and a change each: 2 + 2 of the types, 4 of A100s, 1 of H800s.
  ASSERT_EQ(points.size(), 9u);
  EXPECT_EQ(points[2].devices, 15);
  EXPECT_EQ(points[3].devices, 7);
  EXPECT_EQ(points.back().devices, 0);
}

TEST(TraceStatistics, PublishedLlama3FiguresFollowFromTheCounts) {
  const Trace trace = generate(library_generator("llama3", {"failures.conditioned=true"}),
                               equal_nodes(2048, 8, "H100-80GB"), days(54), 1);
  const TraceStatistics s = statistics_of(trace);
  EXPECT_EQ(s.unexpected, 419);
  EXPECT_EQ(s.announced, 47);
  EXPECT_NEAR(s.mtbf_hours, 3.09, 0.005);          // 54 d / 419
  EXPECT_NEAR(s.per_1000_node_days, 3.79, 0.03);   // 419 / (54 x 2048)
  EXPECT_NEAR(s.mttf_1024_gpus_hours, 49.5, 0.3);  // 16 times the MTBF of 16,384
}

TEST(TraceStatistics, WithoutEventsEverythingIsThere) {
  const TraceStatistics s =
      of("# schema: orrery/trace/1\n# horizon: 1 h\n# nodes: a{0..3} x2\ntime,kind\n");
  EXPECT_EQ(s.all.mean_devices, 1);
  EXPECT_EQ(s.mtbf_hours, 0);
  EXPECT_EQ(s.all.gpu_hours, 8);
  EXPECT_EQ(s.all.quantiles.front().nodes, 1);
}

TEST(TraceStatistics, UnannouncedLeavesAreInterruptionsOnceAnInstant) {
  const TraceStatistics s =
      of("# schema: orrery/trace/1\n# horizon: 100\n# nodes: a{0..4}\ntime,kind,scope,notice\n"
         "10,leave,node:a0\n10,leave,node:a1\n20,notice,node:a2,30\n20,notice,node:a3,30\n"
         "50,leave,node:a2\n50,leave,node:a3\n60,notice,node:a4,5\n60,join,node:a0\n"
         "65,leave,node:a4\n65,leave,node:a0\n");
  EXPECT_EQ(s.unexpected, 2);  // At 10, and at 65 because of a0.
  EXPECT_EQ(s.announced, 1);
  EXPECT_EQ(s.all.departures, 6);
  EXPECT_EQ(s.all.bursts, 3);
  EXPECT_EQ(s.all.mean_burst, 2);
}

}  // namespace
}  // namespace orrery::traces::statistics_test
