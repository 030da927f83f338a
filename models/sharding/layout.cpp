#include "models/sharding/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/icl/interval_set.hpp>
#include <map>
#include <numeric>

#include "models/base/check.h"

namespace orrery::models {
namespace {

using Interval = boost::icl::right_open_interval<std::int64_t>;
using IntervalSet =
    boost::icl::interval_set<std::int64_t, std::less, Interval>;  // Joins adjacent intervals.

Interval interval(Slice slice) { return {slice.begin, slice.end}; }

std::string holding(int partial) {
  return partial == kFullValue ? std::string("full values") : fmt::format("summand {}", partial);
}

std::optional<std::string> validate_piece(const Layout& layout, const Piece& piece) {
  const auto [begin, end] = piece.slice;
  if (begin < 0 || begin > end || end > layout.length) {
    return fmt::format("slice [{}, {}) of owner {} is outside [0, {})", begin, end, piece.owner,
                       layout.length);
  }
  if (piece.owner < 0) return fmt::format("owner {} is negative", piece.owner);
  if (piece.partial < kFullValue) {
    return fmt::format("owner {} holds summand {}, which is negative", piece.owner, piece.partial);
  }
  const int first = layout.pieces.front().partial;
  if ((piece.partial == kFullValue) != (first == kFullValue)) {
    return fmt::format("owner {} holds {} and owner {} holds {}", layout.pieces.front().owner,
                       holding(first), piece.owner, holding(piece.partial));
  }
  return std::nullopt;
}

}  // namespace

Slice even_part(Slice whole, std::int64_t parts, std::int64_t index) {
  ORRERY_CHECK(whole.size() >= 0 && 0 <= index && index < parts, "part {} of {} of [{}, {})", index,
               parts, whole.begin, whole.end);
  const std::int64_t each = whole.size() / parts;
  const std::int64_t longer = whole.size() % parts;
  const std::int64_t begin = whole.begin + index * each + std::min(index, longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

std::optional<std::string> validate(const Layout& layout) {
  if (layout.length < 0) return fmt::format("length {} is negative", layout.length);
  std::map<int, IntervalSet> by_owner;
  std::map<int, IntervalSet> by_summand;
  for (const Piece& piece : layout.pieces) {
    if (auto problem = validate_piece(layout, piece)) return problem;
    IntervalSet& covered = by_summand[piece.partial];
    if (piece.slice.size() == 0) continue;
    const Interval slice = interval(piece.slice);
    IntervalSet& own = by_owner[piece.owner];
    if (boost::icl::intersects(own, slice)) {
      return fmt::format("owner {} holds elements of [{}, {}) twice", piece.owner,
                         piece.slice.begin, piece.slice.end);
    }
    own += slice;
    covered += slice;
  }
  if (by_summand.empty()) by_summand[kFullValue];
  for (const auto& [summand, covered] : by_summand) {
    IntervalSet missing;
    if (layout.length > 0) missing += Interval(0, layout.length);
    missing -= covered;
    if (missing.empty()) continue;
    const Interval hole = *missing.begin();
    return fmt::format("nobody holds {} of [{}, {})", holding(summand), hole.lower(), hole.upper());
  }
  return std::nullopt;
}

std::vector<Slice> held(const Layout& layout, int owner) {
  IntervalSet own;
  for (const Piece& piece : layout.pieces) {
    if (piece.owner == owner && piece.slice.size() > 0) own += interval(piece.slice);
  }
  std::vector<Slice> slices;
  for (const Interval& slice : own) slices.push_back({slice.lower(), slice.upper()});
  return slices;
}

std::int64_t elements(const std::vector<Slice>& slices) {
  return std::accumulate(slices.begin(), slices.end(), std::int64_t{0},
                         [](std::int64_t sum, const Slice& slice) { return sum + slice.size(); });
}

}  // namespace orrery::models
