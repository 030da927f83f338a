#include "executor/launcher/thread_spawner.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::executor {

ThreadSpawner::ThreadSpawner(RunStore& store, const SpawnOptions& options, ThreadRanks ranks)
    : store_(store), o_(options), shared_(std::make_shared<SharedThreadRanks>(std::move(ranks))) {}

ThreadSpawner::~ThreadSpawner() {
  try {
    end();
  } catch (const TransportError&) {
    // The store has failed: ranks notice that and end.
  }
  for (auto& [device, rank] : ranks_) {
    if (rank.outcome->ended) {
      rank.thread.join();
    } else {
      rank.thread.detach();
    }
  }
}

std::vector<std::int32_t> ThreadSpawner::alive() const {
  std::vector<std::int32_t> out;
  for (const auto& [device, rank] : ranks_) out.push_back(device);
  return out;
}

void ThreadSpawner::start(std::int32_t device, std::int64_t generation) {
  RankEnvironment environment;
  environment.store = store_.for_this_machine();
  environment.token = store_.token();
  environment.device = device;
  environment.node = nodes_.front();
  environment.address = "127.0.0.1";
  environment.generation = generation;
  Rank rank;
  rank.outcome = std::make_shared<Outcome>();
  rank.thread = std::thread([environment, shared = shared_, outcome = rank.outcome] {
    try {
      serve_rank(environment, shared.get());
      outcome->how = "ended";
    } catch (const std::exception& error) {
      outcome->how = error.what();
    }
    outcome->ended = true;
  });
  ranks_[device] = std::move(rank);
  moved_ = Clock::now();
}

void ThreadSpawner::kill(std::int32_t device) {
  const auto rank = ranks_.find(device);
  if (rank == ranks_.end()) return;
  rank->second.thread.detach();
  ranks_.erase(rank);
}

std::vector<Spawner::Ended> ThreadSpawner::take_ended() {
  std::vector<Ended> out;
  for (auto rank = ranks_.begin(); rank != ranks_.end();) {
    if (!rank->second.outcome->ended) {
      ++rank;
      continue;
    }
    rank->second.thread.join();
    out.emplace_back(rank->first, rank->second.outcome->how);
    rank = ranks_.erase(rank);
  }
  return out;
}

std::string ThreadSpawner::stall() {
  const std::chrono::milliseconds limit = shared_->ranks.stall;
  const auto now = Clock::now();
  if (const std::int64_t begun = shared_->ops; begun != ops_) {
    ops_ = begun;
    moved_ = now;
  }
  if (now - moved_ <= limit) return {};
  return fmt::format("no op has begun for {:.3g} s", std::chrono::duration<double>(limit).count());
}

void ThreadSpawner::end() {
  store_.command("stop");
  const auto limit = Clock::now() + grace();
  while (!ranks_.empty() && Clock::now() < limit) {
    take_ended();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace orrery::executor
