#include "planners/mixed_length/assign.h"

#include <algorithm>
#include <functional>

#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

std::vector<std::int64_t> longest_first(std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> sorted(lengths.begin(), lengths.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return sorted;
}

/// Loads of all pipelines while sequences move between them.
class Loads {
 public:
  Loads(const PreparedStrategy& strategy, models::MicroBatchLengths& lengths)
      : strategy_(strategy), lengths_(lengths) {
    for (int p = 0; p < strategy.pipelines(); ++p) {
      loads_.emplace_back();
      sums_.emplace_back();
      update(p);
    }
  }

  /// Moves a sequence out of the slowest pipeline, or swaps it for one of another, so that the
  /// larger of both loads falls most.
  bool improve() {
    const std::size_t from = std::max_element(loads_.begin(), loads_.end()) - loads_.begin();
    Change best{from, from, 0, 0};
    Seconds best_load = loads_[from];
    for (std::size_t to = 0; to < lengths_.size(); ++to) {
      if (to == from) continue;
      for (const std::int64_t out : distinct(lengths_[from])) {
        if (out > strategy_.limit(static_cast<int>(to))) continue;
        consider({from, to, out, 0}, best, best_load);
        for (const std::int64_t back : distinct(lengths_[to])) {
          if (back >= out || back > strategy_.limit(static_cast<int>(from))) continue;
          consider({from, to, out, back}, best, best_load);
        }
      }
    }
    if (best.out == 0) return false;
    lengths_[from] = changed(from, best.out, best.back);
    lengths_[best.to] = changed(best.to, best.back, best.out);
    for (const std::size_t p : {from, best.to}) {
      update(p);
    }
    return true;
  }

 private:
  struct Change {
    std::size_t from;
    std::size_t to;
    std::int64_t out;   ///< Leaves `from`.
    std::int64_t back;  ///< Leaves `to`; 0: none.
  };

  static std::vector<std::int64_t> distinct(std::vector<std::int64_t> lengths) {
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    return lengths;
  }

  /// The pipeline's sequences, longest first, without `out` and with `in` (0: none).
  std::vector<std::int64_t> changed(std::size_t pipeline, std::int64_t out, std::int64_t in) const {
    std::vector<std::int64_t> lengths = lengths_[pipeline];
    if (out > 0) lengths.erase(std::find(lengths.begin(), lengths.end(), out));
    if (in > 0) {
      lengths.insert(std::upper_bound(lengths.begin(), lengths.end(), in, std::greater<>()), in);
    }
    return lengths;
  }

  Seconds slowest(std::size_t pipeline, std::int64_t length) const {
    return sequence_time(strategy_, static_cast<int>(pipeline), length).slowest;
  }

  void update(std::size_t pipeline) {
    const auto& own = lengths_[pipeline];
    loads_[pipeline] = pipeline_load(strategy_, static_cast<int>(pipeline), own);
    sums_[pipeline] = {};
    for (const std::int64_t length : own) sums_[pipeline] += slowest(pipeline, length);
  }

  void consider(const Change& change, Change& best, Seconds& best_load) const {
    // A lower bound from the slowest stage alone spares most of the exact loads.
    const Seconds least =
        sums_[change.to] + slowest(change.to, change.out) - slowest(change.to, change.back);
    if (least >= best_load) return;
    const Seconds left = pipeline_load(strategy_, static_cast<int>(change.from),
                                       changed(change.from, change.out, change.back));
    if (left >= best_load) return;
    const Seconds load = std::max(left, pipeline_load(strategy_, static_cast<int>(change.to),
                                                      changed(change.to, change.back, change.out)));
    if (load >= best_load) return;
    best = change;
    best_load = load;
  }

  const PreparedStrategy& strategy_;
  models::MicroBatchLengths& lengths_;
  std::vector<Seconds> loads_;
  std::vector<Seconds> sums_;  ///< Passes on the slowest stage.
};

}  // namespace

SequenceTime sequence_time(const PreparedStrategy& strategy, int pipeline, std::int64_t length) {
  SequenceTime time;
  if (length == 0) return time;
  for (const auto& passes : strategy.cost(pipeline, length)) {
    time.slowest = std::max(time.slowest, passes.both());
    time.rest += passes.both();
  }
  time.rest -= time.slowest;
  return time;
}

std::vector<std::vector<std::int64_t>> pack_windows(std::span<const std::int64_t> lengths,
                                                    std::int64_t window) {
  std::vector<std::vector<std::int64_t>> windows;
  std::vector<std::int64_t> room;
  for (const std::int64_t whole : longest_first(lengths)) {
    const std::int64_t length = std::min(whole, window);
    const auto place =
        std::find_if(room.begin(), room.end(), [&](std::int64_t left) { return left >= length; });
    if (place == room.end()) {
      windows.push_back({length});
      room.push_back(window - length);
    } else {
      windows[place - room.begin()].push_back(length);
      *place -= length;
    }
  }
  return windows;
}

Seconds pipeline_load(const PreparedStrategy& strategy, int pipeline,
                      std::span<const std::int64_t> lengths) {
  const auto count = static_cast<int>(lengths.size());
  const auto& plan = strategy.plan().pipelines[pipeline];
  const auto stages = plan.stages.size();
  std::vector<const std::vector<PreparedStrategy::Passes>*> costs;
  for (const std::int64_t length : lengths) costs.push_back(&strategy.cost(pipeline, length));
  // Stage s keeps at most stages - s sequences between their passes, and prefers forward ones.
  struct Stage {
    int forward = 0;  ///< Passes done.
    int backward = 0;
    Seconds now;
    std::vector<Seconds> forward_end;
    std::vector<Seconds> backward_end;
  };
  std::vector<Stage> all(stages);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < stages; ++s) {
      Stage& own = all[s];
      const int ahead = std::min(count, static_cast<int>(stages - s));
      while (own.backward < count) {
        const bool forward = own.forward < count && own.forward - own.backward < ahead;
        const int m = forward ? own.forward : own.backward;
        const std::size_t i = m;
        if (forward && s > 0 && all[s - 1].forward <= m) break;
        if (!forward && s + 1 < stages && all[s + 1].backward <= m) break;
        Seconds start = own.now;
        if (forward && s > 0) start = std::max(start, all[s - 1].forward_end[i]);
        if (!forward && s + 1 < stages) start = std::max(start, all[s + 1].backward_end[i]);
        const PreparedStrategy::Passes& passes = (*costs[i])[s];
        own.now = start + (forward ? passes.forward : passes.backward);
        (forward ? own.forward_end : own.backward_end).push_back(own.now);
        ++(forward ? own.forward : own.backward);
        moved = true;
      }
    }
  }
  return stages == 0 ? Seconds{} : all.front().now;
}

Seconds longest_load(const PreparedStrategy& strategy, const models::MicroBatchLengths& lengths) {
  Seconds longest;
  for (int p = 0; p < strategy.pipelines(); ++p) {
    longest = std::max(longest, pipeline_load(strategy, p, lengths[p]));
  }
  return longest;
}

models::MicroBatchLengths balance(const PreparedStrategy& strategy,
                                  std::span<const std::int64_t> lengths) {
  models::MicroBatchLengths out(strategy.pipelines());
  spread_longest_first(
      out.size(), longest_first(lengths),
      [&](std::size_t p) { return strategy.limit(static_cast<int>(p)); },
      [&](std::size_t p, std::int64_t length) {
        return sequence_time(strategy, static_cast<int>(p), length);
      },
      [&](std::size_t p, std::int64_t length) { out[p].push_back(length); });
  Loads loads(strategy, out);
  for (std::size_t moves = 0; moves < lengths.size() && loads.improve(); ++moves) {
  }
  for (auto& micro_batches : out) {
    if (micro_batches.empty()) micro_batches.push_back(0);
  }
  return out;
}

}  // namespace orrery::planners
