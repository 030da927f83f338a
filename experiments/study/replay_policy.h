/// Recovery policies by name and options, as studies and flags give them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/config/value.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

/// A policy with options, or just its name: `checkpoint_restart`.
struct ReplayPolicy {
  std::string name;        ///< Of the catalog; on an axis also `all`: every one, with its defaults.
  std::string label = {};  ///< In tables and figures; empty: the name.
  std::map<std::string, std::string> options = {};
  std::map<std::string, config::Position> option_positions = {};  ///< Where a file gives them.
  const std::string& shown() const { return label.empty() ? name : label; }
};

/// "autohet": a policy by its name alone.
bool from_scalar(const std::string& text, ReplayPolicy& out, std::string& error);
void describe(config::Visitor& v, ReplayPolicy& policy);

/// Policies as flags name them: `names`, and `options` as POLICY.NAME or all.NAME. An option of a
/// policy that is not named goes with `all`, or is a problem; an option of `all`, without `all`
/// among the names, goes to each that has it. Problems are at the flags; names and options of a
/// single policy are left to check_policy().
std::vector<config::Located<ReplayPolicy>> named_policies(
    const std::vector<std::string>& names, const config::Position& names_at,
    const std::map<std::string, std::string>& options, const config::Position& options_at,
    config::Diagnostics& diagnostics);

/// The policies of a list, `all` and an empty one expanded, each once. Options of `all` go to every
/// policy that has them and does not set them itself.
std::vector<config::Located<ReplayPolicy>> expand_policies(
    const std::vector<config::Located<ReplayPolicy>>& policies);

/// Policies that flags name, with what a file says of them: each as often as the file has it, with
/// its labels and options, over which those of the flags go; else with the options of the file's
/// `all`. A named `all` also stands for all of the file.
std::vector<config::Located<ReplayPolicy>> as_in_file(
    const std::vector<config::Located<ReplayPolicy>>& named,
    const std::vector<config::Located<ReplayPolicy>>& file);

/// For each option of `all` the policies that have no such option, in words.
std::vector<std::string> options_not_of_all(
    const std::vector<config::Located<ReplayPolicy>>& policies);

/// A policy as a file would say it, at its places.
config::Value as_value(const config::Located<ReplayPolicy>& policy);

/// Unknown policies and unknown options, at the policy where the option has no place of its own.
void check_policy(const config::Located<ReplayPolicy>& policy, config::Diagnostics& diagnostics);
/// Values that the policy refuses, of a policy and options that check_policy() accepts.
void check_policy_values(const ReplayPolicy& policy, const config::Position& at,
                         config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
