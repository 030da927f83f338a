/// Linear regression on relative error that a few gross outliers cannot pull away: Huber's loss,
/// minimized by iteratively reweighted least squares [Huber 1964; Holland and Welsch 1977].
#pragma once
#include <cstddef>
#include <vector>

namespace orrery::calibration {

/// Rows of a design: terms[i] are what the coefficients of row i multiply.
struct Design {
  std::vector<std::vector<double>> terms;
  std::vector<double> measured;  ///< Positive, one for each row.
  void add(std::vector<double> row, double value) {
    terms.push_back(std::move(row));
    measured.push_back(value);
  }
  std::size_t rows() const { return measured.size(); }
};

/// Residuals within this many robust standard deviations count squared, beyond it linearly: 95 %
/// as efficient as least squares on normal errors [Huber 1981].
inline constexpr double kHuberTuning = 1.345;

/// Coefficients >= 0 that minimize the sum over rows of Huber's loss of (terms x coefficients -
/// measured) / measured. The loss changes from squared to linear at kHuberTuning standard
/// deviations, estimated from the median absolute residual; the iteration starts at least absolute
/// residuals. A coefficient that would be negative is zero and the others are fitted again, the
/// most negative (by its share of the measured values) first. Needs at least one row. Terms that
/// depend on one another share their effect in one of them.
std::vector<double> fit_relative(const Design& design);

double evaluate(const std::vector<double>& terms, const std::vector<double>& coefficients);

}  // namespace orrery::calibration
