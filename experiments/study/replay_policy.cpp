#include "experiments/study/replay_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "experiments/study/checks.h"
#include "planners/recovery/catalog.h"

namespace orrery::experiments {
namespace {

using config::Value;

constexpr const char* kAll = "all";

bool has_option(const std::string& policy, const std::string& option) {
  const planners::RecoveryEntry* entry = planners::find_policy(policy);
  if (entry == nullptr) return false;
  const auto options = entry->options();
  return std::any_of(options.begin(), options.end(),
                     [&](const planners::OptionInfo& info) { return info.name == option; });
}

config::Position position_of(const ReplayPolicy& policy, const std::string& option,
                             const config::Position& otherwise) {
  const auto place = policy.option_positions.find(option);
  return place == policy.option_positions.end() ? otherwise : place->second;
}

}  // namespace

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

std::vector<config::Located<ReplayPolicy>> named_policies(
    const std::vector<std::string>& names, const config::Position& names_at,
    const std::map<std::string, std::string>& options, const config::Position& options_at,
    config::Diagnostics& diagnostics) {
  std::vector<config::Located<ReplayPolicy>> policies;
  const auto find = [&](const std::string& name) {
    return std::find_if(policies.begin(), policies.end(),
                        [&](const auto& each) { return each.value.name == name; });
  };
  const auto add = [&](const std::string& name, const config::Position& at) {
    policies.push_back({ReplayPolicy{.name = name}, at});
  };
  for (const std::string& name : names) {
    if (find(name) != policies.end()) {
      diagnostics.add(names_at, fmt::format("'{}' appears twice", name));
      continue;
    }
    add(name, names_at);
  }
  if (policies.empty()) diagnostics.add(names_at, "no policy is named");
  for (const auto& [key, value] : options) {
    const std::size_t dot = key.find('.');
    if (dot == std::string::npos || dot == 0) {
      diagnostics.add(
          options_at, fmt::format("'{}={}' is not POLICY.NAME=VALUE", key, value),
          fmt::format("for example {} checkpoint_restart.interval=600", options_at.file));
      continue;
    }
    const std::string name = key.substr(0, dot);
    const std::string option = key.substr(dot + 1);
    const auto set = [&, &value = value](ReplayPolicy& policy) {
      policy.options[option] = value;
      policy.option_positions[option] = options_at;
    };
    if (find(name) == policies.end() && name == kAll) {
      bool known = false;  // To any: one that none of the named has is a problem.
      for (auto& policy : policies) {
        if (!has_option(policy.value.name, option)) continue;
        known = true;
        if (!policy.value.options.contains(option)) set(policy.value);  // Its own counts more.
      }
      if (!known) {
        diagnostics.add(options_at, fmt::format("no policy of {} has '{}'", names_at.file, option),
                        "orrery list policies NAME");
      }
      continue;
    }
    if (find(name) == policies.end()) {
      if (find(kAll) == policies.end()) {
        diagnostics.add(options_at,
                        fmt::format("'{}' is not among the policies of {}", name, names_at.file));
        continue;
      }
      add(name, options_at);
    }
    set(find(name)->value);
  }
  return policies;
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

std::vector<config::Located<ReplayPolicy>> as_in_file(
    const std::vector<config::Located<ReplayPolicy>>& named,
    const std::vector<config::Located<ReplayPolicy>>& file) {
  std::vector<config::Located<ReplayPolicy>> policies;
  const auto is_named = [&](const std::string& name) {
    return std::any_of(named.begin(), named.end(),
                       [&](const auto& each) { return each.value.name == name; });
  };
  const auto add = [&](config::Located<ReplayPolicy> policy, const ReplayPolicy& over) {
    for (const auto& [option, value] : over.options) {
      if (over.name == kAll && policy.value.name != kAll &&
          !has_option(policy.value.name, option)) {
        continue;
      }
      policy.value.options[option] = value;
      policy.value.option_positions[option] = over.option_positions.at(option);
    }
    policies.push_back(std::move(policy));
  };
  const auto all = std::find_if(file.begin(), file.end(),
                                [](const auto& each) { return each.value.name == kAll; });
  for (const auto& one : named) {
    bool there = false;
    for (const auto& of_file : file) {
      const bool same = of_file.value.name == one.value.name;
      there |= same;
      if (same || (one.value.name == kAll && !is_named(of_file.value.name))) {
        add(of_file, one.value);
      }
    }
    if (there) continue;
    config::Located<ReplayPolicy> plain{ReplayPolicy{.name = one.value.name}, one.at};
    if (all != file.end()) {
      for (const auto& [option, value] : all->value.options) {
        if (!has_option(one.value.name, option)) continue;
        plain.value.options[option] = value;
        plain.value.option_positions[option] = position_of(all->value, option, all->at);
      }
    }
    add(std::move(plain), one.value);
  }
  return policies;
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
      const bool known =
          std::any_of(names.begin(), names.end(),
                      [&name = name](const std::string& each) { return has_option(each, name); });
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

void check_policy_values(const ReplayPolicy& policy, const config::Position& at,
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
