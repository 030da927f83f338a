/// `orrery list planners`: the catalog as a table of contents, in detail, and as docs/planners.md.
#pragma once
#include <string>

#include "tools/args.h"

namespace orrery::tools {

/// The planners that `args` names, or all of them; options only of those that are named. Throws
/// ConfigError for unknown names.
std::string list_planners(const ListArgs& args);

/// Throws ConfigError if flags are given that only `list planners` knows.
void refuse_planner_flags(const ListArgs& args);

}  // namespace orrery::tools
