/// Child processes: a program with arguments, environment and standard streams of its own, or a
/// function in a copy of this process.
#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

/// Exit status of a child whose program could not be started.
inline constexpr int kCannotStart = 127;

/// How a child process ended.
struct ExitStatus {
  int code = 0;    ///< Exit status, if no signal ended it.
  int signal = 0;  ///< That ended it; 0: none.
  bool ok() const { return signal == 0 && code == 0; }
};
/// "exit status 3", "killed by signal 9 (Killed)".
std::string in_words(const ExitStatus& status);

/// What becomes of SIGINT, which Ctrl-C sends to parent and children alike, and of SIGTERM.
enum class ChildSignals {
  inherited,
  defaults,          ///< Both end the child.
  ignore_interrupt,  ///< SIGINT is the parent's alone. No signal is blocked.
};

struct SubprocessOptions {
  /// Program, searched in PATH unless it has a slash, and arguments. Empty: `body` runs instead, in
  /// a copy of this process that has only the calling thread; its result is the exit status.
  std::vector<std::string> command = {};
  std::function<int()> body = {};
  std::optional<std::vector<std::string>> environment = {};  ///< NAME=VALUE; none: the parent's.
  std::string folder = {};                                   ///< To work in; empty: the parent's.
  /// Open files that become the standard streams; -1: the parent's.
  int in = -1;
  int out = -1;
  int err = -1;
  bool close_other_files = false;  ///< Those without O_CLOEXEC as well.
  ChildSignals signals = ChildSignals::inherited;
  /// Sent to the child when the thread that started it ends; 0: none. [prctl(2), PR_SET_PDEATHSIG]
  int death_signal = 0;
};

/// A running child; destruction kills it (SIGKILL) and waits for it.
class Subprocess {
 public:
  Subprocess() = default;  ///< None.
  /// Throws std::system_error when no process can be made. A program that cannot be started, or a
  /// folder that is not there, is a child that ends with kCannotStart.
  explicit Subprocess(const SubprocessOptions& options);
  ~Subprocess();
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;

  pid_t pid() const { return pid_; }  ///< -1: none, or its end was told.
  void signal(int number) const;
  /// Its end, once, if it has ended; else none.
  std::optional<ExitStatus> poll();
  /// Returns when it has ended.
  ExitStatus wait();
  /// Lets it go: it outlives this object, and nobody waits for it.
  pid_t release();

 private:
  void end();
  pid_t pid_ = -1;
};

/// The variables of this process, NAME=VALUE, without those named.
std::vector<std::string> environment_without(const std::vector<std::string>& names = {});

/// Path of this program; $ORRERY_PROGRAM where a host (Python) sets it. Throws std::system_error.
std::string own_executable();

}  // namespace orrery
