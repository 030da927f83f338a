/// Errors of predictions against measurements: their summary over the rows of a set, and the table
/// of such summaries that tools/scripts/accuracy.py reads. The error of a row is
/// (predicted - measured) / measured. Numbers are written with nine significant digits: same input,
/// same bytes.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace orrery::calibration {

/// Errors of the rows of one set and metric that count.
struct ErrorSummary {
  std::string set;
  std::string metric;
  int rows = 0;       ///< 0: nothing was measured, and the errors below are 0.
  double mean = 0;    ///< Absolute relative error, as are median and max.
  double median = 0;  ///< Mean of the two in the middle where `rows` is even.
  double max = 0;
  double bias = 0;               ///< Mean signed error: below 0, predictions are low.
  std::string worst;             ///< Id of the row with the largest error; the first of several.
  std::optional<double> target;  ///< Mean error aimed at, relative.
  std::optional<double> published_best;  ///< Smallest published mean error of others, relative.
};

/// Summary of signed relative errors. `ids` are those of the rows, for `worst`, or empty.
ErrorSummary summarize_errors(const std::string& set, const std::string& metric,
                              const std::vector<double>& relative_errors,
                              const std::vector<std::string>& ids = {});

/// experiment,set,metric,rows,mean,median,max,bias,target,published_best; all relative (0.05 is
/// 5 %); empty where there is none.
std::string errors_csv(const std::string& experiment, const std::vector<ErrorSummary>& lines);

}  // namespace orrery::calibration
