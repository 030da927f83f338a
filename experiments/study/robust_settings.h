/// Settings of robust planning (robust_plan.h).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/days.h"
#include "experiments/study/inputs.h"
#include "experiments/study/replay_settings.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

/// Most traces that judge what was chosen (RobustChoices::seeds).
inline constexpr std::int64_t kMostJudgingSeeds = 1'000;

enum class RobustObjective { tokens, tokens_per_dollar };
std::vector<std::pair<RobustObjective, const char*>> enum_names(RobustObjective);

/// Who makes new plans when nodes come and go.
enum class NewPlans {
  own,   ///< Each policy's own planner.
  both,  ///< And the planners of the candidate plans, for policies that can ask others.
};
std::vector<std::pair<NewPlans, const char*>> enum_names(NewPlans);

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
  NewPlans new_plans = NewPlans::both;
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
  std::vector<std::string> given;  ///< Settings that were read, but for `trace`.
};
void describe(config::Visitor& v, RobustChoices& choices);

struct RobustSettings {
  JobSettings job{JobDefaults::planning};
  JudgeSettings judge;
  std::vector<std::string> planners{"orrery"};
  std::map<std::string, std::string> options;  ///< Of the planners that know them.
  std::optional<std::int64_t> work_budget;
  RobustChoices choices;
  Text output;  ///< The winner's plan, where it is not one that its policy makes.
};
/// The settings of `orrery advise`.
void describe(config::Visitor& v, RobustSettings& settings);
/// Those that it reads; among them what is set of the trace, which may name more files.
std::vector<std::string> input_files(const RobustSettings& settings);

}  // namespace orrery::experiments
