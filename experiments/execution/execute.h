/// A plan run for real: one rank for each device, as processes on this machine, on named hosts or
/// in an emulated network, or as threads.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/launcher/launcher.h"
#include "experiments/execution/machines.h"
#include "experiments/study/call.h"
#include "experiments/study/execute.h"
#include "experiments/study/inputs.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/ir/program.h"
#include "sim/iteration/options.h"

namespace orrery::experiments {

/// RANK@STEP, RANK@STEP:before_update or RANK@STEP:after_update: that rank kills itself there.
struct KillRequest {
  std::int64_t rank = 0;
  std::int64_t step = 0;
  executor::FaultPoint point = executor::FaultPoint::op;
};
bool from_scalar(const std::string& text, KillRequest& out, std::string& error);
std::string to_scalar(const KillRequest& kill);

/// PLAN@STEP: another plan after that step.
struct SwitchRequest {
  std::string plan;  ///< File.
  std::int64_t step = 0;
};
bool from_scalar(const std::string& text, SwitchRequest& out, std::string& error);
std::string to_scalar(const SwitchRequest& request);

enum class RankKind { processes, threads };
std::vector<std::pair<RankKind, const char*>> enum_names(RankKind);

/// Runs a plan for real.
struct ExecuteSettings {
  std::string plan;  ///< Or `planner`.
  Text planner;
  JobSettings job;
  std::int64_t steps = 20;
  BackendKind backend = BackendKind::cpu;
  std::optional<CpuLibrary> library;
  TransportKind transport = TransportKind::tcp;
  executor::Precision precision = executor::Precision::fp32;
  Text data;
  double learning_rate = executor::RunSettings{}.learning_rate;
  std::int64_t seed = 0;
  Text out;
  std::int64_t log_steps = executor::RunSettings{}.log_steps;
  std::vector<sim::Straggler> slowdowns;
  std::optional<RankKind> ranks;
  std::vector<CardShare> shares;  ///< Of one card, by device; an entry without a device is for all.
  bool quiet = false;
  MachineSettings machines;
  std::optional<std::int64_t> checkpoint_every;
  Text checkpoints;
  Text cloud;
  bool prune_checkpoints = false;
  Text elastic;
  double silence = 10;  ///< Seconds.
  std::vector<KillRequest> kills;
  std::vector<SwitchRequest> switches;

  /// Ranks are threads of one process: asked for, or needed by shares.
  bool on_threads() const { return ranks == RankKind::threads || !shares.empty(); }
};
void describe(config::Visitor& v, ExecuteSettings& settings);

struct ExecuteResult : executor::LaunchReport {};
void describe(config::Visitor& v, ExecuteResult& result);
/// 0: it ran to the end with finite losses; 1: it failed; 2: nodes lack what the settings name;
/// 130: interrupted.
int exit_status(const ExecuteResult& result);

/// For who watches.
struct ExecuteHooks {
  std::function<void(const LoadedRun&)> on_start;  ///< Before the first step.
  std::function<void(const executor::StepLine&)> on_step;
};

/// Runs it to the end. Throws ConfigError with all that is wrong; Interrupted before the first
/// step.
ExecuteResult execute(const ExecuteSettings& settings, const Call& call,
                      config::Diagnostics problems = {}, const ExecuteHooks& hooks = {});

/// Percent of the card by device, for the devices of the program. Problems: devices without a
/// share, devices that a cluster of this size does not have, more than the card has together.
std::map<std::int32_t, std::int64_t> shares_of(const ExecuteSettings& settings,
                                               const ir::Program& program, int cluster,
                                               config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
