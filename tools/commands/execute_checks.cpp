#include "tools/commands/execute_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <thread>

#include "executor/cuda/backend.h"
#include "executor/cuda/rank_variables.h"
#include "executor/engine/data.h"
#include "executor/launcher/paths.h"
#include "executor/net/socket.h"
#include "executor/net/transport.h"
#include "tools/cli/flags.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

using config::Diagnostics;

namespace {

namespace fs = std::filesystem;

void check_out(const std::string& out, Diagnostics& diagnostics) {
  const OutFolder before(out);
  std::error_code error;
  fs::create_directories(out, error);
  if (error || access(out.c_str(), W_OK) != 0) {
    diagnostics.add(at_flag("--out"), fmt::format("cannot write into '{}'", out));
  } else if (executor::is_written(out)) {
    diagnostics.add(at_flag("--out"), fmt::format("another run writes into '{}'", out),
                    "name another folder");
  } else if (fs::exists(fs::path(out) / "generation-0", error)) {
    diagnostics.add(at_flag("--out"), fmt::format("'{}' holds a run", out),
                    "name another folder, or remove it");
  }
  before.undo();
}

}  // namespace

OutFolder::OutFolder(const std::string& out) {
  if (out.empty()) return;
  const auto note = [this](const fs::path& path) {
    std::error_code error;
    if (fs::exists(path, error)) return false;
    missing_.push_back(path.string());
    return true;
  };
  note(fs::path(out) / "losses.csv");
  note(fs::path(out) / "inputs");
  for (fs::path at = fs::absolute(out); at.has_relative_path(); at = at.parent_path()) {
    if (at.has_filename() && !note(at)) break;
  }
}

void OutFolder::undo() const {
  std::error_code error;  // What cannot be removed stays.
  for (const std::string& path : missing_) {
    if (fs::path(path).filename() == "inputs") {
      fs::remove_all(path, error);
    } else {
      fs::remove(path, error);  // A folder only if it is empty.
    }
  }
}

void check_devices(const std::vector<ir::Program>& programs, int slots, int cluster,
                   Diagnostics& diagnostics) {
  if (slots > cluster) {
    diagnostics.add(at_flag("--hosts"),
                    fmt::format("the hosts have {} devices, the cluster has {}", slots, cluster));
  }
  for (const ir::Program& program : programs) {
    for (const ir::Rank& rank : program.ranks) {
      if (rank.device.value < slots) continue;
      diagnostics.add(at_flag("--hosts"), fmt::format("the hosts have {} devices, the plan needs "
                                                      "device {}",
                                                      slots, rank.device.value));
      return;
    }
  }
}

void check_listen(const executor::LaunchOptions& o, Diagnostics& diagnostics) {
  if (o.listen.empty()) return;
  try {
    const executor::Listener listener(o.listen, o.port);
  } catch (const executor::TransportError& error) {
    diagnostics.add(at_flag("--listen"), error.what(), kTakenPort);
  }
}

void check_places(const executor::LaunchOptions& o, const experiments::LoadedRun& run,
                  const ir::ProgramHeader& header, Diagnostics& diagnostics) {
  for (const auto& [device, factor] : o.settings.slowdowns) {
    if (device < run.cluster.size()) continue;
    diagnostics.add(at_flag("--slowdown"),
                    fmt::format("device {} of {}", device, run.cluster.size()),
                    fmt::format("0 to {}", run.cluster.size() - 1));
  }
  if (!o.out.empty()) check_out(o.out, diagnostics);
  if (!o.settings.data.empty() && header.model.vocabulary < executor::kLeastTextVocabulary) {
    diagnostics.add(at_flag("--data"),
                    fmt::format("bytes need a vocabulary of {}, the model has {}",
                                executor::kLeastTextVocabulary, header.model.vocabulary));
  }
  if (!o.hosts.empty()) return;  // Their agents look.
  const OutFolder local(o.settings.local_checkpoints), cloud(o.settings.cloud_checkpoints);
  executor::RunSettings settings = o.settings;
  settings.least_data_bytes = header.sequence_length + 1;
  for (const executor::PathProblem& path : executor::find_path_problems(settings)) {
    diagnostics.add(at_flag(("--" + path.setting).c_str()), path.problem);
  }
  cloud.undo();  // what a run needs it makes again
  local.undo();
}

std::string crowding(const executor::LaunchOptions& o) {
  const std::size_t ranks = o.first.program.ranks.size();
  const unsigned cores = std::thread::hardware_concurrency();
  if (!o.hosts.empty()) return "";
  if (o.settings.backend == "cuda") {
    std::vector<int> devices;
    for (const ir::Rank& rank : o.first.program.ranks) devices.push_back(rank.device.value);
    return executor::sharing_note(devices,
                                  static_cast<int>(executor::cuda_status().devices.size()));
  }
  if (o.settings.backend != "cpu" || cores == 0 || ranks <= cores) return "";
  return fmt::format("{0} ranks share {1} cores: step times are not those of {0} devices", ranks,
                     cores);
}

}  // namespace orrery::tools
