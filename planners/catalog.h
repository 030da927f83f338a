/// All planners, by name. Explicit and constant: an object that nobody names would be dropped by
/// the linker without a word.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "planners/planner.h"

namespace orrery::planners {

std::span<const PlannerEntry* const> catalog();
/// nullptr when there is none of that name.
const PlannerEntry* find_planner(const std::string& name);
std::vector<std::string> planner_names();

/// For lists.
void describe(config::Visitor& v, OptionInfo& option);

}  // namespace orrery::planners
