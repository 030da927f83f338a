#include "experiments/study/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "experiments/study/plan_text.h"
#include "experiments/study/run_tasks.h"
#include "models/base/text.h"
#include "models/ir/names.h"

namespace orrery::experiments {
namespace {

/// Properties of a thing as (name, text), in a fixed order.
using Properties = std::vector<std::pair<std::string, std::string>>;

Properties properties(const ir::Plan& plan) {
  const ir::Communication& communication = plan.communication;
  return {{"schedule", ir::name_of(plan.schedule)},
          {"virtual stages", std::to_string(plan.virtual_stages)},
          {"pipelines", std::to_string(plan.pipelines.size())},
          {"GPUs", std::to_string(ir::devices_of(plan).size())},
          {"global batch", std::to_string(ir::global_batch(plan))},
          {"activation transfer", ir::name_of(communication.activation_transfer)},
          {"gradient overlap", communication.gradient_overlap ? "yes" : "no"},
          {"parameter overlap", communication.parameter_overlap ? "yes" : "no"},
          {"bucket", communication.bucket.value > 0
                         ? grouped(communication.bucket.value / 0x1p20, 0) + " MiB"
                         : "owners"},
          {"redundancy", ir::name_of(plan.redundancy)},
          {"optimizer", ir::name_of(plan.optimizer)}};
}

Properties properties(const ir::Pipeline& pipeline) {
  return {
      {"stages", std::to_string(pipeline.stages.size())},
      {"micro-batches", fmt::format("{} x {}", pipeline.micro_batches, pipeline.micro_batch_size)},
      {"reroutes", std::to_string(pipeline.reroutes.size())}};
}

Properties properties(const ir::Stage& stage, const models::Cluster& cluster) {
  const std::vector<DeviceId> devices = ir::devices_of(stage);
  return {{"GPUs", composition(devices, cluster)},
          {"devices", id_ranges(devices)},
          {"blocks", block_ranges(stage)},
          {"tensor parallelism", tensor_parallel(stage)},
          {"samples by group", by_segment(stage,
                                          [](const ir::Segment& segment) {
                                            std::vector<int> samples;
                                            for (const auto& group : segment.groups)
                                              samples.push_back(group.samples);
                                            return fmt::format("{}", fmt::join(samples, "+"));
                                          })},
          {"sequence parallelism", by_segment(stage,
                                              [](const ir::Segment& segment) {
                                                const ir::Group& group = segment.groups.front();
                                                return fmt::format("{} {}",
                                                                   ir::name_of(group.sequence),
                                                                   group.sequence_degree);
                                              })},
          {"expert parallelism", by_segment(stage, expert_parallel)},
          {"recompute",
           by_segment(stage, [](const auto& s) { return std::string(ir::name_of(s.recompute)); })},
          {"ZeRO", by_segment(stage,
                              [](const auto& s) {
                                return s.zero.shard_group == 0
                                           ? std::to_string(s.zero.stage)
                                           : fmt::format("{} over {} replicas", s.zero.stage,
                                                         s.zero.shard_group);
                              })},
          {"state weight", by_segment(stage, [](const auto& s) {
             return by_group(s, [](const auto& g) { return std::to_string(g.state_weight); });
           })}};
}

void compare(const std::string& where, const Properties& a, const Properties& b,
             std::vector<Difference>& out) {
  const Properties& names = a.empty() ? b : a;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string first = a.empty() ? "-" : a[i].second;
    const std::string second = b.empty() ? "-" : b[i].second;
    if (first != second) out.push_back({where, names[i].first, first, second});
  }
}

/// What is worth a line of a stage that only one plan has.
Properties brief(Properties all) {
  all.resize(4);
  return all;
}

std::vector<Difference> differences(const ir::Plan& a, const ir::Plan& b,
                                    const models::Cluster& cluster) {
  std::vector<Difference> out;
  compare("plan", properties(a), properties(b), out);
  for (std::size_t p = 0; p < std::max(a.pipelines.size(), b.pipelines.size()); ++p) {
    const ir::Pipeline* x = p < a.pipelines.size() ? &a.pipelines[p] : nullptr;
    const ir::Pipeline* y = p < b.pipelines.size() ? &b.pipelines[p] : nullptr;
    const std::string where = fmt::format("pipeline {}", p);
    compare(where, x != nullptr ? properties(*x) : Properties{},
            y != nullptr ? properties(*y) : Properties{}, out);
    const std::size_t stages_x = x != nullptr ? x->stages.size() : 0;
    const std::size_t stages_y = y != nullptr ? y->stages.size() : 0;
    for (std::size_t s = 0; s < std::max(stages_x, stages_y); ++s) {
      Properties of_x, of_y;
      if (s < stages_x) of_x = properties(x->stages[s], cluster);
      if (s < stages_y) of_y = properties(y->stages[s], cluster);
      if (of_x.empty()) of_y = brief(std::move(of_y));
      if (of_y.empty()) of_x = brief(std::move(of_x));
      compare(fmt::format("{}, stage {}", where, s), of_x, of_y, out);
    }
  }
  return out;
}

}  // namespace

void describe(config::Visitor& v, DiffSettings& settings) {
  v.required("first", settings.first, "plan file", {.positional = true});
  v.required("second", settings.second, "plan file", {.positional = true});
  describe(v, settings.job);
  describe(v, settings.judge);
}

void describe(config::Visitor& v, Difference& difference) {
  v.title("Difference");
  v.required("where", difference.where, "plan, pipeline or stage");
  v.required("what", difference.what, "property");
  v.required("first", difference.first, "of the first plan");
  v.required("second", difference.second, "of the second plan");
}

void describe(config::Visitor& v, DiffResult& result) {
  v.title("Comparison");
  v.required("cluster", result.cluster, "its name");
  v.required("model", result.model, "its name");
  v.required("differences", result.differences, "from plan to stages");
  v.required("plans", result.plans, "what the first and the second came to");
}

DiffResult diff(const DiffSettings& settings, const Call& call, config::Diagnostics problems) {
  DiffResult result;
  std::vector<RunTask> tasks;
  std::vector<LoadedRun> runs = load_plans({settings.first, settings.second}, settings.job,
                                           settings.judge, {}, std::move(problems));
  config::Diagnostics different;
  check_same_inputs(runs.front(), runs.back(), different);
  different.raise();
  for (LoadedRun& run : runs) {
    const std::string name = run.spec.plan->value;
    tasks.push_back({name, std::move(run), {}});
  }
  result.plans = run_tasks(tasks, call, settings.judge.cache.open(call.on_note).get());
  result.inputs = std::move(tasks.front().run);
  result.cluster = result.inputs.cluster.name;
  result.model = result.inputs.workload.name;
  result.differences =
      differences(*result.plans[0].plan, *result.plans[1].plan, result.inputs.cluster);
  return result;
}

}  // namespace orrery::experiments
