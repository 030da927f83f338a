#include "models/sharding/communicate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/check.h"
#include "models/sharding/resolver.h"

namespace orrery::models {
namespace {

using Rule = Refusal::Rule;
using Steps = std::vector<CommunicationStep>;
using Outcome = std::variant<Steps, Refusal>;

/// A piece with its place in the union.
struct Held {
  int device = 0;
  int subgroup = 0;
  Box box;
  int summand = 0;  ///< Of the bottom tier, from 0 in each subgroup; 0 without Partial.
};
using Holders = std::vector<Held>;

Holders expand(const Annotation& annotation, const Shape& shape) {
  const auto all = pieces(annotation, shape);
  Holders holders;
  std::size_t next = 0;
  for (int i = 0; i < annotation.hetero_size(); ++i) {
    const auto& devices = annotation.subgroups[i].devices;
    const int base = all[next].partial;  // The first device holds the first summand.
    for (std::size_t j = 0; j < devices.size(); ++j, ++next) {
      holders.push_back({devices[j], i, all[next].box, all[next].partial - base});
    }
  }
  return holders;
}

/// The boxes between all cuts that any of the holders' boxes makes.
std::vector<Box> finest_boxes(const Holders& from, const Holders& to) {
  std::vector<std::set<std::int64_t>> cuts(from.front().box.size());
  for (const Holders* holders : {&from, &to}) {
    for (const Held& held : *holders) {
      for (std::size_t d = 0; d < cuts.size(); ++d) {
        cuts[d].insert({held.box[d].begin, held.box[d].end});
      }
    }
  }
  std::vector<Box> boxes{{}};
  for (const auto& dimension : cuts) {
    std::vector<Box> longer;
    for (const Box& box : boxes) {
      for (auto cut = dimension.begin(); std::next(cut) != dimension.end(); ++cut) {
        longer.push_back(box);
        longer.back().push_back({*cut, *std::next(cut)});
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

/// What may add up with each other in a resolution.
enum class Summands {
  none,         ///< Full values, or a summand that stays one, each with its equals.
  of_subgroup,  ///< Partial in the states of one subgroup.
  of_subgroups  ///< HDim Partial: each subgroup has one; those of the states stay.
};

/// Finest boxes with their holders, as the resolver takes them.
struct BoxTable {
  std::vector<Box> boxes;  ///< By slice.
  std::vector<FinestSlice> slices;
};

BoxTable make_table(const Holders& from, const Holders& to, Summands sums) {
  std::set<int> apart;  // Summands that stay: each is a tensor of its own.
  for (const Held& held : from) apart.insert(sums == Summands::of_subgroup ? 0 : held.summand);
  BoxTable table;
  for (const Box& box : finest_boxes(from, to)) {
    for (const int summand : apart) {
      const auto takes_part = [&](const Held& held) {
        const bool same = sums == Summands::of_subgroup || held.summand == summand;
        return same && contains(held.box, box);
      };
      FinestSlice slice{static_cast<double>(volume(box)), {}, {}};
      for (const Held& held : from) {
        if (!takes_part(held)) continue;
        const int number = sums == Summands::of_subgroup    ? held.summand
                           : sums == Summands::of_subgroups ? held.subgroup
                                                            : kFullValue;
        slice.from.push_back({held.device, number});
      }
      for (const Held& held : to) {
        if (takes_part(held)) slice.to.push_back(held.device);
      }
      std::stable_sort(slice.from.begin(), slice.from.end(),
                       [](const Holder& a, const Holder& b) { return a.summand < b.summand; });
      table.boxes.push_back(box);
      table.slices.push_back(std::move(slice));
    }
  }
  return table;
}

/// What the resolver finds, where that is one kind of collective.
std::optional<std::vector<SliceStep>> collective(const BoxTable& table) {
  auto resolved = resolve_slices(table.slices, {{}, true, Copies::in_own_groups});
  if (std::holds_alternative<UnreducedSlice>(resolved)) return std::nullopt;
  std::vector<SliceStep> all;
  for (auto& phase : std::get<ResolvedSlices>(resolved)) {
    std::move(phase.begin(), phase.end(), std::back_inserter(all));
  }
  const auto alike = [&](const SliceStep& step) {
    return step.kind == all.front().kind && step.kind != StepKind::send_receive;
  };
  if (all.empty() || !std::all_of(all.begin(), all.end(), alike)) return std::nullopt;
  return all;
}

std::vector<SliceMove> moves_of(const BoxTable& table, const std::vector<SliceStep>& steps) {
  std::vector<SliceMove> moves;
  for (const SliceStep& step : steps) {
    moves.push_back({table.boxes[step.slice], step.group, step.root});
  }
  return moves;
}

/// Adds the devices of the moves to those that take part; without moves it is an identity.
CommunicationStep finish(CommunicationStep step) {
  std::set<int> devices(step.devices.begin(), step.devices.end());
  for (const SliceMove& move : step.moves) devices.insert(move.devices.begin(), move.devices.end());
  step.devices.assign(devices.begin(), devices.end());
  if (step.moves.empty()) step.kind = CommunicationKind::identity;
  return step;
}

/// BSR. Only with full values, or with one and the same summand everywhere.
CommunicationStep batch(const Holders& from, const Holders& to, Tier tier, int subgroup,
                        const BatchedOptions& options) {
  CommunicationStep step{CommunicationKind::batched_send_receive, tier, subgroup, 0, {}, {}};
  for (const Held& held : to) step.devices.push_back(held.device);
  const BoxTable table = make_table(from, to, Summands::none);
  const auto resolved = resolve_slices(table.slices, {options, false, Copies::in_own_groups});
  step.moves = moves_of(table, std::get<ResolvedSlices>(resolved).back());
  return finish(std::move(step));
}

// ---- Inside the subgroups: states or devices change, the top tier stays. [section 4.1] ----

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

/// The holders of a subgroup in an order in which the first of each summand, the second of each,
/// ... can divide what they hold among them.
Holders lined_up(const Change& change) {
  Holders all;
  std::vector<bool> taken(change.from.size(), false);
  for (std::size_t first = 0; first < change.from.size(); ++first) {
    std::vector<std::size_t> group;
    for (std::size_t j = first; j < change.from.size(); ++j) {
      const Held& held = change.from[j];
      const bool fits = !taken[j] && held.box == change.from[first].box &&
                        std::none_of(group.begin(), group.end(), [&](std::size_t other) {
                          return change.from[other].summand == held.summand ||
                                 intersection(change.to[other].box, change.to[j].box);
                        });
      if (!fits || (group.empty() && j > first)) continue;
      group.push_back(j);
      taken[j] = true;
      all.push_back(held);
    }
  }
  return all;
}

CommunicationKind bottom_kind(StepKind kind) {
  if (kind == StepKind::all_reduce) return CommunicationKind::all_reduce;
  return kind == StepKind::all_gather ? CommunicationKind::all_gather
                                      : CommunicationKind::reduce_scatter;
}

/// AR, RS or AG among all devices of the subgroup, if one of them leads to its states.
std::optional<CommunicationStep> collective_of(const Change& change) {
  const bool adds = change.summands() != change.target_summands();
  const BoxTable table = adds ? make_table(lined_up(change), change.to, Summands::of_subgroup)
                              : make_table(change.from, change.to, Summands::none);
  auto steps = collective(table);
  if (!steps) return std::nullopt;
  CommunicationStep step = bottom_step(change, bottom_kind(steps->front().kind));
  std::map<int, std::size_t> position;
  for (std::size_t j = 0; j < change.from.size(); ++j) position[change.from[j].device] = j;
  const auto earlier = [&](int a, int b) { return position.at(a) < position.at(b); };
  if (step.kind != CommunicationKind::all_reduce) {  // Group by group, in the order of the devices.
    for (SliceStep& one : *steps) std::sort(one.group.begin(), one.group.end(), earlier);
    const auto place = [&](const SliceStep& one) {
      return std::pair(position.at(one.group.front()), position.at(one.root));
    };
    std::stable_sort(steps->begin(), steps->end(),
                     [&](const SliceStep& a, const SliceStep& b) { return place(a) < place(b); });
  }
  step.moves = moves_of(table, *steps);
  if (step.kind != CommunicationKind::reduce_scatter) return step;
  std::map<std::vector<int>, std::int64_t> kept;  // A group scatters all that its members hold.
  for (const SliceMove& move : step.moves) kept[move.devices] += volume(move.box);
  for (const auto& [group, elements] : kept) {
    if (elements != volume(change.from[position.at(group.front())].box)) return std::nullopt;
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
    if (auto step = collective_of(change)) return *std::move(step);
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

Outcome change_bottom(const Annotation& from, const Annotation& to, const Shape& shape,
                      const BatchedOptions& options) {
  const Holders source = expand(from, shape);
  const Holders target = expand(to, shape);
  Steps steps;
  for (int i = 0; i < from.hetero_size(); ++i) {
    const std::size_t at = i;
    const Change change{i, from.subgroups[at], to.subgroups[at], of_subgroup(source, i),
                        of_subgroup(target, i)};
    auto step = change_subgroup(change, options);
    if (auto* refusal = std::get_if<Refusal>(&step)) return std::move(*refusal);
    steps.push_back(std::get<CommunicationStep>(std::move(step)));
  }
  return steps;
}

// ---- Across the subgroups: HDim or its shares change, groups and states stay. [section 4.2] ----

std::optional<std::pair<CommunicationKind, StepKind>> split_kind(Axis from, Axis to) {
  if (from == kPartial && to == kDuplicate) {
    return std::pair(CommunicationKind::split_all_reduce, StepKind::all_reduce);
  }
  if (from == kPartial && to >= 0) {
    return std::pair(CommunicationKind::split_reduce_scatter, StepKind::reduce_scatter);
  }
  if (from >= 0 && to == kDuplicate) {
    return std::pair(CommunicationKind::split_all_gather, StepKind::all_gather);
  }
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
  const bool adds = from.hetero_axis == kPartial;
  const BoxTable table = make_table(source, target, adds ? Summands::of_subgroups : Summands::none);
  auto steps = collective(table);
  if (!steps || steps->front().kind != kind->second) return std::nullopt;
  std::stable_sort(steps->begin(), steps->end(),
                   [](const SliceStep& a, const SliceStep& b) { return a.slice < b.slice; });
  return finish({kind->first, Tier::top, -1, 0, {}, moves_of(table, *steps)});
}

Outcome change_top(const Annotation& from, const Annotation& to, const Shape& shape,
                   const BatchedOptions& options) {
  if (to.hetero_axis == kPartial) {
    return Refusal{Rule::to_partial, "the subgroups would need summands, they hold none"};
  }
  const Holders source = expand(from, shape);
  const Holders target = expand(to, shape);
  if (auto step = try_split_collective(from, source, to, target)) return Steps{*std::move(step)};
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

/// First the states, then the top tier. [section 4.2, II]
Outcome change_both(const Annotation& from, const Annotation& to, const Shape& shape,
                    const BatchedOptions& options) {
  const Annotation middle{to.subgroups, from.hetero_axis, from.shares};
  const bool partial = has_partial(from) || has_partial(to);
  const auto invalid = validate(middle, shape);
  const auto whole = [&]() -> Outcome {
    return Steps{batch(expand(from, shape), expand(to, shape), Tier::top, -1, options)};
  };
  if (invalid && !partial) return whole();
  if (invalid) {
    return Refusal{
        Rule::no_split_collective,
        fmt::format("no state between {} and {}: {}", to_string(from), to_string(to), *invalid)};
  }
  Outcome bottom = change_bottom(from, middle, shape, options);
  if (std::holds_alternative<Refusal>(bottom)) return bottom;
  Outcome top = change_top(middle, to, shape, options);
  if (std::holds_alternative<Refusal>(top)) return top;
  Steps steps = std::get<Steps>(std::move(bottom));
  for (CommunicationStep& step : std::get<Steps>(top)) {
    if (step.kind == CommunicationKind::batched_send_receive && !partial) return whole();
    step.phase = 1;
    steps.push_back(std::move(step));
  }
  return steps;
}

Annotation without_single_shards(Annotation annotation) {
  for (Subgroup& subgroup : annotation.subgroups) {
    std::erase_if(subgroup.states, [](const AxisShards& entry) { return entry.shards == 1; });
  }
  return annotation;
}

}  // namespace

std::string_view to_string(CommunicationKind kind) {
  switch (kind) {
    case CommunicationKind::identity:
      return "identity";
    case CommunicationKind::send_receive:
      return "SR";
    case CommunicationKind::all_reduce:
      return "AR";
    case CommunicationKind::reduce_scatter:
      return "RS";
    case CommunicationKind::all_gather:
      return "AG";
    case CommunicationKind::split_all_reduce:
      return "SplitAR";
    case CommunicationKind::split_reduce_scatter:
      return "SplitRS";
    case CommunicationKind::split_all_gather:
      return "SplitAG";
    case CommunicationKind::batched_send_receive:
      return "BSR";
  }
  ORRERY_CHECK(false, "kind {}", static_cast<int>(kind));
}

bool is_collective(CommunicationKind kind) {
  return kind != CommunicationKind::identity && kind != CommunicationKind::send_receive &&
         kind != CommunicationKind::batched_send_receive;
}

std::vector<std::vector<int>> groups(const CommunicationStep& step) {
  std::vector<std::vector<int>> found;
  std::set<std::vector<int>> seen;
  for (const SliceMove& move : step.moves) {
    if (seen.insert(move.devices).second) found.push_back(move.devices);
  }
  return found;
}

Outcome communicate(const Annotation& from_given, const Annotation& to_given, const Shape& shape,
                    const BatchedOptions& options) {
  if (auto problem = validate(from_given, shape)) {
    return Refusal{Rule::invalid, "source: " + *problem};
  }
  if (auto problem = validate(to_given, shape)) {
    return Refusal{Rule::invalid, "destination: " + *problem};
  }
  const Annotation from = without_single_shards(from_given);
  const Annotation to = without_single_shards(to_given);
  if (same_top_tier(from, to)) return change_bottom(from, to, shape, options);
  if (from.hetero_size() == to.hetero_size() && same_device_groups(from, to)) {
    const bool same_states =
        std::equal(from.subgroups.begin(), from.subgroups.end(), to.subgroups.begin());
    return same_states ? change_top(from, to, shape, options)
                       : change_both(from, to, shape, options);
  }
  if (has_partial(from) || has_partial(to)) {
    return Refusal{Rule::changed_groups, fmt::format("Partial, and {}: sends cannot add ({} to {})",
                                                     from.hetero_size() == to.hetero_size()
                                                         ? "the device groups change"
                                                         : "the number of subgroups changes",
                                                     to_string(from), to_string(to))};
  }
  return Steps{batch(expand(from, shape), expand(to, shape), Tier::top, -1, options)};
}

}  // namespace orrery::models
