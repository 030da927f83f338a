#include "experiments/study/slurm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "experiments/study/files.h"
#include "models/base/subprocess.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

/// Below the folder: the number of the job.
constexpr const char* kNote = "/job";

std::string read_all(std::FILE* file) {
  std::rewind(file);
  std::string text;
  char buffer[1 << 12];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file)) {
    text.append(buffer, count);
  }
  return text;
}

/// What a program printed, standard error apart.
struct Answer {
  bool ok = false;
  std::string out;
  std::string err;  ///< In one line.
};

Answer ask(const std::vector<std::string>& command) {
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  const File out(std::tmpfile(), std::fclose);
  const File err(std::tmpfile(), std::fclose);
  if (!out || !err) throw std::system_error(errno, std::generic_category(), "temporary file");
  Subprocess child({.command = command,
                    .out = fileno(out.get()),
                    .err = fileno(err.get()),
                    .signals = ChildSignals::ignore_interrupt});
  const ExitStatus status = child.wait();
  Answer answer{status.ok(), read_all(out.get()), read_all(err.get())};
  while (!answer.err.empty() && answer.err.back() == '\n') answer.err.pop_back();
  std::replace(answer.err.begin(), answer.err.end(), '\n', ' ');
  if (!answer.ok && answer.err.empty()) {
    answer.err = fmt::format("{}: {}", command.front(), in_words(status));
  }
  return answer;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

/// The tasks' shell script. How the command ended is a file, as Slurm forgets it after minutes.
std::string script_of(const std::string& folder, const std::vector<std::string>& command) {
  std::string words;
  for (const std::string& word : command) words += quoted(word) + " ";
  return fmt::format(
      "#!/bin/sh\n"
      "# A task of a job array: does runs of a study that no other task has taken.\n"
      "{}\n"
      "status=$?\n"
      "echo $status > {}/${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}.status\n"
      "exit $status\n",
      words, quoted(folder));
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// sbatch knows exactly.
bool looks_like_time(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789:-") == std::string::npos &&
         is_number(text.substr(0, 1)) && is_number(text.substr(text.size() - 1));
}

std::string last_line(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  const std::string text = read_text_file(path);
  const std::size_t end = text.find_last_not_of("\n ");
  if (end == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

bool is_waiting(const std::string& state) {
  const std::set<std::string> waiting = {"PENDING",      "CONFIGURING", "REQUEUED",
                                         "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT",
                                         "RESV_DEL_HOLD"};
  return waiting.contains(state);
}

bool is_running(const std::string& state) {
  const std::set<std::string> running = {"RUNNING",  "COMPLETING", "STAGE_OUT", "SIGNALING",
                                         "RESIZING", "SUSPENDED",  "STOPPED"};
  return running.contains(state);
}

bool is_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
    if (!folder.empty() && access(fmt::format("{}/{}", folder, program).c_str(), X_OK) == 0)
      return true;
  }
  return false;
}

}  // namespace

void describe(config::Visitor& v, SlurmSettings& settings) {
  v.section("Slurm");
  v.optional("slurm", settings.slurm,
             "do the runs in a job array of Slurm and follow it; results, program and files of the "
             "study are seen by all nodes. Ctrl-C cancels the array; a call that ends otherwise "
             "leaves it in the queue, and the same call follows it again");
  v.optional("nodes", settings.nodes,
             "array tasks, each on one node: for itself, or --workers cores of it; default: 1");
  v.optional("time", settings.time, "limit of a task as sbatch takes it: minutes, H:MM:SS, D-HH");
  v.optional("partition", settings.partition, "of Slurm");
  v.optional("sbatch", settings.sbatch,
             "another option of sbatch: --sbatch=--account=physics; repeatable");
  if (!v.reading()) return;
  if (!settings.slurm) {
    const std::pair<const char*, bool> given[] = {{"nodes", settings.nodes.has_value()},
                                                  {"time", settings.time.has_value()},
                                                  {"partition", settings.partition.has_value()},
                                                  {"sbatch", !settings.sbatch.empty()}};
    for (const auto& [key, is_given] : given) {
      if (is_given) v.problem(key, "says nothing without slurm");
    }
    return;
  }
  if (settings.nodes) v.between("nodes", *settings.nodes, 1, 1000000);
  if (settings.time && !looks_like_time(*settings.time)) {
    v.problem("time", fmt::format("'{}' is no time of Slurm", *settings.time),
              "minutes (90), H:MM:SS (1:30:00) or D-HH (2-00)");
  }
  for (const std::string& option : settings.sbatch) {
    if (!option.starts_with('-')) {
      v.problem("sbatch", fmt::format("'{}' is no option", option), "write --sbatch=--account=x");
    }
  }
  for (const char* program : {"sbatch", "squeue", "scancel"}) {
    if (!is_on_path(program)) {
      v.problem("slurm", fmt::format("there is no {} on the PATH", program),
                "call this on a host from which jobs are submitted");
    }
  }
}

std::string SlurmArray::group() const { return "slurm " + id_; }

std::string slurm_group() {
  const char* id = std::getenv("SLURM_ARRAY_JOB_ID");
  return id == nullptr ? "" : std::string("slurm ") + id;
}

std::optional<SlurmArray> SlurmArray::noted(const std::string& folder) {
  const std::string id = last_line(folder + kNote);
  if (!is_number(id)) return std::nullopt;
  return SlurmArray(folder, id);
}

SlurmArray SlurmArray::submit(const std::string& folder, const SlurmJob& job, int tasks) {
  make_folders(folder);
  const std::string script = folder + "/task.sh";
  write_text_file(script, script_of(folder, job.command));
  std::vector<std::string> words = {"sbatch",
                                    "--parsable",
                                    "--job-name=" + job.name,
                                    fmt::format("--array=1-{}", tasks),
                                    "--nodes=1",
                                    "--output=" + folder + "/%A_%a.log"};
  if (job.workers > 0) {
    words.insert(words.end(), {"--ntasks=1", fmt::format("--cpus-per-task={}", job.workers)});
  } else {
    words.emplace_back("--exclusive");
  }
  if (job.settings.time) words.push_back("--time=" + *job.settings.time);
  if (job.settings.partition) words.push_back("--partition=" + *job.settings.partition);
  words.insert(words.end(), job.settings.sbatch.begin(), job.settings.sbatch.end());
  words.push_back(script);
  const Answer answer = ask(words);
  // "123", or "123;cluster".
  std::string id = answer.out.substr(0, answer.out.find_first_of(";\n"));
  if (!answer.ok || !is_number(id)) {
    throw std::runtime_error("Slurm does not take the job: " +
                             (answer.err.empty() ? answer.out : answer.err));
  }
  write_text_file(folder + kNote, id + "\n");
  return SlurmArray(folder, std::move(id));
}

std::optional<SlurmView> SlurmArray::look(std::string& problem) const {
  const Answer answer = ask({"squeue", "--jobs=" + id_, "--states=all", "--array", "--noheader",
                             "--format=%K|%T|%r|%N|%l"});
  SlurmView view;
  if (!answer.ok) {
    // So it says when the job ended a while ago.
    if (answer.err.find("Invalid job id") != std::string::npos) return view;
    problem = answer.err;
    return std::nullopt;
  }
  for (const std::string& line : split(answer.out, '\n')) {
    const std::vector<std::string> cells = split(line, '|');
    if (cells.size() != 5) continue;
    const SlurmView::Task task{cells[0], cells[1], cells[2], cells[3], cells[4]};
    if (is_running(task.state)) ++view.running;
    if (is_waiting(task.state)) {
      ++view.waiting;
      if (view.reason.empty() && task.reason != "None") view.reason = task.reason;
    }
    view.tasks.push_back(task);
  }
  return view;
}

void SlurmArray::cancel(bool waiting_only) const {
  std::vector<std::string> words = {"scancel", "--quiet"};
  if (waiting_only) words.emplace_back("--state=PENDING");
  words.push_back(id_);
  ask(words);
}

std::vector<std::string> SlurmArray::failures(const SlurmView& last) const {
  std::map<std::string, SlurmView::Task> known;
  for (const SlurmView::Task& task : last.tasks) known[task.index] = task;
  // Of tasks that Slurm has forgotten there are logs.
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().stem();
    if (entry.path().extension() != ".log" || !name.starts_with(id_ + "_")) continue;
    const std::string index = name.substr(id_.size() + 1);
    known.try_emplace(index, SlurmView::Task{index, "", "", "", ""});
  }
  std::vector<std::string> problems;
  for (const auto& [index, task] : known) {
    const std::string base = fmt::format("{}/{}_{}", folder_, id_, index);
    const std::string status = last_line(base + ".status");
    std::string how;
    if (task.state == "TIMEOUT") {
      how = fmt::format("ran into its time limit of {} (--time sets it)", task.limit);
    } else if (task.state == "CANCELLED") {
      how = "was canceled";
    } else if (task.state == "OUT_OF_MEMORY") {
      how = "ran out of memory (--sbatch=--mem=SIZE, or fewer --workers)";
    } else if (task.state == "NODE_FAIL" || task.state == "BOOT_FAIL") {
      how = "lost its node";
    } else if (task.state == "PREEMPTED") {
      how = "was preempted";
    } else if (!status.empty()) {
      // 1: a run failed, which the runs say.
      if (status == "0" || status == "1") continue;
      how = "ended with status " + status;
      if (const std::string said = last_line(base + ".log"); !said.empty()) how += ": " + said;
    } else {
      const bool known_end =
          !task.state.empty() && !is_running(task.state) && !is_waiting(task.state);
      how = "was ended from outside" + (known_end ? " (" + task.state + ")" : std::string());
    }
    const std::string where = task.node.empty() ? "" : " on " + task.node;
    const std::string log = fs::exists(base + ".log", error) ? "; see " + base + ".log" : "";
    problems.push_back(
        fmt::format("task {} of Slurm's job {}{} {}{}", index, id_, where, how, log));
  }
  return problems;
}

void SlurmArray::forget() const {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace orrery::experiments
