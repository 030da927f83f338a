/// One validation on A100 clusters from rows to errors: fits the free parameters on the rows that
/// are marked for it, predicts all rows with the whole simulation, and predicts each fitting row
/// with the parameters that the others give.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "experiments/validation/a100/fit.h"
#include "experiments/validation/a100/row.h"
#include "experiments/validation/a100/simulate.h"
#include "experiments/validation/common/errors.h"
#include "models/config/diagnostics.h"
#include "models/spec/library.h"

namespace orrery::experiments {

/// Limits and other starts of a parameter. Shares end at 1; the host needs 0.1 to 20 ms.
struct A100Range {
  double least;
  double most;
  std::vector<double> tried;
};
A100Range range_of(A100Parameter parameter);

struct A100Fit {
  A100Parameters parameters;
  std::vector<std::size_t> rows;        ///< Indices of the rows that it was fitted on.
  std::vector<double> left_out;         ///< By row of `rows`: signed error without it in the fit.
  std::vector<A100Parameters> without;  ///< By row of `rows`: the parameters of that prediction.
  FittedPoint details;
};

/// Fits `free`, in folded simulations; the other parameters keep `start`'s values. All rows that
/// are `fitted` must have a measurement, and be at least five for each parameter (checked).
A100Fit fit_a100(const std::vector<A100Row>& rows, const std::vector<A100Parameter>& free,
                 const A100Parameters& start, const models::Library& library,
                 const A100Simulation& options);

/// Iteration times of all rows with one set of parameters.
std::vector<A100Prediction> predict_a100(const std::vector<A100Row>& rows,
                                         const A100Parameters& parameters,
                                         const models::Library& library,
                                         const A100Simulation& options);

/// As rows of the error tables, metric "iteration_s".
std::vector<ValidationRow> iteration_rows(const std::vector<A100Row>& rows,
                                          const std::vector<A100Prediction>& predictions);

/// Signed errors of all measured rows, each predicted without having been fitted on: the fitting
/// rows by leave-one-out. By row; absent without a measurement.
std::vector<std::optional<double>> unseen_errors(const std::vector<A100Row>& rows,
                                                 const std::vector<A100Prediction>& predictions,
                                                 const A100Fit& fit);

/// Mean signed and mean absolute error by value of a property, one line each: where the error comes
/// from.
std::string residual_table(const std::string& property, const std::vector<A100Row>& rows,
                           const std::vector<std::optional<double>>& errors,
                           const std::function<int(const A100Row&)>& value);

/// id, measured_s, predicted_s, error (unseen), then tp, pp, dp, micro_batch, micro_batches,
/// virtual_stages and the parts of the predicted time, in seconds.
std::string breakdown_csv(const std::vector<A100Row>& rows,
                          const std::vector<A100Prediction>& predictions,
                          const std::vector<std::optional<double>>& errors);

std::vector<FittedParameter> fitted_parameters(const std::vector<A100Row>& rows,
                                               const std::vector<A100Parameter>& free,
                                               const A100Fit& fit);
/// Fitted parameters from a file that parameters_csv() wrote, the others as declared. An unknown
/// name or an impossible value is a problem.
A100Parameters read_parameters(const std::string& path, config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
