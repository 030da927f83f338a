/// A plan switch as a Program of state sends, for the simulator and the executor.
#pragma once
#include "models/ir/program.h"
#include "models/reshard/reshard_plan.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// A rank for each device that sends or receives, by ascending id, and on its p2p stream a send or
/// a recv (Purpose::state) for each message, with the regions that it carries. Messages of one call
/// run side by side; those of the next call wait, on each device, for its own of the call before.
/// Local copies are no ops. Without messages the program has no ranks. No defect (ir::find_defect).
ir::Program reshard_program(const ReshardPlan& plan, const Workload& workload, const Job& job);

}  // namespace orrery::models
