#include "experiments/study/robust_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "experiments/study/checks.h"
#include "experiments/study/exports.h"
#include "experiments/study/files.h"
#include "experiments/study/limits.h"
#include "experiments/study/rent.h"
#include "experiments/study/robust_search.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/spec/library.h"
#include "models/spec/plan_yaml.h"
#include "traces/generate/settings.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;
using config::Value;

constexpr Days kDefaultDays{3};  ///< Of a generated trace.

Value scalar_at(const std::string& text, const char* key) {
  return Value::scalar(text, at_setting(key));
}

/// Values by path as maps; null where there are none.
Value tree_of(const std::map<std::string, Value>& settings, const char* key,
              Diagnostics& diagnostics) {
  Value tree;
  for (const auto& [path, value] : settings) {
    if (tree.is_null()) tree = Value::map({}, at_setting(key));
    tree = config::merge(std::move(tree), path, value, diagnostics);
  }
  return tree;
}

bool is_generator(const RobustChoices& choices) {
  const std::string ending = fs::path(*choices.trace).extension().string();
  if (choices.format) return false;
  if (ending == ".yaml" || ending == ".yml" || ending == ".json") return true;
  std::error_code error;
  return !fs::is_regular_file(data_path(*choices.trace, ""), error) &&
         !is_below_data(*choices.trace) && ending.empty();
}

/// The case that all candidates are replayed in, without a plan.
ReplayCase case_of(const RobustSettings& settings, const char* trace_key, const RunSpec& spec,
                   Diagnostics& diagnostics) {
  const RobustChoices& choices = settings.choices;
  ReplayCase one;
  static_cast<TrainingInputs&>(one) = spec;
  one.plan.reset();
  if (!choices.trace || choices.trace->empty()) {
    diagnostics.add(at_setting(trace_key), "missing",
                    "a trace file, or a generator as in llama3 or spot");
    return one;
  }
  const bool generated = is_generator(choices);
  const config::Located<std::string> source{*choices.trace, at_setting(trace_key)};
  (generated ? one.trace.generator : one.trace.file) = source;
  if (choices.format) one.trace.format = *choices.format;
  if (choices.mtbf && !generated) {
    diagnostics.add(at_setting("mtbf"), "scales the rate of a generator, not of a trace file");
  }
  if (choices.repeat && generated) {
    diagnostics.add(at_setting("repeat"), "is for trace files");
  }
  one.trace.settings = tree_of(choices.settings, "set", diagnostics);
  one.ignore_leaves = choices.ignore_leaves;
  one.trace.repeat = choices.repeat;
  if (choices.days || generated) {
    one.horizon = to_seconds(to_nanoseconds(choices.days.value_or(kDefaultDays)));
  }
  if (!generated && one.horizon) one.trace.start = TraceStart::seed;
  std::map<std::string, Value> of_runtime;
  for (const auto& [name, text] : choices.runtime) {
    of_runtime[name] = scalar_at(text, "runtime");
  }
  const Value runtime = tree_of(of_runtime, "runtime", diagnostics);
  if (!runtime.is_null()) config::describe_value(runtime, one.runtime, diagnostics);
  return one;
}

std::vector<ReplayPolicy> policies_of(const RobustChoices& choices, Diagnostics& diagnostics) {
  const config::Position options_at = at_setting("policy_option");
  const auto named = named_policies(choices.policies, at_setting("policy"), choices.policy_options,
                                    options_at, diagnostics);
  for (const auto& policy : named) check_policy(policy, diagnostics);
  if (!diagnostics.empty()) return {};
  std::vector<ReplayPolicy> policies;
  for (const auto& each : expand_policies(named)) policies.push_back(each.value);
  for (const ReplayPolicy& policy : policies) {
    check_policy_values(policy, options_at, diagnostics);
  }
  return policies;
}

/// Sets the generator's rate of failures so that the job is interrupted as often as `mtbf` says.
void scale_failures(ReplayCase& one, const models::Cluster& cluster, Seconds mtbf,
                    Diagnostics& diagnostics) {
  constexpr const char* kRate = "failures.rate";
  const auto with_rate = [&](double rate) {
    ReplayCase out = one;
    Value& settings = out.trace.settings;
    if (settings.is_null()) settings = Value::map({}, at_setting("mtbf"));
    settings = config::merge(std::move(settings), kRate, scalar_at(fmt::format("{}", rate), "mtbf"),
                             diagnostics);
    return out;
  };
  const auto per_second = [&](double rate) {
    return TraceSource(with_rate(rate), "", cluster, diagnostics).interruptions(1).per_second;
  };
  const double once = per_second(1);
  const double of_failures = per_second(2) - once;
  if (!diagnostics.empty()) return;
  const double rate = (1 / mtbf.value - (once - of_failures)) / of_failures;
  if (!(of_failures > 0)) {
    diagnostics.add(at_setting("mtbf"),
                    "the generator draws no failures whose rate it could scale");
  } else if (!(rate > 0)) {
    diagnostics.add(at_setting("mtbf"),
                    fmt::format("without failures spot nodes alone interrupt the job each {:.3g} h",
                                1 / (once - of_failures) / 3600));
  } else if (rate > traces::kMostFailureRate) {
    const double most = once - of_failures + traces::kMostFailureRate * of_failures;
    diagnostics.add(
        at_setting("mtbf"),
        fmt::format("must be at least {:.3g} s, is {}", 1 / most, config::to_text(mtbf)),
        fmt::format("the generator's failures come at most {} times as often",
                    traces::kMostFailureRate));
  } else {
    one = with_rate(rate);
  }
}

/// Settings that judge plans and that replays do not have.
void refuse_judging(const RobustSettings& settings, Diagnostics& diagnostics) {
  for (const std::string& key : settings.judge.given) {
    if (key == "seed") continue;
    diagnostics.add(at_setting(key), "does not go with traces",
                    "replays simulate as `orrery replay` does");
  }
  if (!settings.judge.hardware.at_most.empty()) {
    diagnostics.add(at_setting("at_most"), "does not go with traces",
                    "leave the GPUs out of the cluster file");
  }
  if (!settings.judge.hardware.without.empty()) {
    diagnostics.add(at_setting("without"), "does not go with traces",
                    "a node that is never used is a spare; leave it out of the cluster file");
  }
}

}  // namespace

RobustResult robust_plan(const RobustSettings& settings, const Call& call,
                         config::Diagnostics problems) {
  const char* trace_key = settings.choices.trace_key;
  const models::Library library = open_library(problems);
  RunSpec spec = make_spec(settings.job, settings.judge, {}, problems);
  spec.work_budget = settings.work_budget.value_or(0);
  check_names(spec, library, problems);
  refuse_judging(settings, problems);
  const std::vector<OutputFile> outputs = {{"output", settings.output}};
  check_outputs(outputs, input_files(settings), problems);
  std::vector<ReplayPolicy> policies = policies_of(settings.choices, problems);
  if (settings.planners.empty() && settings.choices.plans.empty()) {
    problems.add(at_setting("planner"), "no planner is named, and no plan file",
                 "orrery list planners");
  }
  for (const std::string& name : settings.planners) {
    PlannerChoice choice;
    choice.name = {name, at_setting("planner")};
    check_planner(choice, problems);
  }
  ReplayCase one = case_of(settings, trace_key, spec, problems);
  problems.raise();
  for (const std::string& name : settings.planners) {
    PlannerChoice choice;
    choice.name = {name, at_setting("planner")};
    for (const auto& [option, value] : settings.options) {
      const bool known =
          std::any_of(settings.planners.begin(), settings.planners.end(),
                      [&option = option](const auto& each) { return knows_option(each, option); });
      if (known && !knows_option(name, option)) continue;
      choice.options[option] = value;
      choice.option_positions[option] = at_setting("option");
    }
    check_planner(choice, problems);
  }
  if (settings.planners.empty()) {
    spec.plan = {settings.choices.plans.front(), at_setting("plan")};
  } else {
    spec.planner = PlannerChoice{{settings.planners.front(), at_setting("planner")}, {}, {}};
  }
  LoadedRun run = load_run(spec, "", library, problems);
  run.plan.reset();
  problems.raise();
  if (settings.choices.mtbf) scale_failures(one, run.cluster, *settings.choices.mtbf, problems);
  LoadedReplayCase base = load_replay_case(one, "", library, problems);
  problems.raise();
  if (!base.traces.absent().empty()) {
    problems.add(at_setting(trace_key), fmt::format("no such file '{}'", base.traces.absent()),
                 "set ORRERY_DATA to the folder with the traces of others");
  }
  apply(settings.judge.hardware, base.cluster, problems);
  base.hashes.cluster = base.cluster.hash;
  if (settings.choices.objective == RobustObjective::tokens_per_dollar) {
    for (const models::GpuType& gpu : base.cluster.gpu_types) {
      const bool spot = settings.choices.prices == Prices::spot;
      if (gpu.price || (spot && gpu.spot_price)) continue;
      problems.add(at_setting("objective"), fmt::format("GPU {} has no price", gpu.name),
                   fmt::format("--price {}=2.50", gpu.name));
    }
  }
  for (const std::string& file : settings.choices.plans) {
    RunSpec of_plan = spec;
    of_plan.planner.reset();
    of_plan.plan = {file, at_setting("plan")};
    load_run(of_plan, "", library, problems);
  }
  problems.raise();
  const std::vector<Fleet> offered = offered_fleets(settings.choices, base, problems);
  problems.raise();
  probe_outputs(outputs);
  for (const std::string& note : substitute_notes(run.cluster, run.spec.job.dtype)) {
    call.note(note);
  }
  const Cancellation::Listener listener(call.cancellation);
  const auto answers = settings.judge.cache.open(call.on_note);
  const bool rent = settings.choices.rent.has_value();
  std::optional<models::PlanOrigin> made_for;
  if (!rent) made_for = origin_of(spec);  // A fleet is no file.
  const auto chosen_for = [&](const models::Cluster& cluster, RobustResult result) {
    if (settings.output && result.plan) {
      write_plan(*settings.output, *result.plan, cluster, made_for);
    }
    return result;
  };
  const models::Cluster cluster = run.cluster;
  RobustInputs inputs{settings,     call, std::move(run), std::move(base), std::move(policies),
                      answers.get()};
  RobustResult result = rent ? rented(inputs, offered, chosen_for)
                             : chosen_for(cluster, search_robust(std::move(inputs), 0));
  if (result.interrupted) call.note("interrupted: this is the best so far");
  return result;
}

}  // namespace orrery::experiments
