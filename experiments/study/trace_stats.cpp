#include "experiments/study/trace_stats.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "experiments/study/figure.h"
#include "experiments/study/files.h"
#include "models/base/file.h"
#include "traces/names.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;

/// A folder that goes away.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "orrery-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error(
          fmt::format("cannot make a folder for the figure: {}", std::strerror(errno)));
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void check_figure(const TraceStatsSettings& args, Diagnostics& diagnostics) {
  if (!args.figure) return;
  const fs::path path = *args.figure;
  if (path.extension() != ".pdf" && path.extension() != ".png") {
    diagnostics.add(at_setting("figure"), fmt::format("'{}' has another ending", *args.figure),
                    ".pdf or .png");
  }
}

/// Draws the curve; what went wrong, or "".
std::string draw(const std::string& curve, const std::string& figure) {
  const TemporaryFolder folder;
  const std::string csv = (folder.path() / "curve.csv").string();
  write_text_file(csv, curve);
  const FigureResult drawn =
      draw_figure({std::string(ORRERY_SOURCE_DIR) + "/tools/scripts", "plot_availability.py", ""},
                  csv, folder.path().string());
  if (!drawn.problem.empty()) return drawn.problem;
  std::string bytes;
  const fs::path made = folder.path() / ("availability" + fs::path(figure).extension().string());
  if (const auto problem = read_file(made.string(), bytes)) return *problem;
  write_file(figure, bytes);
  return "";
}

}  // namespace

void describe(config::Visitor& v, TraceStatsSettings& settings) {
  v.required("trace", settings.file, "trace file of ours (orrery trace import reads others)",
             {.positional = true});
  v.optional("csv", settings.csv, "write the GPUs that are there over time, by type");
  v.optional("figure", settings.figure, "draw them: FILE.pdf or FILE.png");
}

void describe(config::Visitor& v, TraceStatsResult& result) {
  describe(v, result.statistics);
  if (result.curve) v.required("curve", *result.curve, "CSV: time (s), gpu_type, nodes, available");
}

int exit_status(const TraceStatsResult& result) { return result.figure ? 0 : 1; }

TraceStatsResult trace_stats(const TraceStatsSettings& settings, const Call& call) {
  Diagnostics diagnostics;
  check_figure(settings, diagnostics);
  const std::vector<OutputFile> outputs = {{"csv", file_of(settings.csv)},
                                           {"figure", settings.figure}};
  check_outputs(outputs, {settings.file}, diagnostics);
  diagnostics.raise();
  probe_outputs(outputs);
  const bool wanted = settings.csv || settings.figure;
  std::string curve = "time,gpu_type,nodes,available\n";
  std::vector<std::string> types;
  TraceStatsResult result;
  result.statistics = traces::statistics_of_file(
      settings.file, [&](const traces::Trace& header) { types = traces::gpu_types_of(header); },
      [&](const traces::AvailabilityPoint& point) {
        if (!wanted) return;
        const std::string& type = types[point.type];
        curve += fmt::format("{},{},{},{}\n", traces::format_time(point.at.nanoseconds),
                             type.empty() ? "GPU" : type, point.nodes, point.devices);
      },
      diagnostics);
  diagnostics.raise();
  if (settings.figure) {
    const std::string problem = draw(curve, *settings.figure);
    result.figure = problem.empty();
    if (!result.figure) call.note(problem);
  }
  if (settings.csv) {
    TextResult written = delivered_to(settings.csv, std::move(curve));
    if (!written.file) result.curve = std::move(written.text);
  }
  return result;
}

}  // namespace orrery::experiments
