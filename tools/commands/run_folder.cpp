/// orrery run FOLDER: all studies below a folder, one after the other.
#include "tools/commands/run_folder.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>

#include "experiments/study/run_tasks.h"
#include "experiments/study/study_files.h"
#include "models/base/subprocess.h"
#include "models/config/document.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;

/// How a command ended, and what it printed.
struct Ran {
  int status = 0;
  std::string text;
};

/// Runs a command as a child that dies with this process. Ctrl-C goes to both: the child keeps its
/// results, and this process waits for it.
Ran run_apart(const std::vector<std::string>& words) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), std::fclose);
  if (out == nullptr) throw std::system_error(errno, std::generic_category(), "temporary file");
  const auto before = signal(SIGINT, SIG_IGN);
  Subprocess child({.command = words,
                    .out = fileno(out.get()),
                    .signals = ChildSignals::defaults,
                    .death_signal = SIGTERM});
  const ExitStatus status = child.wait();
  signal(SIGINT, before);
  Ran ran{status.signal == 0 ? status.code : 1, ""};
  std::rewind(out.get());
  char buffer[1 << 14];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, out.get())) {
    ran.text.append(buffer, count);
  }
  return ran;
}

/// What `--json` prints of a folder.
struct FolderRow {
  std::string experiment;
  int status = 0;
};
struct FolderDocument {
  std::vector<FolderRow> experiments;
};

void describe(config::Visitor& v, FolderRow& row) {
  v.title("Experiment");
  v.required("experiment", row.experiment, "its file");
  v.required("status", row.status, "exit status; 0: done");
}

void describe(config::Visitor& v, FolderDocument& document) {
  v.title("Experiments");
  v.required("experiments", document.experiments, "of the folder");
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
  if (status == experiments::kInterrupted) return bad("interrupted");
  return bad(fmt::format("failed (status {})", status));
}

}  // namespace

std::vector<std::string> run_command(const RunSettings& args, const std::string& file) {
  const SweepSettings& sweep = args.sweep;
  std::vector<std::string> words = {own_executable(), "run", file, "--results", sweep.results};
  const auto add = [&words](const char* flag, const std::optional<std::string>& value) {
    if (value) words.insert(words.end(), {flag, *value});
  };
  const auto as_text = [](const std::optional<int>& number) {
    return number ? std::optional(std::to_string(*number)) : std::nullopt;
  };
  const std::string command = experiments::command_of_file(file);
  if (command != "twin") {  // whose runs are not divided
    add("--workers", as_text(sweep.workers));
    if (sweep.shard) add("--shard", fmt::format("{}/{}", sweep.shard->index, sweep.shard->count));
    add("--limit", as_text(sweep.limit));
    if (args.join) words.emplace_back("--join");
    if (args.slurm.slurm) {
      words.emplace_back("--slurm");
      add("--nodes", as_text(args.slurm.nodes));
      add("--time", args.slurm.time);
      add("--partition", args.slurm.partition);
      for (const std::string& option : args.slurm.sbatch) words.push_back("--sbatch=" + option);
    }
  }
  if (sweep.no_figure) words.emplace_back("--no-figure");
  if (sweep.dry_run) words.emplace_back("--dry-run");
  if (args.timelines && command == "plan") words.emplace_back("--timelines");
  if (!sweep.cache.folder.empty()) words.insert(words.end(), {"--cache", sweep.cache.folder});
  if (sweep.quiet) words.emplace_back("--quiet");
  return words;
}

StudyReport run_folder(const RunSettings& args, const std::vector<std::string>& files,
                       const experiments::Call& call) {
  check_distinct_names(files);
  Table table;
  table.column("experiment").column("result").number("time");
  FolderDocument document;
  std::string text;
  int worst = 0;
  for (std::size_t i = 0; i < files.size() && worst != experiments::kInterrupted; ++i) {
    const std::string head = fmt::format("[{}/{}] {}", i + 1, files.size(), files[i]);
    if (!args.sweep.quiet) call.note(head);
    const auto start = std::chrono::steady_clock::now();
    const Ran ran = run_apart(run_command(args, files[i]));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    text += bold(head) + "\n" + ran.text + "\n";
    table.row({shown(files[i], files), result_text(ran.status), duration(seconds.count())});
    document.experiments.push_back({files[i], ran.status});
    worst = ran.status == experiments::kInterrupted ? ran.status : std::max(worst, ran.status);
  }
  if (worst == experiments::kInterrupted)
    call.note("interrupted; the same command goes on from there");
  return report_of(text + table.text(0, colors()), document, worst);
}

}  // namespace orrery::tools
