#include "models/sharding/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/base/check.h"

namespace orrery::models {
namespace {

struct SummandHolder {
  int partial;
  int owner;
};

/// A slice that no boundary of either layout cuts.
struct Segment {
  Slice slice;
  std::vector<SummandHolder> from;  // By summand, then in the order of the source's pieces.
  std::vector<int> to;              // In the order of the destination's pieces.
};

bool contains(const std::vector<int>& owners, int owner) {
  return std::find(owners.begin(), owners.end(), owner) != owners.end();
}

std::vector<int> holders(const Segment& segment) {
  std::vector<int> owners;
  for (const SummandHolder& holder : segment.from) owners.push_back(holder.owner);
  return owners;
}

std::vector<Segment> cut_into_segments(const Layout& from, const Layout& to) {
  std::vector<std::int64_t> cuts;
  for (const Layout* layout : {&from, &to}) {
    for (const Piece& piece : layout->pieces) {
      if (piece.slice.size() == 0) continue;
      cuts.push_back(piece.slice.begin);
      cuts.push_back(piece.slice.end);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Segment> segments;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    segments.push_back({{cuts[i], cuts[i + 1]}, {}, {}});
  }
  const auto for_each_in = [&](const Piece& piece, const auto& visit) {
    auto cut = std::lower_bound(cuts.begin(), cuts.end(), piece.slice.begin);
    for (auto i = static_cast<std::size_t>(cut - cuts.begin());
         i < segments.size() && segments[i].slice.end <= piece.slice.end; ++i) {
      visit(segments[i]);
    }
  };
  for (const Piece& piece : from.pieces) {
    for_each_in(piece, [&](Segment& s) { s.from.push_back({piece.partial, piece.owner}); });
  }
  for (const Piece& piece : to.pieces) {
    for_each_in(piece, [&](Segment& s) { s.to.push_back(piece.owner); });
  }
  for (Segment& segment : segments) {
    std::stable_sort(
        segment.from.begin(), segment.from.end(),
        [](const SummandHolder& a, const SummandHolder& b) { return a.partial < b.partial; });
  }
  return segments;
}

void append(std::vector<Slice>& slices, Slice slice) {
  if (!slices.empty() && slices.back().end == slice.begin) {
    slices.back().end = slice.end;
  } else {
    slices.push_back(slice);
  }
}

/// Steps of one phase: at most one per kind and group, in the order in which they first appear.
class Phase {
 public:
  Step& add(StepKind kind, const std::vector<int>& group, Slice slice) {
    const auto [it, fresh] = index_.try_emplace({kind, group}, steps_.size());
    if (fresh) {
      Step step{.kind = kind, .slices = {}, .group = group, .parts = {}};
      if (kind == StepKind::reduce_scatter || kind == StepKind::all_gather) {
        step.parts.resize(group.size());
      }
      if (kind == StepKind::broadcast || kind == StepKind::send_receive) step.source = group[0];
      if (kind == StepKind::send_receive) step.destination = group[1];
      steps_.push_back(std::move(step));
    }
    append(steps_[it->second].slices, slice);
    return steps_[it->second];
  }

  /// As add, and `member` of the group keeps (reduce_scatter) or brings (all_gather) the slice.
  void add_part(StepKind kind, const std::vector<int>& group, Slice slice, int member) {
    Step& step = add(kind, group, slice);
    const auto position = std::find(group.begin(), group.end(), member) - group.begin();
    append(step.parts[static_cast<std::size_t>(position)], slice);
  }

  void move_to(std::vector<Step>& all) {
    std::move(steps_.begin(), steps_.end(), std::back_inserter(all));
  }

 private:
  std::map<std::pair<StepKind, std::vector<int>>, std::size_t> index_;
  std::vector<Step> steps_;
};

class Resolver {
 public:
  explicit Resolver(const ResolveOptions& options) : options_(options) {}

  std::optional<Unresolvable> add_partial(const Segment& segment);
  void add_full(const Segment& segment);
  std::vector<Step> finish();

 private:
  struct Gather {
    Slice slice;
    int source;
  };
  void broadcast(int source, const std::vector<int>& receivers, Slice slice);
  void batched_send_receive(Slice slice, std::vector<int> sources, const std::vector<int>& to);
  void flush_gathers();

  const ResolveOptions& options_;
  Phase reductions_;
  Phase spreads_;
  Phase sends_;
  std::map<std::vector<int>, std::size_t> gather_index_;  // Destination group -> gathers_.
  std::vector<std::pair<std::vector<int>, std::vector<Gather>>> gathers_;
  std::map<int, std::int64_t> sent_;
};

/// One owner per summand: the first that needs the result, else the first.
std::vector<SummandHolder> representatives(const Segment& segment, const std::set<int>& needing) {
  std::vector<SummandHolder> chosen;
  bool chosen_needs = false;
  for (const SummandHolder& holder : segment.from) {
    const bool needs = needing.count(holder.owner) > 0;
    if (chosen.empty() || chosen.back().partial != holder.partial) {
      chosen.push_back(holder);
      chosen_needs = needs;
    } else if (needs && !chosen_needs) {
      chosen.back() = holder;
      chosen_needs = true;
    }
  }
  return chosen;
}

std::optional<Unresolvable> Resolver::add_partial(const Segment& segment) {
  const std::set<int> needing(segment.to.begin(), segment.to.end());
  const std::vector<SummandHolder> members = representatives(segment, needing);
  if (members.size() == 1) {  // A sum of one summand is its value.
    add_full(segment);
    return std::nullopt;
  }
  std::vector<int> group;
  std::vector<SummandHolder> reduced;
  for (const SummandHolder& member : members) {
    group.push_back(member.owner);
    if (needing.count(member.owner) > 0) reduced.push_back(member);
  }
  if (reduced.empty()) {
    return Unresolvable{fmt::format(
        "the summands of [{}, {}) lie on owners {}, and none of its destinations {} holds one",
        segment.slice.begin, segment.slice.end, holders(segment), segment.to)};
  }
  if (reduced.size() == 1) {
    reductions_.add_part(StepKind::reduce_scatter, group, segment.slice, reduced[0].owner);
  } else {
    reductions_.add(StepKind::all_reduce, group, segment.slice);
    reduced = members;
  }
  std::vector<int> done;
  for (const SummandHolder& member : reduced) done.push_back(member.owner);
  if (needing.size() <= done.size() &&
      std::all_of(segment.to.begin(), segment.to.end(), [&](int o) { return contains(done, o); })) {
    return std::nullopt;
  }
  std::map<int, std::vector<int>> same_summand;
  for (const SummandHolder& holder : segment.from) {
    if (needing.count(holder.owner) > 0 && !contains(done, holder.owner)) {
      same_summand[holder.partial].push_back(holder.owner);
    }
  }
  for (const SummandHolder& member : reduced) {
    const std::vector<int>& receivers = same_summand[member.partial];
    broadcast(member.owner, receivers, segment.slice);
    done.insert(done.end(), receivers.begin(), receivers.end());
  }
  batched_send_receive(segment.slice, done, segment.to);
  return std::nullopt;
}

void Resolver::add_full(const Segment& segment) {
  const std::vector<int> sources = holders(segment);
  const bool collective = options_.gather_and_broadcast && sources.size() == 1 &&
                          segment.to.size() >= 2 && contains(segment.to, sources[0]);
  if (!collective) {
    batched_send_receive(segment.slice, sources, segment.to);
    return;
  }
  const auto [it, fresh] = gather_index_.try_emplace(segment.to, gathers_.size());
  if (fresh) gathers_.push_back({segment.to, {}});
  gathers_[it->second].second.push_back({segment.slice, sources[0]});
}

void Resolver::broadcast(int source, const std::vector<int>& receivers, Slice slice) {
  if (receivers.empty()) return;
  std::vector<int> group{source};
  group.insert(group.end(), receivers.begin(), receivers.end());
  const bool pair = receivers.size() == 1;
  spreads_.add(pair ? StepKind::send_receive : StepKind::broadcast, group, slice);
}

/// Hetu v2's three heuristics for one slice of the table.
void Resolver::batched_send_receive(Slice slice, std::vector<int> sources,
                                    const std::vector<int>& to) {
  std::sort(sources.begin(), sources.end());
  for (int destination : to) {
    if (std::binary_search(sources.begin(), sources.end(), destination)) continue;
    int best = -1;
    std::pair<int, std::int64_t> best_cost;
    for (int source : sources) {
      const int rank = options_.link_rank ? options_.link_rank(source, destination) : 0;
      const std::pair<int, std::int64_t> cost{rank, sent_[source]};
      if (best < 0 || cost < best_cost) {
        best = source;
        best_cost = cost;
      }
    }
    ORRERY_CHECK(best >= 0, "[{}, {}) has no source", slice.begin, slice.end);
    sent_[best] += slice.size();
    sends_.add(StepKind::send_receive, {best, destination}, slice);
  }
}

/// Slices that the same owners need: brought by several of them an all_gather, by one a broadcast.
void Resolver::flush_gathers() {
  for (const auto& [group, gathers] : gathers_) {
    std::set<int> sources;
    for (const Gather& gather : gathers) sources.insert(gather.source);
    for (const Gather& gather : gathers) {
      if (sources.size() > 1) {
        spreads_.add_part(StepKind::all_gather, group, gather.slice, gather.source);
        continue;
      }
      std::vector<int> receivers;
      for (int owner : group) {
        if (owner != gather.source) receivers.push_back(owner);
      }
      broadcast(gather.source, receivers, gather.slice);
    }
  }
}

std::vector<Step> Resolver::finish() {
  flush_gathers();
  std::vector<Step> steps;
  reductions_.move_to(steps);
  spreads_.move_to(steps);
  sends_.move_to(steps);
  return steps;
}

std::set<int> summands(const Layout& layout) {
  std::set<int> ids;
  for (const Piece& piece : layout.pieces) ids.insert(piece.partial);
  return ids;
}

/// Whether each piece of summands in `to` already lies at its owner in `from`.
std::optional<Unresolvable> keep_summands(const Layout& from, const Layout& to) {
  if (summands(from) != summands(to)) {
    return Unresolvable{fmt::format("the source has summands {} and the destination {} (-1: full)",
                                    summands(from), summands(to))};
  }
  std::map<std::pair<int, int>, Layout> held_by;
  for (const Piece& piece : from.pieces) {
    held_by[{piece.owner, piece.partial}].pieces.push_back(piece);
  }
  for (const Piece& piece : to.pieces) {
    if (piece.slice.size() == 0) continue;
    const auto slices = held(held_by[{piece.owner, piece.partial}], piece.owner);
    const bool there = std::any_of(slices.begin(), slices.end(), [&](const Slice& s) {
      return s.begin <= piece.slice.begin && piece.slice.end <= s.end;
    });
    if (there) continue;
    return Unresolvable{fmt::format("owner {} needs summand {} of [{}, {}) and does not hold it",
                                    piece.owner, piece.partial, piece.slice.begin,
                                    piece.slice.end)};
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(StepKind kind) {
  switch (kind) {
    case StepKind::send_receive:
      return "send_receive";
    case StepKind::all_reduce:
      return "all_reduce";
    case StepKind::reduce_scatter:
      return "reduce_scatter";
    case StepKind::all_gather:
      return "all_gather";
    case StepKind::broadcast:
      return "broadcast";
  }
  return "unknown";
}

std::variant<std::vector<Step>, Unresolvable> resolve(const Layout& from, const Layout& to,
                                                      const ResolveOptions& options) {
  if (auto problem = validate(from)) return Unresolvable{"source: " + *problem};
  if (auto problem = validate(to)) return Unresolvable{"destination: " + *problem};
  if (from.length != to.length) {
    return Unresolvable{
        fmt::format("source has {} elements, destination {}", from.length, to.length)};
  }
  if (from.length == 0) return std::vector<Step>{};
  if (to.pieces.front().partial != kFullValue) {
    if (auto problem = keep_summands(from, to)) return *problem;
    return std::vector<Step>{};
  }
  const bool full = from.pieces.front().partial == kFullValue;
  Resolver resolver(options);
  for (const Segment& segment : cut_into_segments(from, to)) {
    if (full) {
      resolver.add_full(segment);
    } else if (auto problem = resolver.add_partial(segment)) {
      return *problem;
    }
  }
  return resolver.finish();
}

}  // namespace orrery::models
