/// Several jobs on parts of one cluster, each under a policy of its own, against one trace.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "models/base/time.h"
#include "models/interfaces/recovery_policy.h"
#include "sim/replay/replay.h"

namespace orrery::sim {

/// A plan that trains.
struct RunningJob {
  std::size_t job = 0;  ///< Of replay_together().
  models::PlanPointer plan;
};

/// By how much jobs that train at the same time slow each other.
class InterferenceTimer {
 public:
  virtual ~InterferenceTimer() = default;
  /// For each of them the time of an iteration beside the others over that alone; positive.
  virtual std::vector<double> slowdowns(std::span<const RunningJob> running) const = 0;
};

struct JobReplay {
  ReplayResult result;
  /// Of the time in training: what others added, as the sum of (1 - 1 / slow-down).
  Seconds lost_to_others;
};

/// Replays the jobs side by side, as replay() does each alone (traces::split() makes their traces).
/// Whenever a job begins or ends to train, or changes its plan, the iterations of all that train
/// then take their time alone, under the conditions that each finds (slow GPUs and links,
/// background transfers), times the slow-down that `interference` says of the plans that train. It
/// does not know of these conditions, of recoveries and checkpoints of others, nor of pauses for
/// checkpoints. ReplayResult::reference is of iterations alone: what others cost is `degraded`.
/// `on_progress` as of replay().
std::vector<JobReplay> replay_together(std::span<const ReplayInput> jobs,
                                       const ReplayOptions& options,
                                       const InterferenceTimer& interference,
                                       const std::function<void(Instant)>& on_progress = {});

}  // namespace orrery::sim
