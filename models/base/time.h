/// Points in time and exact durations, in whole nanoseconds: logs and replay account in them, so
/// that sums are exact and equal runs give equal bytes.
#pragma once
#include <cmath>
#include <compare>
#include <cstdint>

#include "models/base/units.h"

namespace orrery {

/// A duration in whole nanoseconds.
struct Nanoseconds {
  std::int64_t count = 0;
  constexpr auto operator<=>(const Nanoseconds&) const = default;
  constexpr Nanoseconds& operator+=(Nanoseconds other) {
    count += other.count;
    return *this;
  }
  friend constexpr Nanoseconds operator+(Nanoseconds a, Nanoseconds b) {
    return {a.count + b.count};
  }
  friend constexpr Nanoseconds operator-(Nanoseconds a, Nanoseconds b) {
    return {a.count - b.count};
  }
};

/// A point in time: nanoseconds since the start of the run that it belongs to.
struct Instant {
  std::int64_t nanoseconds = 0;
  constexpr auto operator<=>(const Instant&) const = default;
  friend constexpr Nanoseconds operator-(Instant a, Instant b) {
    return {a.nanoseconds - b.nanoseconds};
  }
  friend constexpr Instant operator+(Instant a, Nanoseconds b) { return {a.nanoseconds + b.count}; }
};

constexpr Seconds to_seconds(Nanoseconds d) { return {static_cast<double>(d.count) * 1e-9}; }

/// Rounds to the nearest nanosecond; halves away from zero.
inline Nanoseconds to_nanoseconds(Seconds d) { return {std::llround(d.value * 1e9)}; }
inline Instant to_instant(Seconds since_start) { return {to_nanoseconds(since_start).count}; }

}  // namespace orrery
