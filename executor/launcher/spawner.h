/// How a launcher comes by its ranks: the store through which they find each other, and the
/// interface of what starts, watches and ends them.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/launcher/settings.h"
#include "executor/net/store.h"
#include "models/base/ids.h"

namespace orrery::executor {

/// A machine and its number of devices of the cluster: devices are counted over the hosts in their
/// order.
struct HostSlots {
  std::string name;  ///< Name or address; its ranks listen there.
  int slots = 0;
  /// Not empty: its agent is a process of this machine, started with these further arguments.
  std::vector<std::string> local_agent = {};
};

/// Where ranks run and how they are reached.
struct SpawnOptions {
  RunSettings settings;           ///< `run` is drawn if empty.
  std::vector<DeviceId> devices;  ///< That may be used, ascending.
  std::vector<HostSlots> hosts;   ///< Empty: this machine has all devices.
  std::string listen;             ///< Address of the store; empty: loopback, or all with hosts.
  std::string advertise;          ///< Where other machines reach it; empty: `listen`, or the name.
  int port = 0;                   ///< 0: any free one.
  std::string token;              ///< Drawn if empty.
  std::string token_file;  ///< Written (mode 0600), in place of saying the token; may be empty.
  std::string executable;  ///< For ranks: this program, unless another is named.
  std::vector<std::string> arguments = {"execute-rank"};
  bool ssh = false;  ///< Starts the agents of hosts by ssh, where `executable` has the same path.
  std::chrono::milliseconds agents_wait{600'000};  ///< For agents that somebody has to start.
  std::chrono::milliseconds started_wait{60'000};  ///< For those that were started by ssh or here.
  std::function<void(const std::string&)> on_message;  ///< A line: what happens.
  const std::atomic<bool>* interrupted = nullptr;

  bool is_interrupted() const { return interrupted != nullptr && *interrupted; }
  void say(const std::string& line) const {
    if (on_message) on_message(line);
  }
};

/// The store of a run as its launcher has it.
class RunStore {
 public:
  /// Draws what the options leave open, and publishes the settings. Throws TransportError when the
  /// port cannot be had.
  explicit RunStore(SpawnOptions& options);

  StoreClient& client() { return client_; }
  const std::string& token() const { return token_; }
  Endpoint for_this_machine() const { return {own_address_, server_.port()}; }
  Endpoint for_others() const { return {advertised_address_, server_.port()}; }
  /// To all ranks: "stop", "cancel <generation>".
  void command(const std::string& text);

 private:
  std::string token_;
  std::string own_address_;
  std::string advertised_address_;
  StoreServer server_;
  StoreClient client_;
  std::int64_t commands_ = 0;
};

/// Starts ranks, tells which of them live, and ends them. Ranks do what the store says.
class Spawner {
 public:
  struct Problem {
    bool refused = false;  ///< Nodes lack files or folders that the settings name.
    std::string what;
  };
  using Ended = std::pair<std::int32_t, std::string>;  ///< Device, and how its rank ended.

  /// What still lives is ended first (see end()).
  virtual ~Spawner() = default;
  /// Names of the machines.
  virtual const std::vector<std::string>& nodes() const = 0;
  /// Position in nodes().
  virtual int node_of(std::int32_t device) const = 0;
  /// Returns when ranks can be started, at the first problem, or when the run is interrupted.
  virtual std::optional<Problem> prepare() = 0;

  /// Devices whose rank lives, ascending.
  virtual std::vector<std::int32_t> alive() const = 0;
  /// Its first generation is `generation`.
  virtual void start(std::int32_t device, std::int64_t generation) = 0;
  /// For a rank that does not answer: so that it cannot come back.
  virtual void kill(std::int32_t device) = 0;
  /// Ranks that have ended since the last question; those that show no sign of life were killed.
  virtual std::vector<Ended> take_ended() = 0;
  /// Why the run as a whole makes no progress; empty: it does, or nobody watches that.
  virtual std::string stall() { return {}; }
  /// True when the node shows a new sign of life within the limit, which is waited for.
  virtual bool answers(int node, std::chrono::milliseconds limit) = 0;

  /// For ranks to end after a stop was ordered.
  virtual std::chrono::milliseconds grace() const = 0;
  /// Orders all ranks to stop and waits, at most twice as long as grace() says.
  virtual void end() = 0;
};

}  // namespace orrery::executor
