#include "tools/cli/program.h"

#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "executor/bench/bench_rank.h"
#include "executor/launcher/rank.h"
#include "executor/netlab/lab.h"
#include "experiments/study/version.h"
#include "models/config/diagnostics.h"
#include "planners/modules/modules.h"
#include "tools/cli/command_line.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/commands/catalog.h"

namespace orrery::tools {
namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

/// fmt::print would throw where standard error is closed.
void complain(const std::string& text) { std::fputs((text + "\n").c_str(), stderr); }

/// Loads the modules that `--module PATH`, wherever it stands, and the environment name, and
/// returns the other words. What this program starts (runs of a folder, tasks of Slurm) hears of
/// them by the environment.
std::vector<const char*> without_modules(int argc, char** argv) {
  constexpr const char* kFlag = "--module";
  config::Diagnostics problems;
  planners::load_modules_of_environment(problems);
  std::vector<const char*> words;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--module=")) {
      planners::load_module(word.substr(word.find('=') + 1), at_flag(kFlag), problems);
    } else if (word != kFlag) {
      words.push_back(argv[i]);
    } else if (++i < argc) {
      planners::load_module(argv[i], at_flag(kFlag), problems);
    } else {
      problems.add(at_flag(kFlag), "needs the path of a shared library");
    }
  }
  problems.raise();
  std::string paths;
  for (const planners::LoadedModule& module : planners::loaded_modules()) {
    paths += (paths.empty() ? "" : ":") + module.path;
  }
  if (!paths.empty()) setenv("ORRERY_MODULES", paths.c_str(), 1);
  return words;
}

int run(int argc, char** argv) {
  // What `orrery execute` and `orrery calibrate` start for each device, and `orrery netlab` for a
  // lab; not for users.
  if (argc == 2 && std::string(argv[1]) == "execute-rank") {
    return executor::run_rank_process();
  }
  if (argc == 2 && std::string(argv[1]) == executor::kBenchRankCommand) {
    return executor::run_bench_rank_process();
  }
  if (argc == 3 && std::string(argv[1]) == executor::kNetlabSwitchCommand) {
    return executor::serve_netlab_switch(argv[2]);
  }
  const std::vector<const char*> words = without_modules(argc, argv);
  const auto parsed =
      parse_command_line(commands(), command_groups(), experiments::program_version(),
                         static_cast<int>(words.size()), words.data());
  if (const Reply* reply = std::get_if<Reply>(&parsed)) {
    std::fputs(reply->text.c_str(), reply->status == 0 ? stdout : stderr);
    return reply->status;
  }
  const auto& invocation = std::get<Invocation>(parsed);
  ProgressLine progress(invocation.json);
  std::mutex mutex;  // Threads of a command may speak, too.
  std::optional<OutputError> unsaid;
  experiments::Call call;
  call.on_progress = [&](const auto& view) {
    const std::lock_guard lock(mutex);
    progress.show(view);
  };
  call.on_note = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    progress.clear();
    complain("orrery: " + text);
  };
  if (!invocation.json) {
    call.on_line = [&](const std::string& text) {
      const std::lock_guard lock(mutex);
      if (unsaid) return;
      progress.clear();
      try {
        print(text);
        flush();
      } catch (const OutputError& error) {
        unsaid = error;  // The work goes on: what it writes into files is not lost.
      }
    };
  }
  const auto outcome =
      invocation.command->run(invocation.settings, invocation.view, call, invocation.problems);
  progress.clear();
  if (unsaid) throw OutputError(*unsaid);
  if (invocation.json) {
    print(detail::to_json(outcome->result()));
  } else {
    outcome->print();
  }
  return outcome->status();
}

}  // namespace

int run_program(int argc, char** argv) {
  // A closed pipe and a file above its size limit are errors of write(), reported as a full disk
  // is.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  int status = kFailed;
  try {
    try {
      status = run(argc, argv);
    } catch (const config::ConfigError& error) {
      complain(error.what());
      status = kBadInput;
    } catch (const experiments::Interrupted& stop) {
      complain(fmt::format("orrery: {}", stop.what()));
      status = experiments::kInterrupted;
    }
    flush();
  } catch (const std::bad_alloc&) {
    complain("orrery: out of memory");
    status = kFailed;
  } catch (const std::exception& error) {
    complain(fmt::format("orrery: {}", error.what()));
    status = kFailed;
  }
  return status;
}

}  // namespace orrery::tools
