#include "models/sharding/annotation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "models/base/check.h"

namespace orrery::models {
namespace {

using Problem = std::optional<std::string>;

std::string name(Axis axis) {
  if (axis == kDuplicate) return "D";
  if (axis == kPartial) return "P";
  return fmt::format("S{}", axis);
}

Problem check_axis(Axis axis, int dimensions) {
  if (axis >= kPartial && axis < dimensions) return std::nullopt;
  return fmt::format("axis {} of a tensor of {} dimensions", axis, dimensions);
}

Problem check_states(const Subgroup& subgroup, int dimensions) {
  std::int64_t product = 1;
  for (auto entry = subgroup.states.begin(); entry != subgroup.states.end(); ++entry) {
    const auto [axis, shards] = *entry;
    if (auto problem = check_axis(axis, dimensions)) return problem;
    if (shards < 1) return fmt::format("{} has {} shards", name(axis), shards);
    const bool twice = std::any_of(subgroup.states.begin(), entry, [&](const AxisShards& other) {
      return other.axis == entry->axis;
    });
    if (twice) return fmt::format("{} appears twice in one DS", name(axis));
    product *= shards;
  }
  if (product == static_cast<std::int64_t>(subgroup.devices.size())) return std::nullopt;
  return fmt::format("{} shards on {} devices", product, subgroup.devices.size());
}

Problem check_devices(const Annotation& annotation) {
  std::vector<int> devices;
  for (std::size_t i = 0; i < annotation.subgroups.size(); ++i) {
    const std::vector<int>& own = annotation.subgroups[i].devices;
    if (own.empty()) return fmt::format("subgroup {} has no device", i);
    devices.insert(devices.end(), own.begin(), own.end());
  }
  std::sort(devices.begin(), devices.end());
  if (devices.front() < 0) return fmt::format("device {} is negative", devices.front());
  const auto twice = std::adjacent_find(devices.begin(), devices.end());
  if (twice != devices.end()) return fmt::format("device {} appears twice", *twice);
  return std::nullopt;
}

Problem check_shares(const Annotation& annotation) {
  const auto& shares = annotation.shares;
  if (shares.empty()) return std::nullopt;
  if (shares.size() != annotation.subgroups.size()) {
    return fmt::format("{} shares for {} subgroups", shares.size(), annotation.subgroups.size());
  }
  if (annotation.hetero_axis < 0) return "shares without a dimension that they divide";
  for (const std::int64_t share : shares) {
    if (share <= 0) return fmt::format("share {} is not positive", share);
  }
  return std::nullopt;
}

/// The part of a dimension that a subgroup gets in the top tier.
Slice top_slice(const Annotation& annotation, int subgroup, int dimension, std::int64_t size) {
  if (annotation.hetero_size() == 1 || annotation.hetero_axis != dimension) return {0, size};
  std::int64_t before = 0;
  for (int i = 0; i < subgroup; ++i) before += share_of(annotation, i);
  const std::int64_t total = total_share(annotation);
  return {size * before / total, size * (before + share_of(annotation, subgroup)) / total};
}

Problem check_sizes(const Annotation& annotation, const Shape& shape, Splits splits) {
  for (int i = 0; i < annotation.hetero_size(); ++i) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const int dimension = static_cast<int>(d);
      if (annotation.hetero_axis == dimension && annotation.hetero_size() > 1 &&
          shape[d] * share_of(annotation, i) % total_share(annotation) != 0) {
        return fmt::format("dimension {} of size {} has no {}/{} for subgroup {}", d, shape[d],
                           share_of(annotation, i), total_share(annotation), i);
      }
      const std::int64_t size = top_slice(annotation, i, dimension, shape[d]).size();
      const int shards = shards_along(annotation.subgroups[i].states, dimension);
      if (splits == Splits::even && size % shards != 0) {
        return fmt::format("subgroup {}: {} shards do not divide the {} of dimension {}", i, shards,
                           size, d);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::int64_t volume(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t volume(const Box& box) {
  return std::accumulate(box.begin(), box.end(), std::int64_t{1},
                         [](std::int64_t product, const Slice& s) { return product * s.size(); });
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  ORRERY_CHECK(a.size() == b.size(), "boxes of {} and {} dimensions", a.size(), b.size());
  Box common;
  for (std::size_t d = 0; d < a.size(); ++d) {
    common.push_back({std::max(a[d].begin, b[d].begin), std::min(a[d].end, b[d].end)});
    if (common[d].begin >= common[d].end) return std::nullopt;
  }
  return common;
}

bool contains(const Box& outer, const Box& inner) {
  for (std::size_t d = 0; d < inner.size(); ++d) {
    if (inner[d].begin < outer[d].begin || inner[d].end > outer[d].end) return false;
  }
  return true;
}

std::string to_string(const Box& box) {
  std::vector<std::string> parts;
  for (const Slice& slice : box) parts.push_back(fmt::format("[{},{})", slice.begin, slice.end));
  return fmt::format("{}", fmt::join(parts, "x"));
}

Problem validate_structure(const Annotation& annotation, int dimensions) {
  if (annotation.subgroups.empty()) return "it has no subgroup";
  if (auto problem = check_devices(annotation)) return problem;
  for (std::size_t i = 0; i < annotation.subgroups.size(); ++i) {
    if (auto problem = check_states(annotation.subgroups[i], dimensions)) {
      return fmt::format("subgroup {}: {}", i, *problem);
    }
  }
  if (auto problem = check_axis(annotation.hetero_axis, dimensions)) return "HDim: " + *problem;
  return check_shares(annotation);
}

Problem validate(const Annotation& annotation, const Shape& shape, Splits splits) {
  if (auto problem = validate_structure(annotation, static_cast<int>(shape.size()))) {
    return problem;
  }
  for (const std::int64_t size : shape) {
    if (size < 0) return fmt::format("a dimension of size {}", size);
  }
  return check_sizes(annotation, shape, splits);
}

std::vector<BoxPiece> pieces(const Annotation& annotation, const Shape& shape) {
  const bool top_partial = annotation.hetero_axis == kPartial && annotation.hetero_size() > 1;
  std::vector<BoxPiece> all;
  int first_summand = 0;
  for (int i = 0; i < annotation.hetero_size(); ++i) {
    const Subgroup& subgroup = annotation.subgroups[i];
    const int summands = shards_along(subgroup.states, kPartial);
    for (std::size_t j = 0; j < subgroup.devices.size(); ++j) {
      BoxPiece piece{subgroup.devices[j], {}, kFullValue};
      for (std::size_t d = 0; d < shape.size(); ++d) {
        piece.box.push_back(top_slice(annotation, i, static_cast<int>(d), shape[d]));
      }
      int summand = 0;
      auto rest = static_cast<std::int64_t>(j);
      for (auto entry = subgroup.states.rbegin(); entry != subgroup.states.rend(); ++entry) {
        const std::int64_t index = rest % entry->shards;
        rest /= entry->shards;
        if (entry->axis == kPartial) summand = static_cast<int>(index);
        if (entry->axis < 0) continue;
        Slice& slice = piece.box[entry->axis];
        slice = even_part(slice, entry->shards, index);
      }
      if (top_partial || summands > 1) piece.partial = first_summand + summand;
      all.push_back(std::move(piece));
    }
    if (top_partial || summands > 1) first_summand += summands;
  }
  return all;
}

int shards_along(const DistributedStates& states, Axis axis) {
  for (const AxisShards& entry : states) {
    if (entry.axis == axis) return entry.shards;
  }
  return 1;
}

std::int64_t share_of(const Annotation& annotation, int subgroup) {
  return annotation.shares.empty() ? 1 : annotation.shares[subgroup];
}

std::int64_t total_share(const Annotation& annotation) {
  if (annotation.shares.empty()) return annotation.hetero_size();
  return std::accumulate(annotation.shares.begin(), annotation.shares.end(), std::int64_t{0});
}

bool same_top_tier(const Annotation& a, const Annotation& b) {
  if (a.hetero_size() != b.hetero_size()) return false;
  if (a.hetero_size() == 1) return true;
  if (a.hetero_axis != b.hetero_axis) return false;
  if (a.hetero_axis < 0) return true;
  const std::int64_t total_a = total_share(a);
  const std::int64_t total_b = total_share(b);
  for (int i = 0; i < a.hetero_size(); ++i) {
    if (share_of(a, i) * total_b != share_of(b, i) * total_a) return false;
  }
  return true;
}

bool same_device_groups(const Annotation& a, const Annotation& b) {
  return std::equal(a.subgroups.begin(), a.subgroups.end(), b.subgroups.begin(), b.subgroups.end(),
                    [](const Subgroup& x, const Subgroup& y) { return x.devices == y.devices; });
}

bool has_partial(const Annotation& annotation) {
  if (annotation.hetero_size() > 1 && annotation.hetero_axis == kPartial) return true;
  return std::any_of(
      annotation.subgroups.begin(), annotation.subgroups.end(),
      [](const Subgroup& group) { return shards_along(group.states, kPartial) > 1; });
}

std::string to_string(const Annotation& annotation) {
  std::vector<std::string> groups;
  for (const Subgroup& subgroup : annotation.subgroups) {
    std::vector<std::string> states;
    for (const auto& [axis, shards] : subgroup.states) {
      states.push_back(fmt::format("{} x {}", name(axis), shards));
    }
    groups.push_back(
        fmt::format("{{{}}}: {}", fmt::join(subgroup.devices, ","),
                    states.empty() ? "-" : fmt::format("{}", fmt::join(states, ", "))));
  }
  std::string text = fmt::format("{}", fmt::join(groups, " | "));
  if (annotation.hetero_size() == 1) return text;
  text += fmt::format("; HDim {}", annotation.hetero_axis);
  if (!annotation.shares.empty()) text += fmt::format(" ({})", fmt::join(annotation.shares, ":"));
  return text;
}

}  // namespace orrery::models
