/// Commands of the command line (tools/commands/catalog.h) as functions: what Python needs to make
/// them, and how a session runs one.
#pragma once
#include <string>

#include "tools/python/channel.h"

namespace orrery::python {

/// In a session: runs a command of the catalog and answers over the channel, with progress and
/// notes before that. `bytes`: name and settings.
void run_command(const Channel& channel, const std::string& bytes);

}  // namespace orrery::python
