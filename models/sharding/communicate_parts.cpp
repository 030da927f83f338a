#include "models/sharding/communicate_parts.h"

#include <set>

namespace orrery::models::resolution {

Holders expand(const Annotation& annotation, const Shape& shape) {
  const auto all = pieces(annotation, shape);
  Holders holders;
  std::size_t next = 0;
  for (int i = 0; i < annotation.hetero_size(); ++i) {
    const auto& devices = annotation.subgroups[static_cast<std::size_t>(i)].devices;
    const int base = all[next].partial;  // The first device holds the first summand.
    for (std::size_t j = 0; j < devices.size(); ++j, ++next) {
      holders.push_back({devices[j], i, all[next].box, all[next].partial - base});
    }
  }
  return holders;
}

std::vector<Box> finest_slices(const Holders& from, const Holders& to) {
  std::vector<std::set<std::int64_t>> cuts(from.front().box.size());
  for (const Holders* holders : {&from, &to}) {
    for (const Held& held : *holders) {
      for (std::size_t d = 0; d < cuts.size(); ++d) {
        cuts[d].insert({held.box[d].begin, held.box[d].end});
      }
    }
  }
  std::vector<Box> slices{{}};
  for (const auto& dimension : cuts) {
    std::vector<Box> longer;
    for (const Box& box : slices) {
      for (auto cut = dimension.begin(); std::next(cut) != dimension.end(); ++cut) {
        longer.push_back(box);
        longer.back().push_back({*cut, *std::next(cut)});
      }
    }
    slices = std::move(longer);
  }
  return slices;
}

CommunicationStep finish(CommunicationStep step) {
  std::set<int> devices(step.devices.begin(), step.devices.end());
  for (const SliceMove& move : step.moves) devices.insert(move.devices.begin(), move.devices.end());
  step.devices.assign(devices.begin(), devices.end());
  if (step.moves.empty()) step.kind = CommunicationKind::identity;
  return step;
}

CommunicationStep batch(const Holders& from, const Holders& to, Tier tier, int subgroup,
                        const BatchedOptions& options) {
  const std::vector<Box> slices = finest_slices(from, to);
  std::vector<SliceRow> rows;
  for (const Box& box : slices) {
    SliceRow row{static_cast<double>(volume(box)), {}, {}};
    for (const Held& held : from) {
      if (contains(held.box, box)) row.owners.push_back(held.device);
    }
    for (const Held& held : to) {
      if (contains(held.box, box)) row.required.push_back(held.device);
    }
    rows.push_back(std::move(row));
  }
  CommunicationStep step{CommunicationKind::batched_send_receive, tier, subgroup, 0, {}, {}};
  for (const Held& held : to) step.devices.push_back(held.device);
  for (const SliceSend& send : plan_sends(rows, options).sends) {
    step.moves.push_back({slices[send.row], {send.source, send.destination}, -1});
  }
  return finish(std::move(step));
}

}  // namespace orrery::models::resolution
