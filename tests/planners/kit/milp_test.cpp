#include "planners/kit/milp.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners::milp_test {
namespace {

#define NEEDS_SOLVER() \
  if (!milp_available()) GTEST_SKIP() << "this build has no MILP solver (ORRERY_WITH_CBC)"

/// Largest value of items within the capacity, as a minimization of the negative value.
MilpModel knapsack(const std::vector<int>& weights, const std::vector<int>& values, int capacity) {
  MilpModel model;
  MilpTerms load;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    load.push_back({model.add_binary(-values[i]), static_cast<double>(weights[i])});
  }
  model.add_row(load, -kUnbounded, capacity);
  return model;
}

int best_knapsack(const std::vector<int>& weights, const std::vector<int>& values, int capacity) {
  std::vector<int> best(as_size(capacity) + 1, 0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (int c = capacity; c >= weights[i]; --c) {
      int& here = best[c];
      here = std::max(here, best[c - weights[i]] + values[i]);
    }
  }
  return best.back();
}

/// Strongly correlated items with an even total: hard for branch and bound.
struct HardKnapsack {
  std::vector<int> weights;
  std::vector<int> values;
  int capacity = 0;
};
HardKnapsack hard_knapsack() {
  HardKnapsack items;
  for (int i = 0; i < 40; ++i) {
    items.weights.push_back(1000 + (i * 7919) % 997);
    items.values.push_back(items.weights.back() + 100);
  }
  items.capacity = std::accumulate(items.weights.begin(), items.weights.end(), 0) / 2 + 1;
  return items;
}

TEST(Milp, SaysWhetherThereIsASolver) {
  MilpModel model;
  model.add({1, 2, 1, true});
  const MilpResult result = solve(model);
  EXPECT_EQ(result.status, milp_available() ? MilpStatus::optimal : MilpStatus::unavailable);
  EXPECT_EQ(result.values.empty(), !milp_available());
}

TEST(Milp, FillsAKnapsack) {
  NEEDS_SOLVER();
  const std::vector<int> weights = {12, 7, 11, 8, 9, 6, 7};
  const std::vector<int> values = {24, 13, 23, 15, 16, 11, 12};
  const MilpResult result = solve(knapsack(weights, values, 26));
  ASSERT_EQ(result.status, MilpStatus::optimal);
  EXPECT_EQ(result.objective, -51);
  EXPECT_EQ(result.bound, -51);
  EXPECT_EQ(result.gap(), 0);
  EXPECT_EQ(best_knapsack(weights, values, 26), 51);
}

TEST(Milp, AssignsWorkersToTasks) {
  NEEDS_SOLVER();
  constexpr int kSize = 5;
  const auto cost = [](int w, int t) { return (w * 17 + t * 29 + w * t * 13) % 23 + 1; };
  MilpModel model;
  std::vector<std::vector<int>> x(kSize, std::vector<int>(kSize));
  for (int w = 0; w < kSize; ++w) {
    for (int t = 0; t < kSize; ++t) {
      x[w][t] = model.add_binary(cost(w, t));
    }
  }
  for (std::size_t a = 0; a < kSize; ++a) {
    MilpTerms row;
    MilpTerms column;
    for (std::size_t b = 0; b < kSize; ++b) {
      row.push_back({x[a][b], 1});
      column.push_back({x[b][a], 1});
    }
    model.add_row(row, 1, 1);
    model.add_row(column, 1, 1);
  }
  std::vector<int> order(kSize);
  std::iota(order.begin(), order.end(), 0);
  int best = 1000;
  do {
    int sum = 0;
    for (int w = 0; w < kSize; ++w) sum += cost(w, order[w]);
    best = std::min(best, sum);
  } while (std::next_permutation(order.begin(), order.end()));
  const MilpResult result = solve(model);
  ASSERT_EQ(result.status, MilpStatus::optimal);
  EXPECT_EQ(result.objective, best);
}

TEST(Milp, MixesIntegerAndContinuousVariables) {
  NEEDS_SOLVER();
  MilpModel model;  // min y subject to y >= 2.5 - n, y >= n - 1.25: n = 2 gives 0.75.
  const int n = model.add({0, 10, 0, true});
  const int y = model.add({0, kUnbounded, 1, false});
  model.add_row({{y, 1}, {n, 1}}, 2.5, kUnbounded);
  model.add_row({{y, 1}, {n, -1}}, -1.25, kUnbounded);
  const MilpResult result = solve(model);
  ASSERT_EQ(result.status, MilpStatus::optimal);
  EXPECT_NEAR(result.objective, 0.75, 1e-9);
  EXPECT_EQ(result.values[n], 2);
}

TEST(Milp, TermsOfOneVariableAddUp) {
  NEEDS_SOLVER();
  MilpModel model;
  const int n = model.add({0, 10, -1, true});
  model.add_row({{n, 1}, {n, 1}, {n, 0}}, -kUnbounded, 7);
  EXPECT_EQ(solve(model).objective, -3);
}

TEST(Milp, KnowsInfeasiblePrograms) {
  NEEDS_SOLVER();
  MilpModel relaxation;  // No real solution.
  const int x = relaxation.add({0, 1, 1, true});
  relaxation.add_row({{x, 1}}, 2, kUnbounded);
  EXPECT_EQ(solve(relaxation).status, MilpStatus::infeasible);

  MilpModel integers;  // 2 a + 2 b = 3 has real solutions only.
  const int a = integers.add({0, 5, 1, true});
  const int b = integers.add({0, 5, 1, true});
  integers.add_row({{a, 2}, {b, 2}}, 3, 3);
  const MilpResult result = solve(integers);
  EXPECT_EQ(result.status, MilpStatus::infeasible);
  EXPECT_TRUE(result.values.empty());

  MilpModel empty_range;
  empty_range.add({2, 1, 0, false});
  EXPECT_EQ(solve(empty_range).status, MilpStatus::infeasible);
}

TEST(Milp, KnowsUnboundedPrograms) {
  NEEDS_SOLVER();
  MilpModel line;
  line.add({-kUnbounded, kUnbounded, 1, false});
  EXPECT_EQ(solve(line).status, MilpStatus::unbounded);

  MilpModel integers;
  const int n = integers.add({0, kUnbounded, -1, true});
  const int m = integers.add({0, kUnbounded, 0, true});
  integers.add_row({{n, 1}, {m, -1}}, 0, 0);
  EXPECT_EQ(solve(integers).status, MilpStatus::unbounded);

  // The relaxation falls without end, but no integers satisfy 2 m = 1.
  MilpModel neither;
  neither.add({0, kUnbounded, -1, true});
  const int half = neither.add({0, 5, 0, true});
  neither.add_row({{half, 2}}, 1, 1);
  EXPECT_EQ(solve(neither).status, MilpStatus::infeasible);
}

TEST(Milp, ModelsWithoutVariablesOrRowsAreSolved) {
  NEEDS_SOLVER();
  EXPECT_EQ(solve(MilpModel()).status, MilpStatus::optimal);
  MilpModel no_rows;
  no_rows.add({2, 3, 1, true});
  EXPECT_EQ(solve(no_rows).objective, 2);
}

TEST(Milp, NodeLimitReportsAValidBound) {
  NEEDS_SOLVER();
  const HardKnapsack items = hard_knapsack();
  const MilpModel model = knapsack(items.weights, items.values, items.capacity);
  const double best = -best_knapsack(items.weights, items.values, items.capacity);
  int stopped = 0;
  for (const int nodes : {1, 2, 5, 20, 100}) {
    const MilpResult result = solve(model, {.nodes = nodes});
    EXPECT_LE(result.nodes, nodes);
    if (result.status != MilpStatus::node_limit) continue;
    ++stopped;
    EXPECT_EQ(result.nodes, nodes);
    EXPECT_LE(result.bound, best + 1e-6);
    EXPECT_GT(result.bound, 1.2 * best) << "a bound that says something";
    if (result.values.empty()) continue;
    EXPECT_GE(result.objective, best - 1e-6);
    EXPECT_GE(result.gap(), 0);
  }
  EXPECT_GE(stopped, 2) << "the knapsack is not hard enough to test the limit";
}

TEST(Milp, CutoffHidesWorseSolutions) {
  NEEDS_SOLVER();
  MilpModel model;
  model.add({3, 10, 1, true});
  EXPECT_EQ(solve(model, {.cutoff = 3.5}).status, MilpStatus::optimal);
  EXPECT_EQ(solve(model, {.cutoff = 2.5}).status, MilpStatus::infeasible);
}

TEST(Milp, StopsWhenCanceled) {
  NEEDS_SOLVER();
  const HardKnapsack items = hard_knapsack();
  const std::atomic<bool> canceled = true;
  const MilpResult result =
      solve(knapsack(items.weights, items.values, items.capacity), {.canceled = &canceled});
  EXPECT_EQ(result.status, MilpStatus::canceled);
  EXPECT_EQ(result.nodes, 1);
}

TEST(Milp, EqualProgramsGiveEqualAnswers) {
  NEEDS_SOLVER();
  const HardKnapsack items = hard_knapsack();
  const MilpModel model = knapsack(items.weights, items.values, items.capacity);
  const MilpResult first = solve(model, {.nodes = 50});
  const MilpResult second = solve(model, {.nodes = 50});
  EXPECT_EQ(first.status, second.status);
  EXPECT_EQ(first.values, second.values);
  EXPECT_EQ(first.objective, second.objective);
  EXPECT_EQ(first.bound, second.bound);
  EXPECT_EQ(first.nodes, second.nodes);
}

TEST(Milp, PrintsNothing) {
  NEEDS_SOLVER();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  solve(knapsack({3, 4, 5, 6}, {4, 5, 6, 7}, 10));
  MilpModel unbounded;
  unbounded.add({-kUnbounded, kUnbounded, 1, true});
  solve(unbounded);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/// Small programs with integer data over boxes of integers: every point can be tried.
RC_GTEST_PROP(Milp, EqualsBruteForceOnSmallIntegerPrograms, ()) {
  if (!milp_available()) return;
  const int columns = *rc::gen::inRange(1, 5);
  const int rows = *rc::gen::inRange(0, 5);
  MilpModel model;
  for (int v = 0; v < columns; ++v) {
    const int low = *rc::gen::inRange(-3, 2);
    const int high = low + *rc::gen::inRange(0, 5);
    const int objective = *rc::gen::inRange(-9, 10);
    model.add({static_cast<double>(low), static_cast<double>(high), static_cast<double>(objective),
               true});
  }
  for (int r = 0; r < rows; ++r) {
    MilpTerms terms;
    for (int v = 0; v < columns; ++v) {
      terms.push_back({v, static_cast<double>(*rc::gen::inRange(-5, 6))});
    }
    const int low = *rc::gen::inRange(-12, 6);
    const bool open = *rc::gen::arbitrary<bool>();
    const double high = open ? kUnbounded : low + *rc::gen::inRange(0, 9);
    model.add_row(terms, low, high);
  }
  double best = kUnbounded;
  std::vector<double> point(columns);
  const std::function<void(std::size_t)> walk = [&](std::size_t v) {
    if (v == point.size()) {
      for (const MilpModel::Row& row : model.rows()) {
        double sum = 0;
        for (const MilpTerm& t : row.terms) {
          sum += t.coefficient * point[t.variable];
        }
        if (sum < row.low || sum > row.high) return;
      }
      double objective = 0;
      for (std::size_t i = 0; i < point.size(); ++i) {
        objective += model.variables()[i].objective * point[i];
      }
      best = std::min(best, objective);
      return;
    }
    for (double value = model.variables()[v].low; value <= model.variables()[v].high; ++value) {
      point[v] = value;
      walk(v + 1);
    }
  };
  walk(0);
  const MilpResult result = solve(model);
  if (std::isinf(best)) {
    RC_ASSERT(result.status == MilpStatus::infeasible);
  } else {
    RC_ASSERT(result.status == MilpStatus::optimal);
    RC_ASSERT(result.objective == best);
  }
}

}  // namespace
}  // namespace orrery::planners::milp_test
