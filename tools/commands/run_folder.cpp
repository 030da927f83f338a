/// orrery run FOLDER: all experiments below a folder, one after the other.
#include "tools/commands/run_folder.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "models/config/document.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/inputs.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> command_for(const RunSettings& args, const std::string& file) {
  std::vector<std::string> words = {fs::read_symlink("/proc/self/exe").string(), "run", file,
                                    "--results", args.sweep.results};
  const ExperimentKind kind = kind_of(file);
  const bool divides = kind != ExperimentKind::twin;
  if (divides && args.sweep.workers) {
    words.insert(words.end(), {"--workers", std::to_string(*args.sweep.workers)});
  }
  if (divides && args.sweep.shard) {
    const Shard& shard = *args.sweep.shard;
    words.insert(words.end(), {"--shard", fmt::format("{}/{}", shard.index, shard.count)});
  }
  if (args.sweep.no_figure) words.emplace_back("--no-figure");
  if (args.sweep.dry_run) words.emplace_back("--dry-run");
  if (args.timelines && kind == ExperimentKind::manifest) words.emplace_back("--timelines");
  if (args.sweep.quiet) words.emplace_back("--quiet");
  return words;
}

/// Status of the command, run as a child that dies with this process. Ctrl-C goes to both: the
/// child keeps its results, and this process waits for it.
int run_apart(const std::vector<std::string>& words) {
  std::fflush(nullptr);
  const auto before = signal(SIGINT, SIG_IGN);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGINT, SIG_DFL);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  if (child > 0) {
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  signal(SIGINT, before);
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// Folder of a file, or the file where the folder holds several.
std::string shown(const std::string& file, const std::vector<std::string>& files) {
  const fs::path folder = fs::path(file).parent_path();
  const auto beside = std::count_if(files.begin(), files.end(), [&](const std::string& other) {
    return fs::path(other).parent_path() == folder;
  });
  return beside > 1 ? file : folder.string();
}

/// Experiments of one name would write over each other's results.
void check_distinct_names(const std::vector<std::string>& files) {
  config::Diagnostics diagnostics;
  std::map<std::string, std::string> known;
  for (const std::string& file : files) {
    if (kind_of(file) == ExperimentKind::twin) continue;  // results/twin/<name>
    config::Diagnostics ignored;
    const config::Value tree = config::load_value(file, ignored);
    const config::Value* name = tree.find("name");
    if (name == nullptr || !name->is_scalar()) continue;
    const auto [first, is_new] = known.emplace(name->text, file);
    if (!is_new) {
      diagnostics.add(name->at,
                      fmt::format("the name '{}' is also that of {}", name->text, first->second),
                      "each needs a results folder of its own");
    }
  }
  diagnostics.raise();
}

std::string result_text(int status) {
  if (status == 0) return good("done");
  if (status == kInterrupted) return bad("interrupted");
  return bad(fmt::format("failed (status {})", status));
}

}  // namespace

ExperimentKind kind_of(const std::string& file) {
  config::Diagnostics ignored;
  const config::Value tree = config::load_value(file, ignored);
  const config::Value* schema = tree.find("schema");
  const auto is = [&](const char* kind) {
    return schema != nullptr && schema->text.rfind(kind, 0) == 0;
  };
  if (is("orrery/replay/")) return ExperimentKind::replay;
  if (is("orrery/steps/")) return ExperimentKind::steps;
  if (is("orrery/mixed_length/")) return ExperimentKind::mixed_length;
  if (is("orrery/twin/")) return ExperimentKind::twin;
  return ExperimentKind::manifest;
}

std::vector<std::string> experiments_of(const std::string& path, config::Diagnostics& diagnostics) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    diagnostics.add({}, fmt::format("no such file or folder '{}'", path),
                    "orrery list experiments shows what there is");
    return {};
  }
  if (!fs::is_directory(path, error)) return {path};
  static const std::set<std::string> kNames = {kManifestFile, kReplayFile, kStepsFile,
                                               kMixedLengthFile};
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    if (kNames.contains(entry.path().filename().string())) files.insert(entry.path().string());
  }
  if (files.empty()) {
    diagnostics.add({}, fmt::format("no experiment in '{}' nor below it", path),
                    "orrery list experiments shows what there is");
  }
  return {files.begin(), files.end()};
}

int run_folder(const RunSettings& args, const std::vector<std::string>& files) {
  if (args.json) {
    config::Diagnostics diagnostics;
    diagnostics.add(at_flag("--json"),
                    fmt::format("{} are {} experiments", args.manifest, files.size()),
                    "name one of them");
    diagnostics.raise();
  }
  check_distinct_names(files);
  Table table;
  table.column("experiment").column("result").number("time");
  int worst = 0;
  for (std::size_t i = 0; i < files.size() && worst != kInterrupted; ++i) {
    print(bold(fmt::format("[{}/{}] {}", i + 1, files.size(), files[i])) + "\n");
    const auto start = std::chrono::steady_clock::now();
    const int status = run_apart(command_for(args, files[i]));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    table.row({shown(files[i], files), result_text(status), duration(seconds.count())});
    worst = status == kInterrupted ? status : std::max(worst, status);
    print("\n");
  }
  print(table.text(0, colors()));
  if (worst == kInterrupted) {
    fmt::print(stderr, "orrery: interrupted; the same command goes on from there\n");
  }
  return worst;
}

}  // namespace orrery::tools
