/// Carries out one run in this process: load, plan, validate, lower, simulate, judge.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/run_spec.h"
#include "models/check/validate.h"
#include "models/config/diagnostics.h"
#include "models/interfaces/answer_store.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"
#include "models/spec/library.h"
#include "models/spec/plan_file.h"
#include "planners/planner.h"

namespace orrery::experiments {

/// What a RunSpec names, loaded and checked against each other.
struct LoadedRun {
  RunSpec spec;
  models::Cluster cluster;
  models::Workload workload;
  ir::Profile profile;
  std::string profile_hash;       ///< Of the file's content; "" without a profile.
  std::vector<DeviceId> devices;  ///< That may be used, ascending (HardwareChanges::without).
  std::optional<ir::Plan> plan;   ///< Read from a file and structurally valid.
  std::optional<ir::Plan> near;   ///< RunSpec::near, likewise.
  std::vector<std::string> carried_over;  ///< What became of the plan's nodes (any_cluster).
};

/// A plan file that is read once for all who need it.
struct ReadPlan {
  explicit ReadPlan(std::string from);
  void report(config::Diagnostics& diagnostics) const;
  std::string path;
  config::Diagnostics problems;  ///< With any, the file is incomplete.
  models::PlanFile file;
};

/// Devices that the plan uses and that changes of the hardware do not leave.
std::vector<models::PlanDefect> find_missing_devices(const ir::Plan& plan,
                                                     const HardwareChanges& hardware,
                                                     const models::Cluster& cluster);

/// All problems go to `diagnostics`; use the result only if there are none. Relative paths of plan
/// and profile are relative to `base_folder` ("": the current one). `read`: the spec's plan file,
/// if it was read before.
LoadedRun load_run(const RunSpec& spec, const std::string& base_folder,
                   const models::Library& library, config::Diagnostics& diagnostics,
                   const ReadPlan* read = nullptr);

/// How the busiest GPU of a stage spends a simulated iteration.
struct StageLoad {
  int pipeline = 0;
  int stage = 0;
  Seconds compute;
  Seconds tensor_parallel;  ///< Collectives inside passes but those of ZeRO-3.
  Seconds zero;             ///< Gathers of sharded parameters inside passes.
  Seconds transfers;        ///< Exposed sends, receives and gradient synchronization.
  Seconds bubble;
  Seconds busy() const { return compute + tensor_parallel + zero; }
};

/// What came out of one run: a plan with an evaluation, or a reason why there is none. What forked
/// children hand to their parent, and what `--json` prints.
struct RunReport {
  std::string name;                              ///< Planner or plan file.
  std::optional<models::Infeasible> infeasible;  ///< Instead of a plan.
  std::optional<models::Evaluation> evaluation;
  std::optional<planners::SearchReport> search;  ///< None where the plan came from a file.
  std::vector<StageLoad> stages;                 ///< Of the simulation; empty under a closed form.
  std::vector<std::string> busiest_links;        ///< In words.
  std::vector<std::string> prices;  ///< Where op times come from: profile entries and fallbacks.
  std::int64_t ranks = 0;           ///< Of the simulated program; 0 under a closed form.
  std::int64_t ops = 0;
  /// How many of the plan's pipelines were simulated; the others did the same as one of these.
  std::int64_t simulated_pipelines = 0;
  std::optional<ir::Plan> plan;

  /// The search ended early, before it had looked at anything: in a canceled call it was not run.
  bool looked_at_nothing() const {
    return !plan && search && !search->complete && search->work == 0;
  }
};
/// Links by their share of the time that they are busy, busiest first, in words.
std::vector<std::string> busiest_links(const ir::RunLog& log, Seconds time);

void describe(config::Visitor& v, StageLoad& stage);
void describe(config::Visitor& v, RunReport& report);

struct RunOutcome : RunReport {
  double planning_seconds = 0;  ///< Wall clock: goes to timings.csv only.
  double evaluation_seconds = 0;
  ir::Program program;  ///< Of the simulated plan; empty under a closed-form cost model.
  ir::RunLog log;
  /// SimGrid's version and options; empty under a closed-form cost model.
  std::vector<std::pair<std::string, std::string>> simgrid;
};

/// The simulator of a cluster lives as long as the process: one Session per process, unless all
/// runs are judged by closed forms.
class Session {
 public:
  /// What runs before this one came to is looked up in `answers`, and what this one comes to kept
  /// there; null: nowhere. Results do not depend on it.
  explicit Session(LoadedRun run, const models::AnswerStore* answers = nullptr);
  ~Session();
  const LoadedRun& loaded() const;
  /// `record_timeline` keeps spans and memory samples in the outcome's log; without it, an outcome
  /// that comes from the store has neither program nor log. `canceled` ends a search early; may be
  /// null.
  /// `progress` gets how far the search is; may be null.
  RunOutcome execute(bool record_timeline, const std::atomic<bool>* canceled,
                     planners::SearchProgress* progress = nullptr);
  /// Judges another valid plan on the same cluster (for `orrery diff`). Simulations of one session
  /// follow each other on one clock: times may differ from a fresh session's in the last bits.
  RunOutcome judge(const ir::Plan& plan, bool record_timeline);

 private:
  struct State;
  RunOutcome carry_out(bool record_timeline, const std::atomic<bool>* canceled,
                       planners::SearchProgress* progress);
  std::unique_ptr<State> state_;
};

}  // namespace orrery::experiments
