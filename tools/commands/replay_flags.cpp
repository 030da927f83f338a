#include "tools/commands/replay_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "experiments/study/checks.h"
#include "experiments/study/inputs.h"
#include "experiments/study/study_files.h"
#include "models/base/hash.h"
#include "models/base/text.h"
#include "models/config/document.h"
#include "tools/cli/flags.h"
#include "tools/commands/run_folder.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;
using config::Value;
using experiments::ReplayPolicy;
using experiments::Study;

constexpr Days kDefaultDays{54};  ///< Of a generated trace: the Llama 3 snapshot.
constexpr std::int64_t kMostSeeds = 100'000;
/// Of drawn traces: fewer say little of what is left to chance.
constexpr std::int64_t kDefaultSeeds = 5;
/// Makes the first plan where policies are compared: its plans are uniform, so that nearly all run
/// them.
constexpr const char* kDefaultPlanner = "megatron_grid";
constexpr const char* kOwnPlans = "own";

std::vector<config::Located<ReplayPolicy>> policies_of(const ReplaySettings& args,
                                                       Diagnostics& diagnostics) {
  return experiments::named_policies(args.policies.value_or(std::vector<std::string>{"all"}),
                                     at_flag("--policy"), args.options, at_flag("--option"),
                                     diagnostics);
}

/// "5": seeds 0 to 4; "1,2,5": these. "7," is the seed 7 alone.
std::vector<std::int64_t> seeds_of(const std::string& text, Diagnostics& diagnostics) {
  std::vector<std::int64_t> seeds;
  if (text.find(',') == std::string::npos) {
    const std::int64_t count = experiments::whole_number(text, "seeds", 1, 1, diagnostics);
    if (count < 1) return {0};  // What is wrong was reported: no second problem.
    if (count > kMostSeeds) {
      diagnostics.add(at_flag("--seeds"), fmt::format("at most {}", kMostSeeds));
      return {0};
    }
    for (std::int64_t seed = 0; seed < count; ++seed) seeds.push_back(seed);
    return seeds;
  }
  for (const std::string& item : split(text, ',')) {
    const std::int64_t seed = experiments::whole_number(item, "seeds", 0, 0, diagnostics);
    if (std::find(seeds.begin(), seeds.end(), seed) != seeds.end()) {
      diagnostics.add(at_flag("--seeds"), fmt::format("{} appears twice", seed));
      continue;
    }
    seeds.push_back(seed);
  }
  if (seeds.empty()) {
    diagnostics.add(at_flag("--seeds"), "no seed", "as in 1,2,5");
    return {0};
  }
  return seeds;
}

/// Null where there are none.
Value settings_of(const ReplaySettings& args, Diagnostics& diagnostics) {
  Value base;
  for (const auto& [name, text] : args.settings) {
    if (base.is_null()) base = Value::map({}, at_flag("--set"));
    base = config::merge(std::move(base), name, Value::scalar(text, at_flag("--set")), diagnostics);
  }
  return base;
}

Value text_value(const std::string& text, const char* flag) {
  return Value::scalar(text, at_flag(flag));
}

Value trace_of(const ReplaySettings& args, Diagnostics& diagnostics) {
  Value trace = Value::map({}, at_flag(args.trace ? "--trace" : "--generate"));
  if (args.trace.has_value() == args.generate.has_value()) {
    diagnostics.add(at_flag(args.trace ? "--generate" : "--trace"),
                    args.trace ? "--trace and --generate exclude each other"
                               : "neither --trace nor --generate is given",
                    "for example --generate llama3");
    return trace;
  }
  if (args.trace) trace.append("file", text_value(*args.trace, "--trace"));
  if (args.format && !args.trace) {
    diagnostics.add(at_flag("--format"), "is for files (--trace)");
  } else if (args.format) {
    trace.append("format", text_value(*args.format, "--format"));
  }
  if (args.repeat && !args.trace) {
    diagnostics.add(at_flag("--repeat"), "is for files (--trace)");
  }
  if (args.generate) trace.append("generator", text_value(*args.generate, "--generate"));
  Value settings = settings_of(args, diagnostics);
  if (!settings.is_null()) trace.append("settings", std::move(settings));
  if (args.repeat) trace.append("repeat", text_value("true", "--repeat"));
  return trace;
}

/// Flags that a study file replaces.
void refuse_case_flags(const ReplaySettings& args, Diagnostics& diagnostics) {
  const auto refuse = [&](bool given, const char* flag) {
    if (given) diagnostics.add(at_flag(flag), fmt::format("the file {} says it", args.file));
  };
  refuse(args.job.cluster.has_value(), "--cluster");
  refuse(args.job.model.has_value(), "--model");
  refuse(args.job.job.has_value(), "--job");
  for (const auto& [key, path] : experiments::job_keys()) {
    refuse(args.job.gives(path), experiments::at_setting(key).file.c_str());
  }
  refuse(args.job.profile.has_value(), "--profile");
  refuse(args.job.scale_profile.has_value(), "--scale-profile");
  refuse(args.trace.has_value(), "--trace");
  refuse(args.generate.has_value(), "--generate");
  refuse(args.format.has_value(), "--format");
  refuse(args.repeat, "--repeat");
  refuse(!args.settings.empty(), "--set");
  refuse(args.plan.has_value(), "--plan");
  refuse(args.planner.has_value(), "--planner");
}

std::vector<Value> as_values(const std::vector<config::Located<ReplayPolicy>>& policies) {
  std::vector<Value> values;
  for (const auto& policy : policies) values.push_back(experiments::as_value(policy));
  return values;
}

/// In place of those that the study names, wherever it does, with the options that it gives them.
/// Options alone stay with the axes of options that the file has.
void set_policies(Study& study, const ReplaySettings& args, Diagnostics& diagnostics) {
  const std::vector<config::Located<ReplayPolicy>> named = policies_of(args, diagnostics);
  study.change_axis("policy", [&](const std::vector<Value>& before) {
    std::vector<config::Located<ReplayPolicy>> of_file;
    for (const Value& item : before) {
      config::Located<ReplayPolicy> policy;
      if (config::describe_value(item, policy, diagnostics)) of_file.push_back(std::move(policy));
    }
    return as_values(experiments::as_in_file(named, of_file));
  });
  if (args.policies) study.drop_option_axes(*args.policies);
}

Study study_of_file(const ReplaySettings& args, Diagnostics& diagnostics) {
  refuse_case_flags(args, diagnostics);
  const std::size_t before = diagnostics.problems().size();
  const std::string file = experiments::study_file(args.file, diagnostics);
  if (diagnostics.problems().size() != before) diagnostics.raise();
  Study study = experiments::load_study_of(file, "replay", diagnostics);
  if (study.command.value != "replay") diagnostics.raise();
  if (args.policies || !args.options.empty()) set_policies(study, args, diagnostics);
  return study;
}

/// Files go by their names without folder and ending.
std::string short_name(const std::string& name) {
  const fs::path path = name;
  const std::string ending = path.extension().string();
  const bool file = ending == ".yaml" || ending == ".yml" || ending == ".json";
  return file ? path.stem().string() : name;
}

Study study_of_flags(ReplaySettings args, Diagnostics& diagnostics) {
  if (args.plan) experiments::take_origin(experiments::ReadPlan(*args.plan), args.job);
  Study study;
  study.command = {"replay", {}};
  if (!args.job.cluster || args.job.cluster->empty()) {
    diagnostics.add(at_flag("--cluster"), "missing",
                    "for example --cluster a100_8; orrery list clusters; or give a study");
  }
  if (!args.job.model || args.job.model->empty()) {
    diagnostics.add(at_flag("--model"), "missing",
                    "for example --model llama2_13b; orrery list models");
  }
  const std::string cluster = args.job.cluster.value_or("");
  const std::string model = args.job.model.value_or("");
  Value& settings = study.settings;
  settings.append("cluster", text_value(cluster, "--cluster"));
  settings.append("model", text_value(model, "--model"));
  settings.append("job", config::to_value(experiments::make_job(args.job, nullptr, diagnostics)));
  if (args.job.profile) settings.append("profile", text_value(*args.job.profile, "--profile"));
  if (args.job.scale_profile) {
    settings.append("scale_profile", text_value(*args.job.scale_profile, "--scale-profile"));
  }
  const std::vector<config::Located<ReplayPolicy>> policies = policies_of(args, diagnostics);
  if (args.plan) settings.append("plan", text_value(*args.plan, "--plan"));
  const bool compares = experiments::expand_policies(policies).size() > 1 && !args.plan;
  const std::string planner = args.planner.value_or(compares ? kDefaultPlanner : kOwnPlans);
  if (planner != kOwnPlans) {
    Value choice = Value::map({}, at_flag("--planner"));
    choice.append("name", text_value(planner, "--planner"));
    settings.append("planner", std::move(choice));
  }
  settings.append("trace", trace_of(args, diagnostics));
  Value name = Value::map({});
  name.append("name", Value::scalar(short_name(cluster) + "/" + short_name(model)));
  study.set_axis("case", {std::move(name)});
  study.set_axis("policy", as_values(policies));
  const std::int64_t seeds = args.generate ? kDefaultSeeds : 1;  // A file is one trace.
  study.seeds = {{}, at_flag("--seeds")};
  for (std::int64_t seed = 0; seed < seeds; ++seed) study.seeds.value.push_back(seed);
  return study;
}

}  // namespace

Study study_of(const ReplaySettings& args, Diagnostics& diagnostics) {
  const bool file = !args.file.empty();
  Study study = file ? study_of_file(args, diagnostics) : study_of_flags(args, diagnostics);
  const auto set = [&](const char* setting, const std::string& text, const char* flag) {
    study.set(setting, text_value(text, flag));
  };
  if (args.seeds) study.seeds = {seeds_of(*args.seeds, diagnostics), at_flag("--seeds")};
  if (args.planning_time) {
    set("planning_time", experiments::name_of_enum(*args.planning_time), "--planning-time");
  }
  if (args.prices) set("prices", experiments::name_of_enum(*args.prices), "--prices");
  if (args.background_transfers) {
    set("background_transfers", experiments::name_of_enum(*args.background_transfers),
        "--background-transfers");
  }
  const auto& mtbf = args.expected_mtbf;  // What is wrong with it was reported.
  if (mtbf && *mtbf >= experiments::kLeastTime && *mtbf <= experiments::kLongestTime) {
    set("expected_mtbf", config::to_text(*mtbf), "--expected-mtbf");
  }
  for (const auto& [name, value] : args.runtime) {
    set(("runtime." + name).c_str(), value, "--runtime");
  }
  const bool generated = !file && args.generate.has_value();
  if (args.days || generated) {
    const bool usable = args.days && args.days->value > 0;  // What is wrong with it was reported.
    const Days days = usable ? *args.days : kDefaultDays;
    set("horizon", config::to_text(to_seconds(to_nanoseconds(days))), "--days");
  }
  if (study.command.value == "replay") experiments::resolve(study, diagnostics);
  if (!diagnostics.empty() || file) return study;
  // Calls that differ in anything have folders of their own; the same call goes on.
  study.hash = content_hash(config::dump(study));
  study.name = "replay/" + study.hash.substr(0, 12);
  return study;
}

}  // namespace orrery::tools
