/// Ranks that are processes: started by an agent on each machine (agent.h), which the launcher runs
/// in a thread here, by ssh, or waits for.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/launcher/spawner.h"
#include "models/base/subprocess.h"

namespace orrery::executor {

class AgentSpawner final : public Spawner {
 public:
  /// Keeps references. Without hosts all devices are on this machine, whose node is "local".
  AgentSpawner(RunStore& store, const SpawnOptions& options);
  ~AgentSpawner() override;

  const std::vector<std::string>& nodes() const override { return nodes_; }
  int node_of(std::int32_t device) const override;
  std::optional<Problem> prepare() override;
  std::vector<std::int32_t> alive() const override;
  void start(std::int32_t device, std::int64_t generation) override;
  void kill(std::int32_t device) override;
  std::vector<Ended> take_ended() override;
  bool answers(int node, std::chrono::milliseconds limit) override;
  std::chrono::milliseconds grace() const override { return std::chrono::milliseconds(8'000); }
  void end() override;

  /// In words, of an agent that ended unasked; empty: none.
  std::string find_ended_agent();

 private:
  using Clock = std::chrono::steady_clock;
  /// When somebody last showed a sign of life.
  struct Pulse {
    std::string beat;
    Clock::time_point seen = Clock::now();
    bool begun = false;
  };
  void start_local_agent();
  /// Prints the command for each host, or runs it by ssh, or here where HostSlots::local_agent says
  /// so. False: somebody has to start agents.
  bool start_remote_agents();
  /// Runs `words` with the token as the first line of standard input, so that no command line
  /// shows it; `here`: and in the environment.
  void start_agent(const std::string& host, std::vector<std::string> words, bool here);
  /// Until all those that were started here have ended, but not for long.
  void wait_for_agents();
  void order(int node, const std::string& command);
  bool is_silent(Pulse& pulse, const std::string& key,
                 const std::map<std::string, std::string>& beats) const;
  std::vector<Ended> take_exits();
  std::vector<std::int32_t> find_silent();

  RunStore& store_;
  const SpawnOptions& o_;
  std::vector<std::string> nodes_;
  std::vector<std::int64_t> orders_;  ///< So far, by node.
  std::vector<Pulse> node_pulses_;
  std::map<std::int32_t, Pulse> pulses_;  ///< Of ranks that live.
  Clock::time_point next_look_;           ///< At signs of life.
  std::mutex mutex_;
  std::string local_problem_;            ///< Why this machine's agent ended.
  std::atomic<bool> abandoned_ = false;  ///< Nobody can tell this machine's agent to end.
  std::thread local_agent_;
  std::map<std::string, Subprocess> agents_;  ///< By host.
};

}  // namespace orrery::executor
