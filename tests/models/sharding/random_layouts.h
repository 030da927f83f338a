/// Random layouts for property tests, and what they mean element by element: the slow reference.
#pragma once
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "models/sharding/layout.h"
#include "models/sharding/resolve.h"
#include "tests/models/sharding/interpreter.h"

namespace orrery::models::testing {

/// Uniform on [low, high] at every test size, so that early cases are not all tiny.
inline int random_int(int low, int high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1));
}

/// Any order of owners 0 .. count-1, drawn through RapidCheck so that it shrinks.
inline std::vector<int> random_order(int count) {
  std::vector<int> order;
  for (int i = 0; i < count; ++i) order.insert(order.begin() + random_int(0, i), i);
  return order;
}

inline std::vector<std::int64_t> random_boundaries(std::int64_t length, int parts) {
  std::vector<std::int64_t> boundaries{0, length};
  for (int i = 1; i < parts; ++i) boundaries.push_back(random_int(0, static_cast<int>(length)));
  std::sort(boundaries.begin(), boundaries.end());
  return boundaries;
}

/// Every valid layout of full values can come out: each segment lies on any set of owners.
inline Layout random_full(std::int64_t length, int owners) {
  Layout layout{length, {}};
  const auto boundaries = random_boundaries(length, random_int(1, 5));
  for (std::size_t i = 0; i + 1 < boundaries.size(); ++i) {
    const auto order = random_order(owners);
    const int copies = random_int(1, owners);
    for (int c = 0; c < copies; ++c) {
      layout.pieces.push_back({order[c], {boundaries[i], boundaries[i + 1]}, kFullValue});
    }
  }
  return layout;
}

/// Every valid layout of `summands` summands can come out; owners >= summands.
inline Layout random_partial(std::int64_t length, int owners, int summands) {
  Layout layout{length, {}};
  const auto boundaries = random_boundaries(length, random_int(1, 4));
  for (std::size_t i = 0; i + 1 < boundaries.size(); ++i) {
    const auto order = random_order(owners);
    for (int k = 0; k < owners; ++k) {
      const int id = k < summands ? k : random_int(-1, summands - 1);
      if (id < 0) continue;
      layout.pieces.push_back({order[k], {boundaries[i], boundaries[i + 1]}, id});
    }
  }
  return layout;
}

/// Distinct whole numbers: a wrong element, a missing or doubled summand changes a sum.
inline Summands numbers(const Layout& layout) {
  Summands summands;
  for (const Piece& piece : layout.pieces) {
    auto& values = summands[piece.partial];
    if (!values.empty() || layout.length == 0) continue;
    for (std::int64_t x = 0; x < layout.length; ++x) {
      const auto key = static_cast<std::uint64_t>(x * 131 + piece.partial + 2);
      values.push_back(static_cast<double>(key * 0x9E3779B97F4A7C15u >> 40));
    }
  }
  return summands;
}

/// Who holds element x.
inline std::set<int> owners_at(const Layout& layout, std::int64_t x) {
  std::set<int> owners;
  for (const Piece& piece : layout.pieces) {
    if (piece.slice.begin <= x && x < piece.slice.end) owners.insert(piece.owner);
  }
  return owners;
}

/// Elements that some owner of `to` does not hold in `from`.
inline std::int64_t needed(const Layout& from, const Layout& to) {
  std::int64_t count = 0;
  for (std::int64_t x = 0; x < from.length; ++x) {
    const auto have = owners_at(from, x);
    for (int owner : owners_at(to, x)) count += have.count(owner) == 0 ? 1 : 0;
  }
  return count;
}

/// Elements that the steps bring to members which did not bring them themselves.
inline std::int64_t delivered(const std::vector<GroupStep>& steps) {
  std::int64_t count = 0;
  for (const GroupStep& step : steps) {
    count += elements(step.slices) * static_cast<std::int64_t>(step.group.size() - 1);
  }
  return count;
}

/// What goes wrong when the steps run on real numbers, or "".
inline std::string run(const Layout& from, const Layout& to, const std::vector<GroupStep>& steps) {
  const Summands summands = numbers(from);
  Buffers buffers = materialize(from, summands);
  if (auto problem = execute(steps, from.length, buffers)) return *problem;
  return compare(to, summands, buffers).value_or("");
}

}  // namespace orrery::models::testing
