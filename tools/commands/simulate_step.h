/// `orrery simulate` with a step plan: the phases of one step of mixed lengths.
#pragma once
#include "tools/cli/args.h"

namespace orrery::tools {

/// Simulates the one file of `args.plans`, a step plan; prints a row for each phase. Flags that say
/// how an iteration is judged or exported are refused: they do not exist here.
int simulate_step_plan(const SimulateArgs& args);

}  // namespace orrery::tools
