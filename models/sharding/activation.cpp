#include "models/sharding/activation.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "models/base/check.h"

namespace orrery::models {
namespace {

using Groups = std::vector<ActivationGroup>;

Slice tokens(Slice samples, std::int64_t sequence_length) {
  return {samples.begin * sequence_length, samples.end * sequence_length};
}

Slice overlap(Slice a, Slice b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Cuts the slice evenly among the owners.
void add_split(Layout& layout, Slice slice, const std::vector<int>& owners) {
  for (Piece piece : split(slice.size(), owners).pieces) {
    if (piece.slice.size() == 0) continue;
    piece.slice.begin += slice.begin;
    piece.slice.end += slice.begin;
    layout.pieces.push_back(piece);
  }
}

/// Cuts each sample's tokens evenly among the owners.
void add_sequence_split(Layout& layout, Slice samples, std::int64_t sequence_length,
                        const std::vector<int>& owners) {
  for (std::int64_t sample = samples.begin; sample < samples.end; ++sample) {
    add_split(layout, tokens({sample, sample + 1}, sequence_length), owners);
  }
}

/// Number of samples; aborts unless the groups tile them from 0.
std::int64_t check_tiling(const Groups& groups, std::int64_t sequence_length) {
  ORRERY_CHECK(sequence_length >= 1, "sequence length {}", sequence_length);
  std::vector<Slice> samples;
  for (const ActivationGroup& group : groups) {
    ORRERY_CHECK(!group.owners.empty(), "an activation group has no owner");
    samples.push_back(group.samples);
  }
  std::sort(samples.begin(), samples.end());
  std::int64_t next = 0;
  for (const Slice& slice : samples) {
    ORRERY_CHECK(slice.begin == next && slice.end >= next, "samples [{}, {}) where {} is next",
                 slice.begin, slice.end, next);
    next = slice.end;
  }
  return next;
}

Layout leader_layout(const Groups& groups, std::int64_t length, std::int64_t sequence_length) {
  Layout layout{length, {}};
  for (const ActivationGroup& group : groups) {
    layout.pieces.push_back({group.owners[0], tokens(group.samples, sequence_length), kFullValue});
  }
  return layout;
}

/// The shares of the group's members in what it has in common with `others`.
void add_shares(Layout& layout, const ActivationGroup& group, const Groups& others,
                std::int64_t sequence_length) {
  if (group.layout == ActivationLayout::sequence_split) {
    add_sequence_split(layout, group.samples, sequence_length, group.owners);
    return;
  }
  for (const ActivationGroup& other : others) {
    const Slice common = overlap(group.samples, other.samples);
    if (other.layout == ActivationLayout::sequence_split) {
      add_sequence_split(layout, common, sequence_length, group.owners);
    } else {
      add_split(layout, tokens(common, sequence_length), group.owners);
    }
  }
}

Layout share_layout(const Groups& groups, const Groups& others, std::int64_t length,
                    std::int64_t sequence_length) {
  Layout layout{length, {}};
  for (const ActivationGroup& group : groups) add_shares(layout, group, others, sequence_length);
  return layout;
}

std::vector<Step> resolved(const Layout& from, const Layout& to) {
  auto result = resolve(from, to);
  const auto* failure = std::get_if<Unresolvable>(&result);
  ORRERY_CHECK(failure == nullptr, "activations: {}", failure->reason);
  return std::get<std::vector<Step>>(std::move(result));
}

}  // namespace

Layout activation_layout(const Groups& groups, std::int64_t sequence_length) {
  Layout layout{check_tiling(groups, sequence_length) * sequence_length, {}};
  for (const ActivationGroup& group : groups) {
    if (group.layout == ActivationLayout::sequence_split) {
      add_sequence_split(layout, group.samples, sequence_length, group.owners);
      continue;
    }
    for (int owner : group.owners) {
      layout.pieces.push_back({owner, tokens(group.samples, sequence_length), kFullValue});
    }
  }
  return layout;
}

std::vector<Step> transfer_activations(const Groups& senders, const Groups& receivers,
                                       std::int64_t sequence_length, ActivationTransfer transfer) {
  const Layout from = activation_layout(senders, sequence_length);
  const Layout to = activation_layout(receivers, sequence_length);
  ORRERY_CHECK(from.length == to.length, "senders have {} tokens, receivers {}", from.length,
               to.length);
  if (resolved(from, to).empty()) return {};
  std::vector<Layout> stations{from};
  if (transfer == ActivationTransfer::leader_broadcast) {
    stations.push_back(leader_layout(senders, from.length, sequence_length));
    stations.push_back(leader_layout(receivers, to.length, sequence_length));
  } else {
    stations.push_back(share_layout(senders, receivers, from.length, sequence_length));
    stations.push_back(share_layout(receivers, senders, to.length, sequence_length));
  }
  stations.push_back(to);
  std::vector<Step> steps;
  for (std::size_t i = 0; i + 1 < stations.size(); ++i) {
    auto more = resolved(stations[i], stations[i + 1]);
    std::move(more.begin(), more.end(), std::back_inserter(steps));
  }
  return steps;
}

}  // namespace orrery::models
