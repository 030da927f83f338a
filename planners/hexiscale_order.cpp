#include "planners/hexiscale_order.h"

#include <algorithm>
#include <limits>

namespace orrery::planners {
namespace {

constexpr int kMostPartialPaths = 4096;

/// Depth-first search from one start.
class PathSearch {
 public:
  PathSearch(const GroupLinks& links, int tau, int start)
      : links_(links), tau_(static_cast<std::size_t>(tau)), path_{start} {
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

  /// Always the last of the tau neighbours by number.
  std::vector<int> largest() {
    while (static_cast<int>(path_.size()) < links_.groups) {
      const std::vector<int> next = neighbours();
      path_.push_back(*std::max_element(next.begin(), next.end()));
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

  std::vector<int> neighbours() const {
    std::vector<int> next;
    for (int g = 0; g < links_.groups; ++g) {
      if (!used_[static_cast<std::size_t>(g)]) next.push_back(g);
    }
    std::stable_sort(next.begin(), next.end(), [&](int a, int b) {
      return links_.bandwidth[index(path_.back(), a)] > links_.bandwidth[index(path_.back(), b)];
    });
    next.resize(std::min(next.size(), tau_));
    return next;
  }

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
    for (const int next : neighbours()) {
      const double step = hop(path_.back(), next);
      path_.push_back(next);
      used_[static_cast<std::size_t>(next)] = true;
      extend(cost + step);
      path_.pop_back();
      used_[static_cast<std::size_t>(next)] = false;
    }
  }

  const GroupLinks& links_;
  std::size_t tau_;
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
  std::vector<std::vector<int>> paths;
  for (int start = 0; start < links.groups; ++start) {
    paths.push_back(PathSearch(links, tau, start).shortest());
  }
  return paths;
}

std::vector<std::vector<int>> last_path_public(const GroupLinks& links, int tau) {
  std::vector<int> chosen;
  for (int start = 0; start < links.groups; ++start) {
    std::vector<int> path = PathSearch(links, tau, start).largest();
    if (chosen.empty() || total_bandwidth(links, path) < total_bandwidth(links, chosen)) {
      chosen = std::move(path);
    }
  }
  return {chosen};
}

}  // namespace orrery::planners
