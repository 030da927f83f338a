#include "experiments/study/robust_result.h"

#include "experiments/study/call.h"

namespace orrery::experiments {

void describe(config::Visitor& v, RobustCandidate& candidate) {
  v.title("Candidate");
  v.required("plan", candidate.plan, "who made it, and how");
  v.required("policy", candidate.policy, "");
  v.required("new_plans_by", candidate.new_plans_by,
             "planner that it asks when nodes come and go; empty: its own");
  v.required("options", candidate.options, "of the policy");
  v.required("interval", candidate.interval, "between checkpoints, times Young's");
  v.required("spare_nodes", candidate.spare_nodes, "that the plan leaves out");
  v.optional("iteration_seconds", candidate.iteration, "of the plan, undisturbed");
  v.required("replays", candidate.replays, "traces that the figures are of");
  v.required("tokens_per_second", candidate.tokens_per_second, "");
  v.required("tokens_per_dollar", candidate.tokens_per_dollar, "");
  v.required("behind", candidate.behind, "the best, as a share of it, trace by trace");
  v.required("undisturbed_tokens_per_second", candidate.undisturbed_tokens_per_second, "");
  v.required("dollars_per_day", candidate.dollars_per_day, "0 without prices");
  v.required("interruptions", candidate.interruptions, "of a trace");
  v.required("wall", candidate.wall, "shares of the time");
  v.required("checkpoints", candidate.checkpoints, "");
}

std::string policy_in_words(const std::string& policy, const std::string& new_plans_by) {
  return new_plans_by.empty() ? policy : policy + ", new plans by " + new_plans_by;
}

void describe(config::Visitor& v, RobustAlternative& alternative) {
  v.title("Alternative");
  v.required("what", alternative.what, "policy, new plans, plan, spares or interval");
  v.required("value", alternative.value, "");
  v.required("behind", alternative.behind, "the best, as a share of it, trace by trace");
  v.required("replays", alternative.replays, "");
}

void describe(config::Visitor& v, RobustFleet& fleet) {
  v.title("Fleet");
  v.required("nodes", fleet.nodes, "");
  v.required("gpus", fleet.gpus, "");
  v.required("dollars_per_hour", fleet.dollars_per_hour, "of all its GPUs");
  v.required("most_tokens_per_second", fleet.most_tokens_per_second, "no plan trains more: proven");
  v.optional("tokens_per_second", fleet.tokens_per_second, "of the best, on traces");
  v.required("tried", fleet.tried, "planned for; false: it cannot reach the target");
}

void describe(config::Visitor& v, RobustResult& result) {
  v.title("Robust plan");
  v.required("cluster", result.cluster, "its name");
  v.required("model", result.model, "its name");
  v.required("trace", result.trace, "what was replayed, in words");
  v.required("objective", result.objective, "");
  v.required("horizon", result.horizon, "of a trace");
  v.optional("best", result.best, "on traces that did not choose it");
  v.optional("runner_up", result.runner_up, "");
  v.optional("plan_then_policy", result.plan_then_policy,
             "the plan that is fastest undisturbed, then the best policy for it");
  v.optional("lead", result.lead, "of the best over the second, trace by trace");
  v.optional("gain", result.gain, "of the best over plan-then-policy, trace by trace");
  v.required("settled", result.settled, "the race told the best from all others that were left");
  v.required("alternatives", result.alternatives, "what another choice of one thing costs");
  v.required("candidates", result.candidates, "best first, on the traces of the race");
  v.required("unable", result.unable, "policies that cannot run");
  v.required("without_plan", result.without_plan, "planners that found no plan");
  v.required("replays", result.replays, "that chose");
  v.required("judging_replays", result.judging_replays, "that judged");
  v.optional("fleet", result.fleet, "with --rent: the cheapest that reaches the target");
  v.required("fleets", result.fleets, "with --rent: cheapest first, until one reached it");
}

int exit_status(const RobustResult& result) {
  if (result.interrupted) return kInterrupted;
  return result.best ? 0 : 1;
}

}  // namespace orrery::experiments
