/// How long the phases of a recovery took, from the events that the executor's launcher writes
/// (docs/howto/execute.md): the phases that replay accounts for, by the names of models/interfaces.
#pragma once
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/ir/profile.h"
#include "models/ir/run_log.h"

namespace orrery::calibration {

/// From one event to the next:
///   detect        t_fail -> t_detect, where the fault was injected
///   decide        t_detect -> t_plan
///   reinitialize  t_plan -> t_comm: ranks told, processes started, all connections established
///   move_state    t_comm -> t_load: all ranks have their state
///   first_step    t_load -> t_first_step
struct MeasuredPhase {
  std::string phase;
  Seconds time;
};

/// The phases of which `log` (of the generation that came up) has both events, in that order. The
/// first generation has none but first_step. Events of one kind: the last one counts.
std::vector<MeasuredPhase> recovery_phases(const ir::RunLog& log);

/// One entry for each phase: the median over `runs`. `move_state` is what is left of a measured
/// time when the simulated transfers (`moves`, one for each run) are taken off, at least 0.
/// first_step is not a phase of the profile.
std::vector<ir::PhaseTime> fit_phases(const std::vector<std::vector<MeasuredPhase>>& runs,
                                      const std::vector<Seconds>& moves,
                                      const ir::Provenance& provenance);

}  // namespace orrery::calibration
