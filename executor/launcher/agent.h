/// A node's agent: starts and ends rank processes on its machine as the launcher orders through the
/// store, and reports how they ended. The launcher runs one in a thread for its own machine; on
/// other machines `orrery execute-agent` does.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor/net/socket.h"

namespace orrery::executor {

struct AgentOptions {
  Endpoint store;
  std::string token;
  std::string node;
  std::string address;                 ///< That its ranks listen on; empty: 127.0.0.1.
  std::string executable;              ///< Started for each rank ...
  std::vector<std::string> arguments;  ///< ... with these arguments.
  /// For the launcher's store to come up: agents may be started first.
  std::chrono::milliseconds wait{20'000};
  const std::atomic<bool>* interrupted = nullptr;
  /// The launcher has accepted it; with the address that its ranks will listen on.
  std::function<void(const std::string& address)> on_joined;
};

/// The launcher has no node of this name, or has its agent already.
struct AgentRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Serves until the launcher orders the end, or the store is gone: then ranks are killed and
/// TransportError is thrown. No child is left when it returns or throws. Ranks die with the calling
/// thread (PR_SET_PDEATHSIG). Reports what find_path_problems() finds here, and when ranks
/// cannot listen on `address`. Throws AgentRefused.
void run_agent(const AgentOptions& options);

}  // namespace orrery::executor
