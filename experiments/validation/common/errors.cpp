#include "experiments/validation/common/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/base/check.h"
#include "models/config/csv.h"

namespace orrery::experiments {
namespace {

std::string csv_number(double value) { return fmt::format("{:.9g}", value); }

std::string csv_number(const std::optional<double>& value) {
  return value ? csv_number(*value) : std::string();
}

const char* use_of(const ValidationRow& row) {
  if (!row.measured) return "unmeasured";
  if (row.fitted) return "fitted";
  return row.scored ? "scored" : "unscored";
}

bool counts(const ValidationRow& row) { return row.measured && row.scored && !row.fitted; }

std::string percent(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f}", 100 * *value) : std::string("-");
}

/// Strings in the order in which they first appear.
template <typename Member>
std::vector<std::string> distinct(const std::vector<ValidationRow>& rows, Member member) {
  std::vector<std::string> values;
  for (const ValidationRow& row : rows) {
    if (std::find(values.begin(), values.end(), row.*member) == values.end()) {
      values.push_back(row.*member);
    }
  }
  return values;
}

}  // namespace

std::optional<double> relative_error(const ValidationRow& row) {
  if (!row.measured) return std::nullopt;
  ORRERY_CHECK(*row.measured > 0, "{}: {} is measured as {}", row.id, row.metric, *row.measured);
  return (row.predicted - *row.measured) / *row.measured;
}

double median(std::vector<double> values) {
  ORRERY_CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

ErrorSummary summarize(const std::string& set, const std::string& metric,
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
  if (!ids.empty()) summary.worst = ids[static_cast<std::size_t>(largest - sizes.begin())];
  summary.median = median(std::move(sizes));
  return summary;
}

ErrorSummary summarize(const std::vector<ValidationRow>& rows, const std::string& set,
                       const std::string& metric) {
  std::vector<double> errors;
  std::vector<std::string> ids;
  for (const ValidationRow& row : rows) {
    if (row.metric != metric || (!set.empty() && row.set != set) || !counts(row)) continue;
    errors.push_back(*relative_error(row));
    ids.push_back(row.id);
  }
  return summarize(set, metric, errors, ids);
}

std::string error_table(const std::vector<ErrorLine>& lines) {
  std::size_t set = 3, metric = 6;
  for (const ErrorLine& line : lines) {
    set = std::max(set, line.errors.set.size());
    metric = std::max(metric, line.errors.metric.size());
  }
  std::string table =
      fmt::format("{:<{}}  {:<{}}  rows   mean  median    max    bias  target  published  worst\n",
                  "set", set, "metric", metric);
  for (const ErrorLine& line : lines) {
    const ErrorSummary& e = line.errors;
    if (e.rows == 0) {
      table +=
          fmt::format("{:<{}}  {:<{}}  {:>4}  nothing measured\n", e.set, set, e.metric, metric, 0);
      continue;
    }
    table +=
        fmt::format("{:<{}}  {:<{}}  {:>4}  {:>5.1f}  {:>6.1f}  {:>5.1f}  {:>+6.1f}  {:>6}  {:>9}",
                    e.set, set, e.metric, metric, e.rows, 100 * e.mean, 100 * e.median, 100 * e.max,
                    100 * e.bias, percent(line.target), percent(line.published_best));
    table += e.worst.empty() ? std::string("\n") : fmt::format("  {}\n", e.worst);
  }
  return table;
}

std::string errors_csv(const std::string& experiment, const std::vector<ErrorLine>& lines) {
  std::string text = "experiment,set,metric,rows,mean,median,max,bias,target,published_best\n";
  for (const ErrorLine& line : lines) {
    const ErrorSummary& e = line.errors;
    const std::string errors =
        e.rows == 0 ? std::string(",,,")
                    : fmt::format("{},{},{},{}", csv_number(e.mean), csv_number(e.median),
                                  csv_number(e.max), csv_number(e.bias));
    text += fmt::format("{},{},{},{},{},{},{}\n", config::csv_cell(experiment),
                        config::csv_cell(e.set), config::csv_cell(e.metric), e.rows, errors,
                        csv_number(line.target), csv_number(line.published_best));
  }
  return text;
}

std::string predictions_csv(const std::vector<ValidationRow>& rows) {
  const std::vector<std::string> metrics = distinct(rows, &ValidationRow::metric);
  std::map<std::pair<std::string, std::string>, const ValidationRow*> cells;
  std::map<std::string, const ValidationRow*> first;
  std::map<std::string, bool> scored;
  for (const ValidationRow& row : rows) {
    const bool is_new = cells.emplace(std::pair(row.id, row.metric), &row).second;
    ORRERY_CHECK(is_new, "two rows of {} with {}", row.id, row.metric);
    first.emplace(row.id, &row);
    const auto known = scored.emplace(row.id, true).first;
    known->second = known->second && row.scored;
  }
  std::string text = "id,set,scored";
  for (const std::string& m : metrics) {
    text += fmt::format(",{}_predicted,{}_measured,{}_error,{}_use", m, m, m, m);
  }
  text += '\n';
  for (const std::string& id : distinct(rows, &ValidationRow::id)) {
    text += fmt::format("{},{},{}", config::csv_cell(id), config::csv_cell(first.at(id)->set),
                        scored.at(id));
    for (const std::string& metric : metrics) {
      const auto cell = cells.find({id, metric});
      if (cell == cells.end()) {
        text += ",,,,";
        continue;
      }
      const ValidationRow& row = *cell->second;
      text += fmt::format(",{},{},{},{}", csv_number(row.predicted), csv_number(row.measured),
                          csv_number(relative_error(row)), use_of(row));
    }
    text += '\n';
  }
  return text;
}

std::string parameters_csv(const std::string& experiment,
                           const std::vector<FittedParameter>& parameters) {
  std::string text = "experiment,name,unit,value,rows,fitted_on,leave_one_out\n";
  for (const FittedParameter& parameter : parameters) {
    text += fmt::format("{},{},{},{},{},{},{}\n", config::csv_cell(experiment),
                        config::csv_cell(parameter.name), config::csv_cell(parameter.unit),
                        csv_number(parameter.value), parameter.fitted_on.size(),
                        fmt::join(parameter.fitted_on, " "), csv_number(parameter.leave_one_out));
  }
  return text;
}

std::vector<double> leave_one_out(std::size_t rows,
                                  const std::function<double(const std::vector<std::size_t>& kept,
                                                             std::size_t left_out)>& predict) {
  std::vector<double> errors;
  for (std::size_t left_out = 0; left_out < rows; ++left_out) {
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < rows; ++i) {
      if (i != left_out) kept.push_back(i);
    }
    errors.push_back(predict(kept, left_out));
  }
  return errors;
}

}  // namespace orrery::experiments
