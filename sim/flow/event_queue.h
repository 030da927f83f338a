/// Pending events of the engine, earliest first, in the order of their insertion where times tie.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace orrery::sim {

/// A binary heap with 16 bytes per event.
class EventQueue {
 public:
  struct Event {
    double time;             ///< Seconds.
    std::uint32_t sequence;  ///< Breaks ties.
    std::int32_t subject;    ///< Meaning is the caller's.
  };

  bool empty() const { return heap_.empty(); }
  const Event& top() const { return heap_.front(); }
  /// All pending events, unordered.
  const std::vector<Event>& events() const { return heap_; }

  void push(double time, std::int32_t subject) {
    if (sequence_ == UINT32_MAX) renumber();
    heap_.push_back({time, sequence_++, subject});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Event pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Event event = heap_.back();
    heap_.pop_back();
    return event;
  }
  /// Removes the events whose subject satisfies `drop`.
  template <class Predicate>
  void erase_if(Predicate drop) {
    std::erase_if(heap_, [&](const Event& event) { return drop(event.subject); });
    std::make_heap(heap_.begin(), heap_.end(), later);
  }

 private:
  static bool later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }
  void renumber() {
    std::sort(heap_.begin(), heap_.end(),
              [](const Event& a, const Event& b) { return later(b, a); });
    sequence_ = 0;
    for (Event& event : heap_) event.sequence = sequence_++;
  }
  std::vector<Event> heap_;
  std::uint32_t sequence_ = 0;
};

}  // namespace orrery::sim
