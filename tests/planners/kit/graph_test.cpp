#include "planners/kit/graph.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/planners/kit/graphs.h"

namespace orrery::planners::graph_test {
namespace {

TEST(Contract, SumsWeightsSizesAndEdgesBetweenClusters) {
  WeightedGraph graph = make_graph({1, 2, 4});
  graph.set_edge(0, 1, 10);
  graph.set_edge(0, 2, 3);
  graph.set_edge(1, 2, 5);
  const WeightedGraph result = contract(graph, {0, 1, 0});
  EXPECT_EQ(result.vertices, 2);
  EXPECT_EQ(result.vertex_weight, (std::vector<double>{5, 2}));
  EXPECT_EQ(result.vertex_size, (std::vector<int>{2, 1}));
  EXPECT_EQ(result.edge_weight, (std::vector<double>{0, 15, 15, 0}));
}

TEST(Subgraph, KeepsWeightsAndEdgesInTheOrderAsked) {
  WeightedGraph graph = make_graph({1, 2, 4});
  graph.set_edge(0, 2, 3);
  graph.set_edge(1, 2, 5);
  const WeightedGraph result = subgraph(graph, {2, 0});
  EXPECT_EQ(result.vertex_weight, (std::vector<double>{4, 1}));
  EXPECT_EQ(result.edge_weight, (std::vector<double>{0, 3, 3, 0}));
}

RC_GTEST_PROP(Contract, KeepsEveryCutAndTheBalance, (std::uint64_t seed)) {
  Rng rng(seed);
  const int vertices = static_cast<int>(rng.integer(2, 30));
  const WeightedGraph graph = testing::random_graph(vertices, 5, rng);
  const int clusters = static_cast<int>(rng.integer(2, vertices));
  std::vector<int> cluster(vertices);
  for (int v = 0; v < vertices; ++v) {
    cluster[v] = v < clusters ? v : static_cast<int>(rng.integer(0, clusters - 1));
  }
  const WeightedGraph coarse = contract(graph, cluster);
  check_graph(coarse);
  std::vector<int> part(clusters);
  for (int& p : part) p = static_cast<int>(rng.integer(0, 1));
  part[0] = 1;
  std::vector<int> projected;
  for (const int c : cluster) projected.push_back(part[c]);
  RC_ASSERT(cut(coarse, part) == cut(graph, projected));
  RC_ASSERT(imbalance(coarse, part) == imbalance(graph, projected));
}

}  // namespace
}  // namespace orrery::planners::graph_test
