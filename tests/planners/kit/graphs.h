/// Graphs and reference answers for the tests and the benchmark of the partitioner.
#pragma once
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "models/base/rng.h"
#include "planners/kit/graph.h"
#include "planners/kit/integers.h"
#include "planners/kit/partition.h"

namespace orrery::planners::testing {

/// Edges and vertex weights are independent integers in 1 ... 20 and 1 ... `heaviest`.
inline WeightedGraph random_graph(int vertices, int heaviest, Rng& rng) {
  std::vector<double> weight(vertices);
  for (double& w : weight) w = static_cast<double>(rng.integer(1, heaviest));
  WeightedGraph graph = make_graph(std::move(weight));
  for (int u = 0; u < vertices; ++u) {
    for (int v = 0; v < u; ++v) graph.set_edge(u, v, static_cast<double>(rng.integer(1, 20)));
  }
  return graph;
}

/// Machines of 8 GPUs, each machine of one of `types` GPU types (peak 312, 165, 71, 148 TFLOP/s;
/// 200, 32, 16, 100 GB/s inside), in 4 regions; links between machines have 1 ... 4 GB/s across
/// regions and 5 ... 12 GB/s inside one. Unit of the edges: 0.1 GB/s, whole numbers.
inline WeightedGraph cluster_graph(int devices, int types, Rng& rng) {
  const double peak[] = {312, 165, 71, 148};
  const double inside[] = {2000, 320, 160, 1000};
  const int machines = (devices + 7) / 8;
  std::vector<int> type(machines);
  std::vector<int> region(machines);
  for (std::size_t m = 0; m < type.size(); ++m) {
    type[m] = static_cast<int>(rng.integer(0, types - 1));
    region[m] = static_cast<int>(rng.integer(0, 3));
  }
  const auto machine = [](int device) { return device / 8; };
  std::vector<double> weight(devices);
  for (int d = 0; d < devices; ++d) weight[d] = peak[type[machine(d)]];
  WeightedGraph graph = make_graph(std::move(weight));
  std::vector<std::vector<double>> link(type.size(), std::vector<double>(type.size()));
  for (std::size_t a = 0; a < type.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      link[a][b] =
          static_cast<double>(region[a] == region[b] ? rng.integer(50, 120) : rng.integer(10, 40));
    }
  }
  for (int u = 0; u < devices; ++u) {
    for (int v = 0; v < u; ++v) {
      const std::size_t a = machine(u);
      const std::size_t b = machine(v);
      graph.set_edge(u, v, a == b ? inside[type[a]] : link[std::max(a, b)][std::min(a, b)]);
    }
  }
  return graph;
}

/// The best cut over all assignments with no empty part and imbalance <= max_imbalance, by trying
/// all of them; nothing when there is none. Feasible up to about 10 vertices.
inline std::optional<double> exact_cut(const WeightedGraph& graph, int parts,
                                       const PartitionOptions& options) {
  const std::size_t n = graph.vertices;
  const bool minimize = options.objective == CutObjective::kMinimize;
  std::optional<double> best;
  std::vector<int> assignment(n, 0);
  // Restricted growth strings: each partition once, whatever the numbers of its parts.
  const auto visit = [&](auto&& self, std::size_t v, int used) -> void {
    if (used + static_cast<int>(n - v) < parts) return;
    if (v < n) {
      for (int p = 0; p < std::min(used + 1, parts); ++p) {
        assignment[v] = p;
        self(self, v + 1, std::max(used, p + 1));
      }
      return;
    }
    if (imbalance(graph, assignment) > options.max_imbalance * (1 + 1e-9)) return;
    const double value = cut(graph, assignment);
    if (!best || (minimize ? value < *best : value > *best)) best = value;
  };
  visit(visit, 0, 0);
  return best;
}

}  // namespace orrery::planners::testing
