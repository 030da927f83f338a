/// The agents of a run's nodes: one in a thread for this machine, or those of named hosts. Brings
/// them up and waits until all have joined. Private to executor/launcher.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "executor/launcher/launcher.h"
#include "executor/launcher/remote_agents.h"
#include "executor/net/socket.h"
#include "executor/net/store.h"

namespace orrery::executor {

class NodeAgents {
 public:
  using Say = std::function<void(const std::string&)>;
  struct Problem {
    bool refused = false;  ///< Nodes lack files or folders that the settings name.
    std::string what;
  };

  /// Keeps references. `nodes`: their names, in the order of the hosts.
  NodeAgents(const LaunchOptions& options, const std::vector<std::string>& nodes,
             StoreClient& client, Say say)
      : o_(options), nodes_(nodes), client_(client), say_(std::move(say)) {}
  /// Waits for this machine's agent, which must have been told to end.
  ~NodeAgents();

  /// Starts what is to be started: `here` is the store's place for this machine, `there` for
  /// others.
  void start(const Endpoint& here, const Endpoint& there, const std::string& token);
  /// Returns when all are there, at the first problem, or when the run is interrupted.
  std::optional<Problem> await();

 private:
  /// Of an agent that ended before it came.
  std::optional<Problem> ended();

  const LaunchOptions& o_;
  const std::vector<std::string>& nodes_;
  StoreClient& client_;
  Say say_;
  std::mutex mutex_;
  std::string local_problem_;  ///< Why this machine's agent ended.
  std::thread local_;
  std::unique_ptr<RemoteAgents> remote_;
};

}  // namespace orrery::executor
