/// Takes the cases of a calibration: compute and storage in this process, or on the hosts; the
/// network between processes. Private to the calibrate command.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/bench/session.h"
#include "tools/commands/calibrate_job.h"
#include "tools/commands/calibrate_samples.h"

namespace orrery::tools {

/// What is shown while it runs.
struct CalibrateProgress {
  std::size_t done = 0;
  std::size_t total = 0;
  std::size_t present = 0;  ///< Of `done`: nothing was left to do for them.
  std::string now;          ///< Kind of the case that runs.
};

struct CalibrateHooks {
  std::function<void(const CalibrateProgress&)> on_progress;
  std::function<void(const std::string&)> on_message;
  const std::atomic<bool>* interrupted = nullptr;
};

/// Takes what the store lacks of `cases`, in their order. Throws executor::BenchInterrupted,
/// std::runtime_error with what went wrong (devices that ended, folders that cannot be written);
/// samples are kept in any case. An emulated network is removed at the end.
void take_cases(const CalibrateJob& job, const std::vector<executor::BenchCase>& cases,
                SampleStore& store, const CalibrateHooks& hooks);

}  // namespace orrery::tools
