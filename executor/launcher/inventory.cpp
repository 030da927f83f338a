#include "executor/launcher/inventory.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "models/base/ids.h"

namespace orrery::executor {
namespace {

using Key = std::pair<std::int32_t, std::int32_t>;  ///< Block, parameter.

Key key_of(const StateSlice& slice) { return {slice.block, slice.parameter}; }

struct Source {
  int member = 0;
  StateOrigin origin = StateOrigin::memory;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
using Sources = std::map<Key, std::vector<Source>>;

/// How far a source is from a member: the order of preference.
int distance(const Source& source, int to, const std::vector<StateReport>& members) {
  const bool same_node = members[source.member].node == members[to].node;
  switch (source.origin) {
    case StateOrigin::memory:
      return source.member == to ? 0 : 1;
    case StateOrigin::local:
      return same_node ? 2 : 3;
    case StateOrigin::cloud:
      return 4;
  }
  return 5;
}

class MovePlanner {
 public:
  MovePlanner(const std::vector<StateReport>& members, StateVersion version) : members_(members) {
    for (std::size_t m = 0; m < members.size(); ++m) {
      for (const StateOffer& offer : members[m].offers) {
        if (offer.version != version) continue;
        sources_[key_of(offer.slice)].push_back(
            {static_cast<int>(m), offer.origin, offer.slice.begin, offer.slice.end});
      }
    }
    load_.assign(members.size(), 0);
  }

  /// False when a slice is nowhere.
  bool plan(std::vector<StateMove>& moves) {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      for (const StateNeed& need : members_[m].needs) {
        if (!add(static_cast<int>(m), need, moves)) return false;
      }
    }
    std::stable_sort(moves.begin(), moves.end(), [](const StateMove& a, const StateMove& b) {
      return a.slice.block < b.slice.block;
    });
    return true;
  }

 private:
  bool add(int to, const StateNeed& need, std::vector<StateMove>& moves) {
    const auto it = sources_.find(key_of(need.slice));
    if (it == sources_.end()) return need.slice.begin == need.slice.end;
    std::set<std::int64_t> cuts = {need.slice.begin, need.slice.end};
    for (const Source& source : it->second) {
      for (const std::int64_t cut : {source.begin, source.end}) {
        if (cut > need.slice.begin && cut < need.slice.end) cuts.insert(cut);
      }
    }
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
      const std::int64_t begin = *cut;
      const std::int64_t end = *std::next(cut);
      const Source* best = choose(it->second, to, begin, end);
      if (best == nullptr) return false;
      if (best->member != to) load_[best->member] += end - begin;
      const int from = best->origin == StateOrigin::cloud ? to : best->member;
      StateMove move{from, to, best->origin, need.slice, need.whole};
      move.slice.begin = begin;
      move.slice.end = end;
      moves.push_back(move);
    }
    return true;
  }

  const Source* choose(const std::vector<Source>& all, int to, std::int64_t begin,
                       std::int64_t end) const {
    const Source* best = nullptr;
    const auto rank = [&](const Source& source) {
      return std::tuple(distance(source, to, members_), load_[source.member], source.member);
    };
    for (const Source& source : all) {
      if (source.begin > begin || source.end < end) continue;
      if (best == nullptr || rank(source) < rank(*best)) best = &source;
    }
    return best;
  }

  const std::vector<StateReport>& members_;
  Sources sources_;
  std::vector<std::int64_t> load_;
};

/// Numbers of an entry of a report, one after the other: slices are many, and maps of them long.
void append(std::vector<std::int64_t>& numbers, const StateSlice& slice) {
  numbers.insert(numbers.end(), {slice.block, slice.parameter, slice.begin, slice.end});
}

StateSlice slice_at(const std::vector<std::int64_t>& numbers, std::size_t at) {
  return {static_cast<std::int32_t>(numbers[at]), static_cast<std::int32_t>(numbers[at + 1]),
          numbers[at + 2], numbers[at + 3]};
}

constexpr std::size_t kNeedNumbers = 5;
constexpr std::size_t kOfferNumbers = 7;

}  // namespace

const char* name_of(StateOrigin origin) {
  constexpr std::array kNames = {"memory", "local", "cloud"};
  return kNames[index_of(origin)];
}

void describe(config::Visitor& v, StateReport& report) {
  std::vector<std::int64_t> needs;
  for (const StateNeed& need : report.needs) {
    append(needs, need.slice);
    needs.push_back(need.whole ? 1 : 0);
  }
  std::vector<std::int64_t> offers;
  for (const StateOffer& offer : report.offers) {
    append(offers, offer.slice);
    offers.insert(offers.end(), {static_cast<std::int64_t>(offer.origin), offer.version.step,
                                 offer.version.generation});
  }
  v.required("node", report.node, "of the member");
  v.required("needs", needs, "block, parameter, begin, end, and 1 if with moments, of each slice");
  v.required("offers", offers,
             "block, parameter, begin, end, origin, step and generation of each slice");
  if (!v.reading()) return;
  if (needs.size() % kNeedNumbers != 0) v.problem("needs", "are not whole entries");
  if (offers.size() % kOfferNumbers != 0) v.problem("offers", "are not whole entries");
  if (!v.good()) return;
  report.needs.clear();
  for (std::size_t i = 0; i < needs.size(); i += kNeedNumbers) {
    report.needs.push_back({slice_at(needs, i), needs[i + 4] != 0});
  }
  report.offers.clear();
  for (std::size_t i = 0; i < offers.size(); i += kOfferNumbers) {
    const auto origin = static_cast<StateOrigin>(std::clamp<std::int64_t>(offers[i + 4], 0, 2));
    report.offers.push_back({origin, {offers[i + 5], offers[i + 6]}, slice_at(offers, i)});
  }
}

std::vector<StateNeed> needs_of(Worker& worker) {
  std::vector<StateNeed> needs;
  for (const BlockId block : worker.blocks()) {
    const std::vector<HeldParameter>& all = worker.shard().parameters(block);
    std::vector<std::vector<UnitRange>> owned(all.size());
    for (const Worker::Owned& range : worker.owned(block)) {
      owned[range.parameter].push_back({range.begin, range.end});
      needs.push_back({{block.value, range.parameter, range.begin, range.end}, true});
    }
    for (std::size_t p = 0; p < all.size(); ++p) {
      if (all[p].sharded) continue;  // Passes bring the rest.
      if (all[p].tied) continue;     // It is the embedding's.
      for (const auto& [begin, end] : without(all[p].slices, owned[p])) {
        needs.push_back({{block.value, static_cast<std::int32_t>(p), begin, end}, false});
      }
    }
  }
  return needs;
}

std::vector<StateSlice> slices_to_save(const std::vector<StateReport>& members, int member,
                                       bool per_node) {
  const std::size_t index = member;
  std::map<Key, std::vector<UnitRange>> taken;
  for (std::size_t m = 0; m < index; ++m) {
    if (per_node && members[m].node != members[index].node) continue;
    for (const StateNeed& need : members[m].needs) {
      if (need.whole) taken[key_of(need.slice)].push_back({need.slice.begin, need.slice.end});
    }
  }
  std::vector<StateSlice> out;
  for (const StateNeed& need : members[index].needs) {
    if (!need.whole) continue;
    for (const auto& [begin, end] :
         without({{need.slice.begin, need.slice.end}}, taken[key_of(need.slice)])) {
      out.push_back({need.slice.block, need.slice.parameter, begin, end});
    }
  }
  return out;
}

StatePlan plan_state(const std::vector<StateReport>& members,
                     std::optional<std::int64_t> finished) {
  const auto better = [finished](const StateVersion& a, const StateVersion& b) {
    return std::tuple(a.step == finished, a) > std::tuple(b.step == finished, b);
  };
  std::set<StateVersion, decltype(better)> versions(better);
  for (const StateReport& member : members) {
    for (const StateOffer& offer : member.offers) versions.insert(offer.version);
  }
  for (const StateVersion& version : versions) {
    StatePlan plan;
    plan.version = version;
    if (MovePlanner(members, version).plan(plan.moves)) return plan;
  }
  return {};
}

}  // namespace orrery::executor
