#include "executor/launcher/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "executor/cuda/backend.h"
#include "executor/cuda/rank_variables.h"
#include "executor/launcher/messages.h"
#include "executor/launcher/neighbors.h"
#include "executor/launcher/rank_generation.h"
#include "executor/launcher/settings.h"
#include "executor/net/message.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(fmt::format("{} is not set", name));
  return value;
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
  const auto all = from_message<Neighbors>(*neighbors, "neighbors");
  here.run = settings.run;
  here.device = environment.device;
  here.neighbors = all.devices;
  here.emulated_nodes = all.emulated_nodes;
  here.gpus = static_cast<int>(cuda_status().devices.size());
  here.interface = interface_of(environment.address);
  set_missing(rank_variables(here));
}

void run_generations(RankContext& context) {
  for (std::int64_t g = context.environment.generation;; ++g) {
    const auto text = context.wait_for(fmt::format("g/{}/members", g));
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

CommandListener::CommandListener(const RankEnvironment& environment, milliseconds heartbeat,
                                 WhenLost when_lost)
    : device_(environment.device),
      when_lost_(when_lost),
      client_(environment.store, environment.token),
      thread_([this, heartbeat] { run(heartbeat); }) {}

CommandListener::~CommandListener() {
  leaving_ = true;
  thread_.join();
}

void CommandListener::attach(Transport* transport, std::int64_t generation) {
  const std::lock_guard lock(mutex_);
  transport_ = transport;
  generation_ = generation;
  apply();
}

/// Under the lock.
void CommandListener::apply() {
  if (transport_ == nullptr) return;
  if (stopped_) transport_->abort("the launcher stops the run");
  if (generation_ <= canceled_) transport_->abort("the launcher ends this generation");
}

void CommandListener::run(milliseconds heartbeat) {
  try {
    listen(heartbeat);
  } catch (const TransportError& error) {
    if (stopped_ || leaving_) return;
    if (when_lost_ == WhenLost::exit) {
      fmt::print(stderr, "orrery: device {} ends: its launcher is gone ({})\n", device_,
                 error.what());
      ::_exit(kStoreLost);
    }
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    apply();
  }
}

void CommandListener::listen(milliseconds heartbeat) {
  std::int64_t beats = 0;
  for (std::int64_t n = 0; !leaving_ && !stopped_;) {
    client_.set(fmt::format("beat/{}", device_), std::to_string(++beats));
    const auto command = client_.get(fmt::format("command/{}", n), heartbeat);
    if (!command) continue;
    ++n;
    const std::lock_guard lock(mutex_);
    if (*command == "stop") {
      stopped_ = true;
    } else if (command->starts_with("cancel ")) {
      canceled_ = std::max<std::int64_t>(canceled_, std::stoll(command->substr(7)));
    }
    apply();
  }
}

void serve_rank(const RankEnvironment& environment, SharedThreadRanks* threads) {
  StoreClient store(environment.store, environment.token);
  const auto text = store.get("settings", milliseconds(20'000));
  if (!text) throw std::runtime_error("the launcher gave no settings");
  const auto settings = from_message<RunSettings>(*text, "settings");
  if (threads == nullptr) set_gpu_variables(environment, settings, store);
  Reporter reporter(environment.store, environment.token);
  CommandListener commands(
      environment, settings.heartbeat,
      threads == nullptr ? CommandListener::WhenLost::exit : CommandListener::WhenLost::stop);
  RankContext context{environment, settings, store, reporter, commands, threads};
  for (const std::string* folder : {&settings.local_checkpoints, &settings.cloud_checkpoints}) {
    if (settings.checkpoint_every > 0 && !folder->empty()) {
      context.marks.emplace_back(*folder, settings.run);
    }
  }
  run_generations(context);
  reporter.drain();
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
    serve_rank(environment, nullptr);
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
