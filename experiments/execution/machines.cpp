#include "experiments/execution/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>

#include "executor/compute/cpu_gemm.h"
#include "executor/cuda/backend.h"
#include "executor/cuda/nccl_transport.h"
#include "executor/launcher/rank.h"
#include "models/config/units.h"
#include "models/ir/names.h"

namespace orrery::experiments {
namespace {

/// Devices of a host; sums of them stay whole numbers. [choice]
constexpr std::int64_t kMostSlots = 100'000;

}  // namespace

std::vector<std::pair<BackendKind, const char*>> enum_names(BackendKind) {
  return {{BackendKind::cpu, "cpu"}, {BackendKind::cuda, "cuda"}};
}
std::vector<std::pair<CpuLibrary, const char*>> enum_names(CpuLibrary) {
  return {{CpuLibrary::eigen, "eigen"}, {CpuLibrary::openblas, "openblas"}};
}
std::vector<std::pair<TransportKind, const char*>> enum_names(TransportKind) {
  return {{TransportKind::tcp, "tcp"}, {TransportKind::nccl, "nccl"}};
}

executor::RunSettings compute_settings(BackendKind backend, std::optional<CpuLibrary> library,
                                       executor::Precision precision, TransportKind transport,
                                       bool elsewhere, config::Diagnostics& diagnostics) {
  executor::RunSettings settings;
  settings.backend = ir::name_of(backend);
  settings.transport = ir::name_of(transport);
  settings.precision = precision;
  if (library) settings.library = ir::name_of(*library);
  if (backend == BackendKind::cpu && precision == executor::Precision::bf16) {
    diagnostics.add(at_setting("precision"), "the cpu back end has no bf16", "fp32 or fp64");
  }
  if (elsewhere) return settings;
  if (library == CpuLibrary::openblas && !executor::has_openblas()) {
    diagnostics.add(at_setting("library"), "this build has no OpenBLAS",
                    "eigen; or install libopenblas-dev and configure");
  }
  if (backend == BackendKind::cuda) {
    const std::string problem = executor::cuda_status().problem;
    if (!problem.empty()) diagnostics.add(at_setting("backend"), "cuda: " + problem);
  }
  if (transport == TransportKind::nccl) {
    const std::string problem = executor::nccl_problem();
    if (!problem.empty()) diagnostics.add(at_setting("transport"), "nccl: " + problem);
  }
  return settings;
}

bool read_whole(const std::string& text, std::int64_t low, std::int64_t& out, std::string& error) {
  config::TextError wrong;
  const auto value = config::parse_integer(text, std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::int64_t>::max(), wrong);
  if (!value) {
    error = wrong.what;
  } else if (*value < low) {
    error = fmt::format("must be at least {}, is {}", low, *value);
  } else {
    out = *value;
    return true;
  }
  return false;
}

bool from_scalar(const std::string& text, HostDevices& out, std::string& error) {
  const std::size_t colon = text.rfind(':');
  out.name = text.substr(0, colon);
  if (colon == std::string::npos || out.name.empty()) {
    error = fmt::format("'{}' is not NAME:DEVICES, for example a:4,b:8", text);
    return false;
  }
  // It becomes an argument of ssh and a folder of checkpoints.
  const bool address = std::all_of(out.name.begin(), out.name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || (c != '\0' && std::strchr("._-:@%", c) != nullptr);
  });
  if (!address || out.name.front() == '-' || out.name == "." || out.name == "..") {
    error = fmt::format("'{}' is no name or address of a machine", out.name);
    return false;
  }
  std::int64_t devices = 0;
  if (!read_whole(text.substr(colon + 1), 1, devices, error)) return false;
  if (devices > kMostSlots) {
    error = fmt::format("'{}' has more than {} devices", out.name, kMostSlots);
    return false;
  }
  out.devices = static_cast<int>(devices);
  return true;
}
std::string to_scalar(const HostDevices& host) {
  return fmt::format("{}:{}", host.name, host.devices);
}

bool from_scalar(const std::string& text, ListenAddress& out, std::string& error) {
  try {
    const executor::Endpoint endpoint = executor::endpoint_from(text);
    out = {endpoint.host, endpoint.port};
    return true;
  } catch (const std::runtime_error& wrong) {
    error = fmt::format("{}, for example 0.0.0.0:29400", wrong.what());
    return false;
  }
}
std::string to_scalar(const ListenAddress& address) {
  return fmt::format("{}:{}", address.host, address.port);
}

bool from_scalar(const std::string& text, CardShare& out, std::string& error) {
  out = {};
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) {
    std::int64_t device = 0;
    if (!read_whole(text.substr(0, equals), 0, device, error)) return false;
    out.device = static_cast<std::int32_t>(device);
  }
  const std::size_t percent = equals == std::string::npos ? 0 : equals + 1;
  if (!read_whole(text.substr(percent), 1, out.percent, error)) return false;
  if (out.percent <= 100) return true;
  error = fmt::format("{} % of a card, which has at most 100", out.percent);
  return false;
}
std::string to_scalar(const CardShare& share) {
  return share.device ? fmt::format("{}={}", *share.device, share.percent)
                      : fmt::format("{}", share.percent);
}

int MachineSettings::devices() const {
  int sum = 0;
  for (const HostDevices& host : hosts) sum += host.devices;
  return sum;
}

void MachineSettings::apply(executor::SpawnOptions& options) const {
  for (const HostDevices& host : hosts) options.hosts.push_back({host.name, host.devices});
  options.ssh = ssh;
  options.token_file = token_file.value_or("");
  options.advertise = advertise.value_or("");
  if (!listen) return;
  options.listen = listen->host;
  options.port = listen->port;
}

void describe(config::Visitor& v, MachineSettings& settings) {
  v.section("Machines");
  v.optional("hosts", settings.hosts,
             "a:4,b:8: device 0-3 on a, 4-11 on b; default: all on this machine", {.commas = true});
  v.optional("ssh", settings.ssh, "start the agents of the hosts by ssh, instead of printing how");
  v.optional("token_file", settings.token_file,
             "write the run's token into this file (mode 0600), for the agents of the hosts, "
             "instead of printing it");
  v.optional("netlab", settings.netlab,
             "emulate the cluster's nodes and network on this machine, for this run");
  v.optional("listen", settings.listen,
             "ADDRESS:PORT of the store; default: loopback, with --hosts all addresses, any port");
  v.optional("advertise", settings.advertise,
             "this machine's address for hosts; default: its name");
  if (!v.reading()) return;
  v.not_empty("hosts", settings.hosts, "names no host");
  std::set<std::string> names;
  for (const HostDevices& host : settings.hosts) {
    if (host.devices > 0 && !names.insert(host.name).second) {
      v.problem("hosts", fmt::format("'{}' is named twice", host.name));
    }
  }
  const bool hosts = v.given("hosts");
  if (settings.netlab && (hosts || settings.listen || settings.advertise)) {
    v.problem("netlab", "names the hosts itself", "without --hosts, --listen and --advertise");
  }
  if (settings.ssh && !hosts) v.problem("ssh", "no --hosts are named");
  if (settings.token_file && (!hosts || settings.ssh)) {
    v.problem("token_file", hosts ? "--ssh hands the token over" : "no --hosts are named");
  }
  if (settings.advertise && !hosts && !settings.netlab) {
    v.problem("advertise", "no --hosts are named");
  }
}

}  // namespace orrery::experiments
