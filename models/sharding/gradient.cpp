#include "models/sharding/gradient.h"

#include <algorithm>
#include <boost/icl/interval_set.hpp>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::models {
namespace {

/// The replica without second copies: each element at the first owner in the list that holds it.
std::vector<Piece> first_holders(const std::vector<Piece>& replica) {
  boost::icl::interval_set<std::int64_t> covered;
  std::vector<Piece> first;
  for (const Piece& piece : replica) {
    boost::icl::interval_set<std::int64_t> fresh;
    fresh += boost::icl::interval<std::int64_t>::right_open(piece.slice.begin, piece.slice.end);
    fresh -= covered;
    for (const auto& slice : fresh) {
      first.push_back({piece.owner, {slice.lower(), slice.upper()}, kFullValue});
    }
    covered += fresh;
  }
  return first;
}

Replicas first_holders(const Replicas& replicas) {
  Replicas first;
  for (const auto& replica : replicas) first.push_back(first_holders(replica));
  return first;
}

std::vector<Replicas> shard_groups(const Replicas& replicas, int shard_group) {
  ORRERY_CHECK(shard_group >= 0, "shard group of {} replicas", shard_group);
  const std::size_t count = replicas.size();
  const std::size_t size = shard_group == 0 ? count : as_size(shard_group);
  std::vector<Replicas> groups;
  for (std::size_t first = 0; first < count; first += size) {
    const std::size_t last = std::min(count, first + size);
    groups.emplace_back(replicas.begin() + static_cast<std::ptrdiff_t>(first),
                        replicas.begin() + static_cast<std::ptrdiff_t>(last));
  }
  return groups;
}

Layout joined(std::int64_t length, const Replicas& replicas, bool summands) {
  Layout layout{length, {}};
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    for (Piece piece : replicas[i]) {
      piece.partial = summands ? static_cast<int>(i) : kFullValue;
      layout.pieces.push_back(piece);
    }
  }
  return layout;
}

/// A slice that no border of a replica cuts.
struct Shared {
  Slice slice;
  std::vector<int> owners;  ///< One of each replica, the first that holds it.
  /// Sums of the weights of the owners before each one, and of all; empty: they are equal.
  std::vector<std::int64_t> weights;
  /// What owner `i` keeps. May be empty.
  Slice share(std::size_t i) const {
    if (weights.empty()) {
      return even_part(slice, static_cast<std::int64_t>(owners.size()),
                       static_cast<std::int64_t>(i));
    }
    const auto border = [&](std::size_t at) {
      return slice.begin + slice.size() * weights[at] / weights.back();
    };
    return {border(i), border(i + 1)};
  }
};

/// Shared::weights.
std::vector<std::int64_t> weights_before(const std::vector<int>& owners,
                                         const std::map<int, int>& weights) {
  std::vector<std::int64_t> sums = {0};
  bool equal = true;
  for (const int owner : owners) {
    const auto found = weights.find(owner);
    sums.push_back(sums.back() + (found == weights.end() ? 1 : found->second));
    equal = equal && sums.back() == static_cast<std::int64_t>(sums.size() - 1) * sums[1];
  }
  return equal ? std::vector<std::int64_t>{} : sums;
}

/// The finest slices of a group of replicas, ascending.
std::vector<Shared> shared_slices(std::int64_t length, const Replicas& group,
                                  const std::map<int, int>& weights) {
  const Layout owners = joined(length, first_holders(group), true);
  const FinestSlices finest = finest_slices(owners, {length, {}});
  std::vector<Shared> all;
  for (std::size_t i = 0; i < finest.slices.size(); ++i) {
    Shared& one = all.emplace_back();
    one.slice = finest.bounds[i];
    for (const Holder& holder : finest.slices[i].from) one.owners.push_back(holder.device);
    if (!weights.empty()) one.weights = weights_before(one.owners, weights);
  }
  return all;
}

/// The shards of one group.
std::vector<Piece> shards(const std::vector<Shared>& slices) {
  std::vector<Piece> pieces;
  for (const Shared& one : slices) {
    for (std::size_t i = 0; i < one.owners.size(); ++i) {
      const Slice share = one.share(i);
      if (share.size() > 0) pieces.push_back({one.owners[i], share, kFullValue});
    }
  }
  return pieces;
}

void join(std::vector<Slice>& slices, Slice slice) {
  if (!slices.empty() && slices.back().end == slice.begin) {
    slices.back().end = slice.end;
  } else {
    slices.push_back(slice);
  }
}

/// One step for each set of owners, in the order of their first slices; parts are shares. What
/// resolve() finds between replicas or full values and shards; it would look at all owners of a
/// slice for each of their shares. Slices with one owner need no step.
std::vector<GroupStep> steps_by_owners(StepKind kind, const std::vector<Shared>& slices) {
  std::map<std::vector<int>, std::size_t> index;
  std::vector<GroupStep> steps;
  for (const Shared& one : slices) {
    if (one.owners.size() < 2) continue;
    const auto [at, fresh] = index.try_emplace(one.owners, steps.size());
    if (fresh) {
      GroupStep& step = steps.emplace_back();
      step.kind = kind;
      step.group = one.owners;
      step.parts.resize(one.owners.size());
    }
    GroupStep& step = steps[at->second];
    join(step.slices, one.slice);
    for (std::size_t i = 0; i < one.owners.size(); ++i) {
      const Slice share = one.share(i);
      if (share.size() > 0) join(step.parts[i], share);
    }
  }
  return steps;
}

/// A gather of which one member brings everything is a broadcast, or a send to the only other.
void simplify_gather(GroupStep& step) {
  const auto brings = [](const std::vector<Slice>& part) { return !part.empty(); };
  if (std::count_if(step.parts.begin(), step.parts.end(), brings) != 1) return;
  const auto root = std::find_if(step.parts.begin(), step.parts.end(), brings);
  const auto source = step.group.begin() + (root - step.parts.begin());
  std::rotate(step.group.begin(), source, source + 1);
  step.parts.clear();
  step.source = step.group[0];
  step.kind = StepKind::broadcast;
  if (step.group.size() > 2) return;
  step.kind = StepKind::send_receive;
  step.destination = step.group[1];
}

/// Aborts unless these are gradients.
Layout flat(const Gradients& gradients) {
  const Annotation& annotation = gradients.annotation;
  ORRERY_CHECK(annotation.hetero_size() == 1 || annotation.hetero_axis == kPartial,
               "gradients {} whose copies do not add up", to_string(annotation));
  return flatten(annotation, gradients.shape, gradients.rows);
}

Axis without_sum(Axis axis) { return axis == kPartial ? kDuplicate : axis; }

void append(std::vector<GroupStep>& steps, std::vector<GroupStep> more) {
  std::move(more.begin(), more.end(), std::back_inserter(steps));
}

void append_resolution(std::vector<GroupStep>& steps, const Layout& from, const Layout& to) {
  auto result = resolve(from, to);
  const auto* failure = std::get_if<Unresolvable>(&result);
  ORRERY_CHECK(failure == nullptr, "gradients: {}", failure->reason);
  append(steps, std::move(std::get<std::vector<GroupStep>>(result)));
}

/// Copies that are all cut alike add up part by part: what resolve() finds, without looking for it
/// on each of thousands of copies. Nothing where there is more to do.
std::optional<std::vector<GroupStep>> part_by_part(const Gradients& gradients) {
  const std::vector<Subgroup>& copies = gradients.annotation.subgroups;
  if (gradients.shape.size() != 1 || copies.size() < 2) return std::nullopt;
  const std::size_t parts = copies.front().devices.size();
  const auto count = static_cast<std::int64_t>(parts);
  const std::int64_t length = gradients.shape.front();
  const DistributedStates cut = {{0, static_cast<int>(parts)}};
  const bool alike = gradients.annotation.hetero_axis == kPartial &&
                     gradients.annotation.shares.empty() && count <= length &&
                     std::all_of(copies.begin(), copies.end(), [&](const Subgroup& copy) {
                       return copy.devices.size() == parts &&
                              (copy.states == cut || (parts == 1 && copy.states.empty()));
                     });
  if (!alike) return std::nullopt;
  std::vector<int> devices;
  devices.reserve(copies.size() * parts);
  for (const Subgroup& copy : copies) {
    devices.insert(devices.end(), copy.devices.begin(), copy.devices.end());
  }
  if (!std::is_sorted(devices.begin(), devices.end())) std::sort(devices.begin(), devices.end());
  const bool sound =
      devices.front() >= 0 && std::adjacent_find(devices.begin(), devices.end()) == devices.end();
  if (!sound) return std::nullopt;  // resolve() says what is wrong.
  std::vector<GroupStep> steps;
  for (std::int64_t part = 0; part < count; ++part) {
    GroupStep step{.kind = StepKind::all_reduce,
                   .slices = {even_part({0, length}, count, part)},
                   .group = {},
                   .parts = {}};
    step.group.reserve(copies.size());
    for (const Subgroup& copy : copies) {
      step.group.push_back(copy.devices[part]);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

Annotation parameter_annotation(const Annotation& gradients) {
  Annotation parameter = gradients;
  parameter.hetero_axis = without_sum(gradients.hetero_axis);
  for (Subgroup& subgroup : parameter.subgroups) {
    DistributedStates states;
    for (const AxisShards& entry : subgroup.states) {
      const Axis axis = without_sum(entry.axis);
      const bool joins = axis == kDuplicate && !states.empty() && states.back().axis == kDuplicate;
      if (joins) {
        states.back().shards *= entry.shards;
      } else {
        states.push_back({axis, entry.shards});
      }
    }
    subgroup.states = std::move(states);
  }
  return parameter;
}

Replicas replicas(const Gradients& gradients) {
  Replicas all;
  for (const Piece& piece : flat(gradients).pieces) {
    const std::size_t replica = std::max(piece.partial, 0);
    if (all.size() <= replica) all.resize(replica + 1);
    all[replica].push_back({piece.owner, piece.slice, kFullValue});
  }
  return all;
}

Layout gradient_layout(const Gradients& gradients) { return flat(gradients); }

Layout parameter_layout(const Gradients& gradients) {
  return flatten(parameter_annotation(gradients.annotation), gradients.shape, gradients.rows);
}

Layout zero_layout(const Gradients& gradients, int shard_group) {
  const std::int64_t length = volume(gradients.shape);
  Replicas groups;
  for (const Replicas& group : shard_groups(replicas(gradients), shard_group)) {
    groups.push_back(shards(shared_slices(length, group, gradients.weights)));
  }
  return joined(length, groups, false);
}

std::vector<GroupStep> synchronize_gradients(const Gradients& gradients) {
  if (auto known = part_by_part(gradients)) return std::move(*known);
  std::vector<GroupStep> steps;
  append_resolution(steps, gradient_layout(gradients), parameter_layout(gradients));
  return steps;
}

std::vector<GroupStep> scatter_gradients(const Gradients& gradients, int shard_group) {
  const std::int64_t length = volume(gradients.shape);
  std::vector<GroupStep> steps;
  Replicas reduced;
  for (const Replicas& group : shard_groups(replicas(gradients), shard_group)) {
    const std::vector<Shared> slices = shared_slices(length, group, gradients.weights);
    reduced.push_back(shards(slices));
    append(steps, steps_by_owners(StepKind::reduce_scatter, slices));
  }
  append_resolution(steps, joined(length, reduced, true), joined(length, reduced, false));
  return steps;
}

std::vector<GroupStep> gather_parameters(const Gradients& gradients, int shard_group,
                                         ShortSlices short_slices) {
  const std::int64_t length = volume(gradients.shape);
  std::vector<GroupStep> steps;
  for (const Replicas& group : shard_groups(replicas(gradients), shard_group)) {
    std::vector<GroupStep> gathers =
        steps_by_owners(StepKind::all_gather, shared_slices(length, group, gradients.weights));
    if (short_slices == ShortSlices::broadcast) {
      std::for_each(gathers.begin(), gathers.end(), simplify_gather);
    }
    append(steps, std::move(gathers));
    for (const auto& replica : group) {
      std::int64_t held_elements = 0;
      for (const Piece& piece : replica) held_elements += piece.slice.size();
      if (held_elements == length) continue;  // No second copies.
      append_resolution(steps, joined(length, {first_holders(replica)}, false),
                        joined(length, {replica}, false));
    }
  }
  return steps;
}

}  // namespace orrery::models
