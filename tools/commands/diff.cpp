/// orrery diff: what two plans do differently, and what it costs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/ir/names.h"
#include "tools/cli/command.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/inputs.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

struct DiffSettings {
  JobSettings job;
  JudgeSettings judge;
  std::string first;
  std::string second;
  bool json = false;
};

void describe(config::Visitor& v, DiffSettings& settings) {
  v.required("first", settings.first, "plan file", {.positional = true});
  v.required("second", settings.second, "plan file", {.positional = true});
  describe_json(v, settings.json);
  describe(v, settings.job, BatchDefault::of_the_plan);
  describe(v, settings.judge);
}

/// One thing that differs; "-" where a plan has no such thing.
struct Difference {
  std::string where;
  std::string what;
  std::string first;
  std::string second;
};

/// What `--json` prints.
struct DiffDocument {
  std::string cluster;
  std::string model;
  std::vector<Difference> differences;
  std::vector<experiments::RunReport> plans;
};

void describe(config::Visitor& v, Difference& difference) {
  v.title("Difference");
  v.required("where", difference.where, "plan, pipeline or stage");
  v.required("what", difference.what, "property");
  v.required("first", difference.first, "of the first plan");
  v.required("second", difference.second, "of the second plan");
}

void describe(config::Visitor& v, DiffDocument& document) {
  v.title("Comparison");
  v.required("cluster", document.cluster, "");
  v.required("model", document.model, "");
  v.required("differences", document.differences, "");
  v.required("plans", document.plans, "");
}

/// Properties of a thing as (name, text), in a fixed order.
using Properties = std::vector<std::pair<std::string, std::string>>;

Properties properties(const ir::Plan& plan) {
  const ir::Communication& communication = plan.communication;
  return {{"schedule", ir::name_of(plan.schedule)},
          {"virtual stages", std::to_string(plan.virtual_stages)},
          {"pipelines", std::to_string(plan.pipelines.size())},
          {"GPUs", std::to_string(ir::devices_of(plan).size())},
          {"activation transfer", ir::name_of(communication.activation_transfer)},
          {"gradient overlap", communication.gradient_overlap ? "yes" : "no"},
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

template <class F>
std::string joined(const ir::Stage& stage, F&& value) {
  std::vector<std::string> values;
  for (const ir::Segment& segment : stage.segments) {
    const std::string text = value(segment);
    if (values.empty() || values.back() != text) values.push_back(text);
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

Properties properties(const ir::Stage& stage, const models::Cluster& cluster) {
  const std::vector<DeviceId> devices = ir::devices_of(stage);
  return {{"GPUs", composition(devices, cluster)},
          {"devices", id_ranges(devices)},
          {"blocks", block_ranges(stage)},
          {"tensor parallelism", tensor_parallel(stage)},
          {"samples by group", joined(stage,
                                      [](const ir::Segment& segment) {
                                        std::vector<int> samples;
                                        for (const auto& group : segment.groups)
                                          samples.push_back(group.samples);
                                        return fmt::format("{}", fmt::join(samples, "+"));
                                      })},
          {"sequence parallelism", joined(stage,
                                          [](const ir::Segment& segment) {
                                            const ir::Group& group = segment.groups.front();
                                            return fmt::format("{} {}", ir::name_of(group.sequence),
                                                               group.sequence_degree);
                                          })},
          {"expert parallelism",
           joined(stage, [](const auto& s) { return std::to_string(s.expert_parallel); })},
          {"recompute",
           joined(stage, [](const auto& s) { return std::string(ir::name_of(s.recompute)); })},
          {"ZeRO", joined(stage, [](const auto& s) {
             return s.zero.shard_group == 0
                        ? std::to_string(s.zero.stage)
                        : fmt::format("{} over {} replicas", s.zero.stage, s.zero.shard_group);
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

std::string differences_text(const std::vector<Difference>& all) {
  if (all.empty()) return "The plans are the same.\n";
  Table table;
  table.column("where").column("what").column("A").column("B");
  std::string last;
  for (const Difference& difference : all) {
    table.row({difference.where == last ? "" : difference.where, difference.what, difference.first,
               difference.second});
    last = difference.where;
  }
  return section("What differs", table.text(2));
}

std::string change(double a, double b) {
  return a > 0 ? fmt::format("{:+.1f} %", 100 * (b / a - 1)) : "-";
}

std::string costs_text(const models::Evaluation& a, const models::Evaluation& b) {
  Table table;
  table.column("").number("A").number("B").number("B against A");
  const auto row = [&](const char* name, double x, double y, int digits) {
    if (x == 0 && y == 0) return;
    table.row({name, grouped(x, digits), grouped(y, digits), change(x, y)});
  };
  row("iteration time s", a.iteration_time.value, b.iteration_time.value, 4);
  row("  compute s", a.breakdown.compute.value, b.breakdown.compute.value, 4);
  row("  tensor parallelism s", a.breakdown.tensor_parallel.value,
      b.breakdown.tensor_parallel.value, 4);
  row("  pipeline transfers s", a.breakdown.pipeline.value, b.breakdown.pipeline.value, 4);
  row("  data parallelism s", a.breakdown.data_parallel.value, b.breakdown.data_parallel.value, 4);
  row("  optimizer s", a.breakdown.optimizer.value, b.breakdown.optimizer.value, 4);
  row("  bubble s", a.breakdown.bubble.value, b.breakdown.bubble.value, 4);
  row("tokens/s", a.tokens_per_second, b.tokens_per_second, 1);
  row("MFU %", 100 * a.mfu, 100 * b.mfu, 1);
  row("HFU %", 100 * a.hfu, 100 * b.hfu, 1);
  if (a.dollars_per_million_tokens && b.dollars_per_million_tokens) {
    row("$ per million tokens", a.dollars_per_million_tokens->value,
        b.dollars_per_million_tokens->value, 3);
  }
  return section("What it costs (parts of the iteration: mean over GPUs)", table.text(2));
}

std::string memory_side_by_side(const models::Evaluation& a, const models::Evaluation& b) {
  std::vector<std::string> gpus;
  for (const models::Evaluation* side : {&a, &b}) {
    for (const ir::MemoryUse& use : side->memory.by_gpu_type) {
      if (std::find(gpus.begin(), gpus.end(), use.gpu) == gpus.end()) gpus.push_back(use.gpu);
    }
  }
  const auto find = [](const models::Evaluation& side, const std::string& gpu) {
    const auto at = std::find_if(side.memory.by_gpu_type.begin(), side.memory.by_gpu_type.end(),
                                 [&](const ir::MemoryUse& use) { return use.gpu == gpu; });
    return at == side.memory.by_gpu_type.end() ? nullptr : &*at;
  };
  const auto peak = [](const ir::MemoryUse* use) {
    return use == nullptr ? "-" : grouped(use->need.value / 0x1p30, 1);
  };
  const auto verdict = [](const ir::MemoryUse* use) {
    if (use == nullptr) return std::string("not used");
    return use->fits() ? good("fits") : bad("does not fit");
  };
  Table table;
  table.column("GPU type").number("has GiB").number("A GiB").number("B GiB");
  table.number("B against A").column("A").column("B");
  for (const std::string& gpu : gpus) {
    const ir::MemoryUse* x = find(a, gpu);
    const ir::MemoryUse* y = find(b, gpu);
    table.row({gpu, grouped((x != nullptr ? x : y)->have.value / 0x1p30, 1), peak(x), peak(y),
               x != nullptr && y != nullptr ? change(x->need.value, y->need.value) : "-",
               verdict(x), verdict(y)});
  }
  return section("Peak memory by GPU type", table.text(2));
}

}  // namespace

namespace {

int run(const DiffSettings& args, config::Diagnostics& problems) {
  std::vector<RunTask> tasks;
  for (experiments::LoadedRun& run :
       load_plans({args.first, args.second}, args.job, args.judge, {}, problems)) {
    const std::string name = run.spec.plan->value;
    tasks.push_back({name, std::move(run), {}});
  }
  const std::vector<experiments::RunReport> reports = run_tasks(tasks);
  const experiments::LoadedRun& run = tasks.front().run;
  const auto found = differences(*reports[0].plan, *reports[1].plan, run.cluster);
  if (args.json) {
    print(to_json(DiffDocument{run.cluster.name, run.workload.name, found, reports}));
    return 0;
  }
  const models::Evaluation& a = *reports[0].evaluation;
  const models::Evaluation& b = *reports[1].evaluation;
  print(job_line(run));
  print(fmt::format("A: {}\nB: {}\n\n", args.first, args.second));
  print(differences_text(found) + "\n" + costs_text(a, b) + "\n" + memory_side_by_side(a, b));
  return 0;
}

}  // namespace

extern const Command kDiff;
const Command kDiff = printing_command<DiffSettings, run>(
    "diff", "Compare two plans: what differs and what it costs",
    "diff experiments/hexiscale/case_study/plans/megatron.yaml "
    "experiments/hexiscale/case_study/plans/hexiscale.yaml --cluster "
    "hexiscale_case_study --model llama2_13b --sequence-length 4096");

}  // namespace orrery::tools
