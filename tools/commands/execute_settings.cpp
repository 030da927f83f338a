#include "tools/commands/execute_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "executor/cuda/backend.h"
#include "executor/cuda/nccl_transport.h"
#include "executor/launcher/rank.h"
#include "models/base/rng.h"
#include "models/base/text.h"
#include "tools/cli/flags.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {
namespace {

using config::Diagnostics;

/// Silence between these is neither a rank that computes nor a run that hangs. [choice]
constexpr double kLeastSilence = 1;
constexpr double kMostSilence = 3600;
/// Devices of a host; sums of them stay whole numbers. [choice]
constexpr std::int64_t kMostSlots = 100'000;

double number(const Text& text, const char* flag, double fallback, Diagnostics& diagnostics) {
  if (!text) return fallback;
  double value = fallback;
  char* end = nullptr;
  value = std::strtod(text->c_str(), &end);
  if (end == text->c_str() || *end != '\0' || !(value > 0) || value > 1e12) {
    diagnostics.add(at_flag(flag), fmt::format("'{}' is no positive number up to 1e12", *text));
    return fallback;
  }
  return value;
}

void require_one_of(const Text& text, const char* flag, const std::vector<std::string>& names,
                    const char* part, Diagnostics& diagnostics) {
  if (!text || std::find(names.begin(), names.end(), *text) != names.end()) return;
  diagnostics.add(at_flag(flag), fmt::format("unknown value '{}'", *text),
                  config::suggest(*text, names, part));
}

}  // namespace

std::optional<std::pair<std::string, std::int64_t>> at_step(const std::string& text,
                                                            const char* flag, const char* shape,
                                                            Diagnostics& diagnostics) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    diagnostics.add(at_flag(flag), fmt::format("'{}' is not {}", text, shape));
    return std::nullopt;
  }
  return std::pair(text.substr(0, at), whole_number(text.substr(at + 1), flag, 1, 1, diagnostics));
}

std::vector<executor::HostSlots> hosts_of(const Text& text, Diagnostics& diagnostics) {
  std::vector<executor::HostSlots> hosts;
  if (!text) return hosts;
  for (const std::string& item : split(*text, ',')) {
    const std::size_t colon = item.rfind(':');
    const std::string name = item.substr(0, colon);
    const bool plain = !name.empty() && name.find_first_of(" /'\"") == std::string::npos;
    if (colon == std::string::npos || !plain) {
      diagnostics.add(at_flag("--hosts"), fmt::format("'{}' is not NAME:DEVICES", item),
                      "for example --hosts a:4,b:8");
      continue;
    }
    const bool twice = std::any_of(hosts.begin(), hosts.end(),
                                   [&](const auto& host) { return host.name == name; });
    if (twice) diagnostics.add(at_flag("--hosts"), fmt::format("'{}' is named twice", name));
    const std::int64_t slots = whole_number(item.substr(colon + 1), "--hosts", 1, 1, diagnostics);
    if (slots > kMostSlots) {
      diagnostics.add(at_flag("--hosts"),
                      fmt::format("'{}' has more than {} devices", name, kMostSlots));
    }
    hosts.push_back({name, static_cast<int>(std::min(slots, kMostSlots))});
  }
  if (split(*text, ',').empty()) diagnostics.add(at_flag("--hosts"), "names no host");
  return hosts;
}

executor::RunSettings settings_of(const ExecuteSettings& args, std::uint64_t seed,
                                  Diagnostics& diagnostics) {
  executor::RunSettings s;
  require_one_of(args.backend, "--backend", {"cpu", "cuda"}, "back ends", diagnostics);
  require_one_of(args.transport, "--transport", {"tcp", "nccl"}, "transports", diagnostics);
  require_one_of(args.library, "--library", {"eigen", "openblas"}, "libraries", diagnostics);
  require_one_of(args.precision, "--precision", {"fp32", "fp64", "bf16"}, "precisions",
                 diagnostics);
  s.backend = args.backend.value_or(s.backend);
  s.transport = args.transport.value_or(s.transport);
  if (s.backend == "cpu" && args.precision == "bf16") {
    diagnostics.add(at_flag("--precision"), "the cpu back end has no bf16", "fp32 or fp64");
  }
  // With --hosts the GPUs are on other machines, whose ranks say what is missing.
  if (!args.hosts && s.backend == "cuda") {
    const std::string problem = executor::cuda_status().problem;
    if (!problem.empty()) diagnostics.add(at_flag("--backend"), "cuda: " + problem);
  }
  if (!args.hosts && s.transport == "nccl") {
    const std::string problem = executor::nccl_problem();
    if (!problem.empty()) diagnostics.add(at_flag("--transport"), "nccl: " + problem);
  }
  s.library = args.library.value_or("");
  s.precision =
      executor::precision_of(args.precision.value_or("fp32")).value_or(executor::Precision::fp32);
  s.steps = args.steps;
  s.learning_rate = args.learning_rate.value_or(s.learning_rate);
  s.data = args.data.value_or("");
  s.data_seed = seed;
  s.log_steps = args.log_steps.value_or(s.log_steps);
  s.checkpoint_every = args.checkpoint_every.value_or(0);
  s.local_checkpoints = args.checkpoints.value_or("");
  s.cloud_checkpoints = args.cloud.value_or("");
  if (s.checkpoint_every > 0 && s.local_checkpoints.empty() && s.cloud_checkpoints.empty()) {
    diagnostics.add(at_flag("--checkpoint-every"), "no folder is named",
                    "--checkpoints FOLDER, --cloud FOLDER or both");
  }
  if (s.checkpoint_every == 0 && (args.checkpoints || args.cloud)) {
    diagnostics.add(at_flag(args.checkpoints ? "--checkpoints" : "--cloud"), "no interval is given",
                    "--checkpoint-every STEPS");
  }
  for (const auto& [flag, text] :
       {std::pair{"--data", &s.data}, std::pair{"--checkpoints", &s.local_checkpoints},
        std::pair{"--cloud", &s.cloud_checkpoints}}) {
    if (text->find('\n') != std::string::npos) {
      diagnostics.add(at_flag(flag), "a path with a line break");
    }
  }
  s.elastic = args.elastic.has_value();
  s.prune_checkpoints = args.prune_checkpoints;
  if (args.prune_checkpoints && s.checkpoint_every == 0) {
    diagnostics.add(at_flag("--prune-checkpoints"), "this run has no checkpoints",
                    "--checkpoint-every STEPS with --checkpoints or --cloud");
  }
  const double silence = number(args.silence, "--silence", 10, diagnostics);
  if (silence < kLeastSilence || silence > kMostSilence) {
    diagnostics.add(at_flag("--silence"), fmt::format("{} s is not between {} and {} s", silence,
                                                      kLeastSilence, kMostSilence));
  }
  s.silence = std::chrono::milliseconds(
      static_cast<std::int64_t>(1e3 * std::clamp(silence, kLeastSilence, kMostSilence)));
  s.heartbeat = std::min(s.heartbeat, s.silence / 4);
  return s;
}

std::vector<KillRequest> kills_of(const ExecuteSettings& args, Diagnostics& diagnostics) {
  using executor::FaultPoint;
  const char* shape = "RANK@STEP, RANK@STEP:before_update or RANK@STEP:after_update";
  std::vector<KillRequest> out;
  for (const std::string& text : args.kills) {
    KillRequest kill;
    std::string rest = text;
    for (const auto& [ending, point] : {std::pair{":before_update", FaultPoint::before_update},
                                        std::pair{":after_update", FaultPoint::after_update}}) {
      if (!text.ends_with(ending)) continue;
      kill.point = point;
      rest = text.substr(0, text.size() - std::string(ending).size());
    }
    const auto parts = at_step(rest, "--kill", shape, diagnostics);
    if (!parts) continue;
    kill.rank = whole_number(parts->first, "--kill", 0, 0, diagnostics);
    kill.step = parts->second;
    out.push_back(kill);
  }
  return out;
}

std::vector<executor::FaultInjection> faults_of(const std::vector<KillRequest>& kills,
                                                const std::vector<std::int64_t>& switches,
                                                const std::vector<ir::Program>& programs,
                                                std::uint64_t seed, Diagnostics& diagnostics) {
  std::vector<executor::FaultInjection> faults;
  for (const KillRequest& kill : kills) {
    const auto before = std::lower_bound(switches.begin(), switches.end(), kill.step);
    const ir::Program& program = programs[static_cast<std::size_t>(before - switches.begin())];
    const auto ranks = static_cast<std::int64_t>(program.ranks.size());
    if (kill.rank >= ranks) {
      diagnostics.add(at_flag("--kill"), fmt::format("rank {} of {}", kill.rank, ranks),
                      fmt::format("0 to {}", ranks - 1));
      continue;
    }
    executor::FaultInjection fault;
    fault.device = program.ranks[static_cast<std::size_t>(kill.rank)].device.value;
    fault.step = kill.step;
    fault.seed = Rng(seed).fork(faults.size()).fork(7)();
    fault.point = kill.point;
    faults.push_back(fault);
  }
  return faults;
}

std::map<std::int32_t, double> slowdowns_of(const ExecuteSettings& args, Diagnostics& diagnostics) {
  std::map<std::int32_t, double> out;
  for (const std::string& text : args.slowdowns) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      diagnostics.add(at_flag("--slowdown"), fmt::format("'{}' is not DEVICE=FACTOR", text));
      continue;
    }
    const std::int64_t device =
        whole_number(text.substr(0, equals), "--slowdown", 0, 0, diagnostics);
    const double factor = number(text.substr(equals + 1), "--slowdown", 1, diagnostics);
    if (factor < 1) {
      diagnostics.add(at_flag("--slowdown"),
                      fmt::format("{} is below 1: no device can be made faster", factor));
    }
    out[static_cast<std::int32_t>(device)] = factor;
  }
  return out;
}

void set_listen(const Text& text, executor::LaunchOptions& options, Diagnostics& diagnostics) {
  if (!text) return;
  try {
    const executor::Endpoint endpoint = executor::endpoint_from(*text);
    options.listen = endpoint.host;
    options.port = endpoint.port;
  } catch (const std::runtime_error& error) {
    diagnostics.add(at_flag("--listen"), error.what(), "for example --listen 0.0.0.0:29400");
  }
}

}  // namespace orrery::tools
