/// A run whose ranks are threads of this process: for emulated devices that must share one, such as
/// the parts of a GPU that green contexts divide it into (parts of one split are disjoint only
/// within a process), and for a plan that is to be looked at with a debugger.
///
/// Ranks talk by TCP over loopback as processes do, so that what a profile says about those holds.
/// Steps, run log and files are those of launch(); losses are equal to the bit. There is one
/// generation: a rank that fails ends the run, since its memory was that of all.
#pragma once
#include <chrono>
#include <functional>
#include <memory>

#include "executor/compute/backend.h"
#include "executor/launcher/launcher.h"
#include "models/base/ids.h"

namespace orrery::executor {

struct ThreadRanks {
  /// Makes the back end of a rank (its number and its device), on the rank's own thread. Throws
  /// what ends the run. Empty: make_backend().
  std::function<std::unique_ptr<Backend>(int rank, DeviceId device)> backend;
  /// Called at the start of each op, on the thread that runs it: for tests that break things.
  std::function<void(int rank, OpId op)> before_op;
  /// A run in which no op has begun for so long hangs, and is ended. [choice: longer than an op of
  /// any model that a machine without a GPU can train]
  std::chrono::milliseconds stall{600'000};
};

/// Runs options.first to its end. Of `options` it takes settings (without faults, checkpoints and
/// elastic), first, out, on_step, on_message and interrupted; hosts and switches are empty, the
/// transport is tcp (our bug otherwise). A rank's thread that does not end when the run has ended,
/// within the deadlines of the settings, is left behind and named. Files and errors as those of
/// launch(), but for `refused`, which it never is.
LaunchReport launch_on_threads(LaunchOptions options, ThreadRanks ranks = {});

}  // namespace orrery::executor
