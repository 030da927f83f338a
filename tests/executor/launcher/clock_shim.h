/// A wall clock that tests can step, for all processes of a run at once: clock_shim.cpp is loaded
/// before the C library (LD_PRELOAD) and adds an offset from a shared file to what
/// clock_gettime(CLOCK_REALTIME), gettimeofday() and time() say. Other clocks are left alone.
#pragma once
#include <atomic>
#include <cstdint>

namespace orrery::executor {

/// Names the file that all processes map.
inline constexpr const char* kClockFile = "ORRERY_TEST_CLOCK_FILE";

/// What the file holds.
struct SharedClock {
  std::atomic<std::int64_t> offset_seconds;
  std::atomic<std::int64_t> processes;  ///< That have loaded the shim so far.
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

}  // namespace orrery::executor

/// The mapped file; null where there is none.
extern "C" orrery::executor::SharedClock* orrery_shared_clock();
