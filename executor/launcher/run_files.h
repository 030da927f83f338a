/// Files that a run leaves behind. Private to executor/launcher.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "models/ir/run_log.h"

namespace orrery::executor {

/// out/generation-<g>/{program.pb, run.log, timeline.perfetto-trace}. `node_of` names the machine
/// of a device, as a number and in words. Throws std::runtime_error.
void write_generation(const std::string& out, const ir::Program& program, const ir::RunLog& log,
                      const std::function<int(DeviceId)>& node_of,
                      const std::function<std::string(int)>& node_name);

/// out/losses.csv: a row for each finished step. Throws std::runtime_error.
void write_losses(const std::string& out, const std::vector<StepLine>& steps);

}  // namespace orrery::executor
