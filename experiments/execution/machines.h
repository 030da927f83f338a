/// Where ranks run and what they compute with: the settings that `execute` and `calibrate` share.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/launcher/settings.h"
#include "executor/launcher/spawner.h"
#include "experiments/study/inputs.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

enum class BackendKind { cpu, cuda };
enum class CpuLibrary { eigen, openblas };
enum class TransportKind { tcp, nccl };
std::vector<std::pair<BackendKind, const char*>> enum_names(BackendKind);
std::vector<std::pair<CpuLibrary, const char*>> enum_names(CpuLibrary);
std::vector<std::pair<TransportKind, const char*>> enum_names(TransportKind);

/// The back end of ranks. Problems: precisions that it does not have and, unless ranks are on other
/// machines (`elsewhere`), whose ranks say so themselves, a GPU, NCCL or OpenBLAS that is not
/// there.
executor::RunSettings compute_settings(BackendKind backend, std::optional<CpuLibrary> library,
                                       executor::Precision precision, TransportKind transport,
                                       bool elsewhere, config::Diagnostics& diagnostics);

/// NAME:DEVICES
struct HostDevices {
  std::string name;
  int devices = 0;
};
bool from_scalar(const std::string& text, HostDevices& out, std::string& error);
std::string to_scalar(const HostDevices& host);

/// ADDRESS:PORT
struct ListenAddress {
  std::string host;
  int port = 0;
};
bool from_scalar(const std::string& text, ListenAddress& out, std::string& error);
std::string to_scalar(const ListenAddress& address);

/// Which machines, and how they are reached.
struct MachineSettings {
  std::vector<HostDevices> hosts;  ///< Empty: this machine has all devices.
  bool ssh = false;
  std::optional<std::string> token_file;
  bool netlab = false;  ///< The cluster's nodes and network are emulated on this machine.
  std::optional<ListenAddress> listen;
  Text advertise;

  /// On all hosts together.
  int devices() const;
  /// hosts, ssh, listen, port, advertise.
  void apply(executor::SpawnOptions& options) const;
};
void describe(config::Visitor& v, MachineSettings& settings);

/// The network of ranks on one machine, and the class of its links.
inline constexpr const char* kLoopback = "loopback";

/// Part of a card, in percent of its multiprocessors: PERCENT, or DEVICE=PERCENT for one device.
struct CardShare {
  std::optional<std::int32_t> device;
  std::int64_t percent = 0;
};
bool from_scalar(const std::string& text, CardShare& out, std::string& error);
std::string to_scalar(const CardShare& share);

/// DEVICE or RANK of "8=2", STEP of "a@3": a whole number of at least `low`. False: `error` says
/// what is wrong.
bool read_whole(const std::string& text, std::int64_t low, std::int64_t& out, std::string& error);

}  // namespace orrery::experiments
