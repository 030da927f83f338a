// METIS 5.1 as an oracle: the partitioner must not lose to what HexiScale's published code calls.
#include <gtest/gtest.h>
#include <metis.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "models/base/ids.h"
#include "planners/kit/partition.h"
#include "tests/planners/kit/graphs.h"

namespace orrery::planners::partition_metis_test {
namespace {

constexpr int kVertices = 320;

/// METIS with a target imbalance of 1.10. To maximize it gets the complement of the weights, since
/// negative ones give an objective of 0 without an error. Debian's METIS has 32-bit integers: the
/// sum of all weights must stay below 2^31.
std::vector<int> metis_partition(const WeightedGraph& graph, int parts, CutObjective objective) {
  const double heaviest = *std::max_element(graph.edge_weight.begin(), graph.edge_weight.end());
  idx_t n = graph.vertices;
  std::vector<idx_t> offsets{0};
  std::vector<idx_t> neighbors;
  std::vector<idx_t> edges;
  std::vector<idx_t> weights;
  for (int u = 0; u < n; ++u) {
    weights.push_back(static_cast<idx_t>(graph.vertex_weight[u]));
    for (int v = 0; v < n; ++v) {
      if (u == v) continue;
      neighbors.push_back(v);
      const double weight =
          objective == CutObjective::kMinimize ? graph.edge(u, v) : heaviest + 1 - graph.edge(u, v);
      edges.push_back(static_cast<idx_t>(weight));
    }
    offsets.push_back(static_cast<idx_t>(neighbors.size()));
  }
  idx_t options[METIS_NOPTIONS];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_UFACTOR] = 100;
  options[METIS_OPTION_SEED] = 1;
  idx_t constraints = 1;
  idx_t count = parts;
  idx_t objective_value = 0;
  std::vector<idx_t> part(n);
  const auto run = parts <= 8 ? METIS_PartGraphRecursive : METIS_PartGraphKway;  // As HexiScale.
  const int status =
      run(&n, &constraints, offsets.data(), neighbors.data(), weights.data(), nullptr, edges.data(),
          &count, nullptr, nullptr, options, &objective_value, part.data());
  EXPECT_EQ(status, METIS_OK);
  return {part.begin(), part.end()};
}

struct Comparison {
  double mean_ratio = 0;       ///< Our cut / the cut of METIS.
  double worst_imbalance = 0;  ///< Ours / the limit, which is the imbalance of METIS.
};

template <class MakeGraph>
Comparison compare(const MakeGraph& make_graph, CutObjective objective, int parts) {
  constexpr int kSeeds = 4;
  Comparison result;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Rng rng(static_cast<std::uint64_t>(seed));
    const WeightedGraph graph = make_graph(rng);
    const std::vector<int> theirs = metis_partition(graph, parts, objective);
    PartitionOptions options;
    options.objective = objective;
    options.max_imbalance = std::max(1.0, imbalance(graph, theirs));
    const std::vector<int> ours = partition(graph, parts, options, rng);
    EXPECT_EQ(std::set<int>(ours.begin(), ours.end()).size(), as_size(parts));
    result.mean_ratio += cut(graph, ours) / cut(graph, theirs) / kSeeds;
    result.worst_imbalance =
        std::max(result.worst_imbalance, imbalance(graph, ours) / options.max_imbalance);
  }
  std::printf("%s %2d parts: cut %.4f of METIS, imbalance %.3f of METIS\n",
              objective == CutObjective::kMinimize ? "minimize" : "maximize", parts,
              result.mean_ratio, result.worst_imbalance);
  return result;
}

WeightedGraph cluster(Rng& rng) { return testing::cluster_graph(kVertices, 4, rng); }
WeightedGraph noise(Rng& rng) { return testing::random_graph(kVertices, 20, rng); }

class AgainstMetis : public ::testing::TestWithParam<int> {};

TEST_P(AgainstMetis, MinimizedCutIsAtMostFivePercentLargerAtTheSameBalance) {
  for (const auto& graph : {cluster, noise}) {
    const Comparison result = compare(graph, CutObjective::kMinimize, GetParam());
    EXPECT_LE(result.mean_ratio, 1.05);
    EXPECT_LE(result.worst_imbalance, 1 + 1e-6);
  }
}

TEST_P(AgainstMetis, MaximizedCutIsAtLeastAsLargeAtTheSameBalance) {
  for (const auto& graph : {cluster, noise}) {
    const Comparison result = compare(graph, CutObjective::kMaximize, GetParam());
    EXPECT_GE(result.mean_ratio, 1.0);
    EXPECT_LE(result.worst_imbalance, 1 + 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, AgainstMetis, ::testing::Values(2, 5, 8, 15, 16, 40));

}  // namespace
}  // namespace orrery::planners::partition_metis_test
