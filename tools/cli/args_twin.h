/// The flags of `orrery compare` and `orrery twin`.
#pragma once
#include "tools/cli/args.h"

namespace CLI {
class App;
}

namespace orrery::tools {

void add_compare(CLI::App& app, CompareArgs& args);
void add_twin(CLI::App& app, TwinArgs& args);

}  // namespace orrery::tools
