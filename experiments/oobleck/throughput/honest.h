/// The same traces, tables and constants through sim/replay, which accounts for each nanosecond
/// once.
///
/// What the policies do is what compat.h's simulators do, without their accidents: any loss stalls
/// the job for the published time and takes the iteration in flight (Varuna: all since the last
/// checkpoint in the cloud) with it; nodes that come are used 45 s later, from the next loss on.
/// Losses at one instant are one recovery. What the artifact subtracts, we keep: the checkpoint's
/// time is part of Varuna's restart and is taken off.
///
/// Deviation: Bamboo's shadow finishes the iteration in flight at 1.5 times its length; here the
/// iteration is lost, as in planners/recovery/bamboo/bamboo.cpp, and the stall follows. All nodes
/// are in the plan, since the published table knows only how many there are.
#pragma once
#include <string>

#include "experiments/oobleck/throughput/inputs.h"
#include "traces/trace.h"

namespace orrery::experiments {

/// Shares of the time from the first iteration on.
struct HonestResult {
  double samples_per_second = 0;  ///< Samples that count / time from the first iteration on.
  double effective = 0;
  double checkpoint = 0;
  double restart = 0;
  double fallback = 0;  ///< Rolled back.
  double idle = 0;      ///< Too few nodes.
};

/// Nodes that come after the start come kNodeReady later; those that leave before do not come.
traces::Trace delay_joins(const traces::Trace& trace);

/// `trace`: nodes of one GPU, as traces::import_trace reads them. The job waits for the nodes for
/// which there is a throughput above zero, kLeastNodes at least.
HonestResult count_honest(const OobleckModel& model, OobleckSystem system,
                          const NodeThroughput& throughput, const traces::Trace& trace);

}  // namespace orrery::experiments
