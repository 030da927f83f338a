#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "models/sharding/communicate_parts.h"

namespace orrery::models::resolution {
namespace {

using Rule = Refusal::Rule;

Holders of_subgroup(const Holders& all, int subgroup) {
  Holders some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const Held& held) { return held.subgroup == subgroup; });
  return some;
}

/// The tensor of one subgroup before and after.
struct Change {
  int subgroup = 0;
  const Subgroup& source;
  const Subgroup& target;
  Holders from;
  Holders to;

  int summands() const { return shards_along(source.states, kPartial); }
  int target_summands() const { return shards_along(target.states, kPartial); }
};

CommunicationStep bottom_step(const Change& change, CommunicationKind kind) {
  CommunicationStep step{kind, Tier::bottom, change.subgroup, 0, {}, {}};
  for (const Held& held : change.to) step.devices.push_back(held.device);
  return step;
}

/// Whether each device has its target already; same devices on both sides.
bool holds_already(const Change& change) {
  if (change.summands() != change.target_summands()) return false;
  for (std::size_t j = 0; j < change.to.size(); ++j) {
    if (change.from[j].summand != change.to[j].summand) return false;
    if (!contains(change.from[j].box, change.to[j].box)) return false;
  }
  return true;
}

CommunicationStep send_shards(const Change& change) {
  CommunicationStep step = bottom_step(change, CommunicationKind::send_receive);
  for (std::size_t j = 0; j < change.to.size(); ++j) {
    const Held& target = change.to[j];
    const bool has = std::any_of(change.from.begin(), change.from.end(), [&](const Held& held) {
      return held.device == target.device && held.box == target.box &&
             held.summand == target.summand;
    });
    if (!has) step.moves.push_back({target.box, {change.from[j].device, target.device}, -1});
  }
  return finish(std::move(step));
}

/// Divides devices into groups: `same` says who may be in one group, `box` gives boxes that must
/// be disjoint in a group and fill `whole` of its first member. Empty where that fails.
template <class Same, class BoxOf, class Whole>
std::vector<std::vector<std::size_t>> tile(std::size_t count, const Same& same, const BoxOf& box,
                                           const Whole& whole) {
  std::vector<std::vector<std::size_t>> all;
  std::vector<bool> taken(count, false);
  for (std::size_t first = 0; first < count; ++first) {
    if (taken[first]) continue;
    std::vector<std::size_t> group;
    std::int64_t filled = 0;
    for (std::size_t j = first; j < count && filled < volume(whole(first)); ++j) {
      if (taken[j] || !same(group, first, j)) continue;
      const bool meets = std::any_of(group.begin(), group.end(), [&](std::size_t other) {
        return intersection(box(other), box(j)).has_value();
      });
      if (meets) continue;
      group.push_back(j);
      filled += volume(box(j));
      taken[j] = true;
    }
    if (filled != volume(whole(first))) return {};
    all.push_back(std::move(group));
  }
  return all;
}

std::optional<CommunicationStep> try_all_reduce(const Change& change) {
  CommunicationStep step = bottom_step(change, CommunicationKind::all_reduce);
  std::map<Box, std::vector<std::vector<int>>> by_box;  // Devices of each summand.
  for (std::size_t j = 0; j < change.from.size(); ++j) {
    const Held& held = change.from[j];
    if (held.box != change.to[j].box) return std::nullopt;
    auto& summands = by_box[held.box];
    summands.resize(static_cast<std::size_t>(change.summands()));
    summands[static_cast<std::size_t>(held.summand)].push_back(held.device);
  }
  for (const auto& [box, summands] : by_box) {
    for (std::size_t replica = 0; replica < summands.front().size(); ++replica) {
      SliceMove move{box, {}, -1};
      for (const auto& devices : summands) move.devices.push_back(devices[replica]);
      step.moves.push_back(std::move(move));
    }
  }
  return step;
}

std::optional<CommunicationStep> try_reduce_scatter(const Change& change) {
  const auto& from = change.from;
  const auto& to = change.to;
  for (std::size_t j = 0; j < from.size(); ++j) {
    if (!contains(from[j].box, to[j].box)) return std::nullopt;
  }
  const auto same = [&](const std::vector<std::size_t>& group, std::size_t first, std::size_t j) {
    return from[j].box == from[first].box &&
           std::none_of(group.begin(), group.end(),
                        [&](std::size_t other) { return from[other].summand == from[j].summand; });
  };
  const auto tiles = tile(
      from.size(), same, [&](std::size_t j) { return to[j].box; },
      [&](std::size_t j) { return from[j].box; });
  if (tiles.empty()) return std::nullopt;
  CommunicationStep step = bottom_step(change, CommunicationKind::reduce_scatter);
  for (const auto& group : tiles) {
    if (group.size() != static_cast<std::size_t>(change.summands())) return std::nullopt;
    std::vector<int> devices;
    for (const std::size_t j : group) devices.push_back(from[j].device);
    for (const std::size_t j : group) step.moves.push_back({to[j].box, devices, to[j].device});
  }
  return step;
}

std::optional<CommunicationStep> try_all_gather(const Change& change) {
  const auto& from = change.from;
  const auto& to = change.to;
  for (std::size_t j = 0; j < from.size(); ++j) {
    if (!contains(to[j].box, from[j].box) || from[j].summand != to[j].summand) return std::nullopt;
  }
  const auto same = [&](const std::vector<std::size_t>&, std::size_t first, std::size_t j) {
    return to[j].box == to[first].box && to[j].summand == to[first].summand;
  };
  const auto tiles = tile(
      from.size(), same, [&](std::size_t j) { return from[j].box; },
      [&](std::size_t j) { return to[j].box; });
  if (tiles.empty()) return std::nullopt;
  CommunicationStep step = bottom_step(change, CommunicationKind::all_gather);
  for (const auto& group : tiles) {
    std::vector<int> devices;
    for (const std::size_t j : group) devices.push_back(from[j].device);
    if (devices.size() < 2) continue;
    for (const std::size_t j : group) step.moves.push_back({from[j].box, devices, from[j].device});
  }
  return step;
}

std::variant<CommunicationStep, Refusal> change_subgroup(const Change& change,
                                                         const BatchedOptions& options) {
  const bool same_devices = change.source.devices == change.target.devices;
  if (same_devices && holds_already(change)) {
    return bottom_step(change, CommunicationKind::identity);
  }
  if (change.source.states == change.target.states) return send_shards(change);
  if (change.target_summands() > 1 && change.target_summands() != change.summands()) {
    return Refusal{Rule::to_partial,
                   fmt::format("subgroup {} would need {} summands, it has {}", change.subgroup,
                               change.target_summands(), change.summands())};
  }
  if (same_devices) {
    std::optional<CommunicationStep> step;
    if (change.summands() == change.target_summands()) {
      step = try_all_gather(change);
    } else {
      step = try_all_reduce(change);
      if (!step) step = try_reduce_scatter(change);
    }
    if (step) return *step;
  }
  if (change.summands() == 1) {
    return batch(change.from, change.to, Tier::bottom, change.subgroup, options);
  }
  return Refusal{
      same_devices ? Rule::no_collective : Rule::changed_groups,
      fmt::format("subgroup {} holds {} summands, {}", change.subgroup, change.summands(),
                  same_devices ? "and neither AR, RS nor AG leads to its states"
                               : "which sends cannot add on other devices")};
}

}  // namespace

Outcome change_bottom(const Annotation& from, const Annotation& to, const Shape& shape,
                      const BatchedOptions& options) {
  const Holders source = expand(from, shape);
  const Holders target = expand(to, shape);
  Steps steps;
  for (int i = 0; i < from.hetero_size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Change change{i, from.subgroups[at], to.subgroups[at], of_subgroup(source, i),
                        of_subgroup(target, i)};
    auto step = change_subgroup(change, options);
    if (auto* refusal = std::get_if<Refusal>(&step)) return std::move(*refusal);
    steps.push_back(std::get<CommunicationStep>(std::move(step)));
  }
  return steps;
}

}  // namespace orrery::models::resolution
