/// A rank: one device of a run, as a process or a thread. It reads what to do from the store, takes
/// part in one generation after the other, and ends when the launcher says so or the store is gone.
/// Between generations it keeps its state on the host.
///
/// A process gets its settings by environment: ORRERY_STORE (host:port), ORRERY_TOKEN,
/// ORRERY_DEVICE, ORRERY_NODE, ORRERY_ADDRESS (to listen on), ORRERY_GENERATION (the first to look
/// at). It sets for itself what CUDA and NCCL need in the environment
/// (executor/cuda/rank_variables.h): only ranks count the GPUs of their machine, agents and the
/// launcher need none.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/net/socket.h"
#include "executor/net/store.h"
#include "executor/net/transport.h"
#include "models/base/ids.h"

namespace orrery::executor {

struct RankEnvironment {
  Endpoint store;
  std::string token;
  std::int32_t device = -1;
  std::string node;
  std::string address;
  std::int64_t generation = 0;
};

/// As NAME=VALUE, for a child's environment.
std::vector<std::string> to_environment(const RankEnvironment& environment);

/// The process's own; throws std::runtime_error with the variable that is missing.
RankEnvironment read_rank_environment();

/// "host:port"; throws std::runtime_error.
Endpoint endpoint_from(const std::string& text);

/// Exit status of a rank process that lost its launcher.
inline constexpr int kStoreLost = 3;

/// Follows the launcher's commands, or those of the driver of micro-benchmarks, from a thread with
/// a connection of its own, and shows it that the rank lives.
class CommandListener {
 public:
  /// What a rank does when the store is gone: a process ends at once (kStoreLost), a thread stops.
  enum class WhenLost { exit, stop };
  CommandListener(const RankEnvironment& environment, std::chrono::milliseconds heartbeat,
                  WhenLost when_lost);
  ~CommandListener();
  bool stopped() const { return stopped_; }
  bool canceled(std::int64_t generation) const { return stopped_ || generation <= canceled_; }
  /// A command to stop, or to cancel this generation, aborts the transport; null: none any more.
  void attach(Transport* transport, std::int64_t generation);

 private:
  void run(std::chrono::milliseconds heartbeat);
  void listen(std::chrono::milliseconds heartbeat);
  void apply();

  std::int32_t device_;
  WhenLost when_lost_;
  StoreClient client_;
  std::mutex mutex_;
  Transport* transport_ = nullptr;
  std::int64_t generation_ = -1;
  std::atomic<std::int64_t> canceled_ = -1;  ///< And all before.
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> leaving_ = false;
  std::thread thread_;
};

/// What the caller of launch_on_threads() may decide about its ranks.
struct ThreadRanks {
  /// Makes the back end of a rank (its number and its device), on the rank's own thread. Throws
  /// what ends the run. Empty: make_backend().
  std::function<std::unique_ptr<Backend>(int rank, DeviceId device)> backend;
  /// Called at the start of each op, on the thread that runs it: for tests that break things.
  std::function<void(int rank, OpId op)> before_op;
  /// A run in which no op has begun for this long hangs, and is ended. [choice: longer than an op
  /// of any model that a machine without a GPU can train]
  std::chrono::milliseconds stall{600'000};
};
struct SharedThreadRanks {
  explicit SharedThreadRanks(ThreadRanks the_ranks) : ranks(std::move(the_ranks)) {}
  const ThreadRanks ranks;
  std::atomic<std::int64_t> ops = 0;  ///< That have begun, of all ranks.
};

/// The whole life of a rank. Returns when it was told to stop. Throws TransportError when the store
/// is gone, std::runtime_error. `threads`: null for a process.
void serve_rank(const RankEnvironment& environment, SharedThreadRanks* threads);

/// serve_rank() as a process. Returns the exit status: 0 as ordered, 1 with the reason on standard
/// error, 2 when the environment says nothing useful, kStoreLost.
int run_rank_process();

}  // namespace orrery::executor
