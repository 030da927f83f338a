/// Eq. 3 by counts against all set partitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "models/base/rng.h"
#include "planners/kit/grouping.h"
#include "planners/kit/integers.h"

namespace orrery::planners::autohet_grouping_test {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
/// Small, so that numbers of groups are put off and taken up again.
constexpr std::int64_t kShare = 20;

using Groups = std::vector<UnitCounts>;

/// Calls visit with each way to put units 0 ... n - 1 into unnamed groups.
void set_partitions(int n, std::vector<int>& group_of, int groups,
                    const std::function<void(int)>& visit) {
  if (static_cast<int>(group_of.size()) == n) {
    visit(groups);
    return;
  }
  for (int g = 0; g <= groups; ++g) {
    group_of.push_back(g);
    set_partitions(n, group_of, std::max(groups, g + 1), visit);
    group_of.pop_back();
  }
}

/// Eq. 2 and 3 word by word.
struct Reference {
  double objective = 0;
  std::set<Groups> best;  // Groups sorted.
};

Reference reference(const GroupingProblem& p) {
  std::vector<std::size_t> kind_of;
  for (std::size_t k = 0; k < p.counts.size(); ++k) {
    kind_of.insert(kind_of.end(), p.counts[k], k);
  }
  std::vector<std::pair<double, Groups>> all;
  std::vector<int> group_of;
  set_partitions(static_cast<int>(kind_of.size()), group_of, 0, [&](int d) {
    if (d < p.least_groups || d > p.most_groups) return;
    Groups groups(d, UnitCounts(p.counts.size()));
    for (std::size_t u = 0; u < kind_of.size(); ++u) {
      ++groups[group_of[u]][kind_of[u]];
    }
    double least = 1e300;
    for (const UnitCounts& group : groups) {
      double power = 0;
      double memory = 0;
      int units = 0;
      for (std::size_t k = 0; k < group.size(); ++k) {
        power += group[k] * p.power[k];
        memory += group[k] * p.memory[k];
        units += group[k];
      }
      if (units > p.most_units || memory < p.least_memory) return;
      if (p.admits && !p.admits(group, d)) return;
      const double bubble = (units - 1.0) / (p.micro_batches + units - 1.0);
      least = std::min(least, power * (1 - bubble));
    }
    std::sort(groups.begin(), groups.end());
    all.emplace_back(d * least, groups);
  });
  Reference result;
  for (const auto& [value, groups] : all) result.objective = std::max(result.objective, value);
  for (const auto& [value, groups] : all) {
    if (value >= result.objective * (1 - 1e-11)) result.best.insert(groups);
  }
  return result;
}

GroupingProblem random_problem(std::uint64_t number) {
  Rng rng(0xa07 + number);
  GroupingProblem p;
  int left = static_cast<int>(rng.integer(1, 8));
  while (left > 0) {
    const int count = static_cast<int>(rng.integer(1, left));
    left -= count;
    p.counts.push_back(count);
    p.power.push_back(static_cast<double>(rng.integer(1, 12)) * (number % 2 == 0 ? 1 : 0.37));
    p.memory.push_back(static_cast<double>(rng.integer(0, 6)));
  }
  const int units = std::accumulate(p.counts.begin(), p.counts.end(), 0);
  p.least_memory = static_cast<double>(rng.integer(0, 9));
  p.micro_batches = static_cast<int>(rng.integer(1, number % 3 == 0 ? 4 : 64));
  p.most_units = static_cast<int>(rng.integer(1, units));
  p.least_groups = static_cast<int>(rng.integer(1, 2));
  p.most_groups = static_cast<int>(rng.integer(1, units));
  if (number % 4 == 3) {
    // Not monotone: no superset rule may be used.
    p.admits = [](const UnitCounts& group, int groups) {
      int sum = groups;
      for (const int count : group) sum = sum * 5 + count;
      return sum % 3 != 0;
    };
  }
  return p;
}

TEST(Grouping, EqualsAllSetPartitions) {
  int solved = 0;
  int forbidden = 0;
  std::size_t ties = 0;
  for (std::uint64_t n = 0; n < 600; ++n) {
    const GroupingProblem p = random_problem(n);
    const Reference expected = reference(p);
    const GroupingResult found = best_groupings(p, {kNoLimit, kShare, 100'000, {}});
    EXPECT_NEAR(found.objective, expected.objective, 1e-9 * expected.objective) << n;
    EXPECT_TRUE(found.exact && found.all_ties && !found.ended_early) << n;
    EXPECT_EQ(found.bound, found.objective) << n;
    std::set<Groups> groupings;
    for (Groups groups : found.groupings) {
      std::sort(groups.begin(), groups.end());
      EXPECT_TRUE(groupings.insert(groups).second) << n << ": the same grouping twice";
    }
    EXPECT_EQ(groupings, expected.best) << n;
    (expected.best.empty() ? forbidden : solved) += 1;
    ties = std::max(ties, expected.best.size());
  }
  EXPECT_GT(solved, 200);
  EXPECT_GT(forbidden, 50);
  EXPECT_GT(ties, 3u);
}

TEST(Grouping, LimitsEndItExactlyAndNeverLie) {
  for (std::uint64_t n = 0; n < 60; ++n) {
    const GroupingProblem p = random_problem(n);
    const GroupingResult whole = best_groupings(p, {kNoLimit, kShare, 100, {}});
    for (std::int64_t most = 1; most <= whole.work; most += 1 + most / 4) {
      const GroupingResult part = best_groupings(p, {most, kShare, 100, {}});
      EXPECT_LE(part.work, most) << n;
      EXPECT_TRUE(!part.ended_early || part.work == most) << n;
      EXPECT_LE(part.objective, whole.objective * (1 + 1e-12)) << n;
      EXPECT_GE(part.bound, whole.objective * (1 - 1e-12)) << n;
      EXPECT_TRUE(!part.exact || part.objective >= whole.objective * (1 - 1e-9)) << n;
      EXPECT_EQ(part.groupings.empty(), part.objective <= 0) << n;
    }
    const GroupingResult same =
        best_groupings(p, {std::max<std::int64_t>(1, whole.work), kShare, 100, {}});
    EXPECT_FALSE(same.ended_early) << n;
    EXPECT_EQ(same.groupings, whole.groupings) << n;
  }
}

TEST(Grouping, StopEndsItAtOnce) {
  const GroupingResult found =
      best_groupings(random_problem(0), {kNoLimit, kShare, 1, [] { return true; }});
  EXPECT_EQ(found.work, 0);
  EXPECT_TRUE(found.ended_early && found.groupings.empty());
}

TEST(Grouping, EqualUnitsFillAsManyGroupsAsMemoryAllows) {
  GroupingProblem p;
  p.counts = {64};
  p.power = {1};
  p.memory = {80};
  p.least_memory = 300;
  p.micro_batches = 128;
  p.most_units = 64;
  p.most_groups = 64;
  const GroupingResult found = best_groupings(p, {kNoLimit, kShare, 10, {}});
  ASSERT_EQ(found.groupings.size(), 1u);
  EXPECT_EQ(found.groupings[0], Groups(16, {4}));
  EXPECT_NEAR(found.objective, 64.0 * 128 / 131, 1e-9);
}

/// The powers and memories of the paper's quoted plans, 120 GB per replica.
TEST(Grouping, TheQuotedGroupingsAreOptimalWithWholeK) {
  for (const int k : {8, 16, 64}) {
    GroupingProblem p;
    p.counts = {2, 1};  // TP 2 on 4 A100 and 2 H800; "twice that of A100 in our setting" (II-D).
    p.power = {1, 2};
    p.memory = {160, 160};
    p.least_memory = 120;
    p.micro_batches = k;
    p.most_units = 32;
    p.most_groups = 3;
    GroupingResult found = best_groupings(p, {kNoLimit, kShare, 10, {}});
    ASSERT_EQ(found.groupings.size(), 1u) << k;
    Groups groups = found.groupings[0];
    std::sort(groups.begin(), groups.end());
    EXPECT_EQ(groups, (Groups{{0, 1}, {2, 0}})) << k;
    p.counts = {1, 4};  // 1 A100 and 4 H20, peaks of the data sheets.
    p.power = {312, 148};
    p.memory = {80, 96};
    p.most_groups = 5;
    found = best_groupings(p, {kNoLimit, kShare, 10, {}});
    ASSERT_EQ(found.groupings.size(), 1u) << k;
    groups = found.groupings[0];
    std::sort(groups.begin(), groups.end());
    EXPECT_EQ(groups, (Groups{{0, 3}, {1, 1}})) << k;
  }
}

/// Why K of Eq. 2 is not divided by D: the quoted groupings would tie or lose.
TEST(Grouping, WithKSharedTheQuotedGroupingsTieOrLose) {
  const auto value = [](const GroupingProblem& p, const Groups& groups) {
    GroupingProblem shared = p;
    shared.micro_batches = p.micro_batches / static_cast<int>(groups.size());
    double least = 1e300;
    for (const UnitCounts& group : groups) least = std::min(least, effective_power(shared, group));
    return static_cast<double>(groups.size()) * least;
  };
  GroupingProblem p;
  p.power = {1, 2};
  p.micro_batches = 16;
  EXPECT_NEAR(value(p, {{0, 1}, {2, 0}}), value(p, {{2, 1}}), 1e-12);
  p.power = {312, 148};
  EXPECT_NEAR(value(p, {{1, 1}, {0, 3}}), 710.4, 0.1);
  EXPECT_NEAR(value(p, {{1, 4}}), 723.2, 0.1);
}

}  // namespace
}  // namespace orrery::planners::autohet_grouping_test
