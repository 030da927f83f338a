/// What validation_vtrain and validation_megatron have in common: command line, fit, predictions,
/// tables on standard output, result files.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/validation/a100/experiment.h"

namespace orrery::experiments {

/// What an error table needs.
struct A100Results {
  const std::vector<A100Row>& rows;
  const std::vector<ValidationRow>& metrics;         ///< All metrics of all rows.
  const std::vector<std::optional<double>>& unseen;  ///< By row, see unseen_errors().
  const A100Fit& fit;
};

struct A100Validation {
  std::string name;    ///< The experiment and its folder below validation/.
  std::string source;  ///< Where the data comes from, for those who lack it.
  std::vector<A100Parameter> free;
  A100Parameters start;
  std::function<std::vector<A100Row>(const std::string& folder, config::Diagnostics&)> read;
  /// Further metrics from the iteration times; may be empty.
  std::function<std::vector<ValidationRow>(
      const std::vector<A100Row>&, const std::vector<A100Prediction>&, const std::string& folder)>
      more_metrics;
  std::function<std::vector<ErrorLine>(const A100Results&)> lines;
};

/// Errors of some rows, seen or not, as a line of the table.
ErrorLine errors_of(const std::string& name, const std::vector<A100Row>& rows,
                    const std::vector<std::optional<double>>& errors,
                    const std::function<bool(const A100Row&)>& take,
                    std::optional<double> target = {}, std::optional<double> published = {});

/// The program. Options: --data, --out, --jobs, --cross (parameters.csv of another experiment).
/// Writes parameters.csv, predictions.csv, errors.csv, breakdown.csv to --out. Returns the exit
/// status: 0, also where the data is absent (it says so); 2 where input is wrong.
int run_validation(int argc, char** argv, const A100Validation& validation);

}  // namespace orrery::experiments
