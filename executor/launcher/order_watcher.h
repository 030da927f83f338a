/// The rank process's ear for the launcher, or for the driver of micro-benchmarks.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "executor/launcher/rank_process.h"
#include "executor/net/store.h"
#include "executor/net/transport.h"

namespace orrery::executor {

/// Follows the launcher's orders from a thread with a connection of its own, and shows it that the
/// process lives. When the store is gone it ends the process.
class OrderWatcher {
 public:
  OrderWatcher(const RankEnvironment& environment, std::chrono::milliseconds heartbeat);
  ~OrderWatcher();
  bool stopped() const { return stopped_; }
  bool canceled(std::int64_t generation) const;
  /// An order to stop, or to cancel this generation, aborts the transport; null: none any more.
  void attach(Transport* transport, std::int64_t generation);

 private:
  void run(std::chrono::milliseconds heartbeat);
  void obey();

  std::int32_t device_;
  StoreClient client_;
  mutable std::mutex mutex_;
  Transport* transport_ = nullptr;
  std::int64_t generation_ = -1;
  std::int64_t canceled_ = -1;  ///< And all before.
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> leaving_ = false;
  std::thread thread_;
};

}  // namespace orrery::executor
