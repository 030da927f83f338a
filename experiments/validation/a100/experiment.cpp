#include "experiments/validation/a100/experiment.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "experiments/validation/a100/table.h"
#include "models/base/check.h"

namespace orrery::experiments {
namespace {

A100Parameters with(A100Parameters base, const std::vector<A100Parameter>& free,
                    const std::vector<double>& point) {
  for (std::size_t p = 0; p < free.size(); ++p) base[free[p]] = point[p];
  return base;
}

FitSpace space_of(const std::vector<A100Parameter>& free, const A100Parameters& start) {
  FitSpace space;
  for (const A100Parameter parameter : free) {
    const A100Range range = range_of(parameter);
    space.start.push_back(start[parameter]);
    space.least.push_back(range.least);
    space.most.push_back(range.most);
    space.tried.push_back(range.tried);
  }
  return space;
}

/// Iteration times, each simulated once: parameters that a row does not depend on do not count.
class Answers {
 public:
  Answers(const std::vector<A100Row>& rows, const models::Library& library,
          const A100Simulation& options)
      : rows_(rows), library_(library), options_(options) {}

  std::vector<double> to(std::vector<std::pair<std::size_t, A100Parameters>> asked) {
    std::vector<A100Question> questions;
    std::vector<Key> keys;
    for (auto& [row, parameters] : asked) {
      if (!rows_[row].software.older) parameters[A100Parameter::older_software] = 1;
      const Key key{row, parameters.values};
      if (!known_.emplace(key, 0).second) continue;
      keys.push_back(key);
      questions.push_back({&rows_[row], parameters});
    }
    const std::vector<A100Prediction> simulated = simulate(questions, library_, options_);
    for (std::size_t i = 0; i < keys.size(); ++i) known_[keys[i]] = simulated[i].iteration.value;
    std::vector<double> times;
    for (const auto& [row, parameters] : asked)
      times.push_back(known_.at({row, parameters.values}));
    return times;
  }

 private:
  using Key = std::pair<std::size_t, std::array<double, kA100Parameters>>;
  const std::vector<A100Row>& rows_;
  const models::Library& library_;
  const A100Simulation& options_;
  std::map<Key, double> known_;
};

std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{:.9g}", *value) : std::string();
}

}  // namespace

A100Range range_of(A100Parameter parameter) {
  switch (parameter) {
    case A100Parameter::host_per_layer:
      return {1e-4, 2e-2, {1e-3, 2e-3, 4e-3}};
    case A100Parameter::older_software:
      return {0.8, 1.5, {}};
    default:
      return {0.1, 1.0, {}};
  }
}

A100Fit fit_a100(const std::vector<A100Row>& rows, const std::vector<A100Parameter>& free,
                 const A100Parameters& start, const models::Library& library,
                 const A100Simulation& options) {
  A100Fit fit;
  std::vector<double> measured;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].fitted) continue;
    ORRERY_CHECK(rows[i].measured.has_value(), "{} has no measurement to fit on", rows[i].id);
    fit.rows.push_back(i);
    measured.push_back(rows[i].measured->value);
  }
  ORRERY_CHECK(enough_rows(free.size(), fit.rows.size()), "{} parameters on {} rows", free.size(),
               fit.rows.size());
  A100Simulation folded = options;
  folded.folded = true;
  Answers answers(rows, library, folded);
  const FitModel model = [&](const std::vector<std::vector<double>>& points) {
    std::vector<std::pair<std::size_t, A100Parameters>> asked;
    for (const std::vector<double>& point : points) {
      for (const std::size_t i : fit.rows) asked.emplace_back(i, with(start, free, point));
    }
    const std::vector<double> times = answers.to(asked);
    std::vector<std::vector<double>> by_point;
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (i % fit.rows.size() == 0) by_point.emplace_back();
      by_point.back().push_back(times[i]);
    }
    return by_point;
  };
  const FitSpace space = space_of(free, start);
  const FitRules rules;
  fit.details = fit_rows(measured, space, rules, model);
  fit.parameters = with(start, free, fit.details.point);

  std::vector<std::pair<std::size_t, A100Parameters>> asked;
  for (std::size_t i = 0; i < fit.rows.size(); ++i) {
    fit.without.push_back(with(start, free, point_without(fit.details, i, space, rules)));
    asked.emplace_back(fit.rows[i], fit.without.back());
  }
  const std::vector<double> times = answers.to(asked);
  for (std::size_t i = 0; i < times.size(); ++i) {
    fit.left_out.push_back(times[i] / measured[i] - 1);
  }
  return fit;
}

std::vector<A100Prediction> predict_a100(const std::vector<A100Row>& rows,
                                         const A100Parameters& parameters,
                                         const models::Library& library,
                                         const A100Simulation& options) {
  std::vector<A100Question> questions;
  for (const A100Row& row : rows) questions.push_back({&row, parameters});
  return simulate(questions, library, options);
}

std::vector<ValidationRow> iteration_rows(const std::vector<A100Row>& rows,
                                          const std::vector<A100Prediction>& predictions) {
  std::vector<ValidationRow> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ValidationRow row;
    row.id = rows[i].id;
    row.set = rows[i].set;
    row.metric = "iteration_s";
    row.predicted = predictions[i].iteration.value;
    if (rows[i].measured) row.measured = rows[i].measured->value;
    row.scored = rows[i].scored;
    row.fitted = rows[i].fitted;
    out.push_back(std::move(row));
  }
  return out;
}

std::vector<std::optional<double>> unseen_errors(const std::vector<A100Row>& rows,
                                                 const std::vector<A100Prediction>& predictions,
                                                 const A100Fit& fit) {
  std::vector<std::optional<double>> errors(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].measured) errors[i] = predictions[i].iteration / *rows[i].measured - 1;
  }
  for (std::size_t i = 0; i < fit.rows.size(); ++i) errors[fit.rows[i]] = fit.left_out[i];
  return errors;
}

std::string residual_table(const std::string& property, const std::vector<A100Row>& rows,
                           const std::vector<std::optional<double>>& errors,
                           const std::function<int(const A100Row&)>& value) {
  struct Sum {
    int rows = 0;
    double bias = 0;
    double size = 0;
  };
  std::map<int, Sum> sums;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!errors[i]) continue;
    Sum& sum = sums[value(rows[i])];
    ++sum.rows;
    sum.bias += *errors[i];
    sum.size += std::abs(*errors[i]);
  }
  std::string text = fmt::format("{:<16} rows   bias   mean\n", property);
  for (const auto& [key, sum] : sums) {
    text += fmt::format("{:>16} {:>4} {:>+6.1f} {:>6.1f}\n", key, sum.rows,
                        100 * sum.bias / sum.rows, 100 * sum.size / sum.rows);
  }
  return text;
}

std::string breakdown_csv(const std::vector<A100Row>& rows,
                          const std::vector<A100Prediction>& predictions,
                          const std::vector<std::optional<double>>& errors) {
  std::string text =
      "id,set,use,measured_s,predicted_s,error,tp,pp,dp,micro_batch,micro_batches,virtual_stages,"
      "compute_s,tensor_parallel_s,pipeline_s,data_parallel_s,optimizer_s,bubble_s\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const A100Row& row = rows[i];
    const models::Breakdown& b = predictions[i].breakdown;
    const char* use = !row.measured ? "unmeasured" : row.fitted ? "fitted" : "scored";
    text += fmt::format(
        "{},{},{},{},{:.9g},{},{},{},{},{},{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g}\n",
        row.id, row.set, use,
        cell(row.measured ? std::optional(row.measured->value) : std::nullopt),
        predictions[i].iteration.value, cell(errors[i]), row.tp, row.pp, row.dp, row.micro_batch,
        row.micro_batches(), row.virtual_stages, b.compute.value, b.tensor_parallel.value,
        b.pipeline.value, b.data_parallel.value, b.optimizer.value, b.bubble.value);
  }
  return text;
}

std::vector<FittedParameter> fitted_parameters(const std::vector<A100Row>& rows,
                                               const std::vector<A100Parameter>& free,
                                               const A100Fit& fit) {
  double mean = 0;
  for (const double error : fit.left_out) mean += std::abs(error);
  mean /= static_cast<double>(fit.left_out.size());
  std::vector<FittedParameter> out;
  for (const A100Parameter parameter : free) {
    FittedParameter one{
        name_of(parameter), unit_of(parameter), fit.parameters[parameter], {}, mean};
    for (const std::size_t i : fit.rows) one.fitted_on.push_back(rows[i].id);
    out.push_back(std::move(one));
  }
  return out;
}

A100Parameters read_parameters(const std::string& path, config::Diagnostics& diagnostics) {
  const PublishedTable table(path, {"name", "value"}, diagnostics);
  A100Parameters parameters = declared_a100_parameters();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::string name = table.text(i, "name");
    std::optional<A100Parameter> found;
    for (std::size_t p = 0; p < kA100Parameters; ++p) {
      const auto parameter = static_cast<A100Parameter>(p);
      if (name == name_of(parameter)) found = parameter;
    }
    const std::optional<double> value = table.number(i, "value");
    if (!found) {
      table.problem(i, "name", fmt::format("no parameter is called '{}'", name));
    } else if (!value) {
      table.problem(i, "value", "is missing");
    } else if (*value < range_of(*found).least || *value > range_of(*found).most) {
      table.problem(i, "value", fmt::format("{} of {} is out of range", *value, name));
    } else {
      parameters[*found] = *value;
    }
  }
  return parameters;
}

}  // namespace orrery::experiments
