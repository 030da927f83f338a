/// Ranks that are threads of this process. They talk by TCP over loopback as processes do.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "executor/launcher/rank.h"
#include "executor/launcher/spawner.h"

namespace orrery::executor {

class ThreadSpawner final : public Spawner {
 public:
  /// Keeps references.
  ThreadSpawner(RunStore& store, const SpawnOptions& options, ThreadRanks ranks);
  /// A thread that does not end is left behind.
  ~ThreadSpawner() override;

  const std::vector<std::string>& nodes() const override { return nodes_; }
  int node_of(std::int32_t) const override { return 0; }
  std::optional<Problem> prepare() override { return std::nullopt; }
  std::vector<std::int32_t> alive() const override;
  void start(std::int32_t device, std::int64_t generation) override;
  /// Leaves it behind: threads cannot be killed.
  void kill(std::int32_t device) override;
  std::vector<Ended> take_ended() override;
  std::string stall() override;
  bool answers(int, std::chrono::milliseconds) override { return true; }
  std::chrono::milliseconds grace() const override {
    return o_.settings.deadline + o_.settings.connect;
  }
  void end() override;

 private:
  using Clock = std::chrono::steady_clock;
  /// How a rank's thread ended. It holds this itself, in case it is left behind.
  struct Outcome {
    std::atomic<bool> ended = false;
    std::string how;
  };
  struct Rank {
    std::thread thread;
    std::shared_ptr<Outcome> outcome;
  };

  RunStore& store_;
  const SpawnOptions& o_;
  std::vector<std::string> nodes_ = {"local"};
  std::shared_ptr<SharedThreadRanks> shared_;
  std::map<std::int32_t, Rank> ranks_;  ///< That live.
  std::int64_t ops_ = 0;                ///< That had begun when some had last.
  Clock::time_point moved_ = Clock::now();
};

}  // namespace orrery::executor
