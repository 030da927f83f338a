/// `orrery list policies`: the catalog of recovery policies as a table of contents, in detail, and
/// as docs/recovery.md.
#pragma once
#include <string>

#include "tools/commands/catalog_text.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

/// The policies that `args` names, or all of them; options only of those that are named. Throws
/// ConfigError for unknown names.
std::string list_policies(const ListSettings& args);

}  // namespace orrery::tools
