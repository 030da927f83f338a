#include "experiments/execution/twin_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "experiments/study/points.h"
#include "experiments/study/run_spec.h"
#include "experiments/study/study.h"
#include "experiments/study/twin_settings.h"
#include "models/base/file.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/spec/library.h"
#include "planners/recovery/catalog.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

bool is_plain(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

/// A path seen from the manifest; a name of the library stays.
std::string resolved(const std::string& folder, const std::string& name) {
  const fs::path path = fs::path(folder) / name;
  std::error_code error;
  return fs::exists(path, error) ? path.lexically_normal().string() : name;
}

void check_plan(TwinPlan& plan, const std::string& folder, config::Diagnostics& diagnostics) {
  if (plan.plan.has_value() == plan.planner.has_value()) {
    diagnostics.add(plan.name.at, "needs either a plan or a planner");
    return;
  }
  if (plan.plan) {
    plan.plan->value = (fs::path(folder) / plan.plan->value).lexically_normal().string();
    std::error_code error;
    if (!fs::is_regular_file(plan.plan->value, error)) {
      diagnostics.add(plan.plan->at, fmt::format("no such plan '{}'", plan.plan->value));
    }
    return;
  }
  PlannerChoice choice{*plan.planner, plan.options, {}};
  check_planner(choice, diagnostics);
}

/// Jobs of plans must be there and be like the manifest's in what the machine is measured for.
void check_jobs(TwinManifest& manifest, config::Diagnostics& diagnostics) {
  std::error_code error;
  config::Diagnostics of_base;  // Said where the manifest's job is loaded.
  const bool any = std::any_of(manifest.plans.begin(), manifest.plans.end(),
                               [](const TwinPlan& plan) { return plan.job.has_value(); });
  if (!any) return;
  const models::Job base = models::load_job(manifest.job.value, of_base);
  for (TwinPlan& plan : manifest.plans) {
    if (!plan.job) continue;
    plan.job->value = resolved(manifest.folder, plan.job->value);
    if (!fs::is_regular_file(plan.job->value, error)) {
      diagnostics.add(plan.job->at, fmt::format("no such job '{}'", plan.job->value));
      continue;
    }
    const std::size_t before = diagnostics.problems().size();
    const models::Job own = models::load_job(plan.job->value, diagnostics);
    if (!of_base.empty() || diagnostics.problems().size() != before) continue;
    if (own.sequence_length != base.sequence_length) {
      diagnostics.add(plan.job->at,
                      fmt::format("job: sequence length {}, the manifest's job has {}",
                                  own.sequence_length, base.sequence_length));
    }
    if (own.dtype != base.dtype) {
      diagnostics.add(plan.job->at, fmt::format("job: dtype {}, the manifest's job has {}",
                                                ir::name_of(own.dtype), ir::name_of(base.dtype)));
    }
  }
}

void check_recovery(const TwinRecovery& recovery, const std::set<std::string>& plans,
                    std::int64_t steps, config::Diagnostics& diagnostics) {
  if (!plans.contains(recovery.plan.value)) {
    diagnostics.add(recovery.plan.at,
                    fmt::format("no plan of this manifest is called '{}'", recovery.plan.value),
                    config::suggest(recovery.plan.value, {plans.begin(), plans.end()}, "plans"));
  }
  if (planners::find_policy(recovery.policy.value) == nullptr) {
    diagnostics.add(recovery.policy.at, fmt::format("unknown policy '{}'", recovery.policy.value),
                    planners::unknown_policy_hint(recovery.policy.value));
  }
  if (recovery.kill.value.step > steps) {
    diagnostics.add(recovery.kill.at,
                    fmt::format("kill: step {} of {}", recovery.kill.value.step, steps));
  }
}

/// What all runs say alike; one that says otherwise is a problem.
void take_common(const TwinRunSettings& run, bool first, TwinManifest& manifest,
                 config::Diagnostics& diagnostics) {
  if (first) {
    manifest.cluster = run.cluster;
    manifest.model = run.model;
    manifest.profile = run.profile;
    manifest.steps = run.steps;
    manifest.warm_up = run.warm_up;
    manifest.seed = run.seed;
    return;
  }
  const auto text = [](const std::optional<config::Located<std::string>>& value) {
    return value ? value->value : std::string();
  };
  if (run.cluster.value != manifest.cluster.value || run.model.value != manifest.model.value ||
      text(run.profile) != text(manifest.profile) || run.steps != manifest.steps ||
      run.warm_up != manifest.warm_up || run.seed != manifest.seed) {
    diagnostics.add(run.cluster.at,
                    "runs of one twin have one cluster, model, profile, seed and number of steps",
                    "make several studies of it");
  }
}

/// The study's runs as plans and recoveries.
void take_runs(const Study& study, TwinManifest& manifest, config::Diagnostics& diagnostics) {
  const config::Value* job = study.settings.find("job");
  if (job == nullptr || !job->is_scalar()) {
    diagnostics.add(study.settings.at, "missing key 'job' in `settings`", "a job file");
    return;
  }
  manifest.job = {job->text, job->at};
  bool first = true;
  for (const auto& [point, run] : read_settings<TwinRunSettings>(
           expand(study, diagnostics), diagnostics, [](const auto&, const auto&) {})) {
    take_common(run, std::exchange(first, false), manifest, diagnostics);
    const config::Located<std::string> name{point.on("run"), point.at};
    if (run.from) {
      TwinRecovery recovery{name, *run.from, *run.policy, {{}, run.kill->at}, run.fit};
      std::string error;
      if (!from_scalar(run.kill->value, recovery.kill.value, error)) {
        diagnostics.add(run.kill->at, error);
      }
      manifest.recoveries.push_back(std::move(recovery));
      continue;
    }
    TwinPlan plan;
    plan.name = name;
    plan.plan = run.plan;
    plan.fit = run.fit;
    plan.seen = run.seen;
    if (run.planner) {
      plan.planner = run.planner->name;
      plan.options = run.planner->options;
    }
    if (run.job.value != job->text) plan.job = run.job;
    manifest.plans.push_back(std::move(plan));
  }
}

}  // namespace

TwinManifest load_twin_manifest(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  std::error_code error;
  const std::string file =
      fs::is_directory(path, error) ? (fs::path(path) / kStudyFile).string() : path;
  const Study study = load_study(file, diagnostics);
  TwinManifest manifest;
  if (diagnostics.problems().size() != before) return manifest;
  const std::string prefix = "twin/";
  if (study.command.value != "twin") {
    diagnostics.add(study.command.at,
                    fmt::format("a study of `{}`, not of `twin`", study.command.value),
                    "orrery run runs it");
  } else if (!study.name.starts_with(prefix) || !is_plain(study.name.substr(prefix.size()))) {
    diagnostics.add({file, 0, 0}, fmt::format("'{}' is no name of a twin", study.name),
                    "twin/ and a plain word: a-z, 0-9, _ and - only");
  } else {
    take_runs(study, manifest, diagnostics);
  }
  if (diagnostics.problems().size() != before) return manifest;
  manifest.name = study.name.substr(prefix.size());
  manifest.folder = study.folder;
  manifest.hash = study.hash;
  for (auto* name : {&manifest.cluster, &manifest.model, &manifest.job}) {
    name->value = resolved(manifest.folder, name->value);
  }
  if (manifest.profile) {
    manifest.profile->value = resolved(manifest.folder, manifest.profile->value);
    if (!fs::is_regular_file(manifest.profile->value, error)) {
      diagnostics.add(manifest.profile->at,
                      fmt::format("no such profile '{}'", manifest.profile->value),
                      "without one the machine is measured");
    }
  }
  std::set<std::string> names;
  std::set<std::string> plans;
  const auto check_name = [&](const config::Located<std::string>& name) {
    if (!is_plain(name.value)) {
      diagnostics.add(name.at, fmt::format("'{}' is no plain word", name.value),
                      "a-z, 0-9, _ and - only");
    }
    if (!names.insert(name.value).second) {
      diagnostics.add(name.at, fmt::format("'{}' is named twice", name.value));
    }
  };
  for (TwinPlan& plan : manifest.plans) {
    check_name(plan.name);
    plans.insert(plan.name.value);
    check_plan(plan, manifest.folder, diagnostics);
  }
  check_jobs(manifest, diagnostics);
  for (const TwinPlan& plan : manifest.plans) {
    if (plan.seen && plan.fit) {
      diagnostics.add(plan.seen->at, "seen: a run for fitting is none of the predicted ones");
    }
    if (plan.seen && plan.seen->value.empty()) {
      diagnostics.add(plan.seen->at, "seen: no reason is given");
    }
  }
  for (const TwinRecovery& recovery : manifest.recoveries) {
    check_name(recovery.name);
    check_recovery(recovery, plans, manifest.steps, diagnostics);
  }
  return manifest;
}

}  // namespace orrery::experiments
