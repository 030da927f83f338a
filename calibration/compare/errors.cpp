#include "calibration/compare/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/base/median.h"
#include "models/config/csv.h"

namespace orrery::calibration {
namespace {

std::string csv_number(const std::optional<double>& value) {
  return value ? fmt::format("{:.9g}", *value) : std::string();
}

}  // namespace

ErrorSummary summarize_errors(const std::string& set, const std::string& metric,
                              const std::vector<double>& relative_errors,
                              const std::vector<std::string>& ids) {
  ErrorSummary summary;
  summary.set = set;
  summary.metric = metric;
  summary.rows = static_cast<int>(relative_errors.size());
  if (relative_errors.empty()) return summary;
  std::vector<double> sizes;
  for (const double error : relative_errors) {
    sizes.push_back(std::abs(error));
    summary.bias += error;
    summary.mean += std::abs(error);
  }
  const auto count = static_cast<double>(sizes.size());
  summary.bias /= count;
  summary.mean /= count;
  const auto largest = std::max_element(sizes.begin(), sizes.end());
  summary.max = *largest;
  if (!ids.empty()) summary.worst = ids[largest - sizes.begin()];
  summary.median = median(std::move(sizes));
  return summary;
}

std::string errors_csv(const std::string& experiment, const std::vector<ErrorSummary>& lines) {
  std::string text = "experiment,set,metric,rows,mean,median,max,bias,target,published_best\n";
  for (const ErrorSummary& e : lines) {
    const std::string errors =
        e.rows == 0 ? std::string(",,,")
                    : fmt::format("{:.9g},{:.9g},{:.9g},{:.9g}", e.mean, e.median, e.max, e.bias);
    text += fmt::format("{},{},{},{},{},{},{}\n", config::csv_cell(experiment),
                        config::csv_cell(e.set), config::csv_cell(e.metric), e.rows, errors,
                        csv_number(e.target), csv_number(e.published_best));
  }
  return text;
}

}  // namespace orrery::calibration
