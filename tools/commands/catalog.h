/// All commands, in the order of `orrery --help`.
#pragma once
#include <span>

#include "tools/cli/command.h"

namespace orrery::tools {

std::span<const Command* const> commands();
std::span<const CommandGroup> command_groups();

}  // namespace orrery::tools
