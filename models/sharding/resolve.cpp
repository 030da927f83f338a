#include "models/sharding/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace orrery::models {
namespace {

void append(std::vector<Slice>& slices, Slice slice) {
  if (!slices.empty() && slices.back().end == slice.begin) {
    slices.back().end = slice.end;
  } else {
    slices.push_back(slice);
  }
}

/// Appends the steps of one phase: one per kind and group, in the order in which they first appear.
void fuse(std::vector<SliceStep>& phase, const std::vector<Slice>& bounds,
          std::vector<GroupStep>& steps) {
  std::map<std::pair<StepKind, std::vector<int>>, std::size_t> index;
  for (SliceStep& one : phase) {
    const auto [at, fresh] = index.try_emplace({one.kind, std::move(one.group)}, steps.size());
    if (fresh) {
      GroupStep step{.kind = one.kind, .slices = {}, .group = at->first.second, .parts = {}};
      if (one.root >= 0) step.parts.resize(step.group.size());
      const bool sends = one.kind == StepKind::send_receive;
      if (sends || one.kind == StepKind::broadcast) step.source = step.group[0];
      if (sends) step.destination = step.group[1];
      steps.push_back(std::move(step));
    }
    GroupStep& step = steps[at->second];
    append(step.slices, bounds[one.slice]);
    if (one.root < 0) continue;
    const auto member = std::find(step.group.begin(), step.group.end(), one.root);
    append(step.parts[member - step.group.begin()], bounds[one.slice]);
  }
}

std::set<int> summands(const Layout& layout) {
  std::set<int> ids;
  for (const Piece& piece : layout.pieces) ids.insert(piece.partial);
  return ids;
}

/// Whether each piece of summands in `to` already lies at its owner in `from`.
std::optional<Unresolvable> keep_summands(const Layout& from, const Layout& to) {
  if (summands(from) != summands(to)) {
    return Unresolvable{fmt::format("the source has summands {} and the destination {} (-1: full)",
                                    summands(from), summands(to))};
  }
  std::map<std::pair<int, int>, Layout> held_by;
  for (const Piece& piece : from.pieces) {
    held_by[{piece.owner, piece.partial}].pieces.push_back(piece);
  }
  for (const Piece& piece : to.pieces) {
    if (piece.slice.size() == 0) continue;
    const auto slices = held(held_by[{piece.owner, piece.partial}], piece.owner);
    const bool there = std::any_of(slices.begin(), slices.end(), [&](const Slice& s) {
      return s.begin <= piece.slice.begin && piece.slice.end <= s.end;
    });
    if (there) continue;
    return Unresolvable{fmt::format("owner {} needs summand {} of [{}, {}) and does not hold it",
                                    piece.owner, piece.partial, piece.slice.begin,
                                    piece.slice.end)};
  }
  return std::nullopt;
}

}  // namespace

FinestSlices finest_slices(const Layout& from, const Layout& to) {
  std::vector<std::int64_t> cuts;
  for (const Layout* layout : {&from, &to}) {
    for (const Piece& piece : layout->pieces) {
      if (piece.slice.size() == 0) continue;
      cuts.push_back(piece.slice.begin);
      cuts.push_back(piece.slice.end);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  FinestSlices finest;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    finest.bounds.push_back({cuts[i], cuts[i + 1]});
    finest.slices.push_back({static_cast<double>(cuts[i + 1] - cuts[i]), {}, {}});
  }
  const auto for_each_in = [&](const Piece& piece, const auto& visit) {
    const auto cut = std::lower_bound(cuts.begin(), cuts.end(), piece.slice.begin);
    for (std::size_t i = cut - cuts.begin();
         i < finest.bounds.size() && finest.bounds[i].end <= piece.slice.end; ++i) {
      visit(finest.slices[i]);
    }
  };
  for (const Piece& piece : from.pieces) {
    for_each_in(piece, [&](FinestSlice& s) { s.from.push_back({piece.owner, piece.partial}); });
  }
  for (const Piece& piece : to.pieces) {
    for_each_in(piece, [&](FinestSlice& s) { s.to.push_back(piece.owner); });
  }
  for (FinestSlice& slice : finest.slices) {
    std::stable_sort(slice.from.begin(), slice.from.end(),
                     [](const Holder& a, const Holder& b) { return a.summand < b.summand; });
  }
  return finest;
}

std::variant<std::vector<GroupStep>, Unresolvable> resolve(const Layout& from, const Layout& to,
                                                           const ResolveOptions& options) {
  if (auto problem = validate(from)) return Unresolvable{"source: " + *problem};
  if (auto problem = validate(to)) return Unresolvable{"destination: " + *problem};
  if (from.length != to.length) {
    return Unresolvable{
        fmt::format("source has {} elements, destination {}", from.length, to.length)};
  }
  if (from.length == 0) return std::vector<GroupStep>{};
  if (to.pieces.front().partial != kFullValue) {
    if (auto problem = keep_summands(from, to)) return *problem;
    return std::vector<GroupStep>{};
  }
  const FinestSlices finest = finest_slices(from, to);
  auto resolved = resolve_slices(finest.slices, options);
  if (const auto* stuck = std::get_if<UnreducedSlice>(&resolved)) {
    const Slice at = finest.bounds[stuck->slice];
    const FinestSlice& slice = finest.slices[stuck->slice];
    std::vector<int> owners;
    for (const Holder& holder : slice.from) owners.push_back(holder.device);
    return Unresolvable{fmt::format(
        "the summands of [{}, {}) lie on owners {}, and none of its destinations {} holds one",
        at.begin, at.end, owners, slice.to)};
  }
  std::vector<GroupStep> steps;
  for (auto& phase : std::get<ResolvedSlices>(resolved)) fuse(phase, finest.bounds, steps);
  return steps;
}

}  // namespace orrery::models
