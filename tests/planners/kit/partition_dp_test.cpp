#include "planners/kit/partition_dp.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "models/base/ids.h"
#include "models/base/rng.h"
#include "planners/kit/integers.h"

namespace orrery::planners::partition_dp_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Arbitrary whole costs, a fifth of them infinite; neither monotone nor related. With
/// `monotone`, cost grows with the range and becomes infinite above a stage's memory.
StageCost random_cost(std::uint64_t seed, int blocks, bool monotone) {
  return [seed, blocks, monotone](int stage, int first, int last) {
    const Rng base(seed);
    if (monotone) {
      double sum = 0;
      for (int b = first; b <= last; ++b) {
        sum += static_cast<double>(base.fork(static_cast<std::uint64_t>(b)).integer(1, 9));
      }
      Rng speed = base.fork(static_cast<std::uint64_t>(1000 + stage));
      const auto factor = static_cast<double>(speed.integer(1, 4));
      return last - first + 1 > speed.integer(1, blocks) ? kInfinity : sum * factor;
    }
    Rng rng = base.fork(static_cast<std::uint64_t>((stage * 100 + first) * 100 + last));
    return rng.bernoulli(0.2) ? kInfinity : static_cast<double>(rng.integer(0, 30));
  };
}

double objective_of(const std::vector<int>& boundaries, const StageCost& cost, double sum_weight,
                    double max_weight) {
  double sum = 0;
  double largest = 0;
  for (std::size_t s = 0; s + 1 < boundaries.size(); ++s) {
    const double c = cost(static_cast<int>(s), boundaries[s], boundaries[s + 1] - 1);
    sum += c;
    largest = std::max(largest, c);
  }
  if (largest == kInfinity) return kInfinity;
  return sum_weight * sum + max_weight * largest;
}

double brute_force(int blocks, int stages, const StageCost& cost, double sum_weight,
                   double max_weight) {
  double best = kInfinity;
  for_each_composition(blocks, stages, 1, [&](const std::vector<int>& sizes) {
    std::vector<int> boundaries(sizes.size() + 1, 0);
    std::partial_sum(sizes.begin(), sizes.end(), boundaries.begin() + 1);
    best = std::min(best, objective_of(boundaries, cost, sum_weight, max_weight));
    return true;
  });
  return best;
}

void check_split(const std::optional<ChainSplit>& split, double expected, int blocks, int stages,
                 const StageCost& cost, double sum_weight, double max_weight) {
  RC_ASSERT(split.has_value() == (expected != kInfinity));
  if (!split) return;
  RC_ASSERT(split->cost == expected);
  RC_ASSERT(split->boundaries.size() == as_size(stages) + 1);
  RC_ASSERT(split->boundaries.front() == 0 && split->boundaries.back() == blocks);
  RC_ASSERT(std::adjacent_find(split->boundaries.begin(), split->boundaries.end(),
                               std::greater_equal<>()) == split->boundaries.end());
  RC_ASSERT(objective_of(split->boundaries, cost, sum_weight, max_weight) == expected);
}

RC_GTEST_PROP(SplitMinMax, EqualsBruteForce, (std::uint64_t seed, bool monotone)) {
  Rng rng(~seed);
  const int blocks = static_cast<int>(rng.integer(1, 10));
  const int stages = static_cast<int>(rng.integer(1, 5));
  const StageCost cost = random_cost(seed, blocks, monotone);
  check_split(split_min_max(blocks, stages, cost), brute_force(blocks, stages, cost, 0, 1), blocks,
              stages, cost, 0, 1);
}

RC_GTEST_PROP(SplitPipelineTime, EqualsBruteForce, (std::uint64_t seed, bool monotone)) {
  Rng rng(~seed);
  const int blocks = static_cast<int>(rng.integer(1, 10));
  const int stages = static_cast<int>(rng.integer(1, 5));
  const int micro_batches = static_cast<int>(rng.integer(1, 39));
  const StageCost cost = random_cost(seed, blocks, monotone);
  check_split(split_pipeline_time(blocks, stages, micro_batches, cost),
              brute_force(blocks, stages, cost, 1, micro_batches - 1), blocks, stages, cost, 1,
              micro_batches - 1);
}

TEST(SplitPipelineTime, WeighsTheSlowestStageByMicroBatches) {
  // Stage 0 is fast but has a fixed cost of 8; stage 1 takes 4 a block.
  const StageCost cost = [](int stage, int first, int last) {
    const double blocks = last - first + 1;
    return stage == 0 ? 8 + 5 * blocks : 4 * blocks;
  };
  EXPECT_EQ(split_pipeline_time(6, 2, 1, cost)->boundaries, (std::vector<int>{0, 1, 6}));
  EXPECT_EQ(split_pipeline_time(6, 2, 100, cost)->boundaries, (std::vector<int>{0, 2, 6}));
  EXPECT_EQ(split_pipeline_time(6, 2, 1, cost)->cost, 13 + 20);
  EXPECT_EQ(split_pipeline_time(6, 2, 100, cost)->cost, 18 + 16 + 99 * 18);
}

TEST(SplitChain, AsksEachCostAtMostOnce) {
  std::map<std::tuple<int, int, int>, int> asked;
  const StageCost cost = [&](int stage, int first, int last) {
    ++asked[{stage, first, last}];
    return static_cast<double>((last - first + 1) * (stage + 1));
  };
  for (const bool pipeline : {false, true}) {
    asked.clear();
    ASSERT_TRUE(pipeline ? split_pipeline_time(12, 4, 8, cost) : split_min_max(12, 4, cost));
    for (const auto& [key, count] : asked) EXPECT_EQ(count, 1);
  }
}

TEST(SplitChain, HasNoAnswerWhereNothingFits) {
  const StageCost never = [](int, int, int) { return kInfinity; };
  const StageCost free = [](int, int, int) { return 0.0; };
  EXPECT_FALSE(split_min_max(4, 2, never));
  EXPECT_FALSE(split_pipeline_time(4, 2, 3, never));
  EXPECT_FALSE(split_min_max(2, 3, free));
  EXPECT_FALSE(split_pipeline_time(2, 3, 3, free));
  EXPECT_EQ(split_pipeline_time(4, 2, 3, free)->cost, 0);
}

TEST(BalanceLayers, GivesProportionalIntegersByLargestRemainder) {
  EXPECT_EQ(balance_layers(40, {3, 1}), (std::vector<int>{30, 10}));
  EXPECT_EQ(balance_layers(10, {1, 1, 1}), (std::vector<int>{4, 3, 3}));
  EXPECT_EQ(balance_layers(10, {2.5, 3.4, 4.1}), (std::vector<int>{3, 3, 4}));
  EXPECT_EQ(balance_layers(5, {0, 0}), (std::vector<int>{3, 2}));
}

TEST(BalanceLayers, FixesSmallSharesAtTheMinimum) {
  EXPECT_EQ(balance_layers(10, {1000, 1, 1}), (std::vector<int>{8, 1, 1}));
  EXPECT_EQ(balance_layers(10, {1000, 0, 1}, 3), (std::vector<int>{4, 3, 3}));
  EXPECT_EQ(balance_layers(10, {1000, 0, 1}, 0), (std::vector<int>{10, 0, 0}));
  EXPECT_EQ(balance_layers(3, {5, 1, 1}), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(balance_layers(2, {5, 1, 1}), std::nullopt);
  EXPECT_EQ(balance_layers(2, {}), std::nullopt);
}

RC_GTEST_PROP(BalanceLayers, SumsToTheTotalAndStaysWithinOneOfTheShare, (std::uint64_t seed)) {
  Rng rng(seed);
  std::vector<double> weights(rng.integer(1, 12));
  for (double& w : weights) w = rng.bernoulli(0.2) ? 0 : rng.uniform() * 10;
  const int minimum = static_cast<int>(rng.integer(0, 3));
  const int total =
      minimum * static_cast<int>(weights.size()) + static_cast<int>(rng.integer(0, 99));
  const auto layers = balance_layers(total, weights, minimum);
  RC_ASSERT(layers.has_value());
  RC_ASSERT(std::accumulate(layers->begin(), layers->end(), 0) == total);
  RC_ASSERT(*std::min_element(layers->begin(), layers->end()) >= minimum);
  // Among entries above the minimum, counts follow one common rate to within one layer.
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (std::size_t j = 0; j < weights.size(); ++j) {
      if ((*layers)[i] <= minimum || weights[i] >= weights[j]) continue;
      RC_ASSERT((*layers)[i] <= (*layers)[j] + 1);
    }
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (minimum > 0 || sum == 0) return;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    RC_ASSERT(std::abs((*layers)[i] - total * weights[i] / sum) < 1 + 1e-6);
  }
}

}  // namespace
}  // namespace orrery::planners::partition_dp_test
