/// Ctrl-C while C++ works without the GIL: asks the work to end; Python raises KeyboardInterrupt
/// once it has.
#pragma once
#include <signal.h>

#include <atomic>

#include "tools/python/caster.h"

namespace orrery::python {

/// One at a time takes SIGINT; Python's own handler hears of it too.
class Interruptible {
 public:
  Interruptible() {
    requested_ = false;
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before_);
    next_ = before_.sa_handler;
  }
  ~Interruptible() { sigaction(SIGINT, &before_, nullptr); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  const std::atomic<bool>* flag() const { return &requested_; }
  bool requested() const { return requested_; }
  /// With the GIL: throws what Python makes of the signal.
  void raise() const {
    if (requested_ && PyErr_CheckSignals() != 0) throw py::error_already_set();
  }

 private:
  static void on_signal(int number) {
    requested_ = true;
    const auto next = next_.load();
    if (next != SIG_DFL && next != SIG_IGN) next(number);
  }
  static inline std::atomic<bool> requested_ = false;
  static inline std::atomic<void (*)(int)> next_ = nullptr;
  struct sigaction before_ {};
};

}  // namespace orrery::python
