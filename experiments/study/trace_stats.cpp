#include "experiments/study/trace_stats.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
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

/// The curve as CSV, written as it comes: time (s), gpu_type, nodes, available (GPUs).
class CurveFile {
 public:
  explicit CurveFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (!file_) fail();
    write("time,gpu_type,nodes,available\n");
  }
  void set_types(std::vector<std::string> types) { types_ = std::move(types); }
  void add(const traces::AvailabilityPoint& point) {
    const std::string& type = types_[point.type];
    write(fmt::format("{},{},{},{}\n", traces::format_time(point.at.nanoseconds),
                      type.empty() ? "GPU" : type, point.nodes, point.devices));
  }
  void close() {
    if (std::fclose(file_.release()) != 0) fail();
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail();
  }
  [[noreturn]] void fail() const {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<std::string> types_;
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
std::string draw(const std::string& curve, const std::string& figure, const fs::path& folder) {
  const FigureResult drawn =
      draw_figure({std::string(ORRERY_SOURCE_DIR) + "/tools/scripts", "plot_availability.py", ""},
                  curve, folder.string());
  if (!drawn.problem.empty()) return drawn.problem;
  std::string bytes;
  const std::string made = (folder / ("availability" + fs::path(figure).extension().string()));
  if (const auto problem = read_file(made, bytes)) return *problem;
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
  // The curve is written aside while the trace is read: a bad trace leaves no half of it.
  const TemporaryFolder folder;
  const std::string curve = (folder.path() / "curve.csv").string();
  std::unique_ptr<CurveFile> file;
  if (settings.csv || settings.figure) file = std::make_unique<CurveFile>(curve);
  TraceStatsResult result;
  result.statistics = traces::statistics_of_file(
      settings.file,
      [&](const traces::Trace& header) {
        if (file) file->set_types(traces::gpu_types_of(header));
      },
      [&](const traces::AvailabilityPoint& point) {
        if (file) file->add(point);
      },
      diagnostics);
  diagnostics.raise();
  if (file) file->close();
  if (settings.csv) {
    TextResult written = delivered_to(settings.csv, read_text_file(curve));
    if (!written.file) result.curve = std::move(written.text);
  }
  if (settings.figure) {
    const std::string problem = draw(curve, *settings.figure, folder.path());
    result.figure = problem.empty();
    if (!result.figure) call.note(problem);
  }
  return result;
}

}  // namespace orrery::experiments
