/// The rank processes of a run as the launcher knows them, and its orders to the nodes' agents.
/// For launcher and micro-benchmarks.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "executor/launcher/launcher.h"
#include "executor/net/store.h"

namespace orrery::executor {

class ProcessTable {
 public:
  /// Keeps references. Without hosts all devices are on this machine, whose node is "local".
  ProcessTable(StoreClient& client, const std::vector<HostSlots>& hosts,
               const RunSettings& settings);

  const std::vector<std::string>& nodes() const { return nodes_; }
  /// Position in nodes().
  int node_of(std::int32_t device) const;

  bool alive(std::int32_t device) const { return alive_.contains(device); }
  /// Ascending.
  std::vector<std::int32_t> devices() const;
  /// Its first generation is `generation`.
  void start(std::int32_t device, std::int64_t generation);
  /// For what does not answer: so that it cannot come back.
  void kill(std::int32_t device);

  /// Processes that have ended since the last question, and how.
  std::vector<std::pair<std::int32_t, std::string>> take_exits();
  /// Processes that have shown no sign of life for the silence limit, or whose node has not.
  std::vector<std::int32_t> silent();
  /// True when the node's agent shows a new sign of life within the limit, which is waited for.
  bool answers(int node, std::chrono::milliseconds limit);

  /// To all rank processes.
  void order(const std::string& command);
  /// Orders all processes to end, kills those that do not, and lets the agents go.
  void end(std::chrono::milliseconds limit);

 private:
  using Clock = std::chrono::steady_clock;
  /// When somebody last showed that it lives.
  struct Pulse {
    std::string beat;
    Clock::time_point seen = Clock::now();
    bool begun = false;
  };
  void order_node(int node, const std::string& command);
  bool is_silent(Pulse& pulse, const std::string& key,
                 const std::map<std::string, std::string>& beats) const;

  StoreClient& client_;
  const std::vector<HostSlots>& hosts_;
  const RunSettings& settings_;
  std::vector<std::string> nodes_;
  std::vector<std::int64_t> node_orders_;
  std::vector<Pulse> node_pulses_;
  std::map<std::int32_t, Pulse> alive_;
  std::int64_t orders_ = 0;
};

}  // namespace orrery::executor
