/// What a run was given, as it is kept with its logs in DIR/inputs: run.yaml and the files that it
/// names. `orrery execute --out` writes it, `orrery compare` reads it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "executor/launcher/settings.h"
#include "experiments/execution/machines.h"
#include "experiments/study/execute.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "sim/iteration/options.h"

namespace orrery::experiments {

/// inputs/run.yaml (`schema: orrery/run_inputs/1`). File names are relative to that folder.
struct RunInputs {
  std::string cluster;  ///< Copies of the files, byte by byte, so that hashes stay.
  std::string model;
  std::string job;      ///< As it took effect, flags included.
  std::string plan;     ///< The first one.
  std::string profile;  ///< "": none was given.
  std::string backend;
  std::string library;
  std::string precision;
  std::string transport;
  std::string network = kLoopback;  ///< Between nodes: loopback, hosts or netlab.
  std::string ranks = "processes";  ///< Or threads, of one process.
  std::int64_t steps = 0;
  std::int64_t seed = 0;
  /// Where ranks wrote checkpoints to, in that order: nvme (a folder of each node), cloud (one that
  /// all nodes see); empty: nowhere.
  std::vector<std::string> checkpoint_places;
  /// By device: factor by which its compute was stretched, all causes together; 1 is left out.
  std::map<std::string, double> slowdowns;
  /// By device: the part of it with which a lab emulates the device's type (netlab_slowdowns()).
  std::map<std::string, double> lab_slowdowns;
  /// By device: percent of the multiprocessors of the one GPU that all shared; empty: none.
  std::map<std::string, std::int64_t> shares;
  /// Content hashes of the files of this folder as they were written, by name; of run.yaml itself
  /// what is above this map, its last key. Empty: another version of orrery wrote it.
  std::map<std::string, std::string> hashes;
};
void describe(config::Visitor& v, RunInputs& inputs);

/// Where the ranks of a run are.
struct RunPlacement {
  std::string network;  ///< As RunInputs::network.
  std::map<std::int32_t, double> lab_slowdowns;
  bool threads = false;
  std::map<std::int64_t, std::int64_t> shares;
};

/// Writes all of it below `out`: of the first of `runs`, and the plans of the others, which the run
/// switches to, as far as no failure can come between. Throws std::runtime_error.
void write_run_inputs(const std::string& out, const std::vector<LoadedRun>& runs,
                      const executor::RunSettings& settings, const RunPlacement& placement);

/// The plan of a later generation, and its hash in run.yaml. Throws std::runtime_error.
void write_later_plan(const std::string& out, std::int64_t generation, const ir::Plan& plan);
/// The plan of a generation, if it lies among the inputs.
std::optional<ir::Plan> plan_of_generation(const std::string& folder, std::int64_t generation);

/// A run folder's inputs, loaded; `run.plan` is the first plan. A profile or cluster that the flags
/// name takes the place of the run's own ("": none does). All problems go to `diagnostics`.
struct LoadedInputs {
  RunInputs inputs;
  LoadedRun run;
  /// Files of the folder that are not what the run was given (RunInputs::hashes), by name, sorted;
  /// without those that the flags replace.
  std::vector<std::string> changed;
};
LoadedInputs load_run_inputs(const std::string& folder, const std::string& cluster,
                             const std::string& profile, config::Diagnostics& diagnostics);

/// Devices that were slower than their type, with the factor.
std::vector<sim::Straggler> stragglers_of(const RunInputs& inputs);

}  // namespace orrery::experiments
