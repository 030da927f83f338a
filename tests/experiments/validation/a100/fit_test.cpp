#include "experiments/validation/a100/fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::experiments::fit_test {
namespace {

using Points = std::vector<std::vector<double>>;

/// Row i: x_i / a + y_i / b, as time is work by rate.
std::vector<double> two_rates(const std::vector<double>& point) {
  std::vector<double> rows;
  for (int i = 0; i < 10; ++i) rows.push_back((1 + i) / point[0] + (10 - i * i % 7) / point[1]);
  return rows;
}

std::vector<double> answer(const Points& points, std::size_t at) { return two_rates(points[at]); }

FitModel model() {
  return [](const Points& points) {
    Points answers;
    for (std::size_t i = 0; i < points.size(); ++i) answers.push_back(answer(points, i));
    return answers;
  };
}

FitSpace space() { return {{0.8, 0.8}, {0.1, 0.1}, {1.0, 1.0}, {}}; }

FitRules loose() {
  FitRules rules;
  rules.prior_deviation = 100;
  rules.iterations = 30;
  return rules;
}

TEST(FitRows, FindsTheParametersThatMadeTheRows) {
  const FittedPoint fitted = fit_rows(two_rates({0.55, 0.35}), space(), loose(), model());
  EXPECT_NEAR(fitted.point[0], 0.55, 1e-3);
  EXPECT_NEAR(fitted.point[1], 0.35, 1e-3);
  for (const double residual : fitted.residuals) EXPECT_NEAR(residual, 0, 1e-3);
}

TEST(FitRows, OneOddRowMovesLittle) {
  std::vector<double> measured = two_rates({0.55, 0.35});
  measured[4] *= 2;
  const FittedPoint fitted = fit_rows(measured, space(), loose(), model());
  EXPECT_NEAR(fitted.point[0], 0.55, 0.06);
  EXPECT_NEAR(fitted.point[1], 0.35, 0.06);
}

TEST(FitRows, StaysInsideItsLimits) {
  // Rows that ask for a rate above the limit: the other one is fitted as if this were fixed.
  FitSpace narrow = space();
  narrow.most[0] = 0.9;
  const std::vector<double> measured = two_rates({2.0, 0.4});
  const FittedPoint both = fit_rows(measured, narrow, loose(), model());
  EXPECT_DOUBLE_EQ(both.point[0], 0.9);
  const FitModel other = [](const Points& points) {
    Points answers;
    for (const std::vector<double>& point : points) answers.push_back(two_rates({0.9, point[0]}));
    return answers;
  };
  const FittedPoint one = fit_rows(measured, {{0.8}, {0.1}, {1.0}, {}}, loose(), other);
  EXPECT_NEAR(both.point[1], one.point[0], 1e-3);
}

TEST(FitRows, ParametersWithoutEvidenceStayWhereTheyStart) {
  const FitModel blind = [](const Points& points) {
    Points answers;
    for (const std::vector<double>& point : points) {
      answers.push_back(std::vector<double>(5, 1 / point[0]));
    }
    return answers;
  };
  const FittedPoint fitted = fit_rows(std::vector<double>(5, 2.0), space(), FitRules{}, blind);
  EXPECT_NEAR(fitted.point[0], 0.5, 0.01);
  EXPECT_NEAR(fitted.point[1], 0.8, 1e-9);
}

TEST(FitRows, TriesOtherStartsOfParametersThatDoNotMatterAtFirst) {
  // A floor that lies below the rows at the start and has no slope there.
  const FitModel floor = [](const Points& points) {
    Points answers;
    for (const std::vector<double>& point : points) {
      answers.push_back({std::max(1.0, point[0]), std::max(2.0, point[0])});
    }
    return answers;
  };
  const FitSpace from_below = {{0.1}, {0.01}, {10}, {{3.0}}};
  EXPECT_NEAR(fit_rows({4.0, 4.0}, from_below, loose(), floor).point[0], 4.0, 1e-2);
}

TEST(PointWithout, AgreesWithAFitOnTheOtherRows) {
  std::vector<double> measured = two_rates({0.55, 0.35});
  for (std::size_t i = 0; i < measured.size(); ++i)
    measured[i] *= 1 + 0.01 * std::sin(3.0 * static_cast<double>(i));
  const FittedPoint all = fit_rows(measured, space(), loose(), model());
  const std::size_t left_out = 3;
  std::vector<double> kept = measured;
  kept.erase(kept.begin() + left_out);
  const FitModel others = [](const Points& points) {
    Points answers;
    for (std::size_t i = 0; i < points.size(); ++i) {
      answers.push_back(answer(points, i));
      answers.back().erase(answers.back().begin() + left_out);
    }
    return answers;
  };
  const FittedPoint refit = fit_rows(kept, space(), loose(), others);
  const std::vector<double> point = point_without(all, left_out, space(), loose());
  EXPECT_NEAR(point[0], refit.point[0], 3e-3);
  EXPECT_NEAR(point[1], refit.point[1], 3e-3);
}

}  // namespace
}  // namespace orrery::experiments::fit_test
