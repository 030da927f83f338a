/// orrery trace stats: counts, times between failures and availability of a trace.
#include <fmt/format.h>
#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "experiments/study/figure.h"
#include "models/base/file.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/inputs.h"
#include "tools/commands/tables.h"
#include "traces/names.h"
#include "traces/statistics.h"

namespace orrery::tools {
namespace {

struct TraceStatsSettings {
  std::string file;
  Text csv;
  Text figure;
  bool json = false;
};

void describe(config::Visitor& v, TraceStatsSettings& settings) {
  v.required("trace", settings.file, "trace file of ours (orrery trace import reads others)",
             {.positional = true});
  v.optional("csv", settings.csv, "write the GPUs that are there over time, by type");
  v.optional("figure", settings.figure, "draw them: FILE.pdf or FILE.png");
  v.optional("json", settings.json, "print one JSON document instead of tables");
}

namespace fs = std::filesystem;
using config::Diagnostics;

constexpr int kFigureFailed = 1;
constexpr std::size_t kCausesShown = 40;

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

// ---- text ----

std::string or_none(double value, int digits) { return value > 0 ? grouped(value, digits) : "-"; }

std::string counts_text(const traces::TraceStatistics& statistics) {
  if (statistics.counts.empty()) return "no events\n";
  Table table;
  table.column("kind").column("cause").number("events");
  for (std::size_t i = 0; i < std::min(kCausesShown, statistics.counts.size()); ++i) {
    const traces::CauseCount& count = statistics.counts[i];
    table.row({count.kind, count.cause, grouped(static_cast<double>(count.events), 0)});
  }
  std::string text = table.text(0, colors());
  if (statistics.counts.size() > kCausesShown) {
    text += fmt::format("and {} (--json shows all)\n",
                        counted(statistics.counts.size() - kCausesShown, "row"));
  }
  return text;
}

std::string availability_text(const traces::TraceStatistics& statistics) {
  std::vector<traces::Availability> rows = statistics.types;
  if (rows.size() > 1) {
    rows.push_back(statistics.all);
    rows.back().gpu_type = "all";
  }
  Table table;
  table.column("GPU type").number("nodes").number("GPUs").number("mean");
  for (const traces::Quantile& q : statistics.all.quantiles) {
    table.number(q.probability == 0   ? "min"
                 : q.probability == 1 ? "max"
                                      : fmt::format("p{:.0f}", 100 * q.probability));
  }
  for (const traces::Availability& row : rows) {
    std::vector<std::string> cells = {
        row.gpu_type.empty() ? "-" : row.gpu_type, grouped(static_cast<double>(row.nodes), 0),
        grouped(static_cast<double>(row.devices), 0), percent(row.mean_devices)};
    for (const traces::Quantile& q : row.quantiles) cells.push_back(percent(q.devices));
    table.row(std::move(cells));
  }
  std::string text = table.text(0, colors());
  Table nodes;
  nodes.column("GPU type").number("departures").number("bursts").number("mean burst");
  nodes.number("largest").number("mean join burst").number("lifetime h").number("away h");
  nodes.number("leaves/node-hour");
  bool any = false;
  for (const traces::Availability& row : rows) {
    any |= row.departures + row.arrivals > 0;
    nodes.row(
        {row.gpu_type.empty() ? "-" : row.gpu_type, grouped(static_cast<double>(row.departures), 0),
         grouped(static_cast<double>(row.bursts), 0), or_none(row.mean_burst, 2),
         or_none(row.max_burst, 0), or_none(row.mean_join_burst, 2), or_none(row.lifetime_hours, 2),
         or_none(row.away_hours, 2), or_none(row.leaves_per_node_hour, 4)});
  }
  if (any) text += "\n" + section("Whole nodes that go and come", nodes.text(0, colors()));
  return text;
}

std::string statistics_text(const traces::TraceStatistics& s) {
  return fmt::format(
      "{}\n{} over {}; {} nodes, {} GPUs\n\n{}\n{}\n{}",
      s.source.empty() ? "no source named" : s.source,
      counted(static_cast<std::size_t>(s.events), "event"), duration(s.horizon_hours * 3600),
      grouped(static_cast<double>(s.all.nodes), 0), grouped(static_cast<double>(s.all.devices), 0),
      section("Events", counts_text(s)),
      section("Interruptions",
              fmt::format("unexpected: {} ({} of them failures); announced: {}\n"
                          "MTBF: {} h\nMTTF of 1,024 GPUs: {} h\nper 1000 node-days: {}\n",
                          s.unexpected, s.failures, s.announced, or_none(s.mtbf_hours, 2),
                          or_none(s.mttf_1024_gpus_hours, 1), or_none(s.per_1000_node_days, 2))),
      section("Availability (share of GPUs that were there, over time)", availability_text(s)));
}

// ---- figure ----

void check_figure(const TraceStatsSettings& args, Diagnostics& diagnostics) {
  if (!args.figure) return;
  const fs::path path = *args.figure;
  if (path.extension() != ".pdf" && path.extension() != ".png") {
    diagnostics.add(at_flag("--figure"), fmt::format("'{}' has another ending", *args.figure),
                    ".pdf or .png");
  }
}

/// Draws the curve; what went wrong, or "".
std::string draw(const std::string& curve, const std::string& figure, const fs::path& folder) {
  const experiments::FigureResult drawn = experiments::draw_figure(
      {std::string(ORRERY_SOURCE_DIR) + "/tools/scripts", "plot_availability.py", ""}, curve,
      folder.string());
  if (!drawn.problem.empty()) return drawn.problem;
  std::string bytes;
  const std::string made = (folder / ("availability" + fs::path(figure).extension().string()));
  if (const auto problem = read_file(made, bytes)) return *problem;
  write_file(figure, bytes);
  return "";
}

}  // namespace

namespace {

int run(const TraceStatsSettings& args) {
  Diagnostics diagnostics;
  check_figure(args, diagnostics);
  const bool to_stdout = args.csv && !file_of(args.csv);
  if (to_stdout && args.json) {
    diagnostics.add(at_flag("--csv"), "--csv - and --json both write to standard output",
                    "name a file for one of them");
  }
  const std::vector<OutputFile> outputs = {{"--csv", file_of(args.csv)}, {"--figure", args.figure}};
  check_outputs(outputs, {args.file}, diagnostics);
  diagnostics.raise();
  probe_outputs(outputs);
  // The curve is written aside while the trace is read: a bad trace leaves no half of it.
  const TemporaryFolder folder;
  const std::string curve = (folder.path() / "curve.csv").string();
  const bool wanted = args.csv || args.figure;
  std::unique_ptr<CurveFile> file;
  if (wanted) file = std::make_unique<CurveFile>(curve);
  const traces::TraceStatistics statistics = traces::statistics_of_file(
      args.file,
      [&](const traces::Trace& header) {
        if (file) file->set_types(traces::gpu_types_of(header));
      },
      [&](const traces::AvailabilityPoint& point) {
        if (file) file->add(point);
      },
      diagnostics);
  diagnostics.raise();
  if (file) file->close();
  if (args.csv) {
    std::string bytes;
    if (const auto problem = read_file(curve, bytes)) throw std::runtime_error(*problem);
    if (to_stdout) {
      print(bytes);
    } else {
      write_file(*args.csv, bytes);
    }
  }
  if (!to_stdout) print(args.json ? to_json(statistics) : statistics_text(statistics));
  if (!args.figure) return 0;
  const std::string problem = draw(curve, *args.figure, folder.path());
  if (problem.empty()) return 0;
  fmt::print(stderr, "orrery: {}\n", problem);
  return kFigureFailed;
}

}  // namespace

extern const Command kTraceStats;
const Command kTraceStats = printing_command<TraceStatsSettings, run>(
    "trace stats", "Counts, times between failures, availability, and its figure",
    "trace stats tests/traces/small.csv");

}  // namespace orrery::tools
