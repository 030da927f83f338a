#include "calibration/fit/robust.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/base/check.h"
#include "models/base/median.h"

namespace orrery::calibration {
namespace {

/// Passes of reweighting; the weights settle long before.
constexpr int kPasses = 60;
/// Residuals below this count as exact: rounding of double sums.
constexpr double kExact = 1e-12;

/// By column, so that the algebra below runs along memory.
using Columns = std::vector<std::vector<double>>;
using Numbers = std::vector<double>;

double dot(const Numbers& a, const Numbers& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void subtract(Numbers& from, double factor, const Numbers& what) {
  for (std::size_t i = 0; i < from.size(); ++i) from[i] -= factor * what[i];
}

/// Columns that lose so much of their length to the others depend on them.
constexpr double kDependent = 1e-9;

/// Weighted least squares of columns x coefficients = 1: Gram-Schmidt with the longest remaining
/// column first, each orthogonalized twice [Daniel, Gragg, Kaufman, Stewart 1976]. A column that
/// depends on those before it has coefficient zero.
Numbers solve(const Columns& columns, const Numbers& weights) {
  const std::size_t count = columns.size();
  Numbers target(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) target[i] = std::sqrt(weights[i]);
  Columns rest = columns;
  Numbers length(count);
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t i = 0; i < target.size(); ++i) rest[c][i] *= target[i];
    length[c] = std::sqrt(dot(rest[c], rest[c]));
    for (double& value : rest[c]) value /= length[c] > 0 ? length[c] : 1;
  }
  std::vector<std::size_t> order;
  Columns triangle(count, Numbers(count, 0.0));  // [column][step]
  std::vector<bool> done(count, false);
  for (std::size_t step = 0; step < count; ++step) {
    std::size_t next = count;
    double longest = kDependent * kDependent;
    for (std::size_t c = 0; c < count; ++c) {
      const double own = done[c] ? 0 : dot(rest[c], rest[c]);
      if (own <= longest) continue;
      longest = own;
      next = c;
    }
    if (next == count) break;
    for (std::size_t s = 0; s < step; ++s) {
      const double share = dot(rest[next], rest[order[s]]);
      triangle[next][s] += share;
      subtract(rest[next], share, rest[order[s]]);
    }
    triangle[next][step] = std::sqrt(dot(rest[next], rest[next]));
    for (double& value : rest[next]) value /= triangle[next][step];
    done[next] = true;
    order.push_back(next);
    for (std::size_t c = 0; c < count; ++c) {
      if (done[c]) continue;
      triangle[c][step] = dot(rest[c], rest[next]);
      subtract(rest[c], triangle[c][step], rest[next]);
    }
  }
  Numbers solution(count, 0.0);
  for (std::size_t s = order.size(); s-- > 0;) {
    double value = dot(rest[order[s]], target);
    for (std::size_t later = s + 1; later < order.size(); ++later) {
      value -= triangle[order[later]][s] * solution[order[later]];
    }
    solution[order[s]] = value / triangle[order[s]][s];
  }
  for (std::size_t c = 0; c < count; ++c) solution[c] /= length[c] > 0 ? length[c] : 1;
  return solution;
}

/// |columns x coefficients - 1|.
Numbers residuals_of(const Columns& columns, const Numbers& coefficients) {
  Numbers residuals(columns.front().size(), -1.0);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    subtract(residuals, -coefficients[c], columns[c]);
  }
  for (double& value : residuals) value = std::abs(value);
  return residuals;
}

/// `columns` are divided by what was measured, so that every target is one.
Numbers reweighted(const Columns& columns) {
  Numbers weights(columns.front().size(), 1.0);
  Numbers solution = solve(columns, weights);
  for (int pass = 0; pass < kPasses; ++pass) {
    const Numbers residuals = residuals_of(columns, solution);
    const double floor = std::max(1e-3 * median(residuals), kExact);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = floor / std::max(residuals[i], floor);
    }
    solution = solve(columns, weights);
  }
  // 1.4826: from the median absolute residual to the standard deviation of normal errors.
  const double deviation = 1.4826 * median(residuals_of(columns, solution));
  const double limit = kHuberTuning * std::max(deviation, kExact);
  for (int pass = 0; pass < kPasses; ++pass) {
    const Numbers residuals = residuals_of(columns, solution);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = limit / std::max(residuals[i], limit);
    }
    solution = solve(columns, weights);
  }
  return solution;
}

}  // namespace

double evaluate(const std::vector<double>& terms, const std::vector<double>& coefficients) {
  return std::inner_product(terms.begin(), terms.end(), coefficients.begin(), 0.0);
}

std::vector<double> fit_relative(const Design& design) {
  ORRERY_CHECK(design.rows() > 0, "a fit without rows");
  const std::size_t columns = design.terms.front().size();
  std::vector<std::size_t> kept(columns);
  std::iota(kept.begin(), kept.end(), 0);
  std::vector<double> coefficients(columns, 0.0);
  while (!kept.empty()) {
    Columns scaled(kept.size(), Numbers(design.rows()));
    for (std::size_t r = 0; r < design.rows(); ++r) {
      ORRERY_CHECK(design.measured[r] > 0, "a measured value of {}", design.measured[r]);
      for (std::size_t c = 0; c < kept.size(); ++c) {
        scaled[c][r] = design.terms[r][kept[c]] / design.measured[r];
      }
    }
    const Numbers solution = reweighted(scaled);
    std::size_t worst = kept.size();
    double least = 0;
    for (std::size_t c = 0; c < kept.size(); ++c) {
      double size = 0;
      for (const double value : scaled[c]) size += std::abs(value);
      if (solution[c] * size >= least) continue;
      least = solution[c] * size;
      worst = c;
    }
    if (worst == kept.size()) {
      for (std::size_t c = 0; c < kept.size(); ++c) coefficients[kept[c]] = solution[c];
      return coefficients;
    }
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(worst));
  }
  return coefficients;
}

}  // namespace orrery::calibration
