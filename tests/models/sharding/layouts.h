/// Flat layouts written out: what tests of resolve() and of the interpreter start from and go to.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/sharding/layout.h"

namespace orrery::models {

/// Cuts the length evenly, in the order of the owners. Pieces may be empty.
inline Layout split(std::int64_t length, const std::vector<int>& owners) {
  Layout layout{length, {}};
  const auto count = static_cast<std::int64_t>(owners.size());
  for (std::int64_t i = 0; i < count; ++i) {
    layout.pieces.push_back({owners[i], even_part({0, length}, count, i), kFullValue});
  }
  return layout;
}

/// Each owner holds the whole tensor.
inline Layout replicated(std::int64_t length, const std::vector<int>& owners) {
  Layout layout{length, {}};
  for (const int owner : owners) layout.pieces.push_back({owner, {0, length}, kFullValue});
  return layout;
}

/// Owner i holds summand i of the whole tensor.
inline Layout partial(std::int64_t length, const std::vector<int>& owners) {
  Layout layout = replicated(length, owners);
  for (std::size_t i = 0; i < owners.size(); ++i) layout.pieces[i].partial = static_cast<int>(i);
  return layout;
}

}  // namespace orrery::models
