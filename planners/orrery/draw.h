/// Random choices of the search's moves.
#pragma once
#include <cstdint>
#include <vector>

#include "models/base/ids.h"
#include "models/base/rng.h"

namespace orrery::planners {

inline std::size_t any_of_count(std::size_t count, Rng& rng) {
  return as_size(rng.integer(0, static_cast<std::int64_t>(count) - 1));
}

template <class T>
const T& any_of(const std::vector<T>& values, Rng& rng) {
  return values[any_of_count(values.size(), rng)];
}

}  // namespace orrery::planners
