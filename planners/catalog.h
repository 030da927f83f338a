/// All planners, by name: those built in, each named in catalog.cpp, as the linker would drop an
/// object that nobody names without a word; then those of modules (planners/modules).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "planners/planner.h"

namespace orrery::planners {

std::span<const PlannerEntry* const> catalog();
/// nullptr when there is none of that name, in the catalog or of set_planner_source().
const PlannerEntry* find_planner(const std::string& name);
std::vector<std::string> planner_names();

/// For lists.
void describe(config::Visitor& v, OptionInfo& option);

/// Where the entries of names like "file.py:Class" come from, which no catalog has: the package
/// orrery of Python says so once, before anything runs. Throws ConfigError if there is none.
using PlannerSource = const PlannerEntry* (*)(const std::string& name);
void set_planner_source(PlannerSource source);
/// Whether a name of a planner or policy means a class of Python.
bool names_python(const std::string& name);
/// How to come by one, where no source is set.
inline constexpr const char* kPythonHint =
    "written in Python: tools/orrery, or python3 -m orrery, knows it in place of this program";

}  // namespace orrery::planners
