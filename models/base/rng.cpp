#include "models/base/rng.h"

#include <boost/random/exponential_distribution.hpp>
#include <boost/random/normal_distribution.hpp>
#include <boost/random/uniform_01.hpp>
#include <boost/random/uniform_int_distribution.hpp>

namespace orrery {
namespace {

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

Rng::result_type Rng::operator()() {
  state_ += 0x9e3779b97f4a7c15ULL;
  return mix(state_);
}

Rng Rng::fork(std::uint64_t key) const {
  return Rng(mix(state_ ^ mix(key + 0x9e3779b97f4a7c15ULL)));
}

// Boost's distributions, unlike std's, give the same numbers with every standard library.
double Rng::uniform() { return boost::random::uniform_01<double>{}(*this); }

double Rng::normal() { return boost::random::normal_distribution<double>{}(*this); }

double Rng::exponential(double rate) {
  return boost::random::exponential_distribution<double>{rate}(*this);
}

std::int64_t Rng::integer(std::int64_t low, std::int64_t high) {
  return boost::random::uniform_int_distribution<std::int64_t>{low, high}(*this);
}

bool Rng::bernoulli(double probability) { return uniform() < probability; }

}  // namespace orrery
