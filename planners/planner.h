/// Planners: specifications and profiles go in, a plan comes out. A folder a planner, listed in
/// catalog.cpp. A planner never looks into the simulator: it may ask an Evaluator.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"

namespace orrery::planners {

/// A knob of a planner: a hyper-parameter of the paper, or a behavior of the public code that
/// differs from it.
struct OptionInfo {
  std::string name;
  std::string default_value;
  std::string doc;  ///< Meaning, unit, valid values, source.
};

/// Values of a planner's options by name; absent ones have their defaults.
using Options = std::vector<std::pair<std::string, std::string>>;

/// How far a search is, for a line on a terminal. The search writes, another process may read: it
/// lies where both can.
struct SearchProgress {
  std::atomic<double> best{0};   ///< Seconds of the best plan so far; 0: none.
  std::atomic<double> bound{0};  ///< No plan is faster; 0: not known.
  std::atomic<std::int64_t> work{0};
  std::atomic<std::int64_t> budget{0};
};

/// A plan whose state is in place already, for planners that keep near to it (keeps_near).
struct NearPlan {
  const ir::Plan& plan;
  double within = 0.05;  ///< Plans so much slower than the best are as good, as a share of it.
};

struct PlannerInput {
  const models::Cluster& cluster;
  const models::Topology& topology;
  const models::Workload& workload;
  const models::Job& job;
  const ir::Profile& profile;
  const models::Evaluator& evaluator;
  std::vector<DeviceId> devices;  ///< That may be used, ascending.
  std::uint64_t seed = 0;
  /// Most work, in the planner's own unit (SearchReport::work_unit); 0: the planner's own end.
  /// Counted work, so that results do not depend on the clock.
  std::int64_t work_budget = 0;
  /// Set from outside (Ctrl-C): return the best plan so far. May be null.
  const std::atomic<bool>* canceled = nullptr;
  /// Of planners that tell; may be null.
  SearchProgress* progress = nullptr;
  /// None: any plan is as near as any other.
  std::optional<NearPlan> near = {};
};

/// A plan that lost, for `--explain`.
struct RunnerUp {
  std::string what;  ///< In words: "TP 4 x PP 2 x DP 3, micro-batch 1".
  Seconds estimate;  ///< The planner's own belief.
  /// By the evaluator; none where it was not asked or the plan does not fit in memory.
  std::optional<Seconds> evaluated;
};

/// What a constraint kept the search from, for `--explain`.
struct ConstraintCost {
  std::string constraint;     ///< "device memory", "tensor parallelism inside a node".
  std::int64_t rejected = 0;  ///< Plans, or parts of plans, that it forbade.
  /// The planner's estimate of the best plan that it forbade, where that plan was built.
  std::optional<Seconds> best_without;
  std::string witness;  ///< That plan, and why it is forbidden, in words.
};

/// What a change of one kind to the returned plan would cost, for `--explain`.
struct NextStep {
  std::string kind;  ///< Of the change: "layers".
  std::string what;  ///< The cheapest one that was tried, in words.
  Seconds estimate;  ///< The planner's own, of the plan after it.
};

/// A plan that no other of the search beats in time, dollars and energy, as far as the cluster
/// knows prices and watts; for objective frontiers.
struct FrontierPlan {
  std::string what;  ///< In words, as RunnerUp::what.
  std::int64_t devices = 0;
  Seconds evaluated;
  std::optional<Dollars> dollars_per_million_tokens;
  std::optional<Joules> joules_per_token;
};

/// What a search did, for tables and for `--explain`.
struct SearchReport {
  std::int64_t plans_examined = 0;
  std::int64_t rejected_by_memory = 0;
  std::int64_t work = 0;            ///< In the planner's own unit, see `work_unit`.
  std::string work_unit;            ///< "plans", "rounds", "nodes".
  bool complete = true;             ///< False when a budget or Ctrl-C ended the search early.
  std::optional<Seconds> estimate;  ///< The planner's own belief of the iteration time.
  std::int64_t judged = 0;          ///< Plans that the evaluator judged; 0: it was not asked.
  /// Where the evaluator was asked: its time of the plan that the planner alone would return.
  std::optional<Seconds> own_choice;
  std::vector<std::string> notes;           ///< In words: what decided, what was not searched.
  std::string chosen;                       ///< The returned plan in words, as RunnerUp::what.
  std::vector<RunnerUp> runners_up;         ///< Next best plans, best first; at most a few.
  std::vector<ConstraintCost> constraints;  ///< Each that forbade something.
  std::vector<NextStep> next_steps;    ///< Cheapest first; of planners that move from plan to plan.
  std::vector<FrontierPlan> frontier;  ///< Fastest first; empty unless it was asked for.
};

void describe(config::Visitor& v, RunnerUp& runner_up);
void describe(config::Visitor& v, ConstraintCost& cost);
void describe(config::Visitor& v, NextStep& step);
void describe(config::Visitor& v, FrontierPlan& plan);
void describe(config::Visitor& v, SearchReport& search);

struct PlannerResult {
  std::variant<ir::Plan, models::Infeasible> outcome;
  SearchReport report;
};

class Planner {
 public:
  virtual ~Planner() = default;
  /// A plan that validate() accepts and that fits in memory, or why there is none.
  virtual PlannerResult plan(const PlannerInput& input) const = 0;
};

/// What a planner's own cost model, with default settings, says about a plan that it need not have
/// made; Infeasible where the model has no words for the plan.
using OwnEstimate = std::variant<Seconds, models::Infeasible>(const PlannerInput& input,
                                                              const ir::Plan& plan);

/// An entry of the catalog.
struct PlannerEntry {
  const char* name;
  const char* source;    ///< Paper and section.
  const char* searches;  ///< One line: the space that it searches.
  const char* ignores;   ///< One line: what it assumes or leaves out.
  std::vector<OptionInfo> (*options)();
  /// Problems of option values, each at the position of its option: {name, 0, 0}.
  config::Diagnostics (*check)(const Options& options);
  /// Takes options in which check() finds nothing wrong.
  std::unique_ptr<Planner> (*make)(const Options& options);
  /// Takes a job with a distribution of sequence lengths, and counts every sample as the longest.
  bool takes_lengths = false;
  OwnEstimate* estimate = nullptr;  ///< None: the planner's cost model judges only its own plans.
  bool draws = false;       ///< The search draws random numbers: the plan depends on the seed.
  bool keeps_near = false;  ///< It knows PlannerInput::near.
  bool judges_all = false;  ///< The evaluator compares all that it compares, not a model of it.
};

}  // namespace orrery::planners
