#include "executor/launcher/inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <tuple>

namespace orrery::executor {
namespace {

using Key = std::pair<std::int32_t, std::int32_t>;  ///< Block, parameter.

Key key_of(const StateSlice& slice) { return {slice.block, slice.parameter}; }

struct Source {
  int member = 0;
  StateSource source = StateSource::memory;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
using Sources = std::map<Key, std::vector<Source>>;

/// How far a source is from a member: the order of preference.
int distance(const Source& source, int to, const std::vector<StateReport>& members) {
  const bool same_node = members[static_cast<std::size_t>(source.member)].node ==
                         members[static_cast<std::size_t>(to)].node;
  switch (source.source) {
    case StateSource::memory:
      return source.member == to ? 0 : 1;
    case StateSource::local:
      return same_node ? 2 : 3;
    case StateSource::cloud:
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
            {static_cast<int>(m), offer.source, offer.slice.begin, offer.slice.end});
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
      if (best->member != to) load_[static_cast<std::size_t>(best->member)] += end - begin;
      const int from = best->source == StateSource::cloud ? to : best->member;
      StateMove move{from, to, best->source, need.slice, need.whole};
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
      return std::tuple(distance(source, to, members_),
                        load_[static_cast<std::size_t>(source.member)], source.member);
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

void write_slice(std::string& text, const StateSlice& slice) {
  text += fmt::format(" {} {} {} {}\n", slice.block, slice.parameter, slice.begin, slice.end);
}

}  // namespace

const char* name_of(StateSource source) {
  switch (source) {
    case StateSource::memory:
      return "memory";
    case StateSource::local:
      return "local";
    case StateSource::cloud:
      return "cloud";
  }
  return "?";
}

std::string to_text(const StateReport& report) {
  std::string text = report.node + "\n";
  for (const StateNeed& need : report.needs) {
    text += need.whole ? "whole" : "weights";
    write_slice(text, need.slice);
  }
  for (const StateOffer& offer : report.offers) {
    text += fmt::format("{} {} {}", name_of(offer.source), offer.version.step,
                        offer.version.generation);
    write_slice(text, offer.slice);
  }
  return text;
}

StateReport state_report_from(const std::string& text) {
  StateReport report;
  std::istringstream lines(text);
  std::getline(lines, report.node);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    StateOffer offer;
    words >> kind;
    const bool need = kind == "whole" || kind == "weights";
    if (!need) words >> offer.version.step >> offer.version.generation;
    StateSlice& slice = offer.slice;
    words >> slice.block >> slice.parameter >> slice.begin >> slice.end;
    if (!words) throw std::runtime_error("a state report that cannot be read: " + line);
    if (need) {
      report.needs.push_back({slice, kind == "whole"});
      continue;
    }
    offer.source = kind == "memory"  ? StateSource::memory
                   : kind == "local" ? StateSource::local
                                     : StateSource::cloud;
    report.offers.push_back(offer);
  }
  return report;
}

std::vector<StateNeed> needs_of(Worker& worker) {
  std::vector<StateNeed> needs;
  for (const BlockId block : worker.blocks()) {
    const std::vector<HeldParameter>& all = worker.shard().parameters(block);
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> owned(all.size());
    for (const Worker::Owned& range : worker.owned(block)) {
      owned[static_cast<std::size_t>(range.parameter)].emplace_back(range.begin, range.end);
      needs.push_back({{block.value, range.parameter, range.begin, range.end}, true});
    }
    for (std::size_t p = 0; p < all.size(); ++p) {
      if (all[p].sharded) continue;  // Passes bring the rest.
      for (const auto& [begin, end] : subtract({all[p].begin, all[p].end}, owned[p])) {
        needs.push_back({{block.value, static_cast<std::int32_t>(p), begin, end}, false});
      }
    }
  }
  return needs;
}

std::vector<StateSlice> slices_to_save(const std::vector<StateReport>& members, int member,
                                       bool per_node) {
  const auto index = static_cast<std::size_t>(member);
  std::map<Key, std::vector<std::pair<std::int64_t, std::int64_t>>> taken;
  for (std::size_t m = 0; m < index; ++m) {
    if (per_node && members[m].node != members[index].node) continue;
    for (const StateNeed& need : members[m].needs) {
      if (need.whole) taken[key_of(need.slice)].emplace_back(need.slice.begin, need.slice.end);
    }
  }
  std::vector<StateSlice> out;
  for (const StateNeed& need : members[index].needs) {
    if (!need.whole) continue;
    for (const auto& [begin, end] :
         subtract({need.slice.begin, need.slice.end}, taken[key_of(need.slice)])) {
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
