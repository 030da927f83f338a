/// Seeded random numbers that are equal on every machine. A generator is passed in, never global.
#pragma once
#include <cstdint>

namespace orrery {

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Small, so that streams can be forked freely.
class Rng {
 public:
  using result_type = std::uint64_t;
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT64_MAX; }
  result_type operator()();

  /// An independent stream for `key`; does not advance this one, so the order of forks is free.
  Rng fork(std::uint64_t key) const;

  double uniform();                                           ///< In [0, 1).
  double normal();                                            ///< Mean 0, variance 1.
  double exponential(double rate);                            ///< Mean 1 / rate.
  std::int64_t integer(std::int64_t low, std::int64_t high);  ///< Inclusive on both ends.
  bool bernoulli(double probability);

 private:
  std::uint64_t state_;
};

}  // namespace orrery
