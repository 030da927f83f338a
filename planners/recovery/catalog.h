/// All recovery policies, by name, as the catalog of planners: built in, then those of modules.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "planners/recovery/recovery.h"

namespace orrery::planners {

std::span<const RecoveryEntry* const> recovery_catalog();
/// nullptr when there is none of that name, in the catalog or of set_policy_source().
const RecoveryEntry* find_policy(const std::string& name);
std::vector<std::string> policy_names();
/// What a message about a name that find_policy() does not find should add.
std::string unknown_policy_hint(const std::string& name);

/// As PlannerSource.
using PolicySource = const RecoveryEntry* (*)(const std::string& name);
void set_policy_source(PolicySource source);

}  // namespace orrery::planners
