/// Answers of simulations by question, and simulations that run ahead of their question. Private to
/// sim/replay.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <utility>

#include "models/base/units.h"

namespace orrery::sim {

struct CacheOptions {
  /// Nodes of different leaves count as interchangeable: a plan is simulated as if it lay on the
  /// first nodes of their kind. An approximation where leaves are oversubscribed; for large
  /// clusters in which every spare would make a plan of its own.
  bool ignore_leaves = false;
};

/// Work done so far. Seconds are wall-clock times, for tables of timings only.
struct CacheCounts {
  std::int64_t asked = 0;
  std::int64_t simulated = 0;  ///< What was not remembered.
  Seconds simulating;          ///< Lowering included.
  Seconds naming;              ///< Renaming and looking up.
};

/// Adds the wall-clock time of its life to a sum.
class AddTime {
 public:
  explicit AddTime(Seconds& sum) : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~AddTime() {
    const auto passed = std::chrono::steady_clock::now() - start_;
    sum_ += Seconds{std::chrono::duration<double>(passed).count()};
  }
  AddTime(const AddTime&) = delete;
  AddTime& operator=(const AddTime&) = delete;

 private:
  Seconds& sum_;
  std::chrono::steady_clock::time_point start_;
};

/// `Key`: a question, ordered. `Running`: a simulation under way. At most `most_running` are
/// prefetched at once; the oldest is given up for another.
template <class Key, class Running, class Answer>
class SimulationCache {
 public:
  explicit SimulationCache(std::size_t most_running) : most_running_(most_running) {}

  /// name() makes the key, start(key) begins a simulation, join(running) waits for its answer.
  template <class Name, class Start, class Join>
  const Answer& get(const Name& name, const Start& start, const Join& join) {
    ++counts_.asked;
    Key key;
    {
      const AddTime timed(counts_.naming);
      key = name();
      const auto found = known_.find(key);
      if (found != known_.end()) return found->second;
    }
    const AddTime timed(counts_.simulating);
    ++counts_.simulated;
    const auto running = find_running(key);
    if (running == running_.end()) {
      Answer answer = join(start(key));
      return known_.emplace(std::move(key), std::move(answer)).first->second;
    }
    Answer answer = join(std::move(running->second));
    running_.erase(running);
    return known_.emplace(std::move(key), std::move(answer)).first->second;
  }

  template <class Name, class Start>
  void prefetch(const Name& name, const Start& start) {
    Key key;
    {
      const AddTime timed(counts_.naming);
      key = name();
      if (known_.contains(key) || find_running(key) != running_.end()) return;
    }
    const AddTime timed(counts_.simulating);
    if (running_.size() == most_running_) running_.pop_front();
    Running running = start(key);
    running_.emplace_back(std::move(key), std::move(running));
  }

  const CacheCounts& counts() const { return counts_; }

 private:
  auto find_running(const Key& key) {
    return std::find_if(running_.begin(), running_.end(),
                        [&](const auto& one) { return one.first == key; });
  }

  std::size_t most_running_;
  std::map<Key, Answer> known_;
  std::list<std::pair<Key, Running>> running_;  ///< Oldest first.
  CacheCounts counts_;
};

}  // namespace orrery::sim
