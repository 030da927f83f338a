/// All recovery policies, by name. Explicit and constant, as the catalog of planners.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "planners/recovery/recovery.h"

namespace orrery::planners {

std::span<const RecoveryEntry* const> recovery_catalog();
/// nullptr when there is none of that name.
const RecoveryEntry* find_policy(const std::string& name);
std::vector<std::string> policy_names();

}  // namespace orrery::planners
