#include "experiments/runner/store.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "experiments/runner/files.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kTimingColumns = {"run", "planning_s", "evaluation_s", "total_s"};

std::vector<std::string> timing_row(const std::string& run, const Timing& timing) {
  return {run, fmt::format("{:.3f}", timing.planning), fmt::format("{:.3f}", timing.evaluation),
          fmt::format("{:.3f}", timing.total)};
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

/// The process that a work folder "<hash>.<pid>" belongs to is gone.
bool is_stale(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  pid_t pid = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + dot + 1, end, pid);
  if (parsed.ec != std::errc{} || parsed.ptr != end || pid <= 0) return false;
  return pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH);
}

/// A file that starts with another header belongs to another set of columns.
void append_row(const std::string& path, const std::vector<std::string>& columns,
                const std::vector<std::string>& row) {
  std::error_code error;
  if (!fs::exists(path, error)) append_text_file(path, csv_line(columns));
  append_text_file(path, csv_line(row));
}

}  // namespace

Store::Store(const Manifest& manifest, std::string folder, std::vector<SweepRun> runs)
    : manifest_(manifest), folder_(std::move(folder)), runs_(std::move(runs)) {
  std::vector<std::string> axes;
  for (const auto& axis : manifest.sweep) axes.push_back(axis.first);
  std::set<std::string> gpus;
  for (const SweepRun& run : runs_) gpus.insert(run.identity.gpus.begin(), run.identity.gpus.end());
  columns_ = csv_columns(axes, {gpus.begin(), gpus.end()});
}

std::string Store::run_folder(const SweepRun& run) const {
  return folder_ + "/runs/" + run.identity.hash;
}
std::string Store::failed_folder(const SweepRun& run) const {
  return folder_ + "/failed/" + run.identity.hash;
}
std::string Store::work_folder(const SweepRun& run) const {
  return fmt::format("{}/.work/{}.{}", folder_, run.identity.hash, getpid());
}

bool Store::present(const SweepRun& run, bool timeline) const {
  const fs::path folder = run_folder(run);
  std::error_code error;
  const std::string path = folder / "summary.json";
  if (!fs::is_regular_file(path, error)) return false;
  if (!is_summary_of(read_text_file(path), run.identity)) return false;  // damaged: once more
  if (!timeline || run.planned.spec.cost != CostModel::simulator) return true;
  if (!fs::exists(folder / "plan.yaml", error)) return true;  // infeasible: nothing to draw
  return fs::exists(folder / "timeline.perfetto", error);
}

void Store::prepare(const std::vector<const SweepRun*>& missing) const {
  make_folders(folder_ + "/runs");
  make_folders(folder_ + "/.work");
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/.work", error)) {
    if (is_stale(entry.path())) remove_quietly(entry.path());
  }
  for (const SweepRun* run : missing) remove_quietly(failed_folder(*run));
}

void Store::publish(const SweepRun& run, bool timeline) const {
  const std::string from = work_folder(run);
  const std::string to = run_folder(run);
  if (!present(run, timeline)) remove_quietly(to);
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return;
  remove_quietly(from);
  if (!present(run, timeline)) throw std::system_error(error, "cannot write " + to);
}

void Store::fail(const SweepRun& run, const std::string& reason) const {
  const fs::path work = work_folder(run);
  const fs::path failed = failed_folder(run);
  remove_quietly(failed);
  make_folders(failed.string());
  std::error_code error;
  fs::rename(work / "log.txt", failed / "log.txt", error);
  if (error) write_text_file((failed / "log.txt").string(), "");
  remove_quietly(work);
  write_text_file((failed / "summary.json").string(), failure_json(run.identity, reason));
}

void Store::discard(const SweepRun& run) const { remove_quietly(work_folder(run)); }

std::optional<std::string> Store::summary(const SweepRun& run) const {
  for (const std::string& folder : {run_folder(run), failed_folder(run)}) {
    std::error_code error;
    const std::string path = folder + "/summary.json";
    if (!fs::is_regular_file(path, error)) continue;
    std::string text = read_text_file(path);
    if (is_summary_of(text, run.identity)) return text;
  }
  return std::nullopt;
}

std::vector<std::vector<std::string>> Store::rows() const {
  std::vector<std::vector<std::string>> rows;
  for (const SweepRun& run : runs_) {
    if (const auto text = summary(run)) {
      rows.push_back(csv_row(columns_, manifest_, run.planned, run.identity, *text));
    }
  }
  return rows;
}

void Store::append(const SweepRun& run, const std::optional<Timing>& timing) const {
  if (const auto text = summary(run)) {
    append_row(runs_csv(), columns_,
               csv_row(columns_, manifest_, run.planned, run.identity, *text));
  }
  if (timing) {
    append_row(folder_ + "/timings.csv", kTimingColumns, timing_row(run.identity.hash, *timing));
  }
}

void Store::rewrite_runs() const {
  std::string text = csv_line(columns_);
  for (const std::vector<std::string>& row : rows()) text += csv_line(row);
  replace_text_file(runs_csv(), text);
}

void Store::rewrite_timings() const {
  std::map<std::string, Timing> known = timings();
  std::string text = csv_line(kTimingColumns);
  for (const SweepRun& run : runs_) {
    const auto found = known.find(run.identity.hash);
    if (found == known.end()) continue;
    text += csv_line(timing_row(found->first, found->second));
    known.erase(found);
  }
  for (const auto& [run, timing] : known) text += csv_line(timing_row(run, timing));
  replace_text_file(folder_ + "/timings.csv", text);
}

void Store::rewrite_index() const { write_index(folder_ + "/index.sqlite", columns_, rows()); }

bool Store::complete() const {
  for (const SweepRun& run : runs_) {
    if (!summary(run)) return false;
  }
  return true;
}

std::map<std::string, Timing> Store::timings() const {
  std::map<std::string, Timing> timings;
  const std::string path = folder_ + "/timings.csv";
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return timings;
  for (const std::vector<std::string>& row : parse_csv(read_text_file(path))) {
    if (row.size() != kTimingColumns.size() || row == kTimingColumns) continue;
    const auto number = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
    timings[row[0]] = {number(row[1]), number(row[2]), number(row[3])};
  }
  return timings;
}

}  // namespace orrery::experiments
