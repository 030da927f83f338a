#include "planners/hexiscale/order.h"

#include <algorithm>
#include <limits>

namespace orrery::planners {
namespace {

constexpr int kMostPartialPaths = 4096;

/// For each group the others, the highest bandwidth to it first (ties: lower number).
using Neighbors = std::vector<std::vector<int>>;

Neighbors by_bandwidth(const GroupLinks& links) {
  Neighbors result(static_cast<std::size_t>(links.groups));
  for (int from = 0; from < links.groups; ++from) {
    const std::size_t row = static_cast<std::size_t>(from) * static_cast<std::size_t>(links.groups);
    std::vector<int>& others = result[static_cast<std::size_t>(from)];
    for (int g = 0; g < links.groups; ++g) {
      if (g != from) others.push_back(g);
    }
    std::stable_sort(others.begin(), others.end(), [&](int a, int b) {
      return links.bandwidth[row + static_cast<std::size_t>(a)] >
             links.bandwidth[row + static_cast<std::size_t>(b)];
    });
  }
  return result;
}

/// Depth-first search from one start. Keeps references.
class PathSearch {
 public:
  PathSearch(const GroupLinks& links, const Neighbors& neighbors, int tau, int start)
      : links_(links), neighbors_(neighbors), tau_(tau), path_{start} {
    used_.resize(static_cast<std::size_t>(links.groups));
    used_[static_cast<std::size_t>(start)] = true;
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

  /// Always the last of the tau neighbors by number.
  std::vector<int> largest() {
    while (static_cast<int>(path_.size()) < links_.groups) {
      int largest = -1;
      int left = tau_;
      for (const int next : neighbors_[static_cast<std::size_t>(path_.back())]) {
        if (used_[static_cast<std::size_t>(next)]) continue;
        largest = std::max(largest, next);
        if (--left == 0) break;
      }
      path_.push_back(largest);
      used_[static_cast<std::size_t>(path_.back())] = true;
    }
    return path_;
  }

 private:
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(links_.groups) +
           static_cast<std::size_t>(to);
  }
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
    for (const int next : neighbors_[static_cast<std::size_t>(path_.back())]) {
      if (used_[static_cast<std::size_t>(next)]) continue;
      if (followed++ == tau_) break;
      const double step = hop(path_.back(), next);
      path_.push_back(next);
      used_[static_cast<std::size_t>(next)] = true;
      extend(cost + step);
      path_.pop_back();
      used_[static_cast<std::size_t>(next)] = false;
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

double total_bandwidth(const GroupLinks& links, const std::vector<int>& path) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    sum +=
        links.bandwidth[static_cast<std::size_t>(path[i]) * static_cast<std::size_t>(links.groups) +
                        static_cast<std::size_t>(path[i + 1])];
  }
  return sum;
}

}  // namespace

std::vector<std::vector<int>> top_tau_paths(const GroupLinks& links, int tau) {
  const Neighbors neighbors = by_bandwidth(links);
  std::vector<std::vector<int>> paths;
  for (int start = 0; start < links.groups; ++start) {
    paths.push_back(PathSearch(links, neighbors, tau, start).shortest());
  }
  return paths;
}

std::vector<std::vector<int>> last_path_public(const GroupLinks& links, int tau) {
  const Neighbors neighbors = by_bandwidth(links);
  std::vector<int> chosen;
  for (int start = 0; start < links.groups; ++start) {
    std::vector<int> path = PathSearch(links, neighbors, tau, start).largest();
    if (chosen.empty() || total_bandwidth(links, path) < total_bandwidth(links, chosen)) {
      chosen = std::move(path);
    }
  }
  return {chosen};
}

}  // namespace orrery::planners
