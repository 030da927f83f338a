/// Fits a few positive parameters of a black-box model: least squares on the logarithm of predicted
/// over measured, so that rows of 2 s and of 100 s count alike, with Huber's loss, so that a few
/// odd rows count little [Huber 1964]. Damped Gauss-Newton steps in the logarithms of the
/// parameters with differences as derivatives [Nocedal and Wright 2006, 10.3]. Parameters that the
/// rows say nothing about stay near where they start: each start counts like one observation with a
/// standard deviation of `prior_deviation`.
///
/// Deterministic: the same answers of the model give the same fit.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace orrery::experiments {

struct FitSpace {
  std::vector<double> start;  ///< Positive, as everything here.
  std::vector<double> least;
  std::vector<double> most;
  /// Other starts of single parameters, tried before the first step: a parameter whose start has no
  /// influence on the rows would never move. Empty lists: none.
  std::vector<std::vector<double>> tried;
};

struct FitRules {
  double huber = 0.1;  ///< Residual in log beyond which rows count linearly.
  /// Standard deviations of the logarithm of a parameter around its start, and of a row: they weigh
  /// the rows against the prior.
  double prior_deviation = 0.5;
  double row_deviation = 0.05;
  double difference = 0.03;  ///< Step in log for derivatives.
  int iterations = 8;
  double tolerance = 1e-3;  ///< A step that improves the loss by less is the last one.
};

/// For each point (one value by parameter) the prediction of each row.
using FitModel =
    std::function<std::vector<std::vector<double>>(const std::vector<std::vector<double>>& points)>;

struct FittedPoint {
  std::vector<double> point;
  std::vector<double> residuals;  ///< By row: log(predicted / measured).
  /// By row and parameter: derivative of the residual by the parameter's logarithm.
  std::vector<std::vector<double>> slopes;
  double loss = 0;
};

FittedPoint fit_rows(const std::vector<double>& measured, const FitSpace& space,
                     const FitRules& rules, const FitModel& model);

/// The point that all rows except `left_out` give, by the fit's slopes: residuals are linear in the
/// logarithms of parameters near the fit. Leave-one-out predictions use it.
std::vector<double> point_without(const FittedPoint& fitted, std::size_t left_out,
                                  const FitSpace& space, const FitRules& rules);

}  // namespace orrery::experiments
