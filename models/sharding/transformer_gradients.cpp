#include "models/sharding/transformer_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "models/base/ids.h"

namespace orrery::models::transformer {
namespace {

using Copies = std::vector<Subgroup>;

Annotation under(Copies copies, Axis hetero_axis) {
  Annotation annotation{std::move(copies), kDuplicate, {}};
  if (annotation.hetero_size() > 1) annotation.hetero_axis = hetero_axis;
  return annotation;
}

/// The copies with their members' summands added up.
Copies added_up(Copies copies) {
  for (Subgroup& copy : copies) {
    DistributedStates states;
    for (const auto& [axis, shards] : copy.states) {
      append(states, axis == kPartial ? kDuplicate : axis, shards);
    }
    copy.states = std::move(states);
  }
  return copies;
}

/// Whether all have the same states.
bool alike(const Copies& copies) {
  return std::all_of(copies.begin(), copies.end(),
                     [&](const Subgroup& copy) { return copy.states == copies.front().states; });
}

/// One subgroup of equal copies, which are divided (or not) along `axis`.
Subgroup merged(const Copies& copies, Axis axis) {
  Subgroup all;
  for (const Subgroup& copy : copies) {
    all.devices.insert(all.devices.end(), copy.devices.begin(), copy.devices.end());
  }
  append(all.states, axis, static_cast<int>(copies.size()));
  for (const auto& [inner, shards] : copies.front().states) append(all.states, inner, shards);
  return all;
}

/// Consecutive copies, `size` by `size`; 0: all.
std::vector<Copies> shard_groups(const Copies& copies, int size) {
  std::vector<Copies> groups;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const bool fresh = size > 0 && i % as_size(size) == 0;
    if (groups.empty() || fresh) groups.emplace_back();
    groups.back().push_back(copies[i]);
  }
  return groups;
}

/// The shape in which ZeRO divides a parameter, and along which dimension.
struct View {
  SymbolicShape shape;
  Axis shards = 0;
};

/// The largest dimension that no state splits; without one, the last dimension is cut at all
/// borders of the states, and what lies between two cuts becomes a dimension.
View view_of(const SymbolicShape& shape, const Copies& copies) {
  std::set<Axis> taken;
  for (const Subgroup& copy : copies) {
    for (const auto& [axis, shards] : copy.states) taken.insert(axis);
  }
  std::optional<Axis> largest;
  const auto size = [&](Axis axis) { return shape[axis].numerator(); };
  for (Axis axis = 0; axis < static_cast<Axis>(shape.size()); ++axis) {
    if (taken.count(axis) == 0 && (!largest || size(axis) > size(*largest))) largest = axis;
  }
  if (largest) return {shape, *largest};
  const auto last = static_cast<Axis>(shape.size()) - 1;
  std::int64_t cuts = 1;
  for (const Subgroup& copy : copies) {
    cuts = std::lcm(cuts, std::int64_t{shards_along(copy.states, last)});
  }
  View view{shape, last + 1};
  view.shape.push_back(shape.back().scaled(1, cuts));
  view.shape[last] = cuts;
  return view;
}

/// What one parameter's operators need.
struct Synchronization {
  const std::string& name;
  const SymbolicShape& shape;
  const ir::Zero& zero;
  Copies copies;
  Graph& graph;

  int gradient(int summands, Annotation to, const char* suffix = "gradient") const {
    return graph.communicate(fmt::format("{}.{}", name, suffix), summands, std::move(to),
                             Frequency::step);
  }
  void refresh(int shards, Annotation to) const {
    graph.communicate(name + ".refresh", shards, std::move(to),
                      zero.shards_parameters() ? Frequency::pass : Frequency::step);
  }
  int leaf(const char* suffix, const SymbolicShape& of, Annotation annotation) const {
    return graph.leaf(fmt::format("{}.{}", name, suffix), of, std::move(annotation));
  }

  /// Every copy gets the sum.
  void sum() const {
    Annotation from = under(copies, kPartial);
    Annotation to = under(added_up(copies), kDuplicate);
    if (from == to) return;
    if (alike(copies)) {
      from = {{merged(copies, kPartial)}, kDuplicate, {}};
      to = {{merged(added_up(copies), kDuplicate)}, kDuplicate, {}};
    }
    gradient(leaf("summands", shape, std::move(from)), std::move(to));
  }

  /// All copies divide the sum among them. Members' own summands are added up inside each copy
  /// first, by the same operator.
  void scatter() const {
    const Copies wholes = added_up(copies);
    const View view = view_of(shape, wholes);
    Annotation from = under(copies, kPartial);
    Annotation to = under(wholes, view.shards);
    Annotation back = under(wholes, kDuplicate);
    if (alike(copies) && wholes == copies) {
      from = {{merged(copies, kPartial)}, kDuplicate, {}};
      to = {{merged(wholes, view.shards)}, kDuplicate, {}};
      back = {{merged(wholes, kDuplicate)}, kDuplicate, {}};
    }
    const int summands = leaf("summands", view.shape, std::move(from));
    refresh(gradient(summands, std::move(to)), std::move(back));
  }

  /// Each shard group is a subgroup: it divides its own sum (bottom tier), and the shards are added
  /// up between the groups (top tier).
  std::optional<GraphProblem> scatter_in(const std::vector<Copies>& groups) const {
    const Copies wholes = added_up(copies);
    const View view = view_of(shape, wholes);
    if (wholes != copies) {  // First inside each copy; then the same said of the shard groups.
      const int summands = leaf("summands", view.shape, under(copies, kPartial));
      gradient(summands, under(wholes, kPartial), "whole");
    }
    Copies from;
    Copies to;
    Copies back;
    for (const Copies& group : groups) {
      if (!alike(group)) {
        return refused(fmt::format(
            "a ZeRO shard group of {} has copies of different states beside another shard group: "
            "two tiers cannot say copies in groups in a whole",
            name));
      }
      const Copies own = added_up(group);
      from.push_back(merged(own, kPartial));
      to.push_back(merged(own, view.shards));
      back.push_back(merged(own, kDuplicate));
    }
    const int summands =
        leaf(wholes == copies ? "summands" : "sums", view.shape, under(std::move(from), kPartial));
    refresh(gradient(summands, under(std::move(to), kDuplicate)), under(back, kDuplicate));
    return std::nullopt;
  }
};

std::optional<GraphProblem> emit(const Parameter& parameter, Copies copies, Graph& graph) {
  const ir::Zero& zero = parameter.groups.front().zero;
  const Synchronization all{parameter.name, parameter.shape, zero, std::move(copies), graph};
  if (!zero.shards_optimizer() || all.copies.size() == 1) {
    all.sum();
    return std::nullopt;
  }
  const auto groups = shard_groups(all.copies, zero.shard_group);
  if (groups.size() > 1) return all.scatter_in(groups);
  all.scatter();
  return std::nullopt;
}

std::set<int> devices_of(const Subgroup& copy) {
  return {copy.devices.begin(), copy.devices.end()};
}

bool meet(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int device) { return b.count(device) > 0; });
}

}  // namespace

std::optional<GraphProblem> synchronize(const Parameter& parameter, Graph& graph) {
  return emit(parameter, copies(parameter), graph);
}

std::optional<GraphProblem> synchronize_tied(const Parameter& first, const Parameter& last,
                                             Graph& graph) {
  if (first.groups.front().zero != last.groups.front().zero) {
    return refused("the two ends of the tied matrix differ in ZeRO");
  }
  Copies all = copies(first);
  for (Subgroup& copy : copies(last)) {
    if (std::find(all.begin(), all.end(), copy) != all.end()) continue;
    const auto devices = devices_of(copy);
    const bool cut = std::any_of(all.begin(), all.end(), [&](const Subgroup& other) {
      return meet(devices, devices_of(other));
    });
    if (cut) {
      return refused(
          fmt::format("device {} holds unequal parts of the tied matrix for its two ends",
                      copy.devices.front()));
    }
    all.push_back(std::move(copy));
  }
  return emit(first, std::move(all), graph);
}

}  // namespace orrery::models::transformer
