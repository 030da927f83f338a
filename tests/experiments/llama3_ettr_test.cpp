// Effective training time and interruptions by replay and generator against the values that papers
// publish and the exact forms behind them.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "experiments/llama3/ettr/ettr.h"

namespace orrery::experiments::llama3_ettr_test {
namespace {

constexpr std::size_t kSeeds = 12;
constexpr int kFailures = 1000;

/// Effective training time of each point by replay, with seeds of its own.
const std::vector<MeanEstimate>& replayed() {
  static const std::vector<MeanEstimate> estimates = [] {
    std::vector<MeanEstimate> all;
    std::uint64_t seed = 0;
    for (const EttrPoint& point : ettr_points()) {
      std::vector<double> values(kSeeds);
      for (double& value : values) value = replayed_ettr(point, ++seed, kFailures);
      all.push_back(estimate(values));
    }
    return all;
  }();
  return estimates;
}

TEST(PublishedEttr, ExactFormLiesInTheConfidenceIntervalOfReplay) {
  const std::vector<EttrPoint> points = ettr_points();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const MeanEstimate& ours = replayed()[i];
    EXPECT_NEAR(ours.mean, exact_ettr(points[i]), ours.half_width) << points[i].name;
    EXPECT_LT(ours.half_width, 0.025) << points[i].name;
  }
}

TEST(PublishedEttr, ReplayIsNearThePublishedValues) {
  const std::vector<EttrPoint> points = ettr_points();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const EttrPoint& point = points[i];
    if (!point.published) continue;
    const double ours = replayed()[i].mean;
    if (point.published_is == "at least") {
      EXPECT_GE(ours, *point.published) << point.name;
    } else {
      // What was measured has more losses than the one that we count.
      EXPECT_NEAR(ours, *point.published, point.published_is == "measured" ? 0.04 : 0.025)
          << point.name;
    }
  }
}

TEST(PublishedEttr, AdditiveFormGivesTheDigitsComputedByIt) {
  const std::vector<EttrPoint> points = ettr_points();
  const std::vector<double> digits = {0.68, 0.93, 0.92, 0.90, 0.94, 0.445, 0.83};
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const double unit = digits[i] == 0.445 ? 0.001 : 0.01;
    EXPECT_NEAR(additive_ettr(points.at(i)), digits[i], 0.5 * unit) << points[i].name;
  }
}

TEST(PublishedEttr, AdditiveFormIsWithinSixPercentOfTheExactOne) {
  for (const EttrPoint& point : ettr_points()) {
    if (point.recovery == EttrRecovery::from_scratch) continue;
    EXPECT_NEAR(additive_ettr(point) / exact_ettr(point), 1, 0.06) << point.name;
  }
}

TEST(Llama3, InterruptionsOver54DaysHave419InTheirConfidenceInterval) {
  std::vector<double> counts;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    counts.push_back(static_cast<double>(llama3_interruptions(seed)));
  }
  const MeanEstimate ours = estimate(counts);
  EXPECT_NEAR(ours.mean, 419, ours.half_width);
  // For a Poisson number: 2.756 sqrt(419 / 30) = 10.3.
  EXPECT_LT(ours.half_width, 15);
  EXPECT_GT(ours.half_width, 6);
}

TEST(MeanEstimate, IsStudentsForTwoValues) {
  const MeanEstimate got = estimate({1, 3});
  EXPECT_DOUBLE_EQ(got.mean, 2);
  EXPECT_NEAR(got.half_width, 63.657, 1e-3);  // t of one degree of freedom, two-sided 99 %
}

}  // namespace
}  // namespace orrery::experiments::llama3_ettr_test
