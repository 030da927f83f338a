// Figures 9 and 10 of Oobleck (SOSP 2023): every published digit by the artifact's own count, and
// how far replay is from it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/oobleck/throughput/cases.h"
#include "experiments/oobleck/throughput/compat_queue.h"

namespace orrery::experiments::oobleck_throughput_test {
namespace {

struct Published {
  std::string quantity;
  std::string value;
};
using CaseKey = std::tuple<int, std::string, std::string, std::string>;

CaseKey key_of(const OobleckRun& run) {
  return {run.figure, run.trace, run.model, name_of(run.system)};
}

std::multimap<CaseKey, Published> read_published() {
  std::ifstream file("experiments/oobleck/throughput/published.csv");
  std::multimap<CaseKey, Published> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    std::vector<std::string> cell(6);
    for (std::string& text : cell) std::getline(cells, text, ',');
    rows.insert({{std::stoi(cell[0]), cell[1], cell[2], cell[3]}, {cell[4], cell[5]}});
  }
  return rows;
}

/// Unit of the last digit.
double unit_of(const std::string& value) {
  const std::size_t dot = value.find('.');
  return dot == std::string::npos ? 1 : std::pow(10, -static_cast<double>(value.size() - dot - 1));
}

const std::vector<OobleckRun>& runs() {
  static const std::vector<OobleckRun> all = run_cases(data_folder("."));
  return all;
}

class OobleckFigures : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(data_folder(".") + "/traces/oobleck/throughput.csv")) {
      GTEST_SKIP() << "no traces/oobleck below $ORRERY_DATA (default ../shared)";
    }
  }
};

TEST_F(OobleckFigures, CompatCountGivesEveryPublishedDigit) {
  const auto published = read_published();
  std::size_t found = 0;
  for (const OobleckRun& run : runs()) {
    const auto [first, last] = published.equal_range(key_of(run));
    for (auto row = first; row != last; ++row, ++found) {
      const auto& [quantity, value] = row->second;
      const CompatBreakdown& parts = run.compat.breakdown;
      double ours = run.compat.samples_per_second;
      if (quantity == "effective") ours = parts.effective / parts.sum();
      if (quantity == "redundant") ours = parts.redundant / parts.sum();
      // GPT-3 medium, 6 h, is 29.3046 and printed as 29.31: rounded to 29.305 first.
      const bool twice =
          run.figure == 9 && run.trace == "6h" && run.model == "GPT-3 M" && value == "29.31";
      EXPECT_NEAR(ours, std::stod(value), (twice ? 0.55 : 0.5001) * unit_of(value))
          << "figure " << run.figure << ", " << run.trace << ", " << run.model << ", "
          << name_of(run.system) << ", " << quantity;
    }
  }
  EXPECT_EQ(found, published.size());
  EXPECT_EQ(found, 48U + 12U + 4U);
}

TEST_F(OobleckFigures, ReplayIsNearForLossesOneByOne) {
  for (const OobleckRun& run : runs()) {
    if (run.figure != 9) continue;
    // Varuna's largest models live on steps that the artifact counts during restarts.
    const bool large = run.model == "2.7B" || run.model == "6.7B";
    if (run.system == OobleckSystem::varuna && large) continue;
    const double distance = run.honest.samples_per_second / run.compat.samples_per_second - 1;
    const double bound = run.system == OobleckSystem::oobleck ? 0.02 : 0.09;
    EXPECT_LT(std::abs(distance), bound)
        << run.trace << ", " << run.model << ", " << name_of(run.system);
  }
}

TEST_F(OobleckFigures, ReplayDoesNotStopAtLossesOfOneInstant) {
  for (const OobleckRun& run : runs()) {
    if (run.figure != 10 || run.system != OobleckSystem::oobleck) continue;
    const double ratio = run.honest.samples_per_second / run.compat.samples_per_second;
    EXPECT_GT(ratio, 1.02) << run.trace << ", " << run.model;
    EXPECT_LT(ratio, 1.23) << run.trace << ", " << run.model;
  }
}

TEST_F(OobleckFigures, ReplayAccountsForAllTimeOnce) {
  for (const OobleckRun& run : runs()) {
    const HonestResult& own = run.honest;
    EXPECT_NEAR(own.effective + own.checkpoint + own.restart + own.fallback + own.idle, 1, 1e-9);
    EXPECT_GE(own.idle, -1e-12);
  }
}

// 8192 samples a step, 20.48 s on 30 nodes and 27.306 s on 29; one node leaves in the third step.
TEST(OobleckCompat, CountsOneLossAsByHand) {
  const OobleckModel& model = oobleck_models().front();
  const NodeThroughput table = {{29, 300.0}, {30, 400.0}};
  std::vector<NodeChange> changes;
  for (int i = 0; i < 30; ++i) changes.push_back({0, true, "node" + std::to_string(i)});
  changes.push_back({100'000, false, "node3"});
  changes.push_back({300'000, false, "node4"});
  const CompatResult got = count_compat(model, OobleckSystem::oobleck, table, changes, true);
  // 47 s: steps of 20.48 s end at 67.48, 87.96; the third is lost at 100 s. From 102 s on steps of
  // 27.306 s: the seventh ends at 293.142 s.
  EXPECT_EQ(got.steps, 9);
  EXPECT_NEAR(got.samples_per_second, 9 * 8192 / (293.142 - 47), 1e-9);
  EXPECT_DOUBLE_EQ(got.breakdown.effective, 3 * 20480 + 8 * 27306);
  EXPECT_DOUBLE_EQ(got.breakdown.fallback, 20480);
  EXPECT_DOUBLE_EQ(got.breakdown.restart, 4000);
}

TEST(OobleckCompat, QueueGivesEventsInOrder) {
  CompatQueue queue;
  for (int i = 0; i < 200; ++i) queue.push({(i * 37) % 101, CompatKind::step, i});
  queue.rebuild();
  std::int64_t last = -1;
  while (!queue.empty()) {
    const CompatEvent event = queue.pop();
    EXPECT_LE(last, event.ms);
    last = event.ms;
  }
}

TEST(OobleckHonest, NodesThatLeaveBeforeTheyAreReadyNeverCome) {
  traces::Trace trace;
  trace.horizon = to_nanoseconds(Seconds{1000});
  trace.nodes = {{"a", "", 1}, {"b", "", 1}};
  const auto add = [&](double second, ir::EventKind kind, int node) {
    ir::ClusterEvent event;
    event.time = Instant{} + to_nanoseconds(Seconds{second});
    event.kind = kind;
    event.scope.kind = ir::EventScope::Kind::node;
    event.scope.node = {node};
    event.sequence = static_cast<std::int64_t>(trace.events.size());
    trace.events.push_back(event);
  };
  add(0, ir::EventKind::join, 0);
  add(100, ir::EventKind::join, 1);
  add(120, ir::EventKind::leave, 1);
  add(200, ir::EventKind::join, 1);
  add(300, ir::EventKind::leave, 1);
  const traces::Trace delayed = delay_joins(trace);
  ASSERT_EQ(delayed.events.size(), 3U);
  EXPECT_EQ(delayed.events[0].time, Instant{});
  EXPECT_EQ(delayed.events[1].time, Instant{} + to_nanoseconds(Seconds{245}));
  EXPECT_EQ(delayed.events[2].kind, ir::EventKind::leave);
}

}  // namespace
}  // namespace orrery::experiments::oobleck_throughput_test
