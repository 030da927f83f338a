/// Errors of predictions against measurements, shared by all experiments that validate: rows go in
/// (one for each case and metric), tables and CSV files come out. Only rows that were measured,
/// that count (`scored`) and that no parameter was fitted on enter an error. The error of a row is
/// (predicted - measured) / measured.
///
/// predictions.csv has a line for each case, measured or not, by its id; errors.csv a line for each
/// set and metric; parameters.csv what was fitted, on how many rows, with its leave-one-out error.
/// Numbers are written with nine significant digits: same input, same bytes.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace orrery::experiments {

/// One metric of one case.
struct ValidationRow {
  std::string id;      ///< Name of the case in the data; unique with `metric`.
  std::string set;     ///< Cases whose errors are counted together.
  std::string metric;  ///< Name with unit: iteration_s, peak_memory_bytes.
  double predicted = 0;
  std::optional<double> measured;  ///< Positive.
  bool scored = true;              ///< False: the measurement is doubtful and does not count.
  bool fitted = false;             ///< A parameter of this metric was fitted on it.
};

/// Signed relative error; absent without a measurement.
std::optional<double> relative_error(const ValidationRow& row);

/// Errors of the rows of one set and metric that count.
struct ErrorSummary {
  std::string set;
  std::string metric;
  int rows = 0;       ///< 0: nothing was measured, and the errors below are 0.
  double mean = 0;    ///< Absolute relative error, as are median and max.
  double median = 0;  ///< Mean of the two in the middle where `rows` is even.
  double max = 0;
  double bias = 0;    ///< Mean signed error: below 0, predictions are low.
  std::string worst;  ///< Id of the row with the largest error; the first of several.
};

/// Median of `values`, not empty; of an even number the mean of the two in the middle.
double median(std::vector<double> values);

/// Summary of signed relative errors. `ids` are those of the rows, for `worst`, or empty.
ErrorSummary summarize(const std::string& set, const std::string& metric,
                       const std::vector<double>& relative_errors,
                       const std::vector<std::string>& ids = {});
/// Errors of the rows with this set and metric; "" takes every set.
ErrorSummary summarize(const std::vector<ValidationRow>& rows, const std::string& set,
                       const std::string& metric);

/// A line of the error table.
struct ErrorLine {
  ErrorSummary errors;
  std::optional<double> target;          ///< Mean error aimed at, relative.
  std::optional<double> published_best;  ///< Smallest published mean error of others, relative.
};

/// A parameter that was fitted.
struct FittedParameter {
  std::string name;
  std::string unit;
  double value = 0;
  std::vector<std::string> fitted_on;  ///< Ids.
  /// Mean absolute relative error of each of these rows, predicted with the value that the others
  /// give.
  double leave_one_out = 0;
};

/// For people: columns padded, errors in per cent with one decimal.
std::string error_table(const std::vector<ErrorLine>& lines);
/// experiment,set,metric,rows,mean,median,max,bias,target,published_best; all relative (0.05 is
/// 5 %); empty where there is none.
std::string errors_csv(const std::string& experiment, const std::vector<ErrorLine>& lines);
/// id,set,scored and for each metric, in order of appearance, <metric>_predicted,
/// <metric>_measured, <metric>_error, <metric>_use (scored, fitted, unscored, unmeasured). `scored`
/// is false where a metric of the case does not count.
std::string predictions_csv(const std::vector<ValidationRow>& rows);
/// experiment,name,unit,value,rows,fitted_on,leave_one_out; ids joined by spaces.
std::string parameters_csv(const std::string& experiment,
                           const std::vector<FittedParameter>& parameters);

/// For each of `rows` rows: `predict(kept, left_out)` fits on the rows of index `kept` and returns
/// the signed relative error of row `left_out`.
std::vector<double> leave_one_out(std::size_t rows,
                                  const std::function<double(const std::vector<std::size_t>& kept,
                                                             std::size_t left_out)>& predict);

/// Whether that many parameters may be fitted on that many rows: at most a fifth.
constexpr bool enough_rows(std::size_t parameters, std::size_t rows) {
  return 5 * parameters <= rows;
}

}  // namespace orrery::experiments
