#include "tools/commands/report.h"

#include <utility>

#include "models/spec/plan_yaml.h"

namespace orrery::tools {
namespace {

EvaluationRecord record(const models::Evaluation& evaluation) {
  EvaluationRecord out;
  out.iteration_seconds = evaluation.iteration_time.value;
  for (const Seconds& time : evaluation.pipeline_times) out.pipeline_seconds.push_back(time.value);
  out.compute_seconds = evaluation.breakdown.compute.value;
  out.tensor_parallel_seconds = evaluation.breakdown.tensor_parallel.value;
  out.pipeline_communication_seconds = evaluation.breakdown.pipeline.value;
  out.data_parallel_seconds = evaluation.breakdown.data_parallel.value;
  out.optimizer_seconds = evaluation.breakdown.optimizer.value;
  out.bubble_seconds = evaluation.breakdown.bubble.value;
  out.tokens_per_second = evaluation.tokens_per_second;
  out.mfu = evaluation.mfu;
  out.hfu = evaluation.hfu;
  if (evaluation.priced) {
    out.dollars_per_million_tokens = evaluation.dollars_per_million_tokens.value;
  }
  out.fits = evaluation.memory.fits();
  out.verdict = evaluation.memory.explain();
  for (const ir::MemoryUse& use : evaluation.memory.by_gpu_type) {
    out.memory.push_back({use.gpu, use.device.value, use.pipeline, use.stage, use.need.value,
                          use.have.value, use.fits()});
  }
  return out;
}

SearchRecord record(const planners::SearchReport& search) {
  SearchRecord out;
  if (search.estimate) out.estimate_seconds = search.estimate->value;
  out.plans_examined = search.plans_examined;
  out.rejected_by_memory = search.rejected_by_memory;
  out.work = search.work;
  out.work_unit = search.work_unit;
  out.complete = search.complete;
  out.notes = search.notes;
  out.chosen = search.chosen;
  for (const planners::RunnerUp& lost : search.runners_up) {
    RunnerUpRecord record{lost.what, lost.estimate.value, std::nullopt};
    if (lost.evaluated) record.evaluated_seconds = lost.evaluated->value;
    out.runners_up.push_back(std::move(record));
  }
  for (const planners::ConstraintCost& cost : search.constraints) {
    ConstraintRecord record{cost.constraint, cost.rejected, std::nullopt, cost.witness};
    if (cost.best_without) record.best_without_seconds = cost.best_without->value;
    out.constraints.push_back(std::move(record));
  }
  return out;
}

}  // namespace

void describe(config::Visitor& v, MemoryRecord& memory) {
  v.title("Memory");
  v.required("gpu", memory.gpu, "GPU type");
  v.required("device", memory.device, "worst device of the type");
  v.required("pipeline", memory.pipeline, "that it works in");
  v.required("stage", memory.stage, "that it works in");
  v.required("need_bytes", memory.need_bytes, "peak");
  v.required("have_bytes", memory.have_bytes, "of the GPU type");
  v.required("fits", memory.fits, "need <= have");
}

void describe(config::Visitor& v, EvaluationRecord& evaluation) {
  v.title("Evaluation");
  v.required("iteration_seconds", evaluation.iteration_seconds, "one optimizer step");
  v.required("pipeline_seconds", evaluation.pipeline_seconds, "end of each last backward pass");
  v.optional("synchronization_seconds", evaluation.synchronization_seconds,
             "of a closed form, after the pipelines");
  v.required("compute_seconds", evaluation.compute_seconds, "mean over GPUs, as all below");
  v.required("tensor_parallel_seconds", evaluation.tensor_parallel_seconds, "inner collectives");
  v.required("pipeline_communication_seconds", evaluation.pipeline_communication_seconds,
             "exposed sends and receives");
  v.required("data_parallel_seconds", evaluation.data_parallel_seconds, "exposed synchronization");
  v.required("optimizer_seconds", evaluation.optimizer_seconds, "optimizer step");
  v.required("bubble_seconds", evaluation.bubble_seconds, "idle");
  v.required("tokens_per_second", evaluation.tokens_per_second, "of the whole job");
  v.required("mfu", evaluation.mfu, "model FLOPs utilization");
  v.required("hfu", evaluation.hfu, "hardware FLOPs utilization");
  v.optional("dollars_per_million_tokens", evaluation.dollars_per_million_tokens, "list prices");
  v.required("fits", evaluation.fits, "in memory");
  v.required("verdict", evaluation.verdict, "in words");
  v.required("memory", evaluation.memory, "by GPU type");
}

void describe(config::Visitor& v, RunnerUpRecord& runner_up) {
  v.title("Runner-up");
  v.required("what", runner_up.what, "the plan in words");
  v.required("estimate_seconds", runner_up.estimate_seconds, "the planner's own belief");
  v.optional("evaluated_seconds", runner_up.evaluated_seconds, "by the evaluator, where asked");
}

void describe(config::Visitor& v, ConstraintRecord& constraint) {
  v.title("Constraint");
  v.required("constraint", constraint.constraint, "");
  v.required("rejected", constraint.rejected, "plans, or parts of plans");
  v.optional("best_without_seconds", constraint.best_without_seconds,
             "the planner's estimate of the best plan that it forbade");
  v.required("witness", constraint.witness, "that plan, and why it is forbidden");
}

void describe(config::Visitor& v, StageRecord& stage) {
  v.title("Stage");
  v.required("pipeline", stage.pipeline, "");
  v.required("stage", stage.stage, "");
  v.required("compute_seconds", stage.compute_seconds, "of the busiest GPU, as all below");
  v.required("tensor_parallel_seconds", stage.tensor_parallel_seconds, "inner collectives");
  v.required("transfer_seconds", stage.transfer_seconds, "exposed transfers and synchronization");
  v.required("bubble_seconds", stage.bubble_seconds, "idle");
}

void describe(config::Visitor& v, SearchRecord& search) {
  v.title("Search");
  v.optional("estimate_seconds", search.estimate_seconds, "the planner's own belief");
  v.required("plans_examined", search.plans_examined, "");
  v.required("rejected_by_memory", search.rejected_by_memory, "");
  v.required("work", search.work, "in work_unit");
  v.required("work_unit", search.work_unit, "");
  v.required("complete", search.complete, "false: a budget or Ctrl-C ended the search");
  v.required("notes", search.notes, "");
  v.required("chosen", search.chosen, "the plan in words");
  v.required("runners_up", search.runners_up, "next best plans, best first");
  v.required("constraints", search.constraints, "that forbade something");
}

void describe(config::Visitor& v, InfeasibleRecord& infeasible) {
  v.title("Infeasible");
  v.required("constraint", infeasible.constraint, "that no plan meets");
  v.required("witness", infeasible.witness, "an example");
}

void describe(config::Visitor& v, Report& report) {
  v.title("Report");
  v.required("name", report.name, "planner or plan file");
  v.optional("infeasible", report.infeasible, "instead of a plan");
  v.optional("evaluation", report.evaluation, "of the plan");
  v.optional("search", report.search, "of the planner");
  v.required("stages", report.stages, "of the simulation, by pipeline and stage");
  v.required("busiest_links", report.busiest_links, "");
  v.required("prices", report.prices, "where op times come from");
  v.required("ranks", report.ranks, "of the simulated program");
  v.required("ops", report.ops, "of the simulated program");
  v.optional("plan", report.plan, "");
}

Report make_report(std::string name, bool searched, const experiments::RunOutcome& outcome) {
  Report report;
  report.name = std::move(name);
  report.plan = outcome.plan;
  if (outcome.infeasible) {
    report.infeasible =
        InfeasibleRecord{outcome.infeasible->constraint, outcome.infeasible->witness};
  }
  if (outcome.evaluation) {
    report.evaluation = record(*outcome.evaluation);
    if (outcome.synchronization) {
      report.evaluation->synchronization_seconds = outcome.synchronization->value;
    }
  }
  if (searched) report.search = record(outcome.search);
  for (const experiments::StageLoad& load : outcome.stages) {
    report.stages.push_back({load.pipeline, load.stage, load.compute.value,
                             load.tensor_parallel.value, load.transfers.value, load.bubble.value});
  }
  report.busiest_links = outcome.link_table;
  report.prices = outcome.profile_entries;
  report.ranks = static_cast<std::int64_t>(outcome.program.ranks.size());
  report.ops = static_cast<std::int64_t>(outcome.program.ops.size());
  return report;
}

}  // namespace orrery::tools
