#include "experiments/study/replay_ranking.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "models/base/ids.h"

namespace orrery::experiments::replay_ranking_test {
namespace {

CsvRow row(const std::string& policy, int seed, double tokens, const std::string& status = "ok") {
  CsvRow cells = {{"case", "c"},
                  {"policy", policy},
                  {"seed", std::to_string(seed)},
                  {"status", status},
                  {"reason", status == "ok" ? "" : "memory: too small"},
                  {"tokens", std::to_string(tokens)},
                  {"horizon_ns", "1000000000"},
                  {"goodput", "0.5"},
                  {"ettr", "0.9"},
                  {"dollars", "2"},
                  {"interruptions", "3"},
                  {"lost_iterations", "4"}};
  for (std::size_t b = 0; b < sim::kBuckets; ++b) {
    const std::string name = sim::name_of(static_cast<sim::Bucket>(b));
    cells[fmt::format("{}_ns", name)] = std::to_string(b == 0 ? 1'000'000'000 : 0);
    cells[fmt::format("gpu_hours.{}", name)] = std::to_string(0);
  }
  cells["gpu_hours.spare"] = cells["gpu_hours.absent"] = std::to_string(0);
  return cells;
}

TEST(Confidence, IsStudentsIntervalOfTheMean) {
  // Quantiles of t at 97.5 %: 12.7062 (1 degree of freedom), 2.77645 (4).
  const Interval two = confidence({1, 3});
  EXPECT_DOUBLE_EQ(two.mean, 2);
  EXPECT_NEAR(two.half, 12.7062, 1e-3);
  const Interval five = confidence({1, 2, 3, 4, 5});
  EXPECT_DOUBLE_EQ(five.mean, 3);
  EXPECT_NEAR(five.half, 2.77645 * std::sqrt(2.5 / 5), 1e-4);
  EXPECT_FALSE(std::isfinite(confidence({1}).half));
}

TEST(Confidence, FewValuesAreSaidByTheirEndsAndManyStayInsideWhatIsPossible) {
  const Interval two = interval_of({1, 3}, 0, 10);
  EXPECT_FALSE(std::isfinite(two.half)) << "Student's interval of two is -23 to 27";
  EXPECT_EQ(two.low, 1);
  EXPECT_EQ(two.high, 3);
  const Interval five = interval_of({0.1, 0.9, 0.95, 0.99, 1}, 0, 1);
  EXPECT_TRUE(std::isfinite(five.half));
  EXPECT_GT(five.mean + five.half, 1);
  EXPECT_EQ(five.high, 1);
  EXPECT_GT(five.low, 0);
  EXPECT_TRUE(std::isnan(interval_of({}).mean));
}

TEST(Ranking, MostTokensComeFirstAndDifferencesArePaired) {
  // Seeds differ much, policies by exactly a tenth on each.
  const PolicyRanking ranking =
      rank_policies({row("slow", 1, 90), row("slow", 2, 900), row("fast", 1, 100),
                     row("fast", 2, 1000), row("none", 1, 0, "infeasible")},
                    {});
  ASSERT_EQ(ranking.standings.size(), 2u);
  EXPECT_EQ(ranking.standings[0].policy, "fast");
  EXPECT_EQ(ranking.standings[1].seeds, 2u);
  EXPECT_NEAR(ranking.standings[1].behind.mean, 0.1, 1e-12);
  EXPECT_NEAR(ranking.standings[1].behind.low, 0.1, 1e-12);
  EXPECT_NEAR(ranking.standings[1].behind.high, 0.1, 1e-12);
  EXPECT_NEAR(ranking.standings[1].behind_previous.mean, 0.1, 1e-12);
  EXPECT_NEAR(ranking.standings[0].tokens_per_second.mean, 550, 1e-9);
  EXPECT_NEAR(ranking.standings[0].dollars_per_million, 4 / (1100 * 1e-6), 1e-6);
  EXPECT_DOUBLE_EQ(ranking.standings[0].wall[0], 1);
  ASSERT_EQ(ranking.unable.size(), 1u);
  EXPECT_EQ(ranking.unable[0].reason, "memory: too small");
}

TEST(Ranking, ATraceWithoutTokensCountsAndIsComparedWithTheOthers) {
  EXPECT_DOUBLE_EQ(share_above(3, 2), 0.5);
  EXPECT_DOUBLE_EQ(share_above(0, 2), -1);
  EXPECT_DOUBLE_EQ(share_above(2, 0), 1);
  EXPECT_DOUBLE_EQ(share_above(0, 0), 0);
  std::vector<CsvRow> rows = {row("fast", 1, 100), row("fast", 2, 1000), row("fast", 3, 0),
                              row("slow", 1, 90),  row("slow", 2, 900),  row("slow", 3, 50),
                              row("none", 1, 0),   row("none", 2, 0),    row("none", 3, 0)};
  for (const std::size_t untrained : {2, 6, 7, 8}) {
    rows[untrained]["first_plan_problem"] = "devices: too few";
  }
  const PolicyRanking ranking = rank_policies(rows, {});
  ASSERT_EQ(ranking.standings.size(), 3u);
  EXPECT_TRUE(ranking.unable.empty());
  const auto& [fast, slow, none] =
      std::tie(ranking.standings[0], ranking.standings[1], ranking.standings[2]);
  EXPECT_EQ(fast.policy, "fast");
  EXPECT_EQ(fast.seeds, 3u);
  EXPECT_NEAR(fast.tokens_per_second.mean, 1100 / 3.0, 1e-9);
  EXPECT_EQ(fast.untrained, "1 of 3 traces: devices: too few");
  EXPECT_NEAR(slow.behind.mean, (0.1 + 0.1 - 1) / 3, 1e-12);
  EXPECT_EQ(slow.untrained, "");
  EXPECT_NEAR(none.behind.mean, 2 / 3.0, 1e-12) << "on the third trace neither has anything";
  EXPECT_NEAR(none.behind_previous.mean, 1, 1e-12);
  EXPECT_EQ(none.untrained, "3 of 3 traces: devices: too few");
}

TEST(Ranking, WhatAPlaceOwesAddsUpToItsDistance) {
  // 1,000 s and 10 tokens an iteration; undisturbed, the first plan takes 2 s, the second 4 s.
  const auto run = [](const std::string& policy, int seed, double iterations, double reference,
                      const std::map<std::string, double>& seconds) {
    CsvRow cells = row(policy, seed, 10 * iterations);
    cells["iterations"] = std::to_string(iterations);
    cells["reference_s"] = std::to_string(reference);
    cells["horizon_ns"] = std::to_string(1000e9);
    cells["productive_ns"] = "0";
    cells["background_ns"] = "0";
    for (const auto& [bucket, length] : seconds)
      cells[bucket + "_ns"] = std::to_string(length * 1e9);
    return cells;
  };
  std::vector<CsvRow> rows;
  for (const int seed : {1, 2}) {
    rows.push_back(
        run("a", seed, 450, 2, {{"productive", 900}, {"detect", 60}, {"rolled_back", 40}}));
    rows.push_back(run("b", seed, 200, 4,
                       {{"productive", 800},
                        {"degraded", 50},
                        {"background", 20},
                        {"detect", 20},
                        {"decide", 10},
                        {"reinitialize", 30},
                        {"move_state", 15},
                        {"checkpoint", 25},
                        {"idle", 50}}));
  }
  const PolicyRanking ranking = rank_policies(rows, {});
  ASSERT_EQ(ranking.standings.size(), 2u);
  const Standing& second = ranking.standings[1];
  const std::map<Loss, double> expected = {{Loss::detection, -0.04}, {Loss::restart, 0.04},
                                           {Loss::state, 0.015},     {Loss::lost_work, -0.04},
                                           {Loss::saves, 0.025},     {Loss::copies, 0.02},
                                           {Loss::spares, 0.08},     {Loss::plan, 0.4}};
  double sum = 0;
  for (const auto& [loss, share] : expected) {
    const Interval& owed = second.owed[index_of(loss)];
    EXPECT_NEAR(owed.mean, share, 1e-9) << name_of(loss);
    EXPECT_NEAR(owed.high - owed.low, 0, 1e-9) << name_of(loss);
    sum += owed.mean;
  }
  EXPECT_NEAR(sum, (450 - 200) * 2.0 / 1000, 1e-9) << "iterations of the fastest plan";
  for (const Interval& own : ranking.standings[0].owed) EXPECT_EQ(own.mean, 0);
}

TEST(Ranking, PointsOfAnAxisAreApart) {
  CsvRow a = row("p", 1, 10);
  CsvRow b = row("p", 1, 20);
  a["p.interval"] = "60";
  b["p.interval"] = "600";
  const PolicyRanking ranking = rank_policies({a, b}, {"p.interval"});
  ASSERT_EQ(ranking.standings.size(), 2u);
  EXPECT_EQ(ranking.standings[0].axes, "interval=600");
}

}  // namespace
}  // namespace orrery::experiments::replay_ranking_test
