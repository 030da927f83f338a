#include "planners/hexiscale/public_code.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

double total_bandwidth(const GroupLinks& links, const std::vector<int>& path) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    sum += links.bandwidth[as_size(path[i]) * as_size(links.groups) + (path[i + 1])];
  }
  return sum;
}

/// From `start` always to the last of the tau neighbors by number.
std::vector<int> largest_path(const std::vector<std::vector<int>>& neighbors, int tau, int start) {
  std::vector<int> path = {start};
  std::vector<bool> used(neighbors.size(), false);
  used[start] = true;
  while (path.size() < neighbors.size()) {
    int largest = -1;
    int left = tau;
    for (const int next : neighbors[path.back()]) {
      if (used[next]) continue;
      largest = std::max(largest, next);
      if (--left == 0) break;
    }
    path.push_back(largest);
    used[largest] = true;
  }
  return path;
}

}  // namespace

std::vector<std::vector<int>> public_lists(int gpus) {
  switch (gpus) {
    case 1:
      return {{1}};
    case 2:
      return {{2}, {1, 1}};
    case 3:
      return {{2, 1}, {1, 1, 1}};
    case 4:
      return {{4}, {2, 2}, {2, 1, 1}};
    case 5:
      return {{4, 1}, {2, 2, 1}};
    case 6:
      return {{4, 2}, {2, 2, 2}};
    case 7:
      return {{4, 2, 1}, {2, 2, 2, 1}};
    case 8:
      return {{8}, {4, 4}, {4, 2, 2}};
    default:
      return {};
  }
}

std::vector<std::vector<int>> last_path_public(const GroupLinks& links, int tau) {
  const std::vector<std::vector<int>> neighbors = neighbors_by_bandwidth(links);
  std::vector<int> chosen;
  for (int start = 0; start < links.groups; ++start) {
    std::vector<int> path = largest_path(neighbors, tau, start);
    if (chosen.empty() || total_bandwidth(links, path) < total_bandwidth(links, chosen)) {
      chosen = std::move(path);
    }
  }
  return {chosen};
}

std::optional<std::vector<int>> assign_layers_by_memory(std::span<const StageRate> stages,
                                                        std::span<const Bytes> memory, int layers) {
  if (static_cast<int>(stages.size()) > layers) return std::nullopt;
  const double total = std::accumulate(memory.begin(), memory.end(), Bytes{}).value;
  std::vector<int> counts;
  for (const Bytes share : memory) {
    counts.push_back(std::max(1, static_cast<int>(layers * share.value / total)));
  }
  std::vector<std::size_t> largest(stages.size());
  std::iota(largest.begin(), largest.end(), 0);
  std::stable_sort(largest.begin(), largest.end(),
                   [&](std::size_t a, std::size_t b) { return memory[a] > memory[b]; });
  int left = layers - std::accumulate(counts.begin(), counts.end(), 0);
  for (std::size_t i = 0; left > 0; i = (i + 1) % largest.size(), --left) ++counts[largest[i]];
  for (std::size_t i = 0; left < 0; i = (i + 1) % largest.size()) {
    if (counts[largest[i]] == 1) continue;
    --counts[largest[i]];
    ++left;
  }
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (counts[s] > stages[s].max_layers) return std::nullopt;
  }
  return counts;
}

}  // namespace orrery::planners
