#include "executor/launcher/rank_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "executor/cuda/backend.h"
#include "executor/cuda/rank_variables.h"
#include "executor/launcher/neighbors.h"
#include "executor/launcher/rank_generation.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

/// How long one question to the store waits before the process looks around again.
constexpr milliseconds kStoreWait{500};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(fmt::format("{} is not set", name));
  return value;
}

/// The value, or none after an order to stop.
std::optional<std::string> wait_for(RankContext& context, const std::string& key) {
  while (!context.watcher.stopped()) {
    if (auto value = context.store.get(key, kStoreWait)) return value;
  }
  return std::nullopt;
}

/// Before CUDA and NCCL are touched, and before this process has other threads.
void set_gpu_variables(const RankEnvironment& environment, const RunSettings& settings,
                       StoreClient& store) {
  RankSurroundings here;
  here.nccl = settings.transport == "nccl";
  if (!here.nccl && settings.backend != "cuda") return;
  set_missing(rank_variables(here));  // The driver reads its own when devices are counted.
  if (!here.nccl) return;
  const auto neighbors = store.get(neighbors_key(environment.node), kStoreWait);
  if (!neighbors) throw std::runtime_error("the launcher does not say who shares this machine");
  const Neighbors all = neighbors_from(*neighbors);
  here.run = settings.run;
  here.device = environment.device;
  here.neighbors = all.devices;
  here.emulated_nodes = all.emulated_nodes;
  here.gpus = static_cast<int>(cuda_status().devices.size());
  here.interface = interface_of(environment.address);
  set_missing(rank_variables(here));
}

void run_generations(RankContext& context) {
  for (std::int64_t g = context.environment.generation; !context.watcher.stopped(); ++g) {
    const auto text = wait_for(context, fmt::format("g/{}/members", g));
    if (!text) return;
    std::vector<std::int32_t> members;
    int me = -1;
    std::istringstream words(*text);
    for (std::int32_t device = 0; words >> device;) {
      if (device == context.environment.device) me = static_cast<int>(members.size());
      members.push_back(device);
    }
    if (me >= 0) RankGeneration(context, g, std::move(members), me).run();
  }
}

}  // namespace

RankEnvironment read_rank_environment() {
  RankEnvironment environment;
  environment.store = endpoint_from(variable("ORRERY_STORE"));
  environment.token = variable("ORRERY_TOKEN");
  environment.device = std::stoi(variable("ORRERY_DEVICE"));
  environment.node = variable("ORRERY_NODE");
  environment.address = variable("ORRERY_ADDRESS");
  environment.generation = std::stoll(variable("ORRERY_GENERATION"));
  return environment;
}

std::vector<std::string> to_environment(const RankEnvironment& environment) {
  return {fmt::format("ORRERY_STORE={}:{}", environment.store.host, environment.store.port),
          "ORRERY_TOKEN=" + environment.token,
          fmt::format("ORRERY_DEVICE={}", environment.device),
          "ORRERY_NODE=" + environment.node,
          "ORRERY_ADDRESS=" + environment.address,
          fmt::format("ORRERY_GENERATION={}", environment.generation)};
}

Endpoint endpoint_from(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string digits = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool number = !digits.empty() && digits.size() < 6 &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  if (colon == 0 || !number || std::stoi(digits) > 65535) {
    throw std::runtime_error(fmt::format("'{}' is not HOST:PORT", text));
  }
  return {text.substr(0, colon), std::stoi(digits)};
}

int run_rank_process() {
  RankEnvironment environment;
  try {
    environment = read_rank_environment();
  } catch (const std::exception& error) {
    fmt::print(stderr, "orrery: a rank is started by `orrery execute`: {}\n", error.what());
    return 2;
  }
  try {
    StoreClient store(environment.store, environment.token);
    const auto settings = store.get("settings", milliseconds(20'000));
    if (!settings) throw std::runtime_error("the launcher gave no settings");
    const RunSettings read = settings_from(*settings);
    set_gpu_variables(environment, read, store);
    Reporter reporter(environment.store, environment.token);
    OrderWatcher watcher(environment, read.heartbeat);
    RankContext context{environment, read, store, reporter, watcher, {}, {}};
    for (const std::string* folder : {&read.local_checkpoints, &read.cloud_checkpoints}) {
      if (read.checkpoint_every > 0 && !folder->empty()) {
        context.marks.emplace_back(*folder, read.run);
      }
    }
    run_generations(context);
    reporter.drain();
    return 0;
  } catch (const TransportError& error) {
    fmt::print(stderr, "orrery: device {}: {}\n", environment.device, error.what());
    return kStoreLost;
  } catch (const std::exception& error) {
    fmt::print(stderr, "orrery: device {}: {}\n", environment.device, error.what());
    return 1;
  }
}

}  // namespace orrery::executor
