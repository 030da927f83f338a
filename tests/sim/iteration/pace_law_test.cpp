// Is the pace that is found the one that the iterations keep for ever?
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "sim/iteration/pace.h"

namespace orrery::sim::pace_law_test {
namespace {

constexpr Seconds kExact{1e-9};
constexpr double kNever = -std::numeric_limits<double>::infinity();

/// times[i][j]: from when rank j ends an iteration to when rank i ends the next one, at least.
using Times = std::vector<std::vector<double>>;

std::vector<RankEnds> iterate(const Times& times, int iterations) {
  std::vector<RankEnds> all = {RankEnds(times.size())};
  for (int k = 0; k < iterations; ++k) {
    RankEnds next(times.size(), Seconds{kNever});
    for (std::size_t i = 0; i < times.size(); ++i) {
      for (std::size_t j = 0; j < times.size(); ++j) {
        next[i] = std::max(next[i], all.back()[j] + Seconds{times[i][j]});
      }
    }
    all.push_back(std::move(next));
  }
  return all;
}

/// Largest mean over all elementary cycles of ranks: the slow reference.
double largest_cycle_mean(const Times& times) {
  double best = kNever;
  std::vector<std::size_t> path;
  const std::function<void(double)> extend = [&](double sum) {
    for (std::size_t next = path.front(); next < times.size(); ++next) {
      const double grown = sum + times[next][path.back()];
      if (next == path.front()) {
        best = std::max(best, grown / static_cast<double>(path.size()));
      } else if (std::count(path.begin(), path.end(), next) == 0) {
        path.push_back(next);
        extend(grown);
        path.pop_back();
      }
    }
  };
  for (std::size_t first = 0; first < times.size(); ++first) {
    path = {first};
    extend(0);
  }
  return best;
}

RC_GTEST_PROP(Pace, OnceSettledIsThePaceOfTheSlowestCycleForEver, ()) {
  const auto ranks = *rc::gen::inRange<std::size_t>(1, 5);
  Times times(ranks, std::vector<double>(ranks));
  for (auto& row : times) {
    for (double& time : row) time = *rc::gen::inRange(0, 20);
  }
  const Pace pace = find_pace(iterate(times, *rc::gen::inRange(1, 40)), kExact);
  RC_PRE(pace.settled);
  RC_ASSERT(std::abs(pace.period.value - largest_cycle_mean(times)) < 1e-9);
}

RC_GTEST_PROP(Pace, SettlesInTheEndWhenAllWaitForAll, ()) {
  const auto ranks = *rc::gen::inRange<std::size_t>(1, 5);
  Times times(ranks, std::vector<double>(ranks));
  for (auto& row : times) {
    for (double& time : row) time = *rc::gen::inRange(0, 20);
  }
  RC_ASSERT(find_pace(iterate(times, 400), kExact).settled);
}

TEST(Pace, IsTheMeanOverAWindowWhereIterationsTakeTurns) {
  const Pace pace = find_pace(iterate({{1, 3}, {5, 1}}, 8), kExact);
  EXPECT_TRUE(pace.settled);
  EXPECT_EQ(pace.window, 2);
  EXPECT_DOUBLE_EQ(pace.period.value, 4);
}

TEST(Pace, OfRanksThatNeverMeetIsThatOfTheSlowestOverTheSecondHalf) {
  const Pace pace = find_pace(iterate({{1, kNever}, {kNever, 3}}, 8), kExact);
  EXPECT_FALSE(pace.settled);
  EXPECT_EQ(pace.window, 4);
  EXPECT_DOUBLE_EQ(pace.period.value, 3);
}

TEST(Pace, OfOneIterationIsItsLength) {
  const std::vector<RankEnds> ends = {{Seconds{7}, Seconds{7}}, {Seconds{9}, Seconds{12}}};
  EXPECT_DOUBLE_EQ(find_pace(ends, kExact).period.value, 5);
}

}  // namespace
}  // namespace orrery::sim::pace_law_test
