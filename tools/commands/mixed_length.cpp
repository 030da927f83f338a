#include "experiments/runner/mixed_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "experiments/runner/figure.h"
#include "experiments/runner/files.h"
#include "models/config/document.h"
#include "tools/commands/commands.h"
#include "tools/commands/inputs.h"
#include "tools/commands/output.h"
#include "tools/table.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;

/// Rows of one (lengths, context, system), which follow one another.
std::string summary(const std::vector<experiments::MixedLengthRow>& rows) {
  Table table;
  table.column("lengths").number("context").column("system").number("mean s").number("10 %");
  table.number("90 %").number("switching s").number("switches").number("computed tokens");
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin;
    std::vector<double> times;
    double switching = 0;
    double tokens = 0;
    int switches = 0;
    for (; end < rows.size() && rows[end].lengths == rows[begin].lengths &&
           rows[end].context == rows[begin].context && rows[end].system == rows[begin].system;
         ++end) {
      times.push_back(rows[end].outcome.time.value);
      switching += rows[end].outcome.switching.value;
      switches += rows[end].outcome.switches;
      tokens += static_cast<double>(rows[end].outcome.computed_tokens);
    }
    const auto count = static_cast<double>(times.size());
    double sum = 0;
    for (const double time : times) sum += time;
    std::sort(times.begin(), times.end());
    const auto quantile = [&](double q) {
      return times[static_cast<std::size_t>(std::lround(q * (count - 1)))];
    };
    table.row({rows[begin].lengths, std::to_string(rows[begin].context), rows[begin].system,
               fmt::format("{:.3f}", sum / count), fmt::format("{:.3f}", quantile(0.1)),
               fmt::format("{:.3f}", quantile(0.9)), fmt::format("{:.3f}", switching / count),
               fmt::format("{:.2f}", switches / count), grouped(tokens / count, 0)});
    begin = end;
  }
  return table.text(0, colours());
}

}  // namespace

int execute(const MixedLengthArgs& args) {
  config::Diagnostics diagnostics;
  const std::int64_t steps = whole_number(args.steps, "--steps", 1, 0, diagnostics);
  if (steps > experiments::kMostSteps) {
    diagnostics.add({"--steps", 0, 0}, fmt::format("at most {}", experiments::kMostSteps));
  }
  std::error_code error;
  const std::string path = fs::is_directory(args.file, error)
                               ? (fs::path(args.file) / "mixed_length.yaml").string()
                               : args.file;
  const auto file = config::load_file<experiments::MixedLengthFile>(path, diagnostics);
  const models::Library library = open_library(diagnostics);
  diagnostics.raise();
  const std::string folder = fs::path(path).parent_path().string();
  const fs::path out = fs::path(args.results) / file.name;
  experiments::make_folders(out.string());
  const experiments::MixedLengthResult result =
      experiments::run_mixed_length(file, folder, static_cast<int>(steps), library, diagnostics);
  diagnostics.raise();
  const std::string csv = (out / "steps.csv").string();
  experiments::replace_text_file(csv, experiments::steps_csv(result.rows));
  print(section(file.title, summary(result.rows)));
  for (const std::string& note : result.notes) print(note + "\n");
  print(fmt::format("{} steps in {}\n", result.rows.size(), csv));
  if (result.rows.empty()) return 1;
  if (args.no_figure || file.plot.empty()) return 0;
  const experiments::FigureResult figure = experiments::draw_figure(
      {folder, file.plot, file.published}, csv, (out / "figures").string());
  for (const std::string& drawn : figure.files) print(drawn + "\n");
  if (figure.problem.empty()) return 0;
  print(figure.problem + "\n");
  return 1;
}

}  // namespace orrery::tools
