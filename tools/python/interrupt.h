/// Ctrl-C while C++ works without the GIL: asks the work to end; Python raises KeyboardInterrupt
/// once it has.
#pragma once
#include <signal.h>

#include <atomic>

#include "tools/python/caster.h"

namespace orrery::python {

/// Only in Python's main thread, as KeyboardInterrupt: what other threads ask goes on, with results
/// that do not depend on a Ctrl-C. Python's own handler hears of it too. Made with the GIL.
class Interruptible {
 public:
  Interruptible()
      : listens_(py::module_::import("threading").attr("get_ident")().cast<unsigned long>() ==
                 py::module_::import("threading")
                     .attr("main_thread")()
                     .attr("ident")
                     .cast<unsigned long>()) {
    if (!listens_ || depth_++ > 0) return;  // a planner of Python may ask another one
    requested_ = false;
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before_);
    next_ = before_.sa_handler;
  }
  ~Interruptible() {
    if (listens_ && --depth_ == 0) sigaction(SIGINT, &before_, nullptr);
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  const std::atomic<bool>* flag() const { return listens_ ? &requested_ : nullptr; }
  bool requested() const { return listens_ && requested_; }
  /// With the GIL: throws what Python makes of the signal.
  void raise() const {
    if (requested() && PyErr_CheckSignals() != 0) throw py::error_already_set();
  }

 private:
  static void on_signal(int number) {
    requested_ = true;
    const auto next = next_.load();
    if (next != SIG_DFL && next != SIG_IGN) next(number);
  }
  static inline std::atomic<bool> requested_ = false;
  static inline std::atomic<void (*)(int)> next_ = nullptr;
  static inline int depth_ = 0;  ///< Of the main thread.
  static inline struct sigaction before_ {};
  bool listens_;
};

}  // namespace orrery::python
