#include "experiments/study/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "experiments/study/files.h"
#include "experiments/study/limits.h"
#include "models/base/check.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/config/sparse.h"
#include "models/ir/names.h"
#include "models/spec/topology.h"

namespace orrery::experiments {
namespace {

using config::Diagnostics;
using config::Value;

/// The tree that the flags change: the job file, the job that a plan was made for, or an empty one.
Value base_job(const JobSettings& args, const ReadPlan* plan, Diagnostics& diagnostics) {
  if (args.job) return config::load_value(*args.job, diagnostics);
  Value job = Value::map({});
  job.append("schema", Value::scalar("orrery/job/1"));
  if (args.of_plan) job = *args.of_plan;
  if (plan != nullptr) {  // What the planner might use limits no plan, and its batch is its own.
    std::erase_if(job.entries, [](const Value::Entry& entry) {
      return entry.key == "allowed" || entry.key == "global_batch";
    });
    complete_for_plan(job, *plan);
  }
  return job;
}

/// What neither a job file nor a setting gives.
void require(const char* key, const char* example, const JobSettings& args,
             Diagnostics& diagnostics) {
  if (args.job || args.of_plan || args.gives(key)) return;
  const config::Position at = at_setting(key);
  diagnostics.add(
      at, "missing",
      fmt::format("give it, or a job file with --job; for example {} {}", at.file, example));
}

/// A flag that gives one of the job's own settings; its help is the doc of that setting.
struct JobFlag {
  const char* key;
  std::string path;
  config::Face form;
  std::string doc;
};

const std::vector<JobFlag>& job_flag_table(JobDefaults defaults) {
  static const auto kTable = [](JobDefaults kind) {
    const bool fixed = kind != JobDefaults::of_the_plan;
    const bool free = kind == JobDefaults::planning;
    std::vector<JobFlag> flags = {
        {"global_batch",
         "global_batch",
         {.letter = 'b'},
         fixed ? fmt::format("; default: {}", kDefaultBatch) : "; default: the plan's"},
        {"sequence_length",
         "sequence_length",
         {.letter = 's'},
         fixed ? fmt::format("; default: {}", kDefaultLength) : ""},
        {"dtype", "dtype", {}, "; default: bf16"},
        {"cuda_graphs", "cuda_graphs", {.toggle = true}, "; default, =false goes without"},
        {"hidden_collectives",
         "hidden_collectives",
         {.commas = true},
         "; comma-separated, default: none"},
        {"recompute", "allowed.recompute", {.commas = true}, ", comma-separated"},
        {"zero_stages",
         "allowed.zero_stages",
         {.commas = true},
         free ? ", comma-separated; default: all" : ", comma-separated"},
        {"schedules",
         "allowed.schedules",
         {.commas = true},
         free ? ", comma-separated; default: 1f1b,interleaved_1f1b" : ", comma-separated"},
        {"max_tensor_parallel", "allowed.max_tensor_parallel", {}, ""},
        {"max_micro_batch_size", "allowed.max_micro_batch_size", {}, "; default: 8"},
        {"max_optimizer_offload", "allowed.max_optimizer_offload", {}, "; default: 0"},
        {"sequence_parallel",
         "allowed.sequence_parallel",
         {.toggle = true},
         free ? "; default, =false forbids it" : ""}};
    const std::vector<config::FieldText> fields = config::field_texts<models::Job>();
    for (JobFlag& flag : flags) {
      const auto field = std::find_if(fields.begin(), fields.end(),
                                      [&](const auto& f) { return f.key == flag.path; });
      ORRERY_CHECK(field != fields.end(), "jobs have no setting {}", flag.path);
      const bool allows = flag.path.starts_with("allowed.");
      flag.doc = (allows ? "allowed: " : "") + field->doc + flag.doc;
    }
    return flags;
  };
  static const std::map<JobDefaults, std::vector<JobFlag>> kTables = {
      {JobDefaults::of_the_plan, kTable(JobDefaults::of_the_plan)},
      {JobDefaults::fixed, kTable(JobDefaults::fixed)},
      {JobDefaults::planning, kTable(JobDefaults::planning)}};
  return kTables.at(defaults);
}

/// Settings of the job as text, without those that are each plan's own affair.
std::map<std::string, std::string> shared_settings(const models::Job& job) {
  const Value value = config::to_value(job);
  std::map<std::string, std::string> settings;
  for (const Value::Entry& entry : value.entries) {
    if (entry.key == "allowed" || entry.key == "global_batch") continue;
    settings[entry.key] = config::to_flow(entry.value);
  }
  return settings;
}

/// "dtype, sequence_length"; "" where two jobs are the same.
std::string differing_settings(const models::Job& first, const models::Job& second) {
  const auto a = shared_settings(first);
  const auto b = shared_settings(second);
  std::set<std::string> keys;
  for (const auto& [ours, theirs] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const auto& [key, text] : *ours) {
      const auto other = theirs->find(key);
      if (other == theirs->end() || other->second != text) keys.insert(key);
    }
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

}  // namespace

config::Position at_setting(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return {"--" + key, 0, 0};
}

std::int64_t batch_of(const ReadPlan& plan) {
  return plan.problems.empty() ? std::max<std::int64_t>(ir::global_batch(plan.file.plan), 1) : 1;
}

void complete_for_plan(Value& job, const ReadPlan& plan) {
  if (job.find("allowed") == nullptr) {
    job.append("allowed", config::to_value(everything_allowed(plan.file.plan)));
  }
  if (job.find("global_batch") == nullptr) {
    job.append("global_batch",
               Value::scalar(std::to_string(batch_of(plan)), at_setting("global_batch")));
  }
}

void JobSettings::set_default(const std::string& path, std::int64_t value) {
  if (!job && !of_plan) changes.try_emplace(path, Value::scalar(std::to_string(value)));
}

void JobSettings::allow_by_default() {
  if (job || of_plan) return;
  models::Allowed free;
  free.zero_stages = {0, 1, 2, 3};
  free.sequence_parallel = true;
  free.schedules = {ir::ScheduleKind::one_f_one_b, ir::ScheduleKind::interleaved_one_f_one_b};
  const Value values = config::to_value(free);
  for (const char* key : {"zero_stages", "sequence_parallel", "schedules"}) {
    changes.try_emplace(std::string("allowed.") + key, *values.find(key));
  }
}

config::Position JobSettings::at(const char* key) const {
  const auto said = said_at.find(key);
  return said == said_at.end() ? at_setting(key) : said->second;
}

void describe(config::Visitor& v, JobSettings& settings) {
  v.section("Job");
  v.optional("cluster", settings.cluster, "cluster of the library, or a YAML file",
             {.letter = 'c'});
  v.optional("model", settings.model,
             "model of the library, a YAML file, or a Hugging Face config.json", {.letter = 'm'});
  v.optional("job", settings.job, "job file; the flags below override what it says",
             {.letter = 'j'});
  for (const JobFlag& flag : job_flag_table(settings.defaults)) {
    Value value;
    v.optional(flag.key, value, flag.doc.c_str(), flag.form);
    if (v.reading() && v.given(flag.key)) settings.changes[flag.path] = std::move(value);
  }
  v.optional("profile", settings.profile,
             "measured times instead of the roofline: profile of the library, or a YAML file");
  v.optional("scale_profile", settings.scale_profile,
             "FROM=TO: times of GPU type TO are those of FROM in the profile, scaled");
}

std::vector<std::pair<std::string, std::string>> job_keys() {
  std::vector<std::pair<std::string, std::string>> keys;
  for (const JobFlag& flag : job_flag_table(JobDefaults::fixed)) {
    keys.emplace_back(flag.key, flag.path);
  }
  return keys;
}

void describe(config::Visitor& v, JudgeSettings& settings) {
  sim::IterationOptions& simulation = settings.simulation;
  v.section("Judging");
  v.optional("cost", settings.cost,
             "simulator (default), hexiscale_public_code or hexiscale_paper");
  v.optional("seed", settings.seed, "of planner and jitter; default: 0");
  v.optional("jitter", simulation.jitter, "relative standard deviation of compute times");
  v.optional("step_jitter", simulation.step_jitter,
             "relative standard deviation of a GPU's speed from step to step");
  v.optional("link_jitter", simulation.link_jitter,
             "relative standard deviation of what transfers between two GPUs take");
  v.optional("straggler", simulation.stragglers,
             "DEVICE=FACTOR: its compute takes FACTOR times as long; may be repeated");
  v.optional("slow_link", simulation.slow_links,
             "LINK=FACTOR: its bandwidth is divided by FACTOR; may be repeated");
  v.optional("inner", simulation.inner,
             "collectives inside passes: automatic, closed_form, aggregated, per_block");
  v.optional("ring", simulation.ring, "ring collectives: aggregated or stepwise");
  v.optional("expanded", settings.expanded,
             "one rank for each GPU instead of one for each tensor-parallel group");
  describe(v, settings.cache);
  v.section("What if");
  describe_fields(v, settings.hardware);
  v.not_negative("seed", settings.seed);
  v.between("jitter", simulation.jitter, 0.0, 1.0);
  v.between("step_jitter", simulation.step_jitter, 0.0, 1.0);
  v.between("link_jitter", simulation.link_jitter, 0.0, 1.0);
  if (!v.reading()) return;
  simulation.seed = settings.seed;
  for (const char* key : {"cost", "seed", "jitter", "step_jitter", "link_jitter", "straggler",
                          "slow_link", "inner", "ring", "expanded"}) {
    if (v.given(key)) settings.given.emplace_back(key);
  }
}

models::Library open_library(Diagnostics& diagnostics) {
  return models::load_library(models::default_library_root(), diagnostics);
}

std::int64_t whole_number(const Text& text, const char* key, std::int64_t low,
                          std::int64_t fallback, Diagnostics& diagnostics) {
  if (!text) return fallback;
  config::TextError error;
  const auto value = config::parse_integer(*text, std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::int64_t>::max(), error);
  if (!value) {
    diagnostics.add(at_setting(key), error.what, error.hint);
  } else if (*value < low) {
    diagnostics.add(at_setting(key), fmt::format("must be at least {}, is {}", low, *value));
  }
  return value.value_or(fallback);
}

std::string take_origin(const ReadPlan& plan, JobSettings& job) {
  if (!plan.file.made_for) return "";
  const models::PlanOrigin& origin = *plan.file.made_for;
  std::vector<std::string> taken;
  const auto take = [&](Text& setting, const char* key, const config::Located<std::string>& name) {
    if (setting || name.value.empty()) return;
    setting = name.value;
    job.said_at[key] = name.at;
    taken.emplace_back(key);
  };
  if (!job.cluster && origin.profile) take(job.profile, "profile", *origin.profile);
  if (!job.cluster && !job.scale_profile) job.scale_profile = origin.scale_profile;
  take(job.cluster, "cluster", origin.cluster);
  take(job.model, "model", origin.model);
  if (!job.job && !job.of_plan) {
    job.of_plan = config::sparse(origin.job, {});
    taken.emplace_back("job");
  }
  return fmt::format("{}", fmt::join(taken, ", "));
}

models::PlanOrigin origin_of(const RunSpec& spec) {
  models::PlanOrigin origin{spec.cluster, spec.model, spec.job, spec.profile, {}};
  if (spec.scale_profile) origin.scale_profile = spec.scale_profile->value;
  return origin;
}

void write_plan(const std::string& path, ir::Plan plan, const models::Cluster& cluster,
                std::optional<models::PlanOrigin> made_for) {
  plan.cluster_hash = models::layout_hash(cluster);  // Prices and links may change.
  write_file(path, models::dump_plan_file({std::move(plan), std::move(made_for)}, path));
}

models::Job make_job(JobSettings args, const ReadPlan* plan, Diagnostics& diagnostics) {
  if (args.defaults == JobDefaults::planning) args.allow_by_default();
  if (args.defaults != JobDefaults::of_the_plan) {
    args.set_default("global_batch", kDefaultBatch);
    args.set_default("sequence_length", kDefaultLength);
  }
  const std::size_t before = diagnostics.problems().size();
  if (plan == nullptr) require("global_batch", "24", args, diagnostics);
  require("sequence_length", "4096", args, diagnostics);
  Value tree = base_job(args, plan, diagnostics);
  for (const auto& [path, value] : args.changes) {
    tree = config::merge(std::move(tree), path, value, diagnostics);
  }
  if (diagnostics.problems().size() != before) return {};
  models::Job job;
  config::describe_value(tree, job, diagnostics);
  return job;
}

void judge_by(const JudgeSettings& judge, RunSpec& spec) {
  spec.cost = judge.cost;
  spec.collapsed = !judge.expanded;
  spec.seed = static_cast<std::uint64_t>(judge.seed);
  spec.simulation = judge.simulation;
  spec.simulation.seed = judge.seed;
  spec.hardware = judge.hardware;
  spec.stragglers_at = at_setting("straggler");
  spec.slow_links_at = at_setting("slow_link");
}

RunSpec make_spec(const JobSettings& given, const JudgeSettings& judge, const ReadPlan* plan,
                  Diagnostics& diagnostics) {
  JobSettings job = given;
  RunSpec spec;
  if (plan != nullptr) {
    take_origin(*plan, job);
    // Who leaves the cluster to a file that cannot be read hears what is wrong with that file.
    if ((!job.cluster || !job.model) && !plan->problems.empty()) {
      plan->report(diagnostics);
      return spec;
    }
  }
  if (!job.cluster || job.cluster->empty()) {
    diagnostics.add(at_setting("cluster"), "missing",
                    "for example --cluster hexiscale_case_study; orrery list clusters");
  }
  if (!job.model || job.model->empty()) {
    diagnostics.add(at_setting("model"), "missing",
                    "for example --model llama2_13b; orrery list models");
  }
  spec.cluster = {job.cluster.value_or(""), job.at("cluster")};
  spec.model = {job.model.value_or(""), job.at("model")};
  spec.job = make_job(job, plan, diagnostics);
  spec.job_at = job.job ? config::Position{*job.job, 0, 0} : at_setting("global_batch");
  if (spec.job.lengths && job.job) {  // What can be wrong with such a job is that.
    Diagnostics read_before;
    const Value tree = config::load_value(*job.job, read_before);
    if (const Value* lengths = tree.find("lengths")) spec.job_at = lengths->at;
  }
  if (job.profile) spec.profile = {*job.profile, job.at("profile")};
  if (job.scale_profile) spec.scale_profile = {*job.scale_profile, at_setting("scale_profile")};
  if (plan != nullptr) spec.plan = {plan->path, config::Position{}};
  if (plan != nullptr && !diagnostics.empty()) plan->report(diagnostics);  // Not read further.
  judge_by(judge, spec);
  return spec;
}

void check_names(const RunSpec& spec, const models::Library& library, Diagnostics& diagnostics) {
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

std::vector<LoadedRun> load_plans(const std::vector<std::string>& plans, const JobSettings& job,
                                  const JudgeSettings& judge,
                                  const std::function<void(models::Job&)>& complete,
                                  Diagnostics diagnostics) {
  const models::Library library = open_library(diagnostics);
  const std::vector<ReadPlan> read(plans.begin(), plans.end());
  std::vector<RunSpec> specs;
  for (const ReadPlan& plan : read) {
    Diagnostics of_this = diagnostics;
    specs.push_back(make_spec(job, judge, &plan, of_this));
    check_names(specs.back(), library, of_this);
    if (!of_this.empty()) {  // Flags are the same for all plans, files are not.
      for (const ReadPlan& other : read) {
        if (&other != &plan) other.report(of_this);
      }
    }
    of_this.raise();
    if (complete) complete(specs.back().job);
  }
  std::vector<LoadedRun> runs;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    runs.push_back(load_run(specs[i], "", library, diagnostics, &read[i]));
  }
  diagnostics.raise();
  return runs;
}

void check_same_inputs(const LoadedRun& first, const LoadedRun& second, Diagnostics& diagnostics) {
  const std::string& plan = first.spec.plan->value;
  const auto differ = [&](const config::Located<std::string>& name, const char* what,
                          const std::string& other) {
    diagnostics.add(name.at, fmt::format("{} '{}', but '{}' for {}", what, name.value, other, plan),
                    fmt::format("--{} says which holds for both", what));
  };
  if (first.cluster.hash != second.cluster.hash ||
      first.cluster.power_hash != second.cluster.power_hash) {
    differ(second.spec.cluster, "cluster", first.spec.cluster.value);
  }
  const std::string job = differing_settings(first.spec.job, second.spec.job);
  // The hash of a workload counts length and dtype, too, which are the job's.
  if (first.workload.hash != second.workload.hash &&
      (job.empty() || first.workload.name != second.workload.name)) {
    differ(second.spec.model, "model", first.spec.model.value);
  }
  if (!job.empty()) {
    diagnostics.add({second.spec.plan->value, 0, 0},
                    fmt::format("made for a job that differs in {} from that of {}", job, plan),
                    "--job and the flags of jobs say what holds for both");
  }
  const auto scaling = [](const LoadedRun& run) {
    return run.spec.scale_profile ? run.spec.scale_profile->value : "";
  };
  if (first.profile_hash != second.profile_hash || scaling(first) != scaling(second)) {
    diagnostics.add({second.spec.plan->value, 0, 0},
                    fmt::format("made with other measured numbers than {}", plan),
                    "--profile says which hold for both, --cluster that none do");
  }
}

}  // namespace orrery::experiments
