#include "planners/recovery/oobleck/reconfigure.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace orrery::planners {
namespace {

/// Moves the last `count` nodes of one list to the end of another.
void move_last(NodeList& from, NodeList& to, int count) {
  const auto first = from.end() - static_cast<std::ptrdiff_t>(count);
  to.insert(to.end(), first, from.end());
  from.erase(first, from.end());
}

int size_of(const NodeList& nodes) { return static_cast<int>(nodes.size()); }

/// The largest other pipeline that has a template with a node less; none: its position is the end.
std::size_t donor(const std::vector<NodeList>& pipelines, std::size_t taker,
                  const std::function<bool(int)>& has_template) {
  std::size_t best = pipelines.size();
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    const int size = size_of(pipelines[p]);
    if (p == taker || !has_template(size) || !has_template(size - 1)) continue;
    if (best == pipelines.size() || size > size_of(pipelines[best])) best = p;
  }
  return best;
}

/// Nodes that all donors could give in all.
int lendable(const std::vector<NodeList>& pipelines, std::size_t taker,
             const std::function<bool(int)>& has_template) {
  int all = 0;
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    if (p == taker || !has_template(size_of(pipelines[p]))) continue;
    for (int size = size_of(pipelines[p]) - 1; has_template(size); --size) ++all;
  }
  return all;
}

/// The smallest other pipeline that has a template with `more` nodes.
std::size_t host(const std::vector<NodeList>& pipelines, std::size_t guest, int more,
                 const std::function<bool(int)>& has_template) {
  std::size_t best = pipelines.size();
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    if (p == guest || pipelines[p].empty() || !has_template(size_of(pipelines[p]) + more)) continue;
    if (best == pipelines.size() || pipelines[p].size() < pipelines[best].size()) best = p;
  }
  return best;
}

}  // namespace

std::vector<NodeList> pipelines_of(const ir::Plan& plan, const std::vector<Unit>& nodes) {
  std::map<DeviceId, std::size_t> node_of;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (const DeviceId device : nodes[n]) node_of[device] = n;
  }
  std::set<std::size_t> taken;
  std::vector<NodeList> result;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    NodeList& own = result.emplace_back();
    for (const ir::Stage& stage : pipeline.stages) {
      for (const DeviceId device : ir::devices_of(stage)) {
        const auto found = node_of.find(device);
        if (found == node_of.end() || !taken.insert(found->second).second) continue;
        own.push_back(nodes[found->second]);
      }
    }
  }
  return result;
}

NodeList spares(const std::vector<NodeList>& pipelines, const std::vector<Unit>& nodes) {
  std::set<Unit> used;
  for (const NodeList& pipeline : pipelines) used.insert(pipeline.begin(), pipeline.end());
  NodeList result;
  for (const Unit& node : nodes) {
    if (!used.contains(node)) result.push_back(node);
  }
  return result;
}

OobleckReconfiguration reconfigure(std::vector<NodeList> pipelines, NodeList spare,
                                   const std::function<bool(int)>& has_template, int fewest) {
  int borrowed = 0;
  int merged = 0;
  const auto complete = [&](std::size_t p) { return has_template(size_of(pipelines[p])); };
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    if (complete(p)) continue;
    // Between the templates there may be sizes without one: give nodes back until there is one.
    for (int size = size_of(pipelines[p]); size > fewest && !complete(p); --size) {
      move_last(pipelines[p], spare, 1);
    }
    if (complete(p)) continue;
    const int lack = fewest - size_of(pipelines[p]);
    if (lack <= size_of(spare)) {
      move_last(spare, pipelines[p], lack);
      ++borrowed;
    } else if (!pipelines[p].empty() &&
               lack <= size_of(spare) + lendable(pipelines, p, has_template)) {
      move_last(spare, pipelines[p], size_of(spare));
      while (size_of(pipelines[p]) < fewest) {
        move_last(pipelines[donor(pipelines, p, has_template)], pipelines[p], 1);
      }
      ++borrowed;
    } else {
      const std::size_t to = host(pipelines, p, size_of(pipelines[p]), has_template);
      NodeList& rest = to == pipelines.size() ? spare : pipelines[to];
      if (to != pipelines.size() && !pipelines[p].empty()) ++merged;
      move_last(pipelines[p], rest, size_of(pipelines[p]));
    }
  }
  OobleckReconfiguration result;
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    if (!pipelines[p].empty() && complete(p)) result.pipelines.push_back(std::move(pipelines[p]));
  }
  result.what = borrowed + merged == 0 ? "smaller templates"
                : merged == 0          ? "nodes borrowed"
                : borrowed == 0        ? "pipelines merged"
                                       : "nodes borrowed, pipelines merged";
  return result;
}

std::vector<NodeList> assign_nodes(const std::vector<int>& sizes,
                                   const std::vector<NodeList>& before,
                                   const std::vector<Unit>& nodes) {
  std::vector<NodeList> left = before;
  NodeList rest = spares(before, nodes);
  std::vector<NodeList> result(sizes.size());
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    const auto same = std::find_if(left.begin(), left.end(), [&](const NodeList& pipeline) {
      return size_of(pipeline) == sizes[p];
    });
    if (same != left.end()) result[p] = std::exchange(*same, {});
  }
  std::stable_sort(left.begin(), left.end(),
                   [](const NodeList& a, const NodeList& b) { return a.size() > b.size(); });
  std::size_t next = 0;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    if (!result[p].empty() || next == left.size()) continue;
    result[p] = std::exchange(left[next++], {});
    if (size_of(result[p]) > sizes[p]) move_last(result[p], rest, size_of(result[p]) - sizes[p]);
  }
  for (const NodeList& pipeline : left) rest.insert(rest.end(), pipeline.begin(), pipeline.end());
  std::sort(rest.begin(), rest.end(), std::greater<>());  // The lowest ids are taken first.
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    while (size_of(result[p]) < sizes[p]) move_last(rest, result[p], 1);
  }
  return result;
}

}  // namespace orrery::planners
