/// Robust planning: plan, recovery policy, checkpoint interval and number of spare nodes chosen
/// together, for the most expected tokens (or tokens per dollar) on a cluster whose nodes fail or
/// come and go. What `orrery plan --robust` and `orrery advise` do.
///
/// - Candidate plans: of each planner the plan for the whole cluster, one of whole replicas (no
///   ZeRO, as policies need that go on from a peer's state), one of equal pipelines, one of smaller
///   tensor-parallel groups, and with 1, 2 ... nodes of each kind left out as spares; plan files.
/// - Each policy is tried with the plans from the fastest on until one is found that it can run
///   (else with the plan that it makes itself), then the better half of the policies with all
///   plans.
/// - All are replayed by the functions of `orrery replay` on the same traces, as many for each as a
///   race (race.h) gives it; then checkpoint intervals of the best join.
/// - The winner, the second and the plan-then-policy choice (the plan that is fastest undisturbed,
///   then the best policy for it) are judged on other traces than those that chose them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/days.h"
#include "experiments/study/inputs.h"
#include "experiments/study/replay_ranking.h"
#include "experiments/study/replay_settings.h"
#include "models/ir/plan.h"

namespace orrery::experiments {

enum class RobustObjective { tokens, tokens_per_dollar };
std::vector<std::pair<RobustObjective, const char*>> enum_names(RobustObjective);

/// What plans are to withstand, what may be chosen, and how much is replayed for it.
struct RobustChoices {
  const char* trace_key = "trace";  ///< What the front end calls `trace`.
  RobustChoices() = default;
  explicit RobustChoices(const char* key_of_trace) : trace_key(key_of_trace) {}
  Text trace;                                     ///< Trace file or generator.
  Text format;                                    ///< Of a file of others.
  std::map<std::string, config::Value> settings;  ///< Of generator or format, by path.
  std::optional<Days> days;
  bool repeat = false;
  bool ignore_leaves = false;  ///< As of a replay.
  std::optional<Seconds> mtbf;
  std::vector<std::string> policies{"all"};
  std::map<std::string, std::string> policy_options;  ///< By POLICY.NAME or all.NAME.
  RobustObjective objective = RobustObjective::tokens;
  std::int64_t spares = 2;
  Text rent;                          ///< fleets.h
  std::optional<double> target_rate;  ///< Tokens per second.
  std::vector<double> intervals{0.5, 1, 2};
  std::vector<std::string> plans;  ///< Plan files.
  std::int64_t replays = 150;
  std::int64_t seeds = 5;
  Prices prices = Prices::on_demand;
  BackgroundTransfers background_transfers = BackgroundTransfers::simulated;
  std::map<std::string, std::string> runtime;
};
void describe(config::Visitor& v, RobustChoices& choices);

struct RobustSettings {
  JobSettings job{JobDefaults::fixed};
  JudgeSettings judge;
  std::vector<std::string> planners{"orrery"};
  std::map<std::string, std::string> options;  ///< Of the planners that know them.
  std::optional<std::int64_t> work_budget;
  RobustChoices choices;
  Text output;  ///< The winner's plan, where it is not one that its policy makes.
};
/// The settings of `orrery advise`.
void describe(config::Visitor& v, RobustSettings& settings);

/// A plan under a policy with checkpoints at an interval, and what replays came to.
struct RobustCandidate {
  std::string plan;  ///< "orrery, 2 of 8 x A100-80GB spare"; "the policy's own".
  std::string policy;
  std::string options;  ///< Of the policy, as in a study: "interval=young*0.5".
  double interval = 1;  ///< Times Young's.
  std::int64_t spare_nodes = 0;
  std::optional<Seconds> iteration;  ///< Of the plan, undisturbed; none: the policy's own plan.
  std::int64_t replays = 0;
  Interval tokens_per_second;
  Interval tokens_per_dollar;  ///< Not finite without prices.
  /// Of the objective, below the best candidate's as a share of it, over the traces of both.
  Interval behind;
  double undisturbed_tokens_per_second = 0;  ///< Mean, of the fastest plan of each replay.
  double dollars_per_day = 0;                ///< Mean; 0 without prices.
  double interruptions = 0;                  ///< Mean.
  std::map<std::string, double> wall;        ///< Mean shares of the horizon by bucket.
  std::vector<std::string> checkpoints;      ///< In words: "cloud every 12.4 min".
};
void describe(config::Visitor& v, RobustCandidate& candidate);

/// What another choice of one thing would cost: the best candidate that differs in it.
struct RobustAlternative {
  std::string what;  ///< "policy", "plan", "spares", "interval".
  std::string value;
  Interval behind;  ///< As RobustCandidate::behind.
  std::int64_t replays = 0;
};
void describe(config::Visitor& v, RobustAlternative& alternative);

/// A fleet that could be rented.
struct RobustFleet {
  std::string nodes;  ///< In words.
  std::int64_t gpus = 0;
  double dollars_per_hour = 0;
  double most_tokens_per_second = 0;          ///< By the lower bound on an iteration.
  std::optional<Interval> tokens_per_second;  ///< Of the best on traces; none: none was replayed.
  bool tried = false;                         ///< Plans were made.
};
void describe(config::Visitor& v, RobustFleet& fleet);

struct RobustResult {
  std::string cluster;
  std::string model;
  std::string trace;  ///< In words, with job and horizon.
  RobustObjective objective = RobustObjective::tokens;
  Seconds horizon;
  /// The winner, on traces that did not choose it; none: no candidate can run.
  std::optional<RobustCandidate> best;
  std::optional<RobustCandidate> runner_up;
  std::optional<RobustCandidate> plan_then_policy;
  /// Of the objective: best over second, and over plan-then-policy, less 1, trace by trace.
  std::optional<Interval> lead;
  std::optional<Interval> gain;
  /// Whether the race told the best from all others that were left.
  bool settled = false;
  std::vector<RobustAlternative> alternatives;
  std::vector<RobustCandidate> candidates;  ///< Best first, on the traces of the race.
  std::vector<std::string> unable;          ///< "bamboo: why".
  std::vector<std::string> without_plan;    ///< Planners and variants that found none.
  std::int64_t replays = 0;
  std::int64_t judging_replays = 0;
  std::optional<RobustFleet> fleet;  ///< The cheapest that reaches the target.
  std::vector<RobustFleet> fleets;   ///< Those that were looked at, cheapest first.
  std::optional<ir::Plan> plan;      ///< The winner's; none: its policy makes it.
  bool interrupted = false;          ///< This is the best so far; not described.
};
void describe(config::Visitor& v, RobustResult& result);
int exit_status(const RobustResult& result);

/// `problems`: those found in the settings so far. Canceled, it comes back with the best so far.
RobustResult robust_plan(const RobustSettings& settings, const Call& call,
                         config::Diagnostics problems = {});

}  // namespace orrery::experiments
