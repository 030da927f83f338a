#include "experiments/execution/twin_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "experiments/study/run_spec.h"
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

}  // namespace

void describe(config::Visitor& v, TwinPlan& plan) {
  v.title("Plan to execute");
  v.required("name", plan.name, "of its results");
  v.optional("plan", plan.plan, "file, seen from here");
  v.optional("planner", plan.planner, "makes the plan (orrery list planners)");
  v.optional("options", plan.options, "of the planner");
  v.optional("job", plan.job, "file in place of the manifest's job");
  v.optional("fit", plan.fit, "its run is for fitting; the others are predicted");
  v.optional("seen", plan.seen,
             "why it is no unseen run: what was changed after a look at it; it is in no mean of "
             "predicted runs");
}

void describe(config::Visitor& v, TwinRecovery& recovery) {
  v.title("Run that loses a device");
  v.required("name", recovery.name, "of its results");
  v.required("plan", recovery.plan, "name of the plan to begin with");
  v.required("policy", recovery.policy, "that says how to go on (orrery list policies)");
  v.required("kill", recovery.kill, "RANK@STEP");
  v.optional("fit", recovery.fit, "its phases are for fitting; those of the others are predicted");
}

void describe(config::Visitor& v, TwinManifest& manifest) {
  v.schema("orrery/twin", 1);
  v.title("Twin");
  v.doc("Plans to execute on one cluster, and to predict.");
  v.required("name", manifest.name, "folder under results/twin");
  v.required("cluster", manifest.cluster, "whose nodes are emulated");
  v.required("model", manifest.model, "name or file");
  v.required("job", manifest.job, "file");
  v.optional("profile", manifest.profile, "of this machine; absent: it is measured");
  v.optional("steps", manifest.steps, "of each run");
  v.optional("warm_up", manifest.warm_up, "first steps that do not count");
  v.optional("seed", manifest.seed, "of weights, data, faults and planners");
  v.required("plans", manifest.plans, "to execute");
  v.optional("recoveries", manifest.recoveries, "runs that lose a device");
  v.at_least("steps", manifest.steps, std::int64_t{2});
  v.not_negative("warm_up", manifest.warm_up);
  v.not_negative("seed", manifest.seed);
  if (v.reading() && v.given("name") && !is_plain(manifest.name)) {
    v.problem("name", fmt::format("'{}' is no plain word: a-z, 0-9, _ and - only", manifest.name));
  }
  if (v.reading() && manifest.warm_up >= manifest.steps) {
    v.problem("warm_up",
              fmt::format("{} of {} steps leave none", manifest.warm_up, manifest.steps));
  }
}

TwinManifest load_twin_manifest(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  std::error_code error;
  const std::string file =
      fs::is_directory(path, error) ? (fs::path(path) / "manifest.yaml").string() : path;
  TwinManifest manifest = config::load_file<TwinManifest>(file, diagnostics);
  if (diagnostics.problems().size() != before) return manifest;
  manifest.folder = fs::path(file).parent_path().string();
  std::string text;
  if (const auto problem = read_file(file, text)) diagnostics.add({file, 0, 0}, *problem);
  manifest.hash = content_hash(text);
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
