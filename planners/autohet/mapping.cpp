#include "planners/autohet/mapping.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// Units that no group has yet, by kind in the order of devices.
class Pool {
 public:
  Pool(const std::vector<AutohetUnit>& units, std::size_t kinds) : units_(units), free_(kinds) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      free_[units[u].kind].push_back(static_cast<int>(u));
    }
  }

  /// The next unit of the kind, wherever it is.
  int take(std::size_t kind) {
    const int unit = free_[kind].front();
    free_[kind].erase(free_[kind].begin());
    return unit;
  }

  /// That many units of the kind on the first node that has them; empty if there is none.
  std::vector<int> take_from_one_node(std::size_t kind, std::size_t count) {
    std::map<NodeId, std::vector<int>> by_node;
    for (const int unit : free_[kind]) {
      by_node[units_[unit].node].push_back(unit);
    }
    for (auto& [node, members] : by_node) {
      if (members.size() < count) continue;
      members.resize(count);
      for (const int unit : members) {
        free_[kind].erase(std::find(free_[kind].begin(), free_[kind].end(), unit));
      }
      return members;
    }
    return {};
  }

 private:
  const std::vector<AutohetUnit>& units_;
  std::vector<std::vector<int>> free_;
};

std::vector<std::vector<int>> in_device_order(const std::vector<AutohetUnit>& units,
                                              std::vector<UnitCounts> left) {
  std::vector<std::vector<int>> result(left.size());
  std::vector<bool> taken(units.size());
  for (std::size_t g = 0; g < left.size(); ++g) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      int& wanted = left[g][units[u].kind];
      if (taken[u] || wanted == 0) continue;
      taken[u] = true;
      --wanted;
      result[g].push_back(static_cast<int>(u));
    }
    // One kind after the other, as AutohetCosts::stage_kinds() has it.
    std::map<int, std::size_t> first_of_kind;
    for (std::size_t u = 0; u < units.size(); ++u) first_of_kind.try_emplace(units[u].kind, u);
    std::stable_sort(result[g].begin(), result[g].end(), [&](int a, int b) {
      return first_of_kind[units[a].kind] < first_of_kind[units[b].kind];
    });
  }
  return result;
}

}  // namespace

std::vector<std::vector<int>> map_groups(const std::vector<AutohetUnit>& units,
                                         const std::vector<UnitCounts>& groups, bool mapping) {
  if (!mapping) return in_device_order(units, groups);
  const std::size_t kinds = groups.front().size();
  Pool pool(units, kinds);
  std::vector<UnitCounts> left = groups;
  std::vector<std::vector<int>> result(groups.size());
  bool together = true;
  for (std::size_t kind = 0; kind < kinds && together; ++kind) {
    const auto has = [&](const UnitCounts& counts) { return counts[kind] > 0; };
    while (together && std::any_of(left.begin(), left.end(), has)) {
      std::vector<int> peers;
      if (std::all_of(left.begin(), left.end(), has)) {
        peers = pool.take_from_one_node(kind, groups.size());
      }
      together = !peers.empty();
      for (std::size_t g = 0; g < peers.size(); ++g) {
        result[g].push_back(peers[g]);
        --left[g][kind];
      }
    }
  }
  for (bool more = true; more;) {
    more = false;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto next = std::find_if(left[g].begin(), left[g].end(), [](int n) { return n > 0; });
      if (next == left[g].end()) continue;
      --*next;
      result[g].push_back(pool.take(next - left[g].begin()));
      more = true;
    }
  }
  return result;
}

}  // namespace orrery::planners
