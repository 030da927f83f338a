#include "planners/hexiscale/order.h"

#include <algorithm>
#include <limits>

#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

constexpr int kMostPartialPaths = 4096;

using Neighbors = std::vector<std::vector<int>>;

/// Depth-first search from one start. Keeps references.
class PathSearch {
 public:
  PathSearch(const GroupLinks& links, const Neighbors& neighbors, int tau, int start)
      : links_(links), neighbors_(neighbors), tau_(tau), path_{start} {
    used_.resize(links.groups);
    used_[start] = true;
    cheapest_ = std::numeric_limits<double>::infinity();
    for (int from = 0; from < links.groups; ++from) {
      for (int to = 0; to < links.groups; ++to) {
        if (from != to) cheapest_ = std::min(cheapest_, hop(from, to));
      }
    }
  }

  std::vector<int> shortest() {
    extend(0);
    return best_;
  }

 private:
  std::size_t index(int from, int to) const { return as_size(from) * as_size(links_.groups) + to; }
  double hop(int from, int to) const { return links_.hop[index(from, to)]; }

  void extend(double cost) {
    const int left = links_.groups - static_cast<int>(path_.size());
    if (left == 0) {
      if (best_.empty() || cost < best_cost_) {
        best_ = path_;
        best_cost_ = cost;
      }
      return;
    }
    if (!best_.empty() && (cost + left * cheapest_ >= best_cost_ || visited_ > kMostPartialPaths)) {
      return;
    }
    ++visited_;
    int followed = 0;
    for (const int next : neighbors_[path_.back()]) {
      if (used_[next]) continue;
      if (followed++ == tau_) break;
      const double step = hop(path_.back(), next);
      path_.push_back(next);
      used_[next] = true;
      extend(cost + step);
      path_.pop_back();
      used_[next] = false;
    }
  }

  const GroupLinks& links_;
  const Neighbors& neighbors_;
  int tau_;
  std::vector<int> path_;
  std::vector<bool> used_;
  double cheapest_ = 0;
  std::vector<int> best_;
  double best_cost_ = 0;
  int visited_ = 0;
};

}  // namespace

std::vector<std::vector<int>> neighbors_by_bandwidth(const GroupLinks& links) {
  std::vector<std::vector<int>> result(links.groups);
  for (int from = 0; from < links.groups; ++from) {
    const std::size_t row = as_size(from) * as_size(links.groups);
    std::vector<int>& others = result[from];
    for (int g = 0; g < links.groups; ++g) {
      if (g != from) others.push_back(g);
    }
    std::stable_sort(others.begin(), others.end(), [&](int a, int b) {
      return links.bandwidth[row + a] > links.bandwidth[row + b];
    });
  }
  return result;
}

std::vector<std::vector<int>> top_tau_paths(const GroupLinks& links, int tau) {
  const Neighbors neighbors = neighbors_by_bandwidth(links);
  std::vector<std::vector<int>> paths;
  for (int start = 0; start < links.groups; ++start) {
    paths.push_back(PathSearch(links, neighbors, tau, start).shortest());
  }
  return paths;
}

}  // namespace orrery::planners
