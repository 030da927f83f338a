/// What robust planning comes to (robust_plan.h).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/replay_ranking.h"
#include "experiments/study/robust_settings.h"
#include "models/config/visitor.h"
#include "models/ir/plan.h"

namespace orrery::experiments {

/// A plan under a policy with checkpoints at an interval, and what replays came to.
struct RobustCandidate {
  std::string plan;  ///< "orrery, 2 of 8 x A100-80GB spare"; "the policy's own".
  std::string policy;
  std::string new_plans_by;  ///< Planner; empty: the policy's own.
  std::string options;       ///< Of the policy, as in a study: "interval=young*0.5".
  double interval = 1;       ///< Times Young's.
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
/// "hetu, new plans by orrery".
std::string policy_in_words(const std::string& policy, const std::string& new_plans_by);

/// What another choice of one thing would cost: the best candidate that differs in it.
struct RobustAlternative {
  std::string what;  ///< "policy", "new plans", "plan", "spares", "interval".
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

}  // namespace orrery::experiments
