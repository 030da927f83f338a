#include "tools/commands/inputs.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "experiments/study/limits.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "models/spec/topology.h"

namespace orrery::tools {
namespace {

using config::Diagnostics;
using config::Value;

/// A flag's text as a scalar of a file.
Value scalar(const std::string& text, const char* flag) {
  return Value::scalar(text, at_flag(flag));
}

Value list_of(const std::string& text, const char* flag) {
  std::vector<Value> items;
  for (const std::string& item : split(text, ',')) items.push_back(scalar(item, flag));
  return Value::list(std::move(items), at_flag(flag));
}

/// What a plan may use when nobody says: all that can be lowered.
Value everything() {
  std::vector<Value> schedules;
  for (const models::ScheduleEntry* entry : models::schedules()) {
    schedules.push_back(Value::scalar(ir::name_of(entry->kind)));
  }
  std::vector<Value> recompute;
  for (const auto& [value, name] : enum_names(ir::Recompute{})) {
    recompute.push_back(Value::scalar(name));
  }
  std::vector<Value> stages;
  for (const char* stage : {"0", "1", "2", "3"}) stages.push_back(Value::scalar(stage));
  Value allowed = Value::map({});
  allowed.append("recompute", Value::list(std::move(recompute)));
  allowed.append("zero_stages", Value::list(std::move(stages)));
  allowed.append("sequence_parallel", Value::scalar("true"));
  allowed.append("max_micro_batch_size",
                 Value::scalar(std::to_string(std::numeric_limits<int>::max())));
  allowed.append("schedules", Value::list(std::move(schedules)));
  return allowed;
}

/// The tree that the flags change: the job file, or an empty job.
Value base_job(const JobArgs& args, const Text& plan, Diagnostics& diagnostics) {
  if (args.job) return config::load_value(*args.job, diagnostics);
  Value job = Value::map({});
  job.append("schema", Value::scalar("orrery/job/1"));
  if (plan) job.append("allowed", everything());
  return job;
}

/// Global batch of a plan file that can be read; else 1, and whoever loads the plan reports why.
std::int64_t batch_of(const std::string& plan) {
  Diagnostics ignored;
  const ir::Plan read = models::load_plan(plan, ignored);
  return ignored.empty() ? std::max<std::int64_t>(ir::global_batch(read), 1) : 1;
}

void require(const Value& job, const char* key, const char* flag, const char* example,
             const JobArgs& args, Diagnostics& diagnostics) {
  if (args.job || job.find(key) != nullptr) return;
  diagnostics.add(
      at_flag(flag), "missing",
      fmt::format("give it, or a job file with --job; for example {} {}", flag, example));
}

sim::IterationOptions make_iteration(const JudgeArgs& args, Diagnostics& diagnostics) {
  Value tree = Value::map({});
  if (args.jitter) tree.append("jitter", scalar(*args.jitter, "--jitter"));
  if (args.inner) tree.append("inner", scalar(*args.inner, "--inner"));
  if (args.ring) tree.append("ring", scalar(*args.ring, "--ring"));
  const auto factors = [&](const std::vector<std::string>& texts, const char* flag,
                           const char* list, const char* key, const char* shape,
                           const char* example) {
    std::vector<Value> items;
    for (const std::string& text : texts) {
      const std::size_t equals = text.rfind('=');
      if (equals == std::string::npos || equals == 0) {
        diagnostics.add(at_flag(flag), fmt::format("'{}' is not {}", text, shape),
                        fmt::format("for example {} {}=1.5", flag, example));
        continue;
      }
      Value item = Value::map({}, at_flag(flag));
      item.append(key, scalar(text.substr(0, equals), flag));
      item.append("slowdown", scalar(text.substr(equals + 1), flag));
      items.push_back(std::move(item));
    }
    if (!items.empty()) tree.append(list, Value::list(std::move(items), at_flag(flag)));
  };
  factors(args.stragglers, "--straggler", "stragglers", "device", "DEVICE=FACTOR", "3");
  factors(args.slow_links, "--slow-link", "slow_links", "link", "LINK=FACTOR", "a800/nic0/up");
  sim::IterationOptions options;
  config::describe_value(tree, options, diagnostics);
  return options;
}

}  // namespace

config::Position at_flag(const char* flag) { return {flag, 0, 0}; }

models::Library open_library(Diagnostics& diagnostics) {
  return models::load_library(models::default_library_root(), diagnostics);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::size_t first = text.find_first_not_of(' ', begin);
    const std::size_t last = text.find_last_not_of(' ', end == 0 ? 0 : end - 1);
    if (first < end) items.push_back(text.substr(first, last + 1 - first));
    begin = end + 1;
  }
  return items;
}

std::int64_t whole_number(const Text& text, const char* flag, std::int64_t low,
                          std::int64_t fallback, Diagnostics& diagnostics) {
  if (!text) return fallback;
  config::TextError error;
  const auto value = config::parse_integer(*text, std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::int64_t>::max(), error);
  if (!value) {
    diagnostics.add(at_flag(flag), error.what, error.hint);
  } else if (*value < low) {
    diagnostics.add(at_flag(flag), fmt::format("must be at least {}, is {}", low, *value));
  }
  return value.value_or(fallback);
}

models::Job make_job(const JobArgs& args, const Text& plan, Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  Value tree = base_job(args, plan, diagnostics);
  if (diagnostics.problems().size() != before) return {};
  const auto set = [&](const Text& text, const char* path, const char* flag, bool list = false) {
    if (!text) return;
    tree = config::merge(std::move(tree), path, list ? list_of(*text, flag) : scalar(*text, flag),
                         diagnostics);
  };
  set(args.global_batch, "global_batch", "--global-batch");
  set(args.sequence_length, "sequence_length", "--sequence-length");
  set(args.dtype, "dtype", "--dtype");
  set(args.recompute, "allowed.recompute", "--recompute", true);
  set(args.zero_stages, "allowed.zero_stages", "--zero-stages", true);
  set(args.schedules, "allowed.schedules", "--schedules", true);
  set(args.max_tensor_parallel, "allowed.max_tensor_parallel", "--max-tensor-parallel");
  set(args.max_micro_batch_size, "allowed.max_micro_batch_size", "--max-micro-batch-size");
  if (args.sequence_parallel) {
    set("true", "allowed.sequence_parallel", "--sequence-parallel");
  }
  if (plan && !args.job && !args.global_batch) {
    tree.append("global_batch",
                Value::scalar(std::to_string(batch_of(*plan)), at_flag("--global-batch")));
  }
  require(tree, "global_batch", "--global-batch", "24", args, diagnostics);
  require(tree, "sequence_length", "--sequence-length", "4096", args, diagnostics);
  if (diagnostics.problems().size() != before) return {};
  models::Job job;
  config::describe_value(tree, job, diagnostics);
  return job;
}

experiments::RunSpec make_spec(const JobArgs& job, const JudgeArgs& judge, const Text& plan,
                               Diagnostics& diagnostics) {
  experiments::RunSpec spec;
  if (!job.cluster || job.cluster->empty()) {
    diagnostics.add(at_flag("--cluster"), "missing",
                    "for example --cluster hexiscale_case_study; orrery list clusters");
  }
  if (!job.model || job.model->empty()) {
    diagnostics.add(at_flag("--model"), "missing",
                    "for example --model llama2_13b; orrery list models");
  }
  spec.cluster = {job.cluster.value_or(""), at_flag("--cluster")};
  spec.model = {job.model.value_or(""), at_flag("--model")};
  spec.job = make_job(job, plan, diagnostics);
  spec.job_at = job.job ? config::Position{*job.job, 0, 0} : at_flag("--global-batch");
  if (spec.job.lengths && job.job) {  // What can be wrong with such a job is that.
    Diagnostics read_before;
    const Value tree = config::load_value(*job.job, read_before);
    if (const Value* lengths = tree.find("lengths")) spec.job_at = lengths->at;
  }
  if (job.profile) spec.profile = {*job.profile, at_flag("--profile")};
  if (job.scale_profile) spec.scale_profile = {*job.scale_profile, at_flag("--scale-profile")};
  if (plan) spec.plan = {*plan, config::Position{}};
  if (judge.cost) {
    config::describe_value(scalar(*judge.cost, "--cost"), spec.cost, diagnostics);
  }
  spec.collapsed = !judge.expanded;
  const std::int64_t seed = whole_number(judge.seed, "--seed", 0, 0, diagnostics);
  spec.seed = static_cast<std::uint64_t>(seed);
  spec.simulation = make_iteration(judge, diagnostics);
  spec.simulation.seed = seed;
  return spec;
}

void check_names(const experiments::RunSpec& spec, const models::Library& library,
                 Diagnostics& diagnostics) {
  if (diagnostics.empty()) return;  // load_run() will do it.
  models::Job job;
  job.global_batch = job.sequence_length = 1;
  if (!spec.cluster.value.empty()) {
    models::load_cluster(spec.cluster.value, library, spec.cluster.at, diagnostics);
  }
  if (!spec.model.value.empty()) {
    models::load_workload(spec.model.value, job, library, spec.model.at, diagnostics);
  }
}

experiments::LoadedRun load(const experiments::RunSpec& spec, const models::Library& library,
                            Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  experiments::RunSpec plain = spec;
  plain.simulation.stragglers.clear();  // checked below, at their flags
  plain.simulation.slow_links.clear();
  experiments::LoadedRun run = experiments::load_run(plain, "", library, diagnostics);
  run.spec.simulation = spec.simulation;
  if (diagnostics.problems().size() != before) return run;
  const models::Topology topology(run.cluster);
  const auto check = [&](const sim::IterationOptions& part, const char* flag) {
    for (const std::string& what : sim::find_problems(part, run.cluster, topology)) {
      diagnostics.add(at_flag(flag), what);
    }
  };
  sim::IterationOptions stragglers;
  stragglers.stragglers = spec.simulation.stragglers;
  check(stragglers, "--straggler");
  sim::IterationOptions links;
  links.slow_links = spec.simulation.slow_links;
  check(links, "--slow-link");
  if (diagnostics.problems().size() == before) {
    // It was short enough without them.
    experiments::RunSpec slowed = run.spec;
    slowed.job_at = at_flag(slowed.simulation.stragglers.empty() ? "--slow-link" : "--straggler");
    experiments::check_duration(slowed, run.cluster, run.workload, run.profile, diagnostics);
  }
  return run;
}

std::vector<experiments::LoadedRun> load_plans(const std::vector<std::string>& plans,
                                               const JobArgs& job, const JudgeArgs& judge,
                                               const std::function<void(models::Job&)>& complete) {
  Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  std::vector<experiments::RunSpec> specs;
  for (const std::string& plan : plans) {
    Diagnostics of_this;
    specs.push_back(make_spec(job, judge, plan, of_this));
    check_names(specs.back(), library, of_this);
    of_this.raise();  // Flags are the same for all plans: once is enough.
    if (complete) complete(specs.back().job);
  }
  std::vector<experiments::LoadedRun> runs;
  for (const experiments::RunSpec& spec : specs) {
    runs.push_back(load(spec, library, diagnostics));
  }
  diagnostics.raise();
  return runs;
}

}  // namespace orrery::tools
