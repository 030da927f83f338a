/// What tests see and do of the runtime that does everything as late as it may (late_runtime.cpp).
#pragma once
#include <atomic>
#include <functional>

namespace orrery::executor {

struct LateRuntime {
  /// Runs inside the next allocation, before it is enqueued; may be empty.
  static std::function<void()> in_allocation;
  static std::atomic<int> frees;  ///< Enqueued so far.
};

}  // namespace orrery::executor
