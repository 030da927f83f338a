// Predicts every plan of the public Sailor measurements and writes errors.csv, predictions.csv,
// parameters.csv, components.csv and notes.md.
//
//   validation_sailor [--data FOLDER] [--out FOLDER]
//
// FOLDER of the data: default validation/sailor below $ORRERY_DATA, else below shared/ next to the
// repository. Exit 0 also where the data is absent: there is nothing to compare with then.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>

#include "experiments/validation/common/data.h"
#include "experiments/validation/common/errors.h"
#include "experiments/validation/sailor/report.h"
#include "models/config/diagnostics.h"
#include "models/spec/library.h"

namespace {

using namespace orrery;
using namespace orrery::experiments;

struct Arguments {
  std::string data = validation_data(ORRERY_SOURCE_DIR, "sailor");
  std::string out = "results/validation/sailor";
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc || (flag != "--data" && flag != "--out")) return std::nullopt;
    (flag == "--data" ? arguments.data : arguments.out) = argv[i + 1];
  }
  return arguments;
}

void run(const Arguments& arguments) {
  config::Diagnostics diagnostics;
  const SailorData data = read_sailor_data(arguments.data, diagnostics);
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  diagnostics.raise();
  std::size_t done = 0;
  const SailorReport report =
      make_sailor_report(data, arguments.data, library, [&](const SailorPlan& plan) {
        fmt::print(stderr, "{}/{} {}\n", ++done, data.plans.size(), plan.id);
      });
  const std::string name = "validation/sailor";
  std::vector<ErrorLine> lines = report.main;
  for (const auto* more : {&report.groups, &report.overlapped}) {
    lines.insert(lines.end(), more->begin(), more->end());
  }
  write_result(arguments.out, "predictions.csv", predictions_csv(report.predictions));
  write_result(arguments.out, "errors.csv", errors_csv(name, lines));
  write_result(arguments.out, "other_simulators.csv", errors_csv(name, report.others));
  write_result(arguments.out, "parameters.csv", parameters_csv(name, {report.overhead}));
  write_result(arguments.out, "components.csv", sailor_components_csv(report));
  write_result(arguments.out, "notes.md", sailor_notes(report));
  fmt::print(
      "Errors in per cent; published: all plans of the set, those without values included.\n{}",
      error_table(report.main));
  fmt::print("\nThe same rows by others\n{}", error_table(report.others));
  fmt::print("\nWere transfers to run beside passes\n{}", error_table(report.overlapped));
  fmt::print("\nBy shape\n{}", error_table(report.groups));
  fmt::print("\nFitted: {} = {:.3g} GB on {} rows, leave-one-out {:.1f} %\n", report.overhead.name,
             report.overhead.value / 1e9, report.overhead.fitted_on.size(),
             100 * report.overhead.leave_one_out);
  fmt::print("Written to {}\n", arguments.out);
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) {
    fmt::print(stderr, "usage: validation_sailor [--data FOLDER] [--out FOLDER]\n");
    return 2;
  }
  if (!std::filesystem::exists(arguments->data + "/measured.json")) {
    fmt::print(stderr,
               "skipped: no measured.json in {}; see README.md for where the data comes from (set "
               "ORRERY_DATA or --data)\n",
               arguments->data);
    return 0;
  }
  try {
    run(*arguments);
  } catch (const std::exception& problem) {
    fmt::print(stderr, "{}\n", problem.what());
    return 2;
  }
  return 0;
}
