/// The flags of `orrery calibrate`.
#pragma once
#include "tools/cli/args.h"

namespace CLI {
class App;
}

namespace orrery::tools {

void add_calibrate(CLI::App& app, CalibrateArgs& args);

}  // namespace orrery::tools
