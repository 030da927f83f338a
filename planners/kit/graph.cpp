#include "planners/kit/graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {

WeightedGraph make_graph(std::vector<double> vertex_weight) {
  WeightedGraph graph;
  graph.vertices = static_cast<int>(vertex_weight.size());
  const std::size_t n = vertex_weight.size();
  graph.vertex_weight = std::move(vertex_weight);
  graph.edge_weight.assign(n * n, 0.0);
  graph.vertex_size.assign(n, 1);
  return graph;
}

void check_graph(const WeightedGraph& graph) {
  ORRERY_CHECK(graph.vertices >= 0, "{} vertices", graph.vertices);
  const std::size_t n = graph.vertices;
  ORRERY_CHECK(graph.vertex_weight.size() == n && graph.vertex_size.size() == n &&
                   graph.edge_weight.size() == n * n,
               "{} vertices, {} weights, {} sizes, {} edge weights", n, graph.vertex_weight.size(),
               graph.vertex_size.size(), graph.edge_weight.size());
  for (int u = 0; u < graph.vertices; ++u) {
    const double weight = graph.vertex_weight[u];
    ORRERY_CHECK(std::isfinite(weight) && weight >= 0, "vertex {} weighs {}", u, weight);
    ORRERY_CHECK(graph.edge(u, u) == 0, "vertex {} has a loop of {}", u, graph.edge(u, u));
    for (int v = 0; v < u; ++v) {
      ORRERY_CHECK(std::isfinite(graph.edge(u, v)) && graph.edge(u, v) == graph.edge(v, u),
                   "edge ({}, {}) is {}, back {}", u, v, graph.edge(u, v), graph.edge(v, u));
    }
  }
}

WeightedGraph contract(const WeightedGraph& graph, const std::vector<int>& cluster) {
  ORRERY_CHECK(cluster.size() == as_size(graph.vertices), "{} vertices, {} cluster numbers",
               graph.vertices, cluster.size());
  const int count = cluster.empty() ? 0 : 1 + *std::max_element(cluster.begin(), cluster.end());
  WeightedGraph result = make_graph(std::vector<double>(count, 0.0));
  std::fill(result.vertex_size.begin(), result.vertex_size.end(), 0);
  for (std::size_t u = 0; u < cluster.size(); ++u) {
    ORRERY_CHECK(cluster[u] >= 0, "vertex {} has cluster {}", u, cluster[u]);
    const std::size_t to = cluster[u];
    result.vertex_weight[to] += graph.vertex_weight[u];
    result.vertex_size[to] += graph.vertex_size[u];
    double* target = result.edge_weight.data() + to * as_size(count);
    const double* source = graph.row(static_cast<int>(u));
    for (std::size_t v = 0; v < cluster.size(); ++v) target[cluster[v]] += source[v];
  }
  for (int c = 0; c < count; ++c) {
    ORRERY_CHECK(result.vertex_size[c] > 0, "cluster {} is empty", c);
    result.set_edge(c, c, 0);
    // Both directions sum the same edges in different orders; keep one, so that they are equal.
    for (int d = 0; d < c; ++d) result.set_edge(c, d, result.edge(d, c));
  }
  return result;
}

WeightedGraph subgraph(const WeightedGraph& graph, const std::vector<int>& vertices) {
  WeightedGraph result = make_graph(std::vector<double>(vertices.size(), 0.0));
  double* target = result.edge_weight.data();
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    const std::size_t u = vertices[i];
    result.vertex_weight[i] = graph.vertex_weight[u];
    result.vertex_size[i] = graph.vertex_size[u];
    const double* source = graph.row(vertices[i]);
    for (const int v : vertices) *target++ = source[v];
  }
  return result;
}

}  // namespace orrery::planners
