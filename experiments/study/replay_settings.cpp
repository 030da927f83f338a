#include "experiments/study/replay_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "experiments/study/checks.h"
#include "planners/recovery/catalog.h"
#include "traces/trace.h"

namespace orrery::experiments {
namespace {

using config::Value;

constexpr const char* kAll = "all";
constexpr Seconds kLeastTime{1e-3};
constexpr Seconds kLongestTime = to_seconds(Nanoseconds{traces::kLongestTime});

bool has_option(const std::string& policy, const std::string& option) {
  const planners::RecoveryEntry* entry = planners::find_policy(policy);
  if (entry == nullptr) return false;
  const auto options = entry->options();
  return std::any_of(options.begin(), options.end(),
                     [&](const planners::OptionInfo& info) { return info.name == option; });
}

config::Position position_of(const ReplayPolicy& policy, const std::string& option,
                             config::Position otherwise) {
  const auto place = policy.option_positions.find(option);
  return place == policy.option_positions.end() ? otherwise : place->second;
}

}  // namespace

std::vector<std::pair<TraceStart, const char*>> enum_names(TraceStart) {
  return {{TraceStart::file, "file"}, {TraceStart::seed, "seed"}};
}
std::vector<std::pair<PlanningTime, const char*>> enum_names(PlanningTime) {
  return {{PlanningTime::fixed, "fixed"}, {PlanningTime::measured, "measured"}};
}
std::vector<std::pair<Prices, const char*>> enum_names(Prices) {
  return {{Prices::on_demand, "on_demand"}, {Prices::spot, "spot"}};
}
std::vector<std::pair<BackgroundTransfers, const char*>> enum_names(BackgroundTransfers) {
  return {{BackgroundTransfers::ignored, "ignored"}, {BackgroundTransfers::simulated, "simulated"}};
}

bool from_scalar(const std::string& text, ReplayPolicy& out, std::string&) {
  out.name = text;
  return true;
}

void describe(config::Visitor& v, ReplayPolicy& policy) {
  v.title("Policy");
  v.required("name", policy.name, "see `orrery list policies`; on an axis also all: every one");
  v.optional("label", policy.label, "in tables and figures; absent: the name");
  describe_options(v, policy.options, policy.option_positions,
                   "options of the policy by name; absent ones have their defaults");
}

void describe(config::Visitor& v, ReplayTrace& trace) {
  v.title("Trace");
  v.optional("file", trace.file, "trace file next to this one, or $ORRERY_DATA/...");
  v.optional("format", trace.format, "of the file, as for `orrery trace import`; absent: our own");
  v.optional("generator", trace.generator, "instead of a file");
  v.optional("settings", trace.settings, "of the generator, or of the reader of the format");
  v.optional("repeat", trace.repeat, "a file that ends before the horizon starts again");
  v.optional(
      "start", trace.start,
      "where in a file a replay begins: with the file (default), or at a time drawn from the "
      "seed, so that each seed sees another stretch of it");
  if (!v.reading() || !v.good()) return;
  if (trace.file.has_value() == trace.generator.has_value()) {
    v.problem("", "a trace has either `file` or `generator`");
  } else if (trace.format && !trace.file) {
    v.problem("format", "`format` is for files");
  } else if (trace.start && !trace.file) {
    v.problem("start", "`start` is for files");
  }
}

void describe(config::Visitor& v, ReplayCase& one) {
  describe_job(v, one);
  describe_profile(v, one);
  v.optional("plan", one.plan, "plan file to begin with; absent: the policy's own");
  v.required("trace", one.trace, "what happens to the cluster");
  v.optional("runtime", one.runtime,
             "what it takes to notice, to start, to connect and to plan, for every policy");
  v.optional("nodes", one.nodes, "so many of the cluster's nodes, the first ones; absent: all");
  v.optional("horizon", one.horizon, "how long is replayed; absent: the whole trace");
  v.optional("expected_mtbf", one.expected_mtbf,
             "mean time between interruptions that policies count on for checkpoint intervals and "
             "the like; absent: the generator's, or for a trace file what was seen so far");
  v.optional("ignore_leaves", one.ignore_leaves,
             "nodes of different leaves are simulated as interchangeable: for large clusters");
  if (one.nodes) v.positive("nodes", *one.nodes);
  if (one.expected_mtbf) v.between("expected_mtbf", *one.expected_mtbf, kLeastTime, kLongestTime);
  if (one.horizon) v.between("horizon", *one.horizon, kLeastTime, kLongestTime);
}

void describe(config::Visitor& v, ReplayRun& run) {
  v.title("Replay");
  v.doc("A recovery policy on a trace: what it keeps of the time, and what it costs.");
  describe(v, run.what);
  v.required("policy", run.policy, "by its name, or with options");
  v.optional("planning_time", run.how.planning_time,
             "of policies that search plans: what they say, or what it took (not reproducible)");
  v.optional("prices", run.how.prices, "of GPUs for which the trace names none");
  v.optional("background_transfers", run.how.background_transfers,
             "copies of checkpoints during training: simulated, they slow the iterations of their "
             "time; ignored halves the simulations and flatters policies that copy much");
  v.optional("seed", run.how.seed, "of the trace, and of searches");
}

std::vector<config::Located<ReplayPolicy>> expand_policies(
    const std::vector<config::Located<ReplayPolicy>>& policies) {
  std::vector<config::Located<ReplayPolicy>> expanded;
  const auto add = [&](const config::Located<ReplayPolicy>& policy) {
    const auto same = std::find_if(expanded.begin(), expanded.end(), [&](const auto& each) {
      return each.value.shown() == policy.value.shown();
    });
    if (same == expanded.end()) expanded.push_back(policy);
  };
  for (const auto& policy : policies) {
    if (policy.value.name != kAll) add(policy);
  }
  const auto all = std::find_if(policies.begin(), policies.end(),
                                [](const auto& p) { return p.value.name == kAll; });
  if (all == policies.end() && !policies.empty()) return expanded;
  for (const std::string& name : planners::policy_names()) {
    ReplayPolicy policy;
    policy.name = name;
    add({policy, all == policies.end() ? config::Position{} : all->at});
  }
  if (all == policies.end()) return expanded;
  for (auto& [policy, at] : expanded) {
    for (const auto& [name, value] : all->value.options) {
      if (!has_option(policy.name, name)) continue;
      policy.options.try_emplace(name, value);  // its own value counts more
      policy.option_positions.try_emplace(name, position_of(all->value, name, all->at));
    }
  }
  return expanded;
}

std::vector<std::string> options_not_of_all(
    const std::vector<config::Located<ReplayPolicy>>& policies) {
  std::vector<std::string> notes;
  for (const auto& one : policies) {
    if (one.value.name != kAll) continue;
    for (const auto& [name, value] : one.value.options) {
      std::vector<std::string> without;
      for (const auto& [policy, at] : expand_policies(policies)) {
        if (!has_option(policy.name, name)) without.push_back(policy.shown());
      }
      if (without.empty()) continue;
      notes.push_back(fmt::format("option {}={} of all: {} {} no such option", name, value,
                                  fmt::join(without, ", "), without.size() > 1 ? "have" : "has"));
    }
  }
  return notes;
}

config::Value as_value(const config::Located<ReplayPolicy>& policy) {
  Value map = Value::map({}, policy.at);
  map.append("name", Value::scalar(policy.value.name, policy.at));
  if (!policy.value.label.empty()) {
    map.append("label", Value::scalar(policy.value.label, policy.at));
  }
  Value options = Value::map({}, policy.at);
  for (const auto& [name, text] : policy.value.options) {
    const auto place = policy.value.option_positions.find(name);
    options.append(
        name, Value::scalar(
                  text, place == policy.value.option_positions.end() ? policy.at : place->second));
  }
  if (!options.entries.empty()) map.append("options", std::move(options));
  return map;
}

void check_policy(const config::Located<ReplayPolicy>& located, config::Diagnostics& diagnostics) {
  const auto& [policy, at] = located;
  if (policy.name == kAll) {
    if (!policy.label.empty()) {
      diagnostics.add(at, "`all` takes no label", "also name the policy that has it");
    }
    const std::vector<std::string> names = planners::policy_names();
    for (const auto& [name, value] : policy.options) {
      const bool known = std::any_of(names.begin(), names.end(), [&](const std::string& each) {
        return has_option(each, name);
      });
      if (known) continue;
      diagnostics.add(position_of(policy, name, at),
                      fmt::format("no policy has an option '{}'", name),
                      "orrery list policies NAME shows those of a policy");
    }
    return;
  }
  const planners::RecoveryEntry* entry = planners::find_policy(policy.name);
  if (entry == nullptr) {
    diagnostics.add(at, fmt::format("unknown policy '{}'", policy.name),
                    planners::unknown_policy_hint(policy.name));
    return;
  }
  std::vector<std::string> known;
  for (const planners::OptionInfo& info : entry->options()) known.emplace_back(info.name);
  for (const auto& [name, value] : policy.options) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    diagnostics.add(position_of(policy, name, at),
                    fmt::format("policy '{}' has no option '{}'", policy.name, name),
                    known.empty() ? "it has none" : config::suggest(name, known, "options"));
  }
}

void check_policy_values(const ReplayPolicy& policy, config::Position at,
                         config::Diagnostics& diagnostics) {
  const planners::RecoveryEntry* entry = planners::find_policy(policy.name);
  if (entry == nullptr) return;
  const config::Diagnostics found = entry->check({policy.options.begin(), policy.options.end()});
  for (const config::Problem& problem : found.problems()) {
    const std::string& name = problem.at.file;
    if (!has_option(policy.name, name)) continue;
    diagnostics.add(position_of(policy, name, at),
                    fmt::format("policy '{}', option '{}': {}", policy.name, name, problem.what),
                    problem.hint);
  }
}

}  // namespace orrery::experiments
