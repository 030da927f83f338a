#include "experiments/study/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "experiments/study/files.h"
#include "experiments/study/stale_temporaries.h"
#include "experiments/study/summary.h"
#include "experiments/study/worker.h"

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

/// Somebody holds the lock that a worker has on its log (run_worker()).
bool is_locked(const fs::path& folder) {
  const int file = open((folder / kWorkerLog).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool locked = flock(file, LOCK_SH | LOCK_NB) != 0;
  close(file);
  return locked;
}

/// Of hosts that work with this one: "<call>.timings".
constexpr std::string_view kTimings = ".timings";

/// The files of Store::hand_over().
std::vector<std::string> handed_over(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(Store::work_folders(folder), error)) {
    const std::string path = entry.path();
    if (path.ends_with(kTimings)) files.push_back(path);
  }
  return files;
}

/// Cells by column.
std::vector<std::string> row_of(const Task& task, const std::vector<std::string>& columns,
                                const std::string& summary) {
  const Json json = Json::parse(summary);
  std::vector<std::string> cells;
  for (const std::string& column : columns) {
    const auto input = task.inputs.find(column);
    const auto result = json.find(column);
    if (input != task.inputs.end()) {
      cells.push_back(input->second);
    } else {
      cells.push_back(result == json.end() ? "" : cell(*result));
    }
  }
  return cells;
}

/// A file that starts with another header belongs to another set of columns.
void append_row(const std::string& path, const std::vector<std::string>& columns,
                const std::vector<std::string>& row) {
  std::error_code error;
  if (!fs::exists(path, error)) append_text_file(path, csv_line(columns));
  append_text_file(path, csv_line(row));
}

}  // namespace

Store::Store(const TaskList& list, std::string folder, Claims& claims)
    : list_(list), folder_(std::move(folder)), claims_(claims) {}

std::string Store::run_folder(std::size_t run) const { return folder_ + "/runs/" + hash(run); }
std::string Store::failed_folder(std::size_t run) const { return folder_ + "/failed/" + hash(run); }
std::string Store::work_folder(std::size_t run) const {
  return fmt::format("{}/{}.{}", work_folders(folder_), hash(run), claims_.name());
}

bool Store::present(std::size_t run) const {
  const fs::path folder = run_folder(run);
  std::error_code error;
  const std::string path = folder / "summary.json";
  if (!fs::is_regular_file(path, error)) return false;
  if (!is_summary_of(read_text_file(path), hash(run))) return false;  // damaged: once more
  const Task& task = list_.tasks[run];
  return task.has_all == nullptr || task.has_all(folder.string());
}

bool Store::failed(std::size_t run) const {
  std::error_code error;
  return fs::is_regular_file(failed_folder(run) + "/summary.json", error);
}

std::string Store::failure(std::size_t run) const {
  const std::string path = failed_folder(run) + "/summary.json";
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "failed";
  const Json json = Json::parse(read_text_file(path), nullptr, false);
  return json.is_object() && json.contains("reason") ? cell(json["reason"]) : "failed";
}

std::set<std::string> Store::ended() const {
  std::set<std::string> names;
  for (const char* folder : {"/runs", "/failed"}) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + folder, error)) {
      names.insert(entry.path().filename());
    }
  }
  return names;
}

void Store::open() const { make_folders(folder_ + "/runs"); }

void Store::tidy(const std::vector<std::size_t>& again) const {
  claims_.tidy();
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(work_folders(folder_), error)) {
    // "<hash>.<call>"; what has another ending is a file.
    if (!entry.is_directory(error) || is_locked(entry.path())) continue;
    const std::string name = entry.path().filename();
    if (claims_.is_gone(name.substr(name.rfind('.') + 1))) remove_quietly(entry.path());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (is_stale_temporary(entry.path())) remove_quietly(entry.path());
  }
  for (const std::size_t run : again) remove_quietly(failed_folder(run));
}

void Store::publish(std::size_t run) const {
  const std::string from = work_folder(run);
  const std::string to = run_folder(run);
  std::error_code error;
  fs::rename(from, to, error);
  if (error && !present(run)) {  // What is there is damaged, and not of a call at the same time.
    remove_quietly(to);
    fs::rename(from, to, error);
  }
  if (error) {
    remove_quietly(from);
    if (!present(run)) throw std::system_error(error, "cannot write " + to);
  }
  remove_quietly(failed_folder(run));  // of another call, see fail()
}

void Store::fail(std::size_t run, const std::string& reason) const {
  const fs::path work = work_folder(run);
  const fs::path failed = failed_folder(run);
  remove_quietly(failed);
  make_folders(failed.string());
  std::error_code error;
  fs::rename(work / kWorkerLog, failed / kWorkerLog, error);
  if (error) write_text_file((failed / kWorkerLog).string(), "");
  remove_quietly(work);
  write_text_file((failed / "summary.json").string(), failure_json(hash(run), reason));
  if (present(run)) remove_quietly(failed);  // Another call on this folder did it.
}

void Store::discard(std::size_t run) const { remove_quietly(work_folder(run)); }

std::optional<std::string> Store::summary(std::size_t run) const {
  for (const std::string& folder : {run_folder(run), failed_folder(run)}) {
    std::error_code error;
    const std::string path = folder + "/summary.json";
    if (!fs::is_regular_file(path, error)) continue;
    std::string text = read_text_file(path);
    if (is_summary_of(text, hash(run))) return text;
  }
  return std::nullopt;
}

std::vector<std::vector<std::string>> Store::table() const {
  std::vector<std::pair<const Task*, std::string>> ended;
  std::vector<std::string> columns = list_.columns;
  for (std::size_t run = 0; run < list_.tasks.size(); ++run) {
    const auto text = summary(run);
    if (!text) continue;
    ended.emplace_back(&list_.tasks[run], *text);
    if (!list_.open_columns) continue;
    const Json json = Json::parse(*text);
    for (const auto& [key, value] : json.items()) {
      const bool known = std::find(columns.begin(), columns.end(), key) != columns.end();
      if (!known && key != "schema") columns.push_back(key);
    }
  }
  std::vector<std::vector<std::string>> table = {columns};
  for (const auto& [task, text] : ended) table.push_back(row_of(*task, columns, text));
  return table;
}

void Store::append(std::size_t run, const std::optional<Timing>& timing) const {
  if (list_.open_columns) {
    rewrite_runs();
  } else if (const auto text = summary(run)) {
    append_row(runs_csv(), list_.columns, row_of(list_.tasks[run], list_.columns, *text));
  }
  if (timing) {
    append_row(folder_ + "/timings.csv", kTimingColumns, timing_row(hash(run), *timing));
  }
}

void Store::hand_over(std::size_t run, const Timing& timing) const {
  append_text_file(fmt::format("{}/{}{}", work_folders(folder_), claims_.name(), kTimings),
                   csv_line(timing_row(hash(run), timing)));
}

void Store::rewrite_runs() const {
  std::string text;
  for (const std::vector<std::string>& row : table()) text += csv_line(row);
  replace_text_file(runs_csv(), text);
}

void Store::rewrite_timings() const {
  // What comes between reading and removing is lost: no more than an estimate.
  const std::vector<std::string> files = handed_over(folder_);
  std::map<std::string, Timing> known = timings();
  std::string text = csv_line(kTimingColumns);
  for (std::size_t run = 0; run < list_.tasks.size(); ++run) {
    const auto found = known.find(hash(run));
    if (found == known.end()) continue;
    text += csv_line(timing_row(found->first, found->second));
    known.erase(found);
  }
  for (const auto& [run, timing] : known) text += csv_line(timing_row(run, timing));
  replace_text_file(folder_ + "/timings.csv", text);
  for (const std::string& file : files) remove_quietly(file);
}

bool Store::is_results_folder(const std::string& folder) {
  std::error_code error;
  return fs::exists(work_folders(folder), error) || fs::exists(index_file(folder), error);
}

void Store::rewrite_index() const {
  std::vector<std::vector<std::string>> rows = table();
  const std::vector<std::string> columns = std::move(rows.front());
  rows.erase(rows.begin());
  write_index(index_file(folder_), columns, rows);
}

std::string Store::gather_table() const {
  std::string all;
  for (std::size_t run = 0; run < list_.tasks.size(); ++run) {
    const std::string path = run_folder(run) + "/" + list_.table;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    const std::string text = read_text_file(path);
    all += all.empty() ? text : text.substr(text.find('\n') + 1);
  }
  std::string path = folder_ + "/" + list_.table;
  replace_text_file(path, all);
  return path;
}

std::vector<std::string> Store::publish_files() const {
  std::vector<std::string> absent;
  for (const std::string& name : list_.publish) {
    bool found = false;
    for (std::size_t run = 0; run < list_.tasks.size(); ++run) {
      const std::string from = run_folder(run) + "/" + name;
      std::error_code error;
      if (!fs::is_regular_file(from, error)) continue;
      replace_text_file(folder_ + "/" + name, read_text_file(from));
      found = true;
    }
    if (!found) absent.push_back(name);
  }
  return absent;
}

bool Store::complete() const {
  for (std::size_t run = 0; run < list_.tasks.size(); ++run) {
    if (!summary(run)) return false;
  }
  return true;
}

std::map<std::string, Timing> Store::timings() const {
  std::map<std::string, Timing> timings;
  const auto read = [&](const std::string& path) {
    for (const std::vector<std::string>& row : parse_csv(read_text_file(path))) {
      if (row.size() != kTimingColumns.size() || row == kTimingColumns) continue;
      const auto number = [](const std::string& text) {
        return std::strtod(text.c_str(), nullptr);
      };
      timings[row[0]] = {number(row[1]), number(row[2]), number(row[3])};
    }
  };
  const std::string path = folder_ + "/timings.csv";
  std::error_code error;
  if (fs::is_regular_file(path, error)) read(path);
  for (const std::string& file : handed_over(folder_)) read(file);
  return timings;
}

}  // namespace orrery::experiments
