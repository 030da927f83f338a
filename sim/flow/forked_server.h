/// A forked copy of this process that answers questions: what this process does and learns
/// afterwards is not copied with each answer's own fork (sim/flow/fork.h), which costs more the
/// more memory a process has and changes.
#pragma once
#include <functional>
#include <string>

#include "models/base/subprocess.h"
#include "sim/flow/fork.h"

namespace orrery::sim {

/// Ends with this object, or with the process that made it.
class ForkedServer {
 public:
  /// Must not be called while other threads of this process run. `answer` runs in the copy; what
  /// it throws is the answer's failure. Throws std::system_error when no process can be made.
  explicit ForkedServer(const std::function<std::string(const std::string&)>& answer);
  ~ForkedServer();
  ForkedServer(const ForkedServer&) = delete;
  ForkedServer& operator=(const ForkedServer&) = delete;

  /// One question at a time.
  void ask(const std::string& question);
  bool busy() const { return busy_; }
  /// Waits for the answer.
  ForkResult join();

 private:
  Subprocess child_;
  int channel_ = -1;
  bool busy_ = false;
};

}  // namespace orrery::sim
