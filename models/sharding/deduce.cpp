#include "models/sharding/deduce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "models/base/check.h"

namespace orrery::models {
namespace {

using DeviceGroups = std::vector<std::vector<int>>;
template <class T>
using Result = std::variant<T, DeductionProblem>;

DeviceGroups groups_of(const Annotation& annotation) {
  DeviceGroups groups;
  for (const Subgroup& subgroup : annotation.subgroups) groups.push_back(subgroup.devices);
  return groups;
}

std::string text(const DeviceGroups& groups) {
  std::vector<std::string> parts;
  for (const auto& group : groups) parts.push_back(fmt::format("{{{}}}", fmt::join(group, ",")));
  return fmt::format("{}", fmt::join(parts, " "));
}

/// The devices whose index along entry `entry` lies in [begin, end), in order.
std::vector<int> devices_in(const Subgroup& subgroup, std::size_t entry, std::int64_t begin,
                            std::int64_t end) {
  std::int64_t inner = 1;
  for (std::size_t e = entry + 1; e < subgroup.states.size(); ++e) {
    inner *= subgroup.states[e].shards;
  }
  std::vector<int> devices;
  for (std::size_t j = 0; j < subgroup.devices.size(); ++j) {
    const std::int64_t index = static_cast<std::int64_t>(j) / inner % subgroup.states[entry].shards;
    if (begin <= index && index < end) devices.push_back(subgroup.devices[j]);
  }
  return devices;
}

/// A subgroup cut into the groups [first, end) along one entry.
struct GroupCut {
  Axis axis = kDuplicate;
  std::vector<Subgroup> subgroups;
  std::vector<std::int64_t> shards;  ///< Of the entry, for each part.
};

std::optional<GroupCut> cut_along(const Subgroup& subgroup, std::size_t entry,
                                  const DeviceGroups& groups, std::size_t first) {
  const std::int64_t shards = subgroup.states[entry].shards;
  const auto per_shard = static_cast<std::int64_t>(subgroup.devices.size()) / shards;
  GroupCut cut{subgroup.states[entry].axis, {}, {}};
  std::int64_t begin = 0;
  for (std::size_t g = first; begin < shards; ++g) {
    if (g == groups.size()) return std::nullopt;
    const auto size = static_cast<std::int64_t>(groups[g].size());
    const std::int64_t end = begin + size / per_shard;
    if (size == 0 || size % per_shard != 0 || end > shards ||
        devices_in(subgroup, entry, begin, end) != groups[g]) {
      return std::nullopt;
    }
    Subgroup part{groups[g], subgroup.states};
    part.states[entry].shards = static_cast<int>(end - begin);
    std::erase_if(part.states, [](const AxisShards& state) { return state.shards == 1; });
    cut.subgroups.push_back(std::move(part));
    cut.shards.push_back(end - begin);
    begin = end;
  }
  return cut;
}

std::optional<GroupCut> cut_into(const Subgroup& subgroup, const DeviceGroups& groups,
                                 std::size_t first, std::optional<Axis> axis) {
  if (first < groups.size() && subgroup.devices == groups[first]) {
    return GroupCut{axis.value_or(kDuplicate), {subgroup}, {1}};
  }
  for (std::size_t entry = 0; entry < subgroup.states.size(); ++entry) {
    if (axis && subgroup.states[entry].axis != *axis) continue;
    if (auto cut = cut_along(subgroup, entry, groups, first)) return cut;
  }
  return std::nullopt;
}

/// The axis of each input on each level of the grid that all inputs share, outermost first.
struct Grid {
  std::vector<int> shards;
  std::vector<std::vector<Axis>> axes;  ///< [level][input]
};

/// Devices from the inside up to each entry's border: 1, last entry, last two, ...
std::vector<std::int64_t> borders(const DistributedStates& states) {
  std::vector<std::int64_t> all{1};
  for (auto entry = states.rbegin(); entry != states.rend(); ++entry) {
    if (entry->shards > 1) all.push_back(all.back() * entry->shards);
  }
  return all;
}

Axis axis_at(const DistributedStates& states, std::int64_t inner) {
  std::int64_t border = 1;
  for (auto entry = states.rbegin(); entry != states.rend(); ++entry) {
    border *= entry->shards;
    if (inner < border) return entry->axis;
  }
  return kDuplicate;
}

std::optional<Grid> common_grid(const std::vector<const DistributedStates*>& inputs) {
  std::set<std::int64_t> all;
  for (const DistributedStates* states : inputs) {
    for (const std::int64_t border : borders(*states)) all.insert(border);
  }
  Grid grid;
  for (auto border = all.begin(); std::next(border) != all.end(); ++border) {
    if (*std::next(border) % *border != 0) return std::nullopt;
    grid.shards.insert(grid.shards.begin(), static_cast<int>(*std::next(border) / *border));
    std::vector<Axis> axes;
    for (const DistributedStates* states : inputs) axes.push_back(axis_at(*states, *border));
    grid.axes.insert(grid.axes.begin(), std::move(axes));
  }
  return grid;
}

std::vector<SymbolicShape> shapes_of(const std::vector<TensorType>& inputs) {
  std::vector<SymbolicShape> shapes;
  for (const TensorType& input : inputs) shapes.push_back(input.shape);
  return shapes;
}

/// What a part of the dimension leaves of the shape; nothing happens where it is not split.
void scale(SymbolicShape& shape, Axis axis, std::int64_t part, std::int64_t of) {
  if (axis < 0) return;
  SymbolicSize& size = shape[axis];
  size = size.scaled(part, of);
}

/// `shapes` are what HDim leaves of the inputs.
Result<DistributedStates> deduce_states(const OperatorType& type,
                                        const std::vector<const DistributedStates*>& inputs,
                                        std::vector<SymbolicShape> shapes) {
  const auto grid = common_grid(inputs);
  if (!grid) {
    return DeductionProblem{static_cast<int>(inputs.size()) - 1,
                            fmt::format("needs a communication operator before input {} because "
                                        "its states number the devices on another grid",
                                        inputs.size() - 1)};
  }
  DistributedStates states;
  for (std::size_t level = 0; level < grid->shards.size(); ++level) {
    const auto axis = axis_of(type, grid->axes[level], shapes);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      scale(shapes[i], grid->axes[level][i], 1, grid->shards[level]);
    }
    if (const auto* problem = std::get_if<DeductionProblem>(&axis)) return *problem;
    const AxisShards next{std::get<Axis>(axis), grid->shards[level]};
    if (!states.empty() && states.back().axis == next.axis) {
      states.back().shards *= next.shards;
    } else if (shards_along(states, next.axis) > 1) {
      return DeductionProblem{0,
                              "needs a communication operator before input 0 because the output "
                              "would be sharded along one axis at two places of its states"};
    } else {
      states.push_back(next);
    }
  }
  return states;
}

/// HDim and shares of the output; the inputs have the same number of subgroups, more than one.
Result<Annotation> deduce_top(const OperatorType& type, const std::vector<Annotation>& inputs,
                              const std::vector<SymbolicShape>& shapes) {
  std::vector<Axis> axes;
  std::optional<std::size_t> split;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    axes.push_back(inputs[i].hetero_axis);
    if (axes.back() < 0) continue;
    if (!split) split = i;
    Annotation same = inputs[i];
    same.hetero_axis = inputs[*split].hetero_axis;
    if (!same_top_tier(same, inputs[*split])) {
      return DeductionProblem{static_cast<int>(i),
                              fmt::format("needs a communication operator before input {} because "
                                          "its shares along HDim are not those of input {}",
                                          i, *split)};
    }
  }
  const auto axis = axis_of(type, axes, shapes);
  if (const auto* problem = std::get_if<DeductionProblem>(&axis)) return *problem;
  Annotation top;
  top.hetero_axis = std::get<Axis>(axis);
  if (top.hetero_axis >= 0 && split) top.shares = inputs[*split].shares;
  return top;
}

/// All inputs with the device groups of the one that has most subgroups.
Result<std::vector<Annotation>> unify(const std::vector<TensorType>& inputs) {
  std::size_t largest = 0;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].annotation.hetero_size() > inputs[largest].annotation.hetero_size()) largest = i;
  }
  const DeviceGroups groups = groups_of(inputs[largest].annotation);
  std::vector<Annotation> unified;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto converted = with_groups(inputs[i].annotation, groups);
    if (!converted) {
      return DeductionProblem{
          static_cast<int>(i),
          fmt::format("needs a communication operator before input {} because it lies on {} and "
                      "input {} on {}",
                      i, text(groups_of(inputs[i].annotation)), largest, text(groups))};
    }
    unified.push_back(std::move(*converted));
  }
  return unified;
}

/// A reshape may leave a dimension that its shards do not divide.
std::optional<DeductionProblem> check_whole(const TensorType& output) {
  for (int i = 0; i < output.annotation.hetero_size(); ++i) {
    for (const SymbolicSize& size : local_shape(output.annotation, output.shape, i)) {
      if (!size.symbol().empty() || size.denominator() == 1) continue;
      return DeductionProblem{0,
                              fmt::format("needs a communication operator before input 0 because "
                                          "subgroup {} would get {} of {}",
                                          i, to_string(size), to_string(output.shape))};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Annotation> with_groups(const Annotation& annotation,
                                      const DeviceGroups& device_groups) {
  const bool one = annotation.hetero_size() == 1;
  Annotation result;
  result.hetero_axis = annotation.hetero_axis;
  std::vector<GroupCut> cuts;
  std::int64_t common = 1;  // All shares become multiples of 1 / common.
  std::size_t next = 0;
  for (const Subgroup& subgroup : annotation.subgroups) {
    auto cut = cut_into(subgroup, device_groups, next,
                        one ? std::nullopt : std::optional<Axis>(annotation.hetero_axis));
    if (!cut) return std::nullopt;
    next += cut->subgroups.size();
    common =
        std::lcm(common, std::accumulate(cut->shards.begin(), cut->shards.end(), std::int64_t{0}));
    if (one) result.hetero_axis = cut->axis;
    cuts.push_back(std::move(*cut));
  }
  if (next != device_groups.size()) return std::nullopt;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const auto total =
        std::accumulate(cuts[i].shards.begin(), cuts[i].shards.end(), std::int64_t{0});
    for (std::size_t j = 0; j < cuts[i].subgroups.size(); ++j) {
      result.subgroups.push_back(cuts[i].subgroups[j]);
      result.shares.push_back((one ? 1 : share_of(annotation, static_cast<int>(i))) *
                              cuts[i].shards[j] * (common / total));
    }
  }
  const auto& shares = result.shares;
  const bool equal = std::all_of(shares.begin(), shares.end(),
                                 [&](std::int64_t share) { return share == shares.front(); });
  if (result.hetero_axis < 0 || result.hetero_size() == 1 || equal) result.shares.clear();
  if (result.hetero_size() == 1) result.hetero_axis = kDuplicate;
  return result;
}

std::optional<Annotation> condensed(const Annotation& annotation) {
  const int size = annotation.hetero_size();
  if (size == 1) return annotation;
  Annotation equal_shares = annotation;
  equal_shares.shares.clear();
  if (!same_top_tier(annotation, equal_shares)) return std::nullopt;
  const DistributedStates& states = annotation.subgroups.front().states;
  Subgroup all{{}, {{annotation.hetero_axis, size}}};
  for (const Subgroup& subgroup : annotation.subgroups) {
    if (subgroup.states != states) return std::nullopt;
    all.devices.insert(all.devices.end(), subgroup.devices.begin(), subgroup.devices.end());
  }
  for (const AxisShards& entry : states) {
    if (entry.axis != annotation.hetero_axis) {
      all.states.push_back(entry);
    } else if (&entry == &states.front()) {
      all.states.front().shards *= entry.shards;  // Adjacent: one entry.
    } else if (entry.shards > 1) {
      return std::nullopt;
    }
  }
  return Annotation{{std::move(all)}, kDuplicate, {}};
}

std::variant<TensorType, DeductionProblem> deduce(const OperatorType& type,
                                                  const std::vector<TensorType>& inputs) {
  ORRERY_CHECK(inputs.size() == inputs_of(type), "{} inputs for {}", inputs.size(), name_of(type));
  const auto shapes = shapes_of(inputs);
  auto shape = shape_of(type, shapes);
  if (auto* problem = std::get_if<DeductionProblem>(&shape)) return *problem;
  auto unified = unify(inputs);
  if (auto* problem = std::get_if<DeductionProblem>(&unified)) return *problem;
  const auto& annotations = std::get<std::vector<Annotation>>(unified);
  TensorType output{std::get<SymbolicShape>(std::move(shape)), {}};
  if (annotations.front().hetero_size() > 1) {
    auto top = deduce_top(type, annotations, shapes);
    if (auto* problem = std::get_if<DeductionProblem>(&top)) return *problem;
    output.annotation = std::get<Annotation>(std::move(top));
  }
  for (std::size_t i = 0; i < annotations.front().subgroups.size(); ++i) {
    std::vector<const DistributedStates*> states;
    std::vector<SymbolicShape> parts = shapes;
    for (std::size_t j = 0; j < annotations.size(); ++j) {
      const Annotation& input = annotations[j];
      states.push_back(&input.subgroups[i].states);
      if (input.hetero_size() == 1) continue;
      scale(parts[j], input.hetero_axis, share_of(input, static_cast<int>(i)), total_share(input));
    }
    auto result = deduce_states(type, states, std::move(parts));
    if (auto* problem = std::get_if<DeductionProblem>(&result)) {
      return DeductionProblem{problem->input, fmt::format("{} (subgroup {})", problem->reason, i)};
    }
    output.annotation.subgroups.push_back(
        {annotations.front().subgroups[i].devices, std::get<DistributedStates>(std::move(result))});
  }
  if (auto problem = check_whole(output)) return *problem;
  return output;
}

}  // namespace orrery::models
