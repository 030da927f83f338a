/// Wall-clock seconds of work that a result reports.
#pragma once
#include <chrono>

namespace orrery::experiments {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace orrery::experiments
