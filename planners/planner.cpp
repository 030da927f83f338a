#include "planners/planner.h"

namespace orrery::planners {

void describe(config::Visitor& v, RunnerUp& runner_up) {
  v.title("Runner-up");
  v.required("what", runner_up.what, "the plan in words");
  v.required("estimate_seconds", runner_up.estimate, "the planner's own belief");
  v.optional("evaluated_seconds", runner_up.evaluated, "by the evaluator, where asked");
}

void describe(config::Visitor& v, ConstraintCost& cost) {
  v.title("Constraint");
  v.required("constraint", cost.constraint, "");
  v.required("rejected", cost.rejected, "plans, or parts of plans");
  v.optional("best_without_seconds", cost.best_without,
             "the planner's estimate of the best plan that it forbade");
  v.required("witness", cost.witness, "that plan, and why it is forbidden");
}

void describe(config::Visitor& v, NextStep& step) {
  v.title("Next step");
  v.required("kind", step.kind, "of the change");
  v.required("what", step.what, "the cheapest of those tried");
  v.required("estimate_seconds", step.estimate, "the planner's own, of the plan after it");
}

void describe(config::Visitor& v, FrontierPlan& plan) {
  v.title("Plan of the frontier");
  v.required("what", plan.what, "the plan in words");
  v.required("devices", plan.devices, "that it uses");
  v.required("evaluated_seconds", plan.evaluated, "by the evaluator");
  v.optional("dollars_per_million_tokens", plan.dollars_per_million_tokens,
             "of these devices, where all have prices");
  if (!v.dumping() || plan.joules_per_token) {
    v.optional("joules_per_token", plan.joules_per_token,
               "at most, of these devices, where all say what they draw");
  }
}

void describe(config::Visitor& v, SearchReport& search) {
  v.title("Search");
  v.optional("estimate_seconds", search.estimate, "the planner's own belief");
  v.required("plans_examined", search.plans_examined, "");
  v.required("rejected_by_memory", search.rejected_by_memory, "");
  v.required("work", search.work, "in work_unit");
  v.required("work_unit", search.work_unit, "");
  v.required("complete", search.complete, "false: a budget or Ctrl-C ended the search");
  v.required("judged", search.judged, "plans that the judge timed to choose; 0: it was not asked");
  v.optional("own_choice_seconds", search.own_choice,
             "judged time of the plan that the planner alone would return, where it was asked");
  v.required("notes", search.notes, "");
  v.required("chosen", search.chosen, "the plan in words");
  v.required("runners_up", search.runners_up, "next best plans, best first");
  v.required("constraints", search.constraints, "that forbade something");
  if (!v.dumping() || !search.next_steps.empty()) {
    v.optional("next_steps", search.next_steps,
               "what a change of each kind to the plan would cost, cheapest first");
  }
  if (!v.dumping() || !search.frontier.empty()) {
    v.optional("frontier", search.frontier,
               "plans that no other beats in time, dollars and energy, fastest first");
  }
}

}  // namespace orrery::planners
