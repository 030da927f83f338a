/// `command: program`: commands that print a table. A command is this program's own (`orrery switch
/// ... --json`) or a program of the build tree that belongs to the study. A run that has finished
/// is not done again unless its command, its inputs or the program changed.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "experiments/study/checks.h"
#include "experiments/study/clock.h"
#include "experiments/study/commands.h"
#include "experiments/study/files.h"
#include "experiments/study/python_script.h"
#include "experiments/study/summary.h"
#include "models/base/hash.h"
#include "models/base/subprocess.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSelf = "orrery";
constexpr const char* kOut = "{out}";

struct ProgramRun {
  /// Words. The first is `orrery`, a Python script next to the study (python_script.h), or a
  /// program's path below the build folder. "{out}" in a word is the folder of the run's results;
  /// "$ORRERY_DATA/..." is as in data_path(). Paths are seen from the folder of the study.
  config::Located<std::vector<std::string>> program;
  std::string output;  ///< File in the run's folder that takes what the command prints.
  /// Files and folders whose content decides the results, besides the folder of the study itself
  /// (scripts, texts and published values in it do not count).
  std::vector<config::Located<std::string>> inputs;
};

void describe(config::Visitor& v, ProgramRun& run) {
  v.title("Program");
  v.required("program", run.program,
             "words; the first is `orrery`, a Python script next to the study, or the path of a "
             "program below the build folder; {out} is the folder of its results");
  v.required("output", run.output, "file that takes what it prints");
  v.optional("inputs", run.inputs, "files and folders elsewhere that decide the results");
  if (!v.reading()) return;
  if (v.given("output") &&
      (!is_result_name(run.output) || run.output.find('/') != std::string::npos)) {
    v.problem("output", fmt::format("'{}' is no plain file name", run.output));
  }
  if (run.output == "summary.json" || run.output == "log.txt") {
    v.problem("output", fmt::format("'{}' is a file of the runner", run.output));
  }
  if (v.given("program") && run.program.value.empty()) v.problem("program", "no command is given");
}

fs::path build_folder() { return fs::path(own_executable()).parent_path().parent_path(); }

/// Where a program is that a command names by its path below the build folder.
fs::path program_path(const std::string& word) {
  return word == kSelf ? fs::path(own_executable()) : build_folder() / word;
}

/// The words that start a command.
std::vector<std::string> start_of(const std::string& word, const std::string& study_folder) {
  if (is_python_script(word)) return python_command((fs::path(study_folder) / word).string());
  return {program_path(word).string()};
}

/// Hash of what runs a command; "" for this program itself, whose version every run has.
std::string hash_of_program(const std::string& word, const std::string& study_folder) {
  if (word == kSelf) return "";
  if (is_python_script(word)) return hash_of_python((fs::path(study_folder) / word).string());
  return content_hash(read_text_file(program_path(word).string()));
}

std::string replace_out(std::string word, const std::string& out) {
  const std::size_t at = word.find(kOut);
  if (at != std::string::npos) word.replace(at, std::strlen(kOut), out);
  return word;
}

/// Runs a command to its end; what it prints goes to `output`. Throws std::runtime_error.
void run_command(const std::vector<std::string>& words, const std::string& folder,
                 const std::string& output) {
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw std::system_error(errno, std::generic_category(), output);
  SubprocessOptions options;
  options.command = words;
  options.folder = folder;
  options.out = file;
  options.signals = ChildSignals::defaults;
  options.death_signal = SIGKILL;  // with the worker, which dies with the sweep
  Subprocess child(options);
  close(file);
  const ExitStatus status = child.wait();
  if (status.ok()) return;
  if (status.signal != 0) {
    throw std::runtime_error(fmt::format("{} was ended by signal {}", words[0], status.signal));
  }
  if (status.code == kCannotStart) throw std::runtime_error("cannot start " + words[0]);
  throw std::runtime_error(fmt::format("{} ended with status {}", words[0], status.code));
}

RunSeconds fill_program(const ProgramRun& run, const std::string& study_folder,
                        const std::string& hash, const std::string& folder) {
  const std::string out = fs::absolute(folder).string();
  std::vector<std::string> words = start_of(run.program.value.front(), study_folder);
  for (std::size_t i = 1; i < run.program.value.size(); ++i) {
    const std::string& word = run.program.value[i];
    words.push_back(is_below_data(word) ? data_path(word, study_folder) : replace_out(word, out));
  }
  const Clock::time_point start = Clock::now();
  run_command(words, study_folder, out + "/" + run.output);
  Json summary = begin_summary(hash, std::nullopt);
  summary["output"] = fmt::format("runs/{}/{}", hash, run.output);
  write_text_file(folder + "/summary.json", summary_text(summary));
  return {0, seconds_since(start)};
}

void check_program(const ProgramRun& run, const std::string& folder,
                   config::Diagnostics& diagnostics) {
  const std::string& program = run.program.value.front();
  const fs::path words = program;
  const bool leaves = std::find(words.begin(), words.end(), fs::path("..")) != words.end();
  std::error_code error;
  if (program.empty() || words.is_absolute() || leaves) {
    diagnostics.add(run.program.at,
                    fmt::format("'{}' is no program below the build folder", program),
                    "`orrery`, a script next to the study, or for example "
                    "tests/bench/folding_bench");
  } else if (is_python_script(program)) {
    if (!fs::is_regular_file(fs::path(folder) / program, error)) {
      diagnostics.add(run.program.at, fmt::format("no script '{}' next to the study", program));
    } else if (const auto problem = find_python_problem()) {
      diagnostics.add(run.program.at, problem->what, problem->hint);
    }
  } else if (program != kSelf && !fs::is_regular_file(program_path(program), error)) {
    diagnostics.add(
        run.program.at,
        fmt::format("the program '{}' is not built", program_path(program).string()),
        fmt::format("ninja -C {} {}", build_folder().string(), words.filename().string()));
  }
  for (const auto& input : run.inputs) {
    const std::string path = data_path(input.value, folder);
    if (!fs::exists(path, error)) {
      diagnostics.add(input.at, fmt::format("no such file or folder '{}'", path));
    }
  }
}

TaskList program_tasks(const Study& study, std::vector<Point> points, const models::Library&,
                       const RunnerOptions&, config::Diagnostics& diagnostics) {
  TaskList list;
  list.columns = axis_names(study);
  for (const char* column : {"run", "status", "reason", "output", "command", "version"}) {
    list.columns.emplace_back(column);
  }
  TextPairs data = {{"study", hash_of_study(study.folder)}};
  for (const std::string& path : study.needs) {
    data.emplace_back(path, hash_of_inputs(data_path(path, study.folder)));
  }
  const auto check = [&](const ProgramRun& run, config::Diagnostics& found) {
    if (found.empty()) check_program(run, study.folder, found);
  };
  for (auto& [point, run] : read_settings<ProgramRun>(std::move(points), diagnostics, check)) {
    TextPairs hashes = data;
    for (const auto& input : run.inputs) {
      hashes.emplace_back(input.value, hash_of_inputs(data_path(input.value, study.folder)));
    }
    const std::string program = hash_of_program(run.program.value.front(), study.folder);
    if (!program.empty()) hashes.emplace_back("program", program);
    const Identity identity{.settings = config::to_value(run), .hashes = hashes, .uses_all = true};
    Task task{point, identity.hash(), study.name, "", {}, nullptr};
    std::string command;
    for (const std::string& word : run.program.value)
      command += (command.empty() ? "" : " ") + word;
    task.inputs = {{"run", task.hash}, {"command", command}, {"version", identity.version()}};
    if (!point.axes.empty()) task.in_words.clear();
    for (const auto& [axis, text] : point.axes) {
      task.inputs[axis] = text;
      task.in_words += (task.in_words.empty() ? "" : " ") + text;
    }
    task.fill = [run = run, identity, folder_of_study = study.folder](
                    const std::string& folder, const std::function<void(double)>&) {
      write_text_file(folder + "/effective.yaml", identity.effective_config({}));
      return fill_program(run, folder_of_study, identity.hash(), folder);
    };
    list.tasks.push_back(std::move(task));
  }
  return list;
}

}  // namespace

extern const StudyCommand kProgramStudy;
const StudyCommand kProgramStudy = {.name = "program",
                                    .summary = "a command that prints a table",
                                    .seeds = {},
                                    .choice = nullptr,
                                    .settings = settings_text<ProgramRun>(),
                                    .resolve = nullptr,
                                    .table = nullptr,
                                    .tasks = program_tasks};

}  // namespace orrery::experiments
