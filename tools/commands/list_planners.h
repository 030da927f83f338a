/// `orrery list planners` and `orrery list step-planners`: the catalogs as a table of contents, in
/// detail, and as docs/planners.md.
#pragma once
#include <string>

#include "tools/commands/catalog_text.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

/// The planners that `args` names, or all of them; options only of those that are named. Throws
/// ConfigError for unknown names.
std::string list_planners(const ListSettings& args);

/// The same for planners of steps with sequences of mixed lengths, which have no options; with
/// --markdown their part of docs/planners.md.
std::string list_step_planners(const ListSettings& args);

/// Throws ConfigError if flags are given that only the lists of planners and policies know.
void refuse_planner_flags(const ListSettings& args);

}  // namespace orrery::tools
