// Are cuts and batches as good as the best of all of them?
#include "planners/recovery/kit/stage_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "models/base/ids.h"
#include "models/base/rng.h"
#include "planners/kit/integers.h"

namespace orrery::planners::stage_cut_test {
namespace {

/// The criterion's value for stages with these times, as its definition says.
double cut_value(CutCriterion criterion, const std::vector<double>& stages, int micro_batches) {
  double sum = 0;
  std::size_t slowest = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    sum += stages[s];
    if (stages[s] >= stages[slowest]) slowest = s;
  }
  if (stages.empty()) return 0;
  if (criterion == CutCriterion::pipeline_time) return sum + (micro_batches - 1) * stages[slowest];
  double after = 0;
  for (std::size_t s = slowest; s < stages.size(); ++s) after += stages[s];
  return sum + static_cast<double>(2 * stages.size() + slowest + 1) * stages[slowest] + after;
}

/// Random seconds of stages, some of them impossible; small integers make ties frequent.
struct Stages {
  Stages(Rng& rng, int layers, int stages) : layers(layers), stages(stages) {
    for (int i = 0; i < stages * (layers + 1) * (layers + 1); ++i) {
      seconds.push_back(rng.bernoulli(0.1) ? -1 : static_cast<double>(rng.integer(1, 9)));
    }
  }
  std::optional<double> operator()(int stage, int first, int n) const {
    const double t = seconds[as_size((stage * (layers + 1) + first) * (layers + 1) + n)];
    if (t < 0) return std::nullopt;
    return t;
  }
  int layers;
  int stages;
  std::vector<double> seconds;
};

std::optional<double> least_by_enumeration(const Stages& stages, int micro_batches,
                                           CutCriterion criterion) {
  std::optional<double> least;
  for_each_composition(stages.layers, stages.stages, 1, [&](const std::vector<int>& counts) {
    std::vector<double> times;
    int first = 0;
    for (std::size_t s = 0; s < counts.size(); ++s) {
      const auto t = stages(static_cast<int>(s), first, counts[s]);
      if (!t) return true;
      times.push_back(*t);
      first += counts[s];
    }
    const double value = cut_value(criterion, times, micro_batches);
    if (!least || value < *least) least = value;
    return true;
  });
  return least;
}

TEST(StageCut, IsAsGoodAsTheBestOfAllCuts) {
  Rng rng(1);
  int possible = 0;
  for (int round = 0; round < 600; ++round) {
    const int layers = static_cast<int>(rng.integer(1, 8));
    const int count = static_cast<int>(rng.integer(1, layers));
    const Stages stages(rng, layers, count);
    const int micro_batches = static_cast<int>(rng.integer(1, 12));
    for (const CutCriterion criterion : {CutCriterion::pipeline_time, CutCriterion::oobleck}) {
      const auto least = least_by_enumeration(stages, micro_batches, criterion);
      const auto cut = best_cut(layers, count, micro_batches, criterion, stages);
      ASSERT_EQ(cut.has_value(), least.has_value()) << "round " << round;
      if (!cut) continue;
      ++possible;
      std::vector<double> times;
      int first = 0;
      for (std::size_t s = 0; s < cut->layers.size(); ++s) {
        times.push_back(*stages(static_cast<int>(s), first, cut->layers[s]));
        first += cut->layers[s];
      }
      EXPECT_EQ(first, layers);
      EXPECT_DOUBLE_EQ(cut->value, *least) << "round " << round;
      EXPECT_DOUBLE_EQ(cut_value(criterion, times, micro_batches), *least) << "round " << round;
    }
  }
  EXPECT_GT(possible, 500);
}

TEST(StageCut, MoreStagesThanLayersAreImpossible) {
  const auto any = [](int, int, int) -> std::optional<double> { return 1.0; };
  EXPECT_FALSE(best_cut(3, 4, 8, CutCriterion::pipeline_time, any));
  EXPECT_TRUE(best_cut(4, 4, 8, CutCriterion::pipeline_time, any));
}

TEST(CutValue, OobleckCountsTheSlowestStageAsTheLastOfEqualOnes) {
  // T1 = 6; k = 2 of S = 3: T2 = (6 + 2 + 1) 2; T3 = 2. [execution_result.h]
  EXPECT_DOUBLE_EQ(cut_value(CutCriterion::oobleck, {2, 2, 2}, 0), 6 + 18 + 2);
  // k = 0: T2 = (6 + 0 + 1) 3; T3 = all.
  EXPECT_DOUBLE_EQ(cut_value(CutCriterion::oobleck, {3, 1, 2}, 0), 6 + 21 + 6);
}

TEST(SplitBatch, IsAsGoodAsTheBestOfAllSplits) {
  Rng rng(2);
  for (int round = 0; round < 300; ++round) {
    const int pipelines = static_cast<int>(rng.integer(1, 4));
    const int total = static_cast<int>(rng.integer(pipelines, 12));
    std::vector<PipelineRate> rates;
    for (int p = 0; p < pipelines; ++p) {
      rates.push_back({0.1 + 5 * rng.uniform(), 2 * rng.uniform()});
    }
    const auto slowest = [&](const std::vector<int>& shares) {
      double time = 0;
      for (std::size_t p = 0; p < shares.size(); ++p) {
        time = std::max(time, rates[p].time(shares[p]));
      }
      return time;
    };
    std::optional<double> least;
    for_each_composition(total, pipelines, 1, [&](const std::vector<int>& shares) {
      const double time = slowest(shares);
      if (!least || time < *least) least = time;
      return true;
    });
    const std::vector<int> shares = split_batch(rates, total);
    ASSERT_EQ(static_cast<int>(shares.size()), pipelines);
    int sum = 0;
    for (const int share : shares) sum += share;
    EXPECT_EQ(sum, total);
    EXPECT_DOUBLE_EQ(slowest(shares), *least) << "round " << round;
  }
  EXPECT_TRUE(split_batch({{1, 1}, {1, 1}}, 1).empty());
}

}  // namespace
}  // namespace orrery::planners::stage_cut_test
