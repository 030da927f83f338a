#include "models/sharding/activation.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "models/base/check.h"
#include "models/sharding/flatten.h"

namespace orrery::models {
namespace {

/// Devices that hold the same tokens of each sample of their subgroup.
struct TokenPart {
  Slice tokens;  ///< Of a sample.
  std::vector<int> devices;
};

/// A subgroup and what it holds.
struct ActivationGroup {
  Slice samples;
  std::vector<int> devices;
  bool splits_tokens = false;
  std::vector<TokenPart> parts;  ///< One, of all tokens, unless it splits them.
};
using ActivationGroups = std::vector<ActivationGroup>;

/// Consecutive elements, and the devices among which a transfer divides them.
struct Cell {
  Slice elements;
  std::vector<int> devices;
};
using Cells = std::vector<Cell>;

void check_states(const Annotation& annotation) {
  ORRERY_CHECK(annotation.hetero_size() == 1 || annotation.hetero_axis == kSampleAxis,
               "activations {} are not divided by samples", to_string(annotation));
  for (const Subgroup& subgroup : annotation.subgroups) {
    for (const AxisShards& entry : subgroup.states) {
      ORRERY_CHECK(entry.axis == kTokenAxis || entry.axis == kDuplicate,
                   "activations {} are neither whole nor split by tokens", to_string(annotation));
    }
  }
}

ActivationGroups groups_of(const Annotation& annotation, const Shape& shape) {
  check_states(annotation);
  const std::vector<BoxPiece> all = pieces(annotation, shape);
  auto piece = all.begin();
  ActivationGroups groups;
  for (const Subgroup& subgroup : annotation.subgroups) {
    ActivationGroup& group = groups.emplace_back();
    group.samples = piece->box[kSampleAxis];
    group.devices = subgroup.devices;
    group.splits_tokens =
        std::any_of(subgroup.states.begin(), subgroup.states.end(),
                    [](const AxisShards& entry) { return entry.axis == kTokenAxis; });
    for (const int device : subgroup.devices) {
      const Slice tokens = (piece++)->box[kTokenAxis];
      if (tokens.size() == 0) continue;
      const auto part = std::find_if(group.parts.begin(), group.parts.end(),
                                     [&](const TokenPart& of) { return of.tokens == tokens; });
      if (part == group.parts.end()) {
        group.parts.push_back({tokens, {device}});
      } else {
        part->devices.push_back(device);
      }
    }
  }
  return groups;
}

/// Whether a subgroup has copies of each part of split tokens.
bool copies_parts(const ActivationGroups& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const ActivationGroup& group) {
    return group.parts.size() > 1 && group.parts.front().devices.size() > 1;
  });
}

/// Into which cells a subgroup falls that splits its tokens; one that does not is a cell.
enum class CellCut { none, by_sample, by_part };

/// `by_part`: every subgroup falls into the parts of each of its samples.
Cells cut(const ActivationGroups& groups, std::int64_t tokens, bool by_part, CellCut if_split) {
  Cells cells;
  for (const ActivationGroup& group : groups) {
    const CellCut as = by_part ? CellCut::by_part : group.splits_tokens ? if_split : CellCut::none;
    const auto [first, last] = group.samples;
    if (as == CellCut::none) cells.push_back({{first * tokens, last * tokens}, group.devices});
    for (std::int64_t sample = first; sample < last && as != CellCut::none; ++sample) {
      const std::int64_t begin = sample * tokens;
      if (as == CellCut::by_sample) cells.push_back({{begin, begin + tokens}, group.devices});
      for (const TokenPart& part : group.parts) {
        if (as != CellCut::by_part) break;
        cells.push_back({{begin + part.tokens.begin, begin + part.tokens.end}, part.devices});
      }
    }
  }
  return cells;
}

/// Each cell at its first device.
Layout leader_layout(std::int64_t length, const Cells& cells) {
  Layout layout{length, {}};
  for (const Cell& cell : cells) {
    layout.pieces.push_back({cell.devices.front(), cell.elements, kFullValue});
  }
  return layout;
}

/// Each cell is cut at the borders of the others, and each of these slices evenly among its
/// devices.
Layout share_layout(std::int64_t length, const Cells& cells, const Cells& others) {
  Layout layout{length, {}};
  for (const Cell& cell : cells) {
    const auto count = static_cast<std::int64_t>(cell.devices.size());
    if (count == 1) {
      layout.pieces.push_back({cell.devices.front(), cell.elements, kFullValue});
      continue;
    }
    for (const Cell& other : others) {
      const Slice common = {std::max(cell.elements.begin, other.elements.begin),
                            std::min(cell.elements.end, other.elements.end)};
      if (common.begin >= common.end) continue;
      for (std::int64_t i = 0; i < count; ++i) {
        const Slice share = even_part(common, count, i);
        if (share.size() == 0) continue;
        layout.pieces.push_back({cell.devices[i], share, kFullValue});
      }
    }
  }
  return layout;
}

std::vector<GroupStep> resolved(const Layout& from, const Layout& to) {
  auto result = resolve(from, to);
  const auto* failure = std::get_if<Unresolvable>(&result);
  ORRERY_CHECK(failure == nullptr, "activations: {}", failure->reason);
  return std::get<std::vector<GroupStep>>(std::move(result));
}

}  // namespace

std::vector<GroupStep> transfer_activations(const Annotation& senders, const Annotation& receivers,
                                            const Shape& shape, ActivationTransfer transfer) {
  ORRERY_CHECK(shape.size() == 2, "activations of {} dimensions", shape.size());
  const std::int64_t tokens = shape[kTokenAxis];
  const Layout from = flatten(senders, shape);
  const Layout to = flatten(receivers, shape);
  if (resolved(from, to).empty()) return {};
  const ActivationGroups sending = groups_of(senders, shape);
  const ActivationGroups receiving = groups_of(receivers, shape);
  const bool by_part = copies_parts(sending) || copies_parts(receiving);
  const auto cells = [&](const ActivationGroups& groups, CellCut if_split) {
    return cut(groups, tokens, by_part, if_split);
  };
  std::vector<Layout> stations{from};
  if (transfer == ActivationTransfer::leader_broadcast) {
    stations.push_back(leader_layout(from.length, cells(sending, CellCut::none)));
    stations.push_back(leader_layout(to.length, cells(receiving, CellCut::none)));
  } else {
    // Copies of all tokens are divided sample by sample where the other side splits its tokens, so
    // that equal degrees meet in pairs.
    const Cells from_parts = cells(sending, CellCut::by_part);
    const Cells to_parts = cells(receiving, CellCut::by_part);
    stations.push_back(share_layout(from.length, from_parts, cells(receiving, CellCut::by_sample)));
    stations.push_back(share_layout(to.length, to_parts, cells(sending, CellCut::by_sample)));
  }
  stations.push_back(to);
  std::vector<GroupStep> steps;
  for (std::size_t i = 0; i + 1 < stations.size(); ++i) {
    auto more = resolved(stations[i], stations[i + 1]);
    std::move(more.begin(), more.end(), std::back_inserter(steps));
  }
  return steps;
}

std::vector<GroupStep> KnownTransfers::steps(const Annotation& senders, const Annotation& receivers,
                                             const Shape& shape, ActivationTransfer transfer) {
  std::vector<int> devices;
  for (const Annotation* annotation : {&senders, &receivers}) {
    for (const Subgroup& subgroup : annotation->subgroups) {
      devices.insert(devices.end(), subgroup.devices.begin(), subgroup.devices.end());
    }
  }
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  std::vector<std::int64_t> key = {static_cast<std::int64_t>(transfer)};
  key.insert(key.end(), shape.begin(), shape.end());
  const auto ranked = [&](Annotation annotation) {
    key.push_back(annotation.hetero_axis);
    key.push_back(annotation.hetero_size());
    key.push_back(static_cast<std::int64_t>(annotation.shares.size()));
    key.insert(key.end(), annotation.shares.begin(), annotation.shares.end());
    for (Subgroup& subgroup : annotation.subgroups) {
      key.push_back(static_cast<std::int64_t>(subgroup.states.size()));
      for (const AxisShards& entry : subgroup.states) {
        key.insert(key.end(), {entry.axis, entry.shards});
      }
      for (int& device : subgroup.devices) {
        const auto at = std::lower_bound(devices.begin(), devices.end(), device);
        device = static_cast<int>(at - devices.begin());
        key.push_back(device);
      }
    }
    return annotation;
  };
  const Annotation from = ranked(senders);
  const Annotation to = ranked(receivers);
  const auto [at, fresh] = known_.try_emplace(std::move(key));
  if (fresh) at->second = transfer_activations(from, to, shape, transfer);
  std::vector<GroupStep> steps = at->second;
  for (GroupStep& step : steps) {
    for (int& device : step.group) device = devices[device];
    for (int* end : {&step.source, &step.destination}) {
      if (*end >= 0) *end = devices[*end];
    }
  }
  return steps;
}

}  // namespace orrery::models
