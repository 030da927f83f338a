#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/sharding/communicate_parts.h"

namespace orrery::models::resolution {
namespace {

using Rule = Refusal::Rule;

/// Devices by subgroup.
using BySubgroup = std::vector<std::vector<int>>;

BySubgroup holders_of(const Holders& all, const Box& box, int summand, int subgroups) {
  BySubgroup found(static_cast<std::size_t>(subgroups));
  for (const Held& held : all) {
    if (held.summand == summand && contains(held.box, box)) {
      found[static_cast<std::size_t>(held.subgroup)].push_back(held.device);
    }
  }
  return found;
}

std::size_t most(const BySubgroup& devices) {
  std::size_t count = 0;
  for (const auto& list : devices) count = std::max(count, list.size());
  return count;
}

/// The groups that communicate one slice: `members` has candidates for each subgroup, of which the
/// one with few is taken round-robin. With `roots`, the subgroup that keeps or brings the slice.
void add_groups(const Box& box, const BySubgroup& members, std::size_t count, int root_subgroup,
                std::vector<SliceMove>& moves) {
  for (std::size_t g = 0; g < count; ++g) {
    SliceMove move{box, {}, -1};
    for (const auto& list : members) move.devices.push_back(list[g % list.size()]);
    if (root_subgroup >= 0) move.root = move.devices[static_cast<std::size_t>(root_subgroup)];
    moves.push_back(std::move(move));
  }
}

/// The only subgroup with devices in the list.
int only_subgroup(const BySubgroup& devices) {
  int found = -1;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].empty()) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

bool includes_all(std::vector<int> some, std::vector<int> all) {
  std::sort(some.begin(), some.end());
  std::sort(all.begin(), all.end());
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

/// One slice and summand; false where a device would need what its subgroup's partner has.
bool add_slice(CommunicationKind kind, const Box& box, const BySubgroup& before,
               const BySubgroup& after, std::vector<SliceMove>& moves) {
  if (kind == CommunicationKind::split_all_reduce) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i].empty() || !includes_all(after[i], before[i])) return false;
    }
    add_groups(box, before, most(before), -1, moves);
    return true;
  }
  const bool scatters = kind == CommunicationKind::split_reduce_scatter;
  const int root = only_subgroup(scatters ? after : before);
  if (root < 0) return false;
  const auto at = static_cast<std::size_t>(root);
  if (!includes_all(after[at], before[at])) return false;
  BySubgroup members = scatters ? before : after;
  members[at] = after[at];
  if (std::any_of(members.begin(), members.end(), [](const auto& l) { return l.empty(); })) {
    return false;
  }
  add_groups(box, members, scatters ? after[at].size() : most(members), root, moves);
  return true;
}

std::optional<CommunicationKind> split_kind(Axis from, Axis to) {
  if (from == kPartial && to == kDuplicate) return CommunicationKind::split_all_reduce;
  if (from == kPartial && to >= 0) return CommunicationKind::split_reduce_scatter;
  if (from >= 0 && to == kDuplicate) return CommunicationKind::split_all_gather;
  return std::nullopt;
}

std::optional<CommunicationStep> try_split_collective(const Annotation& from, const Holders& source,
                                                      const Annotation& to, const Holders& target) {
  const auto kind = split_kind(from.hetero_axis, to.hetero_axis);
  if (!kind) return std::nullopt;
  const int summands = shards_along(from.subgroups.front().states, kPartial);
  for (const Subgroup& subgroup : from.subgroups) {
    if (shards_along(subgroup.states, kPartial) != summands) return std::nullopt;
  }
  CommunicationStep step{*kind, Tier::top, -1, 0, {}, {}};
  for (const Box& box : finest_slices(source, target)) {
    for (int summand = 0; summand < summands; ++summand) {
      const auto before = holders_of(source, box, summand, from.hetero_size());
      const auto after = holders_of(target, box, summand, to.hetero_size());
      if (!add_slice(*kind, box, before, after, step.moves)) return std::nullopt;
    }
  }
  return finish(std::move(step));
}

}  // namespace

Outcome change_top(const Annotation& from, const Annotation& to, const Shape& shape,
                   const BatchedOptions& options) {
  if (to.hetero_axis == kPartial) {
    return Refusal{Rule::to_partial, "the subgroups would need summands, they hold none"};
  }
  const Holders source = expand(from, shape);
  const Holders target = expand(to, shape);
  if (auto step = try_split_collective(from, source, to, target)) return Steps{*step};
  bool local = from.hetero_axis != kPartial;
  for (std::size_t j = 0; j < source.size(); ++j) {
    local = local && contains(source[j].box, target[j].box);
  }
  if (local) {
    CommunicationStep step{CommunicationKind::identity, Tier::top, -1, 0, {}, {}};
    for (const Held& held : target) step.devices.push_back(held.device);
    return Steps{finish(std::move(step))};
  }
  if (!has_partial(from)) return Steps{batch(source, target, Tier::top, -1, options)};
  return Refusal{Rule::no_split_collective,
                 fmt::format("no SplitAR, SplitRS or SplitAG leads from {} to {}", to_string(from),
                             to_string(to))};
}

}  // namespace orrery::models::resolution
