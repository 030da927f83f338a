/// The flags of `orrery execute` and `orrery execute-agent`, but for those of the job.
#pragma once
#include "tools/cli/args.h"

namespace CLI {
class App;
}

namespace orrery::tools {

void add_execute(CLI::App& app, ExecuteArgs& args);
void add_execute_agent(CLI::App& app, ExecuteAgentArgs& args);

}  // namespace orrery::tools
