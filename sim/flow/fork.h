/// Runs a function in a forked copy of this process. A sweep builds a platform once and forks per
/// experiment: SimGrid's clock and state are global, a child gets a fresh copy of them.
#pragma once
#include <functional>
#include <string>
#include <variant>

#include "models/base/subprocess.h"

namespace orrery::sim {

/// Why a child delivered no result.
struct ChildFailure {
  enum class Kind {
    exception,  ///< `message` is its what().
    exited,     ///< It left through exit(); `code` is its status.
    signal,     ///< It was killed, or crashed; `code` is the signal.
    system,     ///< fork, pipe or read failed here; `code` is errno.
  };
  Kind kind;
  int code = 0;
  std::string message;  ///< For people; never empty.
};

/// The byte string that the child's function returned, or why there is none.
using ForkResult = std::variant<std::string, ChildFailure>;

/// One running child. Several may run at once; those that are not joined are killed and reaped.
class ForkedRun {
 public:
  /// Flushes stdio, forks, and runs `work` in the child, which leaves by _exit: no destructors, no
  /// atexit handlers. Must not be called while other threads of this process run.
  explicit ForkedRun(const std::function<std::string()>& work);
  ~ForkedRun();
  ForkedRun(ForkedRun&& other) noexcept;
  ForkedRun& operator=(ForkedRun&&) = delete;

  /// Waits for the child and returns what it delivered. Only once.
  ForkResult join();
  /// Readable when the child has output or has ended; for poll(). -1 after join().
  int file_descriptor() const { return pipe_; }

 private:
  Subprocess child_;
  int pipe_ = -1;
  int error_ = 0;  ///< errno of a failed start.
};

/// Runs `work` in a child and waits for it.
ForkResult run_forked(const std::function<std::string()>& work);

}  // namespace orrery::sim
