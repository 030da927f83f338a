#include "experiments/study/robust_settings.h"

#include <fmt/format.h>

#include <cmath>

#include "experiments/study/exports.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

constexpr std::size_t kMostIntervals = 8;

void add_scalars(const config::Value& value, std::vector<std::string>& out) {
  if (value.is_scalar()) out.push_back(value.text);
  for (const config::Value& item : value.items) add_scalars(item, out);
  for (const config::Value::Entry& entry : value.entries) add_scalars(entry.value, out);
}

}  // namespace

std::vector<std::pair<RobustObjective, const char*>> enum_names(RobustObjective) {
  return {{RobustObjective::tokens, "tokens"},
          {RobustObjective::tokens_per_dollar, "tokens_per_dollar"}};
}

std::vector<std::pair<NewPlans, const char*>> enum_names(NewPlans) {
  return {{NewPlans::own, "own"}, {NewPlans::both, "both"}};
}

void describe(config::Visitor& v, RobustChoices& choices) {
  v.optional(choices.trace_key, choices.trace,
             "choose plan, recovery policy, checkpoint interval and spare nodes together, for what "
             "happens to the cluster: a generator (llama3, spot, or a YAML file with settings), or "
             "a trace file");
  describe_trace_flags(v, choices.format, choices.settings);
  v.optional("days", choices.days,
             "how long each trace is; default: 3, of a file all of it. Shorter than a file: each "
             "seed begins at another time in it");
  v.optional("repeat", choices.repeat, "play a trace file again where it ends");
  v.optional("ignore_leaves", choices.ignore_leaves,
             "nodes of different leaves are simulated as interchangeable: for large clusters");
  v.optional(
      "mtbf", choices.mtbf,
      "mean time between interruptions of the job, as in \"3 h\": scales the failures of the "
      "generator");
  v.optional("policy", choices.policies,
             "recovery policies to choose from: names, comma-separated, or all (default)",
             {.commas = true});
  v.optional("policy_option", choices.policy_options,
             "POLICY.NAME=VALUE: option of a policy, or of all that have it (all.NAME=VALUE); may "
             "be repeated");
  v.optional(
      "new_plans", choices.new_plans,
      "who makes new plans when nodes come and go. both (default): the policy's own planner, "
      "or one of --planner, of which the Orrery planner has 20 simulations each time unless "
      "--option budget says otherwise; own: the policy's own");
  v.optional("objective", choices.objective,
             "tokens (default) or tokens_per_dollar; of all nodes that are there");
  v.optional(
      "spares", choices.spares,
      "most nodes of a kind that plans leave out as spares: 1, 2, 4, ... and this many are tried; "
      "default: 2");
  v.optional(
      "intervals", choices.intervals,
      "checkpoint intervals to try, times what is best on the first trace of Young's, a quarter, "
      "4 and 16 times that; default: 0.5,1,2; 1: Young's alone. Where the longest or the shortest "
      "is best, one of twice or half of it follows",
      {.commas = true});
  v.optional("plan", choices.plans, "plan file to try, too; may be repeated");
  v.optional("replays", choices.replays, "most replays that choose; default: 150");
  v.optional("seeds", choices.seeds,
             "other traces that judge what was chosen; default: 5. `orrery replay --seeds` draws "
             "the same");
  v.optional("rent", choices.rent,
             "\"8..64 of A100, H100\": choose among the nodes of the cluster, which are then what "
             "is on offer, the fewest dollars per hour with so many GPUs of these types that reach "
             "--target-rate on the traces");
  v.optional("target_rate", choices.target_rate,
             "tokens per second, failures included; for --rent");
  describe_replay_flags(v, choices.prices, choices.background_transfers, choices.runtime);
  v.between("spares", choices.spares, std::int64_t{0}, std::int64_t{64});
  v.between("replays", choices.replays, std::int64_t{1}, std::int64_t{1'000'000});
  v.between("seeds", choices.seeds, std::int64_t{1}, kMostJudgingSeeds);
  if (choices.mtbf) v.between("mtbf", *choices.mtbf, kLeastTime, kLongestTime);
  if (choices.target_rate) v.positive("target_rate", *choices.target_rate);
  for (const double factor : choices.intervals) {
    if (v.reading() && !(factor > 0 && std::isfinite(factor))) {
      v.problem("intervals", "must be positive");
    }
  }
  if (v.reading() && (choices.intervals.empty() || choices.intervals.size() > kMostIntervals)) {
    v.problem("intervals", fmt::format("one to {} factors", kMostIntervals));
  }
  if (!v.reading()) return;
  static const std::vector<config::FieldText> kFields = config::field_texts<RobustChoices>();
  for (const config::FieldText& field : kFields) {
    const bool is_trace = field.key == RobustChoices().trace_key;
    if (!is_trace && v.given(field.key.c_str())) choices.given.push_back(field.key);
  }
}

void describe(config::Visitor& v, RobustSettings& settings) {
  v.section("Failures and choices");
  describe(v, settings.choices);
  v.section("Planning");
  v.optional("planner", settings.planners,
             "planners of the candidate plans, comma-separated; default: orrery", {.commas = true});
  v.optional("option", settings.options,
             "NAME=VALUE: knob of the planners that have it; may be repeated", {.letter = 'o'});
  v.optional("work_budget", settings.work_budget, "most work of each search; default: no limit");
  v.optional("output", settings.output, "write the chosen plan to this YAML file");
  describe(v, settings.job);
  describe(v, settings.judge);
  if (settings.work_budget) v.at_least("work_budget", *settings.work_budget, std::int64_t{1});
}

std::vector<std::string> input_files(const RobustSettings& settings) {
  const RobustChoices& choices = settings.choices;
  std::vector<std::string> files = input_files(settings.job);
  files.insert(files.end(), choices.plans.begin(), choices.plans.end());
  if (choices.trace) files.push_back(*choices.trace);
  for (const auto& [path, value] : choices.settings) add_scalars(value, files);
  return files;
}

}  // namespace orrery::experiments
