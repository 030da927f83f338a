#include "planners/kit/integers.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace orrery::planners::integers_test {
namespace {

using Sequences = std::vector<std::vector<int>>;

Sequences compositions(int total, int count, int minimum) {
  Sequences all;
  for_each_composition(total, count, minimum, [&](const std::vector<int>& s) {
    all.push_back(s);
    return true;
  });
  return all;
}

Sequences partitions(int total, int count, const std::vector<int>& allowed) {
  Sequences all;
  for_each_partition(total, count, allowed, [&](const std::vector<int>& s) {
    all.push_back(s);
    return true;
  });
  return all;
}

TEST(Divisors, AreAscendingAndComplete) {
  EXPECT_EQ(divisors(1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(divisors(36), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36}));
  EXPECT_EQ(divisors(97), (std::vector<std::int64_t>{1, 97}));
  EXPECT_EQ(divisors(std::int64_t{1} << 40).size(), 41U);
}

TEST(PowersOfTwo, GoUpToTheLimit) {
  EXPECT_EQ(powers_of_two(9), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(powers_of_two(8), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_TRUE(powers_of_two(0).empty());
  EXPECT_EQ(powers_of_two(2147483647).size(), 31U);
  EXPECT_TRUE(is_power_of_two(1));
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_FALSE(is_power_of_two(-4));
  EXPECT_FALSE(is_power_of_two(12));
  EXPECT_EQ(floor_power_of_two(12), 8);
  EXPECT_EQ(floor_power_of_two(16), 16);
}

TEST(Compositions, AreAllOrderedSumsInLexicographicOrder) {
  EXPECT_EQ(compositions(4, 2, 1), (Sequences{{1, 3}, {2, 2}, {3, 1}}));
  EXPECT_EQ(compositions(2, 2, 0), (Sequences{{0, 2}, {1, 1}, {2, 0}}));
  EXPECT_EQ(compositions(3, 4, 1), Sequences{});
  EXPECT_EQ(compositions(10, 4, 1).size(), 84U);  // C(9, 3)
}

TEST(Partitions, OfPowersOfTwoAreTheDeviceGroupsOfMetis) {
  EXPECT_EQ(partitions(8, 3, powers_of_two(8)), (Sequences{{2, 2, 4}}));
  EXPECT_EQ(partitions(8, 4, powers_of_two(8)), (Sequences{{1, 1, 2, 4}, {2, 2, 2, 2}}));
  EXPECT_EQ(partitions(12, 1, powers_of_two(8)), Sequences{});
}

RC_GTEST_PROP(Partitions, AreTheSortedCompositionsOfAllowedValues, ()) {
  const int total = *rc::gen::inRange(1, 14);
  const int count = *rc::gen::inRange(1, 6);
  std::vector<int> allowed;
  for (int value = 1; value <= 8; ++value) {
    if (*rc::gen::arbitrary<bool>()) allowed.push_back(value);
  }
  Sequences expected;
  for (const auto& s : compositions(total, count, 1)) {
    const bool fits = std::all_of(s.begin(), s.end(), [&](int v) {
      return std::find(allowed.begin(), allowed.end(), v) != allowed.end();
    });
    if (fits && std::is_sorted(s.begin(), s.end())) expected.push_back(s);
  }
  RC_ASSERT(partitions(total, count, allowed) == expected);
}

TEST(Enumeration, StopsWhenTheVisitorSaysSo) {
  int visits = 0;
  const auto twice = [&](const std::vector<int>&) { return ++visits < 2; };
  EXPECT_FALSE(for_each_composition(10, 3, 1, twice));
  EXPECT_EQ(visits, 2);
  visits = 0;
  EXPECT_FALSE(for_each_partition(10, 3, {1, 2, 3, 4, 5}, twice));
  EXPECT_EQ(visits, 2);
}

}  // namespace
}  // namespace orrery::planners::integers_test
