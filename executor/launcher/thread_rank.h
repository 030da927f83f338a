/// A rank that is a thread, and what it shares with the launcher's thread. Private to
/// executor/launcher.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "executor/launcher/thread_launch.h"
#include "executor/net/socket.h"
#include "executor/net/transport.h"

namespace orrery::executor {

/// What the ranks and the launcher's thread share. Each holds it: a thread that is left behind
/// still has what it uses.
class ThreadBoard {
 public:
  /// Listens on loopback for each rank. Throws TransportError.
  ThreadBoard(ir::Program the_program, RunSettings the_settings, ThreadRanks the_ranks);

  const ir::Program program;
  const RunSettings settings;
  const ThreadRanks ranks;
  const std::string token;
  std::vector<Listener> listeners;  ///< Each is its rank's own.
  std::vector<Endpoint> endpoints;
  std::atomic<std::int64_t> ops = 0;  ///< That have begun, of all ranks.

  bool stopped() const { return stopped_; }
  /// For GenerationRecord::take().
  void post(std::string key, std::string value);
  /// Ends all waits of all ranks, now and later.
  void stop(const std::string& why);
  /// Whose waits stop() ends. Null: it is about to go.
  void attach(int rank, Transport* transport);
  /// Returns when all ranks are here. Throws TransportError when the run ends before.
  void arrive();
  /// The rank's thread has nothing more to do.
  void end(int rank);
  /// Ranks whose thread has.
  std::vector<int> running() const;

  using Message = std::pair<std::string, std::string>;
  /// Messages since the last question; waits for some while ranks run, but not longer than `limit`.
  std::deque<Message> take(std::chrono::milliseconds limit);

 private:
  bool all_ended() const;  ///< Under the lock.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_;
  std::vector<Transport*> transports_;
  std::vector<bool> ended_;
  std::size_t arrived_ = 0;
  std::atomic<bool> stopped_ = false;
};

/// The whole thread of a rank: trains, tells the board how it ended, last of all that it has.
void run_thread_rank(std::shared_ptr<ThreadBoard> board, int rank);

}  // namespace orrery::executor
