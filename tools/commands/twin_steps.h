/// What `orrery twin` does one after the other, each step kept on disk so that a second start goes
/// on. Private to the twin command.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "tools/commands/twin_manifest.h"

namespace orrery::tools {

/// One run of a twin.
struct TwinRun {
  std::string name;
  std::string source;  ///< Planner, or "file".
  std::string plan;    ///< File; "" if there is no plan.
  std::string job;     ///< File.
  bool fit = false;
  std::string seen;    ///< Why it is no unseen run (TwinPlan::seen); "": it is one.
  std::string policy;  ///< Of a recovery; "": none.
  std::string kill;
  std::string skipped;  ///< Why it is not executed; "": it is.
  std::string folder;   ///< Of its results.
  bool finished = false;
};

/// Where and how ranks run.
struct TwinPlace {
  std::string results;
  bool loopback = false;
  std::map<std::int32_t, double> slowdowns;  ///< By device, as the lab has them.
  std::int64_t steps = 0;
  bool quick = false;
  const std::atomic<bool>* interrupted = nullptr;
};

/// Whether a name holds one of the texts that commas separate; "" asks for all.
bool is_asked_for(const std::string& name, const std::string& only);

/// Runs of the manifest in its order, plans before recoveries, as far as they are known: plans of
/// planners are made by make_plans(). `only`: those of is_asked_for(); runs for fitting stay.
std::vector<TwinRun> twin_runs(const TwinManifest& manifest, const std::string& results,
                               const std::string& only);

/// Has the planners make their plans below results/plans, unless they lie there. A planner without
/// a plan, a plan that the executor cannot run and one that equals an earlier one are skipped, with
/// the reason. `job` says cluster and model; the job is each run's own.
void make_plans(const TwinManifest& manifest, const JobSettings& job, const TwinPlace& place,
                std::vector<TwinRun>& runs);

/// As make_plans(), by what lies in the results: nothing is planned and nothing written. Runs whose
/// plans are still to be made are not skipped.
void look_at_plans(const TwinManifest& manifest, const JobSettings& job, const TwinPlace& place,
                   std::vector<TwinRun>& runs);

/// The times that were measured over loopback, under the name of each link class of the cluster
/// that has none: what the cluster's links are where ranks talk over loopback. Each copy's
/// source says so.
ir::Profile over_loopback(ir::Profile profile, const models::Cluster& cluster);

/// Marks what is finished: run by the same inputs before.
void find_finished(const TwinManifest& manifest, const TwinPlace& place,
                   std::vector<TwinRun>& runs);

/// Executes one run; "" or why it failed. Its folder appears when it is complete.
std::string execute_run(const TwinManifest& manifest, const TwinPlace& place, TwinRun& run);

/// The machine's profile from micro-benchmarks: of one core that is not slowed down ("cpu"), and of
/// the cluster's links, or over loopback; results/calibration/profile.yaml. Keeps what is there.
/// Throws std::runtime_error with the reason.
ir::Profile calibrate_machine(const TwinManifest& manifest, const JobSettings& job,
                              const TwinPlace& place);

}  // namespace orrery::tools
