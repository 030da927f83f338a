/// `orrery simulate` with a step plan: the phases of one step of mixed lengths.
#pragma once
#include "tools/commands/inputs.h"

namespace orrery::tools {

struct SimulateSettings {
  JobSettings job;
  JudgeSettings judge;
  std::vector<std::string> plans;
  Text timeline;
  Text log;
  Text program;
  bool full = false;
  bool json = false;
};

void describe(config::Visitor& v, SimulateSettings& settings);

/// Simulates the one file of `args.plans`, a step plan; prints a row for each phase. Flags that say
/// how an iteration is judged or exported are refused: they do not exist here.
int simulate_step_plan(const SimulateSettings& args);

}  // namespace orrery::tools
