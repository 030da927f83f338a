// Published traces and tables below $ORRERY_DATA, which a bare clone lacks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

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

/// What the trace of InfiniteHBD is known for.
struct Outages {
  double faults_per_1000_node_days = 0;
  double median_hours = 0;
  double mean_down = 0;  ///< Nodes.
  double never = 0;      ///< Nodes that never fail.
};

Outages outages_of(const Trace& trace) {
  std::map<NodeId, Instant> down;
  std::set<NodeId> failed;
  std::vector<double> hours;
  double faults = 0;
  double node_hours = 0;
  for (const ir::ClusterEvent& event : trace.events) {
    const NodeId node = event.scope.node;
    if (event.kind == ir::EventKind::fail && down.try_emplace(node, event.time).second) {
      failed.insert(node);
      ++faults;
    }
    if (event.kind != ir::EventKind::repair || !down.contains(node)) continue;
    hours.push_back(to_seconds(event.time - down[node]).value / kHour);
    node_hours += hours.back();
    down.erase(node);
  }
  for (const auto& [node, since] : down) {  // Long outages outlive a drawn trace.
    node_hours += 1e-9 * static_cast<double>(trace.horizon.count - since.nanoseconds) / kHour;
  }
  std::sort(hours.begin(), hours.end());
  const double days = static_cast<double>(trace.horizon.count) * 1e-9 / kDay;
  const auto nodes = static_cast<double>(trace.nodes.size());
  return {1000 * faults / nodes / days, hours[hours.size() / 2], node_hours / 24 / days,
          nodes - static_cast<double>(failed.size())};
}

TEST(SharedTraces, TheGeneratorFailsAndRepairsAsTheClusterOfInfiniteHbd) {
  const std::string path = shared_trace("infinitehbd/fault_trace.json");
  if (path.empty()) GTEST_SKIP() << "no traces below $ORRERY_DATA (default ../shared)";
  ImportOptions options;
  options.nodes = 400;
  options.gpus_per_node = 8;
  config::Diagnostics diagnostics;
  const Outages measured = outages_of(import_trace("infinitehbd", path, options, diagnostics));
  EXPECT_TRUE(diagnostics.empty());
  // Counted in the file (faults that overlap on a node are one outage).
  EXPECT_NEAR(measured.faults_per_1000_node_days, 4.18, 0.05);
  EXPECT_NEAR(measured.median_hours, 20.4, 1);
  EXPECT_NEAR(measured.mean_down, 9.3, 0.2);
  EXPECT_EQ(measured.never, 400 - 231);
  const TraceGenerator generator = library_generator("infinitehbd", {});
  Outages drawn;
  constexpr int kSeeds = 10;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Outages one = outages_of(
        generate(generator, equal_nodes(400, 8, ""), to_nanoseconds(Seconds{349 * kDay}), seed));
    drawn.faults_per_1000_node_days += one.faults_per_1000_node_days / kSeeds;
    drawn.median_hours += one.median_hours / kSeeds;
    drawn.mean_down += one.mean_down / kSeeds;
    drawn.never += one.never / kSeeds;
  }
  EXPECT_NEAR(drawn.faults_per_1000_node_days, measured.faults_per_1000_node_days,
              0.1 * measured.faults_per_1000_node_days);
  EXPECT_NEAR(drawn.median_hours, measured.median_hours, 0.25 * measured.median_hours);
  EXPECT_NEAR(drawn.mean_down, measured.mean_down, 0.2 * measured.mean_down);
  EXPECT_NEAR(drawn.never, measured.never, 0.1 * measured.never);
}

}  // namespace
}  // namespace orrery::traces::shared_traces_test
