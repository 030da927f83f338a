// The parts of Metis's search against literal re-implementations.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "models/base/rng.h"
#include "planners/metis/balance.h"
#include "planners/metis/groups.h"
#include "planners/metis/tables.h"

namespace orrery::planners::metis_parts_test {
namespace {

using Sizes = std::vector<int>;

std::vector<Sizes> all_groups(int stages, int devices, double variance, int length) {
  DeviceGroups groups(stages, devices, variance, length);
  std::vector<Sizes> result;
  Sizes sizes;
  while (groups.next(sizes)) result.push_back(sizes);
  return result;
}

/// Every sequence of `stages` powers of two from `least` on that adds up to `devices`.
std::set<Sizes> by_definition(int stages, int devices, double least) {
  std::set<Sizes> result;
  Sizes sizes;
  const std::function<void(int)> extend = [&](int left) {
    if (static_cast<int>(sizes.size()) == stages) {
      if (left == 0) result.insert(sizes);
      return;
    }
    for (int size = 1; size <= left; size *= 2) {
      if (size < least) continue;
      sizes.push_back(size);
      extend(left - size);
      sizes.pop_back();
    }
  };
  extend(devices);
  return result;
}

TEST(DeviceGroups, WithoutMergingAreAllSequencesOfPowersOfTwoEachOnce) {
  for (int devices = 1; devices <= 14; ++devices) {
    for (int stages = 1; stages <= std::min(devices, 6); ++stages) {
      for (const double variance : {0.0, 0.5, 1.0}) {
        const std::vector<Sizes> found = all_groups(stages, devices, variance, 64);
        const double least = variance * std::max(devices / stages, stages / devices);
        EXPECT_EQ(std::set<Sizes>(found.begin(), found.end()),
                  by_definition(stages, devices, least))
            << devices << " devices, " << stages << " stages";
        EXPECT_EQ(std::set<Sizes>(found.begin(), found.end()).size(), found.size());
      }
    }
  }
}

TEST(DeviceGroups, TwelveDevicesMakeNoSingleGroup) {
  EXPECT_TRUE(all_groups(1, 12, 0.5, 10).empty());
  EXPECT_EQ(all_groups(2, 12, 0.5, 10), (std::vector<Sizes>{{8, 4}, {4, 8}}));
}

TEST(DeviceGroups, SmallestGroupsAreMergedInPairs) {
  // The example of the paper: five stages, one of two GPUs; permutation length 3.
  EXPECT_EQ(merge_smallest({1, 1, 1, 1, 2}, 3), (std::vector<Sizes>{{1, 1}, {1, 1}, {2}}));
  EXPECT_EQ(merge_smallest({1, 1, 2}, 10), (std::vector<Sizes>{{1}, {1}, {2}}));
  EXPECT_EQ(all_groups(5, 6, 0.5, 3),
            (std::vector<Sizes>{{2, 1, 1, 1, 1}, {1, 1, 2, 1, 1}, {1, 1, 1, 1, 2}}));
}

TEST(DeviceGroups, LeadersAreTheFirstPermutationsOfTheirSizes) {
  DeviceGroups walk(4, 16, 0.5, 10), leaders(4, 16, 0.5, 10);
  Sizes sizes, leader;
  int count = 0;
  while (walk.next(sizes)) {
    if (!walk.is_leader()) continue;
    ++count;
    ASSERT_TRUE(leaders.next_leader(leader));
    EXPECT_EQ(leader, sizes);
  }
  EXPECT_FALSE(leaders.next_leader(leader));
  EXPECT_EQ(count, 2);  // 2+2+4+8 and 4+4+4+4.
}

TEST(MultisetPermutations, VisitEachOrderOnceAndStartNonIncreasing) {
  MultisetPermutations orders({{1}, {2}, {1}, {4}, {1}});
  std::set<Sizes> seen;
  do {
    Sizes sizes;
    for (const int index : orders.order()) {
      sizes.push_back(orders.sorted()[index].front());
    }
    if (seen.empty()) {
      EXPECT_EQ(sizes, (Sizes{4, 2, 1, 1, 1}));
    }
    EXPECT_TRUE(seen.insert(sizes).second);
  } while (orders.next());
  EXPECT_EQ(seen.size(), 20u);
}

/// The layer balancing of the public code, step by step on lists of pieces; slow.
std::vector<int> slow_divide(std::vector<double> left, const std::vector<double>& demand,
                             bool keep_all) {
  constexpr int kPieces = 7;
  const std::vector<double> capacity = left;
  const int stages = static_cast<int>(left.size());
  const int layers = static_cast<int>(demand.size());
  const auto piece = [&](int l) { return demand[l / kPieces] / kPieces; };
  std::vector<std::vector<int>> held(stages);
  std::vector<int> rest;
  int next = 0;
  for (int s = 0; s + 1 < stages; ++s) {
    for (int l = next; l < layers * kPieces - 1 - kPieces; ++l) {
      next = l + 1;
      if (left[s] > piece(l)) {
        left[s] -= piece(l);
        held[s].push_back(l);
      } else {
        rest.push_back(l);
        break;
      }
    }
  }
  for (int l = next; l < layers * kPieces; ++l) rest.push_back(l);
  const auto give = [&](int s, int l) {
    left[s] -= piece(l);
    held[s].push_back(l);
    rest.erase(std::find(rest.begin(), rest.end(), l));
  };
  std::vector<int> order = rest;
  std::sort(order.rbegin(), order.rend());
  for (const int l : order) {
    std::vector<int>& last = held.back();
    if (last.size() < kPieces) {
      give(stages - 1, l);
    } else if (l + 1 == *std::min_element(last.begin(), last.end()) && left.back() > piece(l)) {
      give(stages - 1, l);
    }
  }
  order = rest;
  std::sort(order.begin(), order.end());
  for (const int l : order) {
    int low = 0, high = stages - 1;
    int below = -1, above = std::numeric_limits<int>::max();
    for (int s = 0; s < stages; ++s) {
      if (held[s].empty()) continue;
      const auto [first, last] = std::minmax_element(held[s].begin(), held[s].end());
      if (l > *last && *last > below) {
        low = s;
        below = *last;
      }
      if (l < *first && *first < above) {
        high = s;
        above = *first;
      }
    }
    int best = low;
    for (int s = low; s <= high; ++s) {
      if (left[s] > left[best]) best = s;
    }
    give(best, l);
  }
  std::vector<std::vector<int>> whole(stages);
  for (int layer = 0; layer < layers; ++layer) {
    int best = 0;
    std::vector<int> count(stages, 0);
    for (int s = 0; s < stages; ++s) {
      for (const int l : held[s]) count[s] += l / kPieces == layer ? 1 : 0;
      if (count[s] > count[best]) best = s;
    }
    if (keep_all || count[best] > 3) whole[best].push_back(layer);
  }
  for (int s = 0; s < stages; ++s) {
    double sum = 0;
    if (!whole[s].empty()) {
      for (int l = whole[s].front(); l <= whole[s].back(); ++l) sum += demand[l];
    }
    left[s] = capacity[s] - sum;
  }
  for (int round = 1; round <= 3; ++round) {
    std::vector<double> moved_left = left;
    auto moved = whole;
    const int to = static_cast<int>(std::max_element(left.begin(), left.end()) - left.begin());
    int from = -1;
    for (const int near : {to - 1, to + 1}) {
      if (near < 0 || near >= stages) continue;
      if (from < 0 || left[near] < left[from]) from = near;
    }
    if (from >= 0 && moved[from].size() > 1) {
      const auto layer = to > from ? std::prev(moved[from].end()) : moved[from].begin();
      moved_left[to] -= demand[*layer];
      moved_left[from] += demand[*layer];
      moved[to].push_back(*layer);
      std::sort(moved[to].begin(), moved[to].end());
      moved[from].erase(layer);
    }
    if (*std::max_element(moved_left.begin(), moved_left.end()) >
        *std::max_element(left.begin(), left.end())) {
      break;
    }
    left = moved_left;
    whole = moved;
  }
  std::vector<int> cuts = {0};
  for (const auto& each : whole) cuts.push_back(cuts.back() + static_cast<int>(each.size()));
  return cuts;
}

TEST(LayerBalancer, EqualsTheSlowStepsOnManyCapacities) {
  Rng rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<double> demand(rng.integer(1, 14));
    for (double& each : demand) each = round % 3 == 0 ? 1.0 : 0.1 + rng.uniform();
    std::vector<double> capacity(rng.integer(1, 9));
    for (double& each : capacity) each = round % 2 == 0 ? 1.0 : 0.05 + rng.uniform();
    for (std::vector<double>* each : {&demand, &capacity}) {
      const double sum = std::accumulate(each->begin(), each->end(), 0.0);
      for (double& value : *each) value /= sum;
    }
    for (const bool keep_all : {false, true}) {
      const auto found = LayerBalancer(demand, keep_all).divide(capacity);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(*found, slow_divide(capacity, demand, keep_all));
      if (keep_all) {
        EXPECT_EQ(found->back(), static_cast<int>(demand.size()));
      }
    }
  }
}

TEST(LayerBalancer, PublishedDivisionLosesLayersThatNobodyHoldsByHalf) {
  bool lost = false;
  for (int stages = 2; stages < 9 && !lost; ++stages) {
    const std::vector<double> capacity(stages, 1.0 / stages);
    for (int layers = 2; layers < 14 && !lost; ++layers) {
      const std::vector<double> demand(layers, 1.0 / layers);
      lost = LayerBalancer(demand, false).divide(capacity)->back() < layers;
    }
  }
  EXPECT_TRUE(lost);
}

TEST(ShiftCapacity, TakesFromFullStagesAndKeepsTheSum) {
  const std::vector<double> capacity = {0.5, 0.3, 0.2}, memory = {10, 40, 40}, need = {20, 10, 10};
  const auto shifted = shift_capacity(capacity, memory, need);
  ASSERT_TRUE(shifted.has_value());
  EXPECT_DOUBLE_EQ((*shifted)[0], 0.5 * 0.5 * 0.9);
  EXPECT_NEAR((*shifted)[0] + (*shifted)[1] + (*shifted)[2], 1, 0.011);
  EXPECT_GT((*shifted)[1], 0.3);
  EXPECT_GT((*shifted)[2], 0.2);
}

TEST(ShiftCapacity, IsNothingWithoutRoom) {
  EXPECT_FALSE(shift_capacity(std::vector<double>{0.5, 0.5}, std::vector<double>{10, 10},
                              std::vector<double>{20, 9.9}));
  // Room for all, but nowhere more than a thousandth: the public code loops for ever.
  const std::vector<double> thin(20, 0.05);
  std::vector<double> memory(20, 10.199), need(20, 10);
  memory[0] = 7.5;
  need[0] = 10;
  EXPECT_FALSE(shift_capacity(thin, memory, need));
}

TEST(DivideSamples, AddsUpAndFollowsSpeed) {
  EXPECT_EQ(divide_samples(std::vector<double>{1, 1, 3}, 7), (Sizes{3, 3, 1}));
  EXPECT_EQ(divide_samples(std::vector<double>{2, 2}, 3), (Sizes{2, 1}));
  EXPECT_EQ(divide_samples(std::vector<double>{1, 31}, 4), (Sizes{4, 0}));
}

TEST(BinaryParts, AddUpLargestFirst) {
  EXPECT_EQ(binary_parts(7), (Sizes{4, 2, 1}));
  EXPECT_EQ(binary_parts(8), (Sizes{8}));
  EXPECT_TRUE(binary_parts(0).empty());
}

}  // namespace
}  // namespace orrery::planners::metis_parts_test
