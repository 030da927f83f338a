/// One run of a replay study in this process: a policy under one trace.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/replay_settings.h"
#include "experiments/study/replay_traces.h"
#include "experiments/study/summary.h"
#include "experiments/study/task.h"
#include "models/config/diagnostics.h"
#include "models/interfaces/answer_store.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/library.h"
#include "models/spec/workload.h"
#include "sim/replay/replay.h"

namespace orrery::experiments {

/// What a policy asked for, in counts that do not depend on the clock.
struct ReplayWork {
  std::int64_t searches = 0;   ///< Of planners.
  std::int64_t simulated = 0;  ///< Iterations that were really simulated.
  std::int64_t asked = 0;      ///< Iteration times that were asked for.
};

/// A level of checkpoints that the policy asked for with its first plan.
struct CheckpointTaken {
  ir::Location location = ir::Location::cloud;
  Seconds every;
};

struct ReplayOutcome {
  /// Why the policy cannot run here: not even with all devices. Where only the trace lacks what it
  /// needs, the result has no tokens (ReplayResult::first_plan_problem).
  std::optional<models::Infeasible> infeasible;
  /// Why the policy began with a plan of its own and not with that of the case's planner.
  std::optional<models::Infeasible> own_plan;
  sim::ReplayResult result;  ///< Meaningful without `infeasible`.
  ReplayWork work;
  std::vector<CheckpointTaken> checkpoints;
  RunSeconds seconds;
  std::vector<std::pair<std::string, std::string>> simgrid;  ///< Version and options.
  std::vector<std::string> profile_entries;  ///< As RunOutcome's, and measured phases.
};

/// Content hashes of what a case names.
struct CaseHashes {
  std::string cluster;
  std::string workload;
  std::string trace;  ///< Of the file, or of the generator's settings.
  std::string plan;
  std::string profile;
};

/// What a case names, loaded and checked against each other.
struct LoadedReplayCase {
  ReplayCase spec;
  models::Cluster cluster;
  models::Workload workload;
  ir::Profile profile;
  std::optional<ir::Plan> plan;
  std::optional<models::Infeasible> no_plan;  ///< Why the case's planner found none.
  TraceSource traces;
  ExpectedInterruptions interruptions;  ///< Unknown without a trace.
  CaseHashes hashes;
};

/// Paths are seen from `folder`. All problems go to `diagnostics`; use the result only if there are
/// none. Runs the case's planner, if there is one; `answers`: as for replay_once().
LoadedReplayCase load_replay_case(const ReplayCase& one, const std::string& folder,
                                  const models::Library& library, config::Diagnostics& diagnostics,
                                  const models::AnswerStore* answers = nullptr);

/// The case with this plan to begin with; it is valid on the cluster.
LoadedReplayCase with_plan(LoadedReplayCase loaded, ir::Plan plan);

/// Everything that the result of a replay depends on: neither the names of case and policy, nor
/// options that are left out because they have their defaults.
Identity replay_identity(const LoadedReplayCase& loaded, ReplayRun run);

/// Neither a clock nor a class of Python has a say in the result.
bool is_repeatable(const ReplayRun& run);

/// The policy's options, defaults included, sorted by name.
std::map<std::string, std::string> all_options(const ReplayPolicy& policy);

/// The policy with the profile's phase times (ir::PhaseTime) as values of the options of the same
/// names: those that the policy has and the user leaves alone.
ReplayPolicy with_measured_phases(const ReplayPolicy& policy, const ir::Profile& profile);

/// Builds simulator, policy and trace and replays. One call per process: the simulator lives as
/// long as the process. `answers`: sim::CacheOptions. `on_progress` gets the share of the horizon
/// that was reached.
ReplayOutcome replay_once(const LoadedReplayCase& loaded, const ReplayPolicy& policy,
                          const ReplayOptions& options, const models::AnswerStore* answers,
                          const std::function<void(double)>& on_progress);

/// A job of replay_jobs_once().
struct JobAtReplay {
  std::shared_ptr<const LoadedReplayCase> loaded;  ///< Cluster, trace and horizon are those of all.
  ReplayPolicy policy;
  std::vector<DeviceId> part;  ///< Of the cluster, spares included; disjoint from those of others.
};

struct JobOutcome {
  ReplayOutcome outcome;
  Seconds lost_to_others;  ///< sim::JobReplay.
};

/// The same for several jobs at once (sim/replay/replay_together.h). One call per process.
std::vector<JobOutcome> replay_jobs_once(const std::vector<JobAtReplay>& jobs,
                                         const ReplayOptions& options,
                                         const models::AnswerStore* answers);

/// "Case NAME: ..." with cluster, model, batch, trace and horizon.
std::string in_words(const LoadedReplayCase& loaded);

}  // namespace orrery::experiments
