/// Ctrl-C of commands that start other processes.
#pragma once
#include <signal.h>

#include <atomic>

namespace orrery::tools {

/// Set by the first signal that on_interrupt() takes.
inline std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

/// Signal handler: the second signal ends the process at once, and what it started with it.
inline void on_interrupt(int signal_number) {
  if (interrupted.exchange(true)) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}

}  // namespace orrery::tools
