/// Binary heap of events by (time, kind). Order among equal events, and the order in memory, are
/// part of the published digits (compat.h, rule 5 and the places of Bamboo's nodes), so that the
/// steps of sifting are fixed here: those of Python's heapq, which the artifact uses. Private.
#pragma once
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace orrery::experiments {

enum class CompatKind { add, remove, ready, fatal_rendezvous, rendezvous, step, checkpoint };

struct CompatEvent {
  std::int64_t ms = 0;
  CompatKind kind = CompatKind::add;
  int subject = 0;  ///< Number of the node; of a step: number of the rendezvous.
  bool before(const CompatEvent& other) const {
    return std::tie(ms, kind) < std::tie(other.ms, other.kind);
  }
};

class CompatQueue {
 public:
  bool empty() const { return events_.empty(); }
  const std::vector<CompatEvent>& in_memory() const { return events_; }

  void push(const CompatEvent& event) {
    events_.push_back(event);
    rise(0, events_.size() - 1);
  }

  CompatEvent pop() {
    const CompatEvent first = events_.front();
    events_.front() = events_.back();
    events_.pop_back();
    if (!events_.empty()) sink(0);
    return first;
  }

  /// A heap already; only equal events may change places.
  void rebuild() {
    for (std::size_t i = events_.size() / 2; i-- > 0;) sink(i);
  }

 private:
  /// Towards the root, not above `top`.
  void rise(std::size_t top, std::size_t place) {
    const CompatEvent event = events_[place];
    while (place > top) {
      const std::size_t parent = (place - 1) / 2;
      if (!event.before(events_[parent])) break;
      events_[place] = events_[parent];
      place = parent;
    }
    events_[place] = event;
  }

  /// Down to a leaf along the earlier children (the right one of equals), then up again.
  void sink(std::size_t top) {
    const CompatEvent event = events_[top];
    std::size_t place = top;
    for (std::size_t child = 2 * place + 1; child < events_.size(); child = 2 * place + 1) {
      if (child + 1 < events_.size() && !events_[child].before(events_[child + 1])) ++child;
      events_[place] = events_[child];
      place = child;
    }
    events_[place] = event;
    rise(top, place);
  }

  std::vector<CompatEvent> events_;
};

}  // namespace orrery::experiments
