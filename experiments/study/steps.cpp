#include "experiments/study/steps.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <system_error>

#include "experiments/study/checks.h"
#include "experiments/study/clock.h"
#include "experiments/study/figure.h"
#include "experiments/study/files.h"
#include "experiments/study/replay_file.h"
#include "experiments/study/result.h"
#include "experiments/study/runner.h"
#include "experiments/study/summary.h"
#include "models/base/hash.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSelf = "orrery";
constexpr const char* kOut = "{out}";

fs::path self() { return fs::read_symlink("/proc/self/exe"); }

/// Of a program that a command names by its path below the build folder.
fs::path program_path(const std::string& word) {
  if (word == kSelf) return self();
  return self().parent_path().parent_path() / word;
}

std::string hash_of_file(const fs::path& path) { return content_hash(read_text_file(path)); }

/// Pictures, texts, scripts and published values change no result.
bool decides_results(const fs::path& path) {
  static const std::set<std::string> kIgnored = {".md", ".py",  ".txt", ".cpp",
                                                 ".h",  ".pdf", ".png"};
  return !kIgnored.contains(path.extension().string()) && path.filename() != "published.csv" &&
         path.filename() != "CMakeLists.txt";
}

/// Hash of a file, or of all deciding files of a folder with their names.
std::string hash_of(const fs::path& path) {
  if (!fs::is_directory(path)) return hash_of_file(path);
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file() && decides_results(entry.path())) files.insert(entry.path());
  }
  std::string text;
  for (const fs::path& file : files) {
    text += fmt::format("{} {}\n", file.lexically_relative(path).string(), hash_of_file(file));
  }
  return content_hash(text);
}

std::string replace_out(std::string word, const std::string& out) {
  const std::size_t at = word.find(kOut);
  if (at != std::string::npos) word.replace(at, std::strlen(kOut), out);
  return word;
}

[[noreturn]] void become(const std::vector<std::string>& words, const std::string& folder,
                         int output) {
  // The worker dies with the sweep, and this process with the worker.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  dup2(output, STDOUT_FILENO);
  if (chdir(folder.c_str()) == 0) execv(arguments[0], arguments.data());
  _exit(kCannotStart);
}

/// Runs a command to its end; what it prints goes to `output`. Throws std::runtime_error.
void run_command(const std::vector<std::string>& words, const std::string& folder,
                 const std::string& output) {
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw std::system_error(errno, std::generic_category(), output);
  const pid_t child = fork();
  if (child == 0) become(words, folder, file);
  close(file);
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    throw std::runtime_error(fmt::format("{} was ended by signal {}", words[0], WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == kCannotStart) {
    throw std::runtime_error(fmt::format("cannot start {}", words[0]));
  }
  if (WEXITSTATUS(status) != 0) {
    throw std::runtime_error(fmt::format("{} ended with status {}", words[0], WEXITSTATUS(status)));
  }
}

std::string success_json(const std::string& hash) {
  const Json json = {{"schema", kSummarySchema}, {"run", hash}, {"status", "ok"}, {"reason", ""}};
  return json.dump(2) + "\n";
}

class StepRuns final : public RunSet {
 public:
  explicit StepRuns(const StepsFile& file) : file_(file) {
    std::string inputs = hash_of(file.folder.empty() ? "." : file.folder) + "\n";
    for (const auto& input : file.inputs) {
      inputs += fmt::format("{} {}\n", input.value, hash_of(data_path(input.value, file.folder)));
    }
    for (const std::string& data : file.needs) {
      inputs += fmt::format("{} {}\n", data, hash_of(data_path(data, file.folder)));
    }
    for (const Step& step : file.steps) {
      const std::string& program = step.command.value.front();
      const std::string version =
          program == kSelf ? program_version() : hash_of_file(program_path(program));
      std::string text = fmt::format("{}\n{}\n{}\n", version, inputs, step.output);
      for (const std::string& word : step.command.value) text += word + "\n";
      hashes_.push_back(content_hash(text));
    }
  }

  std::size_t size() const override { return file_.steps.size(); }
  const std::string& hash(std::size_t run) const override { return hashes_[run]; }
  std::string in_words(std::size_t run) const override { return file_.steps[run].name; }
  std::vector<std::string> columns() const override {
    return {"step", "run", "status", "reason", "output", "command", "version"};
  }
  std::vector<std::string> row(std::size_t run, const std::string& summary) const override {
    const Step& step = file_.steps[run];
    const Json json = Json::parse(summary);
    const bool good = json.at("status") == "ok";
    std::string command;
    for (const std::string& word : step.command.value) {
      command += (command.empty() ? "" : " ") + word;
    }
    return {step.name,
            hashes_[run],
            json.at("status").get<std::string>(),
            json.at("reason").get<std::string>(),
            good ? fmt::format("runs/{}/{}", hashes_[run], step.output) : std::string(),
            command,
            program_version()};
  }
  bool has_all(std::size_t, const std::string&) const override { return true; }
  FigureScript figure() const override { return file_.figure(); }

  RunSeconds fill(std::size_t run, const std::string& folder,
                  const std::function<void(double)>&) const override {
    const Step& step = file_.steps[run];
    const std::string out = fs::absolute(folder).string();
    std::vector<std::string> words = {program_path(step.command.value.front()).string()};
    for (std::size_t i = 1; i < step.command.value.size(); ++i) {
      const std::string& word = step.command.value[i];
      words.push_back(is_below_data(word) ? data_path(word, file_.folder) : replace_out(word, out));
    }
    const Clock::time_point start = Clock::now();
    run_command(words, file_.folder, out + "/" + step.output);
    write_text_file(folder + "/summary.json", success_json(hashes_[run]));
    return {0, seconds_since(start)};
  }

 private:
  const StepsFile& file_;
  std::vector<std::string> hashes_;
};

/// A file that two steps write is taken from the later one.
void publish(const StepsFile& file, const StepRuns& runs, StepsResult& result) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const std::string& name : file.publish) {
      const fs::path from = fs::path(result.results_folder) / "runs" / runs.hash(i) / name;
      std::error_code error;
      if (!fs::is_regular_file(from, error)) continue;
      try {
        replace_text_file((fs::path(result.results_folder) / name).string(),
                          read_text_file(from.string()));
      } catch (const std::exception& failure) {
        result.problems.emplace_back(failure.what());
      }
    }
  }
}

void check_steps(const StepsFile& file, config::Diagnostics& diagnostics) {
  std::set<std::string> names;
  for (const Step& step : file.steps) {
    if (!names.insert(step.name).second) {
      diagnostics.add(step.command.at, fmt::format("two steps are called '{}'", step.name));
    }
    if (step.command.value.empty()) {
      diagnostics.add(step.command.at, fmt::format("step '{}' has no command", step.name));
      continue;
    }
    const std::string& program = step.command.value.front();
    if (step.name.empty()) diagnostics.add(step.command.at, "a step without a name");
    const fs::path words = program;
    const bool leaves = std::find(words.begin(), words.end(), fs::path("..")) != words.end();
    if (program.empty() || words.is_absolute() || leaves) {
      diagnostics.add(step.command.at,
                      fmt::format("'{}' is no program below the build folder", program),
                      "`orrery`, or for example experiments/hetu/elastic/hetu_elastic");
      continue;
    }
    std::error_code error;
    if (program != kSelf && !fs::is_regular_file(program_path(program), error)) {
      diagnostics.add(step.command.at,
                      fmt::format("the program '{}' is not built", program_path(program).string()),
                      fmt::format("ninja -C {} {}", self().parent_path().parent_path().string(),
                                  fs::path(program).filename().string()));
    }
  }
  for (const auto& input : file.inputs) {
    std::error_code error;
    const std::string path = data_path(input.value, file.folder);
    if (!fs::exists(path, error)) {
      diagnostics.add(input.at, fmt::format("no such file or folder '{}'", path));
    }
  }
}

}  // namespace

void describe(config::Visitor& v, Step& step) {
  v.title("Step");
  v.required("name", step.name, "in tables");
  v.required("command", step.command,
             "words; the first is `orrery` or the path of a program below the build folder; {out} "
             "is the folder of its results");
  v.required("output", step.output, "file that takes what it prints");
  if (v.reading() && v.given("output") &&
      (!is_result_name(step.output) || step.output.find('/') != std::string::npos)) {
    v.problem("output", fmt::format("'{}' is no plain file name", step.output));
  }
  if (v.reading() && (step.output == "summary.json" || step.output == "log.txt")) {
    v.problem("output", fmt::format("'{}' is a file of the runner", step.output));
  }
}

void describe(config::Visitor& v, StepsFile& file) {
  v.schema("orrery/steps", 1);
  v.title("Steps");
  v.doc("Commands whose tables a figure shows.");
  describe_subject(v, file);
  v.required("steps", file.steps, "commands; they do not depend on each other");
  v.optional("inputs", file.inputs, "files and folders elsewhere that decide the results");
  v.optional("needs", file.needs, "files or folders below $ORRERY_DATA");
  v.optional("publish", file.publish, "files of steps that also go to the results folder itself");
  if (v.reading() && v.given("steps") && file.steps.empty()) v.problem("steps", "there are none");
}

StepsFile load_steps(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  auto file = config::load_file<StepsFile>(path, diagnostics);
  file.came_from(path);
  if (diagnostics.problems().size() == before) check_steps(file, diagnostics);
  return file;
}

StepsResult run_steps(const StepsFile& file, const RunnerOptions& options,
                      const std::function<void(const Progress&)>& on_progress) {
  StepsResult result;
  for (const std::string& data : file.needs) {
    const std::string path = data_path(data, file.folder);
    std::error_code error;
    if (fs::exists(path, error)) continue;
    result.skipped.push_back(fmt::format(
        "{} is skipped: {} is not there (set ORRERY_DATA to the folder with it)", file.name, path));
  }
  if (!result.skipped.empty()) return result;
  const StepRuns runs(file);
  static_cast<SweepOutcome&>(result) = sweep_runs(runs, file.name, options, on_progress);
  if (!options.dry_run) publish(file, runs, result);
  return result;
}

}  // namespace orrery::experiments
