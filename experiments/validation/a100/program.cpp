#include "experiments/validation/a100/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <thread>

#include "experiments/validation/a100/table.h"
#include "experiments/validation/common/data.h"

namespace orrery::experiments {
namespace {

struct Flags {
  std::string data;
  std::string out;
  std::string cross;
  int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

/// A line that is overwritten, on terminals only.
std::function<void(std::size_t, std::size_t)> progress(const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [what](std::size_t done, std::size_t of) {
    fmt::print(stderr, "\r{}: {} of {}{}", what, done, of, done == of ? "\n" : "   ");
  };
}

/// Errors of all measured rows with parameters that none of them was asked for.
ErrorLine errors_with(const std::string& name, const std::vector<A100Row>& rows,
                      const A100Parameters& parameters, const models::Library& library,
                      A100Simulation options) {
  options.folded = true;
  options.progress = progress(name);
  std::vector<A100Row> measured;
  for (const A100Row& row : rows) {
    if (row.measured && row.tp <= kA100GpusPerNode) measured.push_back(row);
  }
  const auto predictions = predict_a100(measured, parameters, library, options);
  std::vector<std::optional<double>> errors;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    errors.emplace_back(predictions[i].iteration / *measured[i].measured - 1);
  }
  return errors_of(name, measured, errors, [](const A100Row&) { return true; });
}

/// Largest relative difference between the folded simulations of the fit and the whole ones.
double folding_error(const std::vector<A100Row>& rows,
                     const std::vector<A100Prediction>& predictions, const A100Fit& fit) {
  double largest = 0;
  for (std::size_t i = 0; i < fit.rows.size(); ++i) {
    const std::size_t row = fit.rows[i];
    const Seconds folded = std::exp(fit.details.residuals[i]) * *rows[row].measured;
    largest = std::max(largest, std::abs(folded / predictions[row].iteration - 1));
  }
  return largest;
}

void print_residuals(const std::vector<A100Row>& rows,
                     const std::vector<std::optional<double>>& unseen) {
  using Value = std::function<int(const A100Row&)>;
  const std::pair<const char*, Value> properties[] = {
      {"tp", [](const A100Row& r) { return r.tp; }},
      {"pp", [](const A100Row& r) { return r.pp; }},
      {"dp", [](const A100Row& r) { return r.dp; }},
      {"micro-batch", [](const A100Row& r) { return r.micro_batch; }},
      {"micro-batches", [](const A100Row& r) { return r.micro_batches(); }},
      {"hidden", [](const A100Row& r) { return r.hidden; }}};
  fmt::print("\nresiduals of rows unseen by the fit, in per cent (bias: mean signed)\n");
  for (const auto& [name, value] : properties) {
    fmt::print("{}", residual_table(name, rows, unseen, value));
  }
}

void run(const A100Validation& validation, const Flags& flags, const std::string& folder) {
  config::Diagnostics diagnostics;
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  const std::vector<A100Row> rows = validation.read(folder, diagnostics);
  A100Parameters foreign;
  if (!flags.cross.empty()) foreign = read_parameters(flags.cross, diagnostics);
  diagnostics.raise();
  std::filesystem::create_directories(flags.out);  // Fails before the work, not after it.

  A100Simulation options;
  options.jobs = flags.jobs;
  const A100Parameters declared = declared_a100_parameters();
  std::vector<ErrorLine> others = {errors_with("nothing fitted", rows, declared, library, options)};
  if (!flags.cross.empty()) {
    others.push_back(errors_with("cross parameters", rows, foreign, library, options));
  }

  options.progress = progress("fit");
  const A100Fit fit = fit_a100(rows, validation.free, validation.start, library, options);
  const auto parameters = fitted_parameters(rows, validation.free, fit);
  write_result(flags.out, "parameters.csv", parameters_csv(validation.name, parameters));
  options.progress = progress("predict");
  const std::vector<A100Prediction> predictions =
      predict_a100(rows, fit.parameters, library, options);

  std::vector<ValidationRow> metrics = iteration_rows(rows, predictions);
  if (validation.more_metrics) {
    const auto more = validation.more_metrics(rows, predictions, folder);
    metrics.insert(metrics.end(), more.begin(), more.end());
  }
  const std::vector<std::optional<double>> unseen = unseen_errors(rows, predictions, fit);
  std::vector<ErrorLine> lines = validation.lines({rows, metrics, unseen, fit});
  lines.insert(lines.end(), others.begin(), others.end());

  write_result(flags.out, "predictions.csv", predictions_csv(metrics));
  write_result(flags.out, "errors.csv", errors_csv(validation.name, lines));
  write_result(flags.out, "breakdown.csv", breakdown_csv(rows, predictions, unseen));
  fmt::print("{} parameters, fitted on {} rows; folded simulations of them are off by {:.2f} %\n",
             parameters.size(), fit.rows.size(), 100 * folding_error(rows, predictions, fit));
  for (const FittedParameter& p : parameters) {
    fmt::print("  {:<16} {:.4g}{}{}\n", p.name, p.value, p.unit.empty() ? "" : " ", p.unit);
  }
  fmt::print("\nerrors in per cent\n{}", error_table(lines));
  print_residuals(rows, unseen);
  fmt::print("\nwritten to {}\n", flags.out);
}

}  // namespace

ErrorLine errors_of(const std::string& name, const std::vector<A100Row>& rows,
                    const std::vector<std::optional<double>>& errors,
                    const std::function<bool(const A100Row&)>& take, std::optional<double> target,
                    std::optional<double> published) {
  std::vector<double> taken;
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!errors[i] || !rows[i].scored || !take(rows[i])) continue;
    taken.push_back(*errors[i]);
    ids.push_back(rows[i].id);
  }
  return {summarize(name, "iteration_s", taken, ids), target, published};
}

int run_validation(int argc, char** argv, const A100Validation& validation) {
  Flags flags;
  flags.out = fmt::format("results/validation/{}", validation.name);
  CLI::App app("Predicts the measured iterations of " + validation.name + " and says how far off");
  app.add_option("--data", flags.data,
                 "folder of the published tables (default: validation/" + validation.name +
                     " below $ORRERY_DATA or ../shared)");
  app.add_option("--out", flags.out, "folder of the results")->capture_default_str();
  app.add_option("--jobs", flags.jobs, "simulations at once")->check(CLI::PositiveNumber);
  app.add_option("--cross", flags.cross,
                 "parameters.csv of the other experiment: predict with these too");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const std::string folder =
      flags.data.empty() ? validation_data(ORRERY_SOURCE_DIR, validation.name) : flags.data;
  if (!std::filesystem::is_directory(folder)) {
    fmt::print(stderr, "skipped: no folder {} ({}; set ORRERY_DATA or --data)\n", folder,
               validation.source);
    return 0;
  }
  try {
    run(validation, flags, folder);
  } catch (const std::exception& problem) {
    fmt::print(stderr, "{}\n", problem.what());
    return 2;
  }
  return 0;
}

}  // namespace orrery::experiments
