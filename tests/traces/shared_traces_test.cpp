// Published traces and tables below $ORRERY_DATA, which a bare clone lacks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/traces/support.h"
#include "traces/generate/generate.h"
#include "traces/import/import.h"
#include "traces/presence.h"
#include "traces/statistics.h"

namespace orrery::traces::shared_traces_test {
namespace {

TEST(SharedTraces, HaveTheirPublishedCounts) {
  const std::string p3 = shared_trace("bamboo/p3-trace.csv");
  if (p3.empty()) GTEST_SKIP() << "no traces below $ORRERY_DATA (default ../shared)";
  const TraceStatistics s = statistics_of(import_file("bamboo", p3));
  // 177 adds, 167 removes in 79 bursts, mean 24.0 nodes, at most 32, over 11.4 h.
  EXPECT_EQ(s.all.departures, 167);
  EXPECT_EQ(s.all.bursts, 79);
  EXPECT_EQ(s.all.nodes, 32);
  EXPECT_NEAR(s.all.mean_nodes * 32, 24.03, 0.01);
  EXPECT_NEAR(s.horizon_hours, 11.37, 0.01);
  EXPECT_EQ(write_trace(import_file("bamboo", p3)).substr(60),
            write_trace(import_file("bamboo", shared_trace("parcae/p3trace.csv"))).substr(59));
  EXPECT_EQ(statistics_of(import_file("oobleck", shared_trace("oobleck/10m.csv"))).all.departures,
            15);
  EXPECT_EQ(import_file("gcp", shared_trace("bamboo/v100x1-east1c.txt")).nodes.size(), 80u);
  EXPECT_GT(import_file("aws", shared_trace("bamboo/aws-g4dn-xlarge-us-east-1c-2020-11-20.csv"))
                .events.size(),
            100u);
  EXPECT_EQ(import_file("parcae", shared_trace("parcae/gpt-1.5b_trace_hh_55_65.txt")).horizon,
            to_nanoseconds({3600}));
}

TEST(SharedTraces, TheGeneratorCountsFailuresAsTable5OfLlama3) {
  const std::string path = shared_trace("llama3_table5.csv");
  if (path.empty()) GTEST_SKIP() << "no traces below $ORRERY_DATA (default ../shared)";
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::size_t i = 0;
  const TraceGenerator generator = library_generator("llama3", {});
  for (; std::getline(file, line); ++i) {
    const FailureCause& cause = generator.failures->causes.at(i);
    const std::string name = cause.cause == "Host Maintenance" ? "Host Maintenance" : cause.cause;
    EXPECT_EQ(line.substr(0, line.find(',', line.find(',', line.find(',') + 1) + 1)),
              fmt::format("{},{},{}", name, cause.category, cause.count));
  }
  EXPECT_EQ(i, generator.failures->causes.size());
}

}  // namespace
}  // namespace orrery::traces::shared_traces_test
