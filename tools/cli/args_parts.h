/// Flags that several commands take, and the commands whose flags have a file of their own.
#pragma once
#include <string>

#include "tools/cli/args.h"

namespace CLI {
class App;
}

namespace orrery::tools {

/// The example at the end of a command's help; a test runs it from the root of the repository.
std::string example(const std::string& command);

/// JobArgs. `batch_from_plan`: the global batch defaults to the plan's.
void add_job(CLI::App& app, JobArgs& job, bool batch_from_plan);
void add_json(CLI::App& app, bool& json);

void add_replay(CLI::App& app, ReplayArgs& args);

}  // namespace orrery::tools
