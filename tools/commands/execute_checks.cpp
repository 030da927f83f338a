#include "tools/commands/execute_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <thread>

#include "executor/engine/data.h"
#include "executor/launcher/places.h"
#include "executor/net/socket.h"
#include "executor/net/transport.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

using config::Diagnostics;

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
                    fmt::format("device {} of {}", device, run.cluster.size()));
  }
  if (!o.out.empty()) {
    std::error_code error;
    std::filesystem::create_directories(o.out, error);
    if (error || access(o.out.c_str(), W_OK) != 0) {
      diagnostics.add(at_flag("--out"), fmt::format("cannot write into '{}'", o.out));
    } else if (std::filesystem::exists(std::filesystem::path(o.out) / "generation-1", error)) {
      diagnostics.add(at_flag("--out"),
                      fmt::format("'{}' holds a run of several generations", o.out),
                      "name another folder, or remove it");
    } else if (executor::is_written(o.out)) {
      diagnostics.add(at_flag("--out"), fmt::format("another run writes into '{}'", o.out),
                      "name another folder");
    }
  }
  if (!o.settings.data.empty() && header.model.vocabulary < executor::kLeastTextVocabulary) {
    diagnostics.add(at_flag("--data"),
                    fmt::format("bytes need a vocabulary of {}, the model has {}",
                                executor::kLeastTextVocabulary, header.model.vocabulary));
  }
  if (!o.hosts.empty()) return;  // Their agents look.
  executor::RunSettings settings = o.settings;
  settings.least_data_bytes = header.sequence_length + 1;
  for (const std::string& problem : executor::find_bad_places(settings)) {
    diagnostics.add(at_flag("--data, --checkpoints, --cloud"), problem);
  }
}

std::string crowding(const executor::LaunchOptions& o) {
  const std::size_t ranks = o.first.program.ranks.size();
  const unsigned cores = std::thread::hardware_concurrency();
  if (!o.hosts.empty() || o.settings.backend != "cpu" || cores == 0 || ranks <= cores) return "";
  return fmt::format("{0} ranks share {1} cores: step times are not those of {0} devices", ranks,
                     cores);
}

}  // namespace orrery::tools
