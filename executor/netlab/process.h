/// Processes that outlive the command that started them.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "executor/net/socket.h"

namespace orrery::executor {

/// A process, and when it started, which tells it from a later one with the same id.
struct ProcessId {
  int pid = 0;                  ///< 0: none.
  std::int64_t start_tick = 0;  ///< Field 22 of /proc/PID/stat. [proc(5)]
};

/// The process that has this id now; pid 0 where there is none or it has ended.
ProcessId find_process(int pid);
bool is_running(const ProcessId& process);
/// SIGTERM, and SIGKILL after `patience`. Returns when it has ended. Throws NetlabError where it
/// may not be ended.
void end_process(const ProcessId& process, std::chrono::milliseconds patience);

/// A process in a session of its own, whose standard input and output are the other end of
/// `channel`; standard error is closed.
struct Detached {
  ProcessId process;
  Socket channel;
};
/// Runs `command` (program and arguments), or where it is empty `body`, whose result is the exit
/// status. Throws NetlabError.
Detached start_detached(const std::vector<std::string>& command, const std::function<int()>& body);

}  // namespace orrery::executor
