/// A team of 32 lanes that works on one row: a warp on the device, loops on the host. Bodies of
/// kernels are written once for both. Sums have one order: lane l adds elements l, l + 32, ..., and
/// the lanes are joined pairwise at distances 16, 8, 4, 2, 1. Host and device agree on it, and it
/// depends on the length of the row alone.
#pragma once
#include <array>
#include <cstddef>

#include "executor/cuda/numbers.h"

namespace orrery::executor {

inline constexpr std::size_t kLanes = 32;

/// All lanes one after the other. What one lane writes, others read only after the loop.
class HostLanes {
 public:
  /// body(i) for i < count.
  template <class Body>
  void each(std::size_t count, const Body& body) const {
    for (std::size_t i = 0; i < count; ++i) body(i);
  }
  /// Sum of term(i) over i < count, in the type of `zero`.
  template <class C, class Term>
  C sum(C zero, std::size_t count, const Term& term) const {
    return join(zero, count, term, [](C a, C b) { return a + b; });
  }
  /// Largest of term(i) and `lowest`.
  template <class C, class Term>
  C maximum(C lowest, std::size_t count, const Term& term) const {
    return join(
        lowest, count, [&](std::size_t i) { return term(i); },
        [](C a, C b) { return a < b ? b : a; });
  }
  /// Whether this lane writes what the team has only one of.
  bool first() const { return true; }

 private:
  template <class C, class Term, class Combine>
  static C join(C start, std::size_t count, const Term& term, const Combine& combine) {
    std::array<C, kLanes> parts;
    parts.fill(start);
    for (std::size_t i = 0; i < count; ++i) {
      parts[i % kLanes] = combine(parts[i % kLanes], term(i));
    }
    for (std::size_t distance = kLanes / 2; distance > 0; distance /= 2) {
      std::array<C, kLanes> joined;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        joined[lane] = combine(parts[lane], parts[lane ^ distance]);
      }
      parts = joined;
    }
    return parts[0];
  }
};

#ifdef __CUDACC__
/// A warp; all its lanes come to every call.
class WarpLanes {
 public:
  ORRERY_HD explicit WarpLanes(unsigned lane) : lane_(lane) {}
  template <class Body>
  ORRERY_HD void each(std::size_t count, const Body& body) const {
    for (std::size_t i = lane_; i < count; i += kLanes) body(i);
  }
  template <class C, class Term>
  ORRERY_HD C sum(C zero, std::size_t count, const Term& term) const {
    C part = zero;
    for (std::size_t i = lane_; i < count; i += kLanes) part = part + term(i);
#ifdef __CUDA_ARCH__
    for (int distance = 16; distance > 0; distance /= 2) {
      part = part + __shfl_xor_sync(0xffffffffU, part, distance);
    }
#endif
    return part;
  }
  template <class C, class Term>
  ORRERY_HD C maximum(C lowest, std::size_t count, const Term& term) const {
    C part = lowest;
    for (std::size_t i = lane_; i < count; i += kLanes) {
      const C next = term(i);
      part = part < next ? next : part;
    }
#ifdef __CUDA_ARCH__
    for (int distance = 16; distance > 0; distance /= 2) {
      const C other = __shfl_xor_sync(0xffffffffU, part, distance);
      part = part < other ? other : part;
    }
#endif
    return part;
  }
  ORRERY_HD bool first() const { return lane_ == 0; }

 private:
  unsigned lane_;
};
#endif

}  // namespace orrery::executor
