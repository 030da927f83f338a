/// Complete weighted graphs of devices, machines or groups: what the partitioner cuts.
/// Dense, because every pair of devices has a bandwidth; meant for up to 1,024 vertices.
#pragma once
#include <cstddef>
#include <vector>

#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {

/// An undirected complete graph. Vertex weights are what a partition balances (HexiScale: peak
/// FLOP/s of a device), edge weights what it cuts (HexiScale: bandwidth). Any unit; nothing here
/// compares the two.
struct WeightedGraph {
  int vertices = 0;
  std::vector<double> vertex_weight;  ///< [vertices], finite, not negative.
  std::vector<double> edge_weight;    ///< [vertices x vertices], row-major, symmetric, diagonal 0.
  std::vector<int> vertex_size;       ///< [vertices], original vertices that each one stands for.

  /// Weight of the edge between u and v; 0 when u == v.
  double edge(int u, int v) const { return edge_weight[index(u, v)]; }
  /// The row of u: edge weights to vertices 0 ... vertices - 1.
  const double* row(int u) const { return edge_weight.data() + index(u, 0); }
  void set_edge(int u, int v, double weight) {
    edge_weight[index(u, v)] = weight;
    edge_weight[index(v, u)] = weight;
  }

 private:
  std::size_t index(int u, int v) const { return u * as_size(vertices) + as_size(v); }
};

/// A graph with the given vertex weights, sizes 1 and all edges 0.
WeightedGraph make_graph(std::vector<double> vertex_weight);

/// Aborts unless the vectors have the sizes and values that WeightedGraph states.
void check_graph(const WeightedGraph& graph);

/// One vertex per cluster: vertex weights, sizes and edges between clusters are sums, edges inside
/// vanish. `cluster` holds for every vertex a number from 0 to m - 1, each used. A cut of the
/// result equals the cut of the original graph under the same grouping. O(vertices^2).
WeightedGraph contract(const WeightedGraph& graph, const std::vector<int>& cluster);

/// The induced graph on `vertices`, in that order. O(|vertices|^2).
WeightedGraph subgraph(const WeightedGraph& graph, const std::vector<int>& vertices);

}  // namespace orrery::planners
