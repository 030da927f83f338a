#include "planners/kit/partition.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "planners/kit/integers.h"
#include "planners/kit/kernighan_lin.h"

namespace orrery::planners {
namespace {

constexpr int kGrowthSeeds = 8;
constexpr int kFullStartParts = 8;  // PartitionOptions::starts holds up to this many parts.

std::vector<int> random_order(int count, Rng& rng) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int i = count; i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<int>(rng.integer(0, i - 1))]);
  }
  return order;
}

/// Cluster numbers of a matching: vertices in random order, each with the free vertex to which its
/// mean edge is heaviest, until `target` clusters are left. No cluster outweighs `heaviest`.
std::vector<int> match_heavy_edges(const WeightedGraph& graph, int target, double heaviest,
                                   Rng& rng) {
  const std::vector<int> order = random_order(graph.vertices, rng);
  std::vector<int> free = random_order(graph.vertices, rng);
  std::vector<int> mate(graph.vertices, -1);
  int clusters = graph.vertices;
  for (const int u : order) {
    if (clusters <= target) break;
    if (mate[u] >= 0) continue;
    std::erase_if(free, [&](int v) { return mate[v] >= 0; });
    const double* row = graph.row(u);
    const double room = heaviest - graph.vertex_weight[u];
    double best = -std::numeric_limits<double>::infinity();
    int best_mate = -1;
    for (const int v : free) {
      const double rating = row[v] / graph.vertex_size[v];
      if (v == u || rating <= best || graph.vertex_weight[v] > room) continue;
      best = rating;
      best_mate = v;
    }
    if (best_mate < 0) continue;
    mate[u] = best_mate;
    mate[best_mate] = u;
    --clusters;
  }
  std::vector<int> cluster(graph.vertices, -1);
  int next = 0;
  for (int u = 0; u < graph.vertices; ++u) {
    if (cluster[u] >= 0) continue;
    cluster[u] = next;
    if (mate[u] >= 0) cluster[mate[u]] = next;
    ++next;
  }
  return cluster;
}

/// Side of each vertex: side 0 grows from `seed` by the vertex that adds least to the cut, until it
/// weighs about `target`, and keeps within the vertex counts.
std::vector<int> grow(const WeightedGraph& graph, int seed, double target,
                      const PartLimit* limits) {
  const int n = graph.vertices;
  std::vector<int> side(n, 1);
  std::vector<double> gain(n, 0.0);  // Edges to side 0 minus edges to side 1.
  for (int v = 0; v < n; ++v) {
    const double* row = graph.row(v);
    gain[v] = -std::accumulate(row, row + n, 0.0);
  }
  double weight = 0;
  int count = 0;
  int next = seed;
  while (next >= 0) {
    side[next] = 0;
    weight += graph.vertex_weight[next];
    ++count;
    const double* row = graph.row(next);
    for (int v = 0; v < n; ++v) gain[v] += 2 * row[v];
    next = -1;
    if (n - count <= limits[1].min_vertices) break;
    for (int v = 0; v < n; ++v) {
      if (side[v] == 0) continue;
      const bool fits = weight + graph.vertex_weight[v] / 2 <= target;
      if (!fits && count >= limits[0].min_vertices) continue;
      if (next < 0 || gain[v] > gain[next]) next = v;
    }
  }
  return side;
}

/// One run of the multilevel scheme on a graph whose cut is to be minimized.
class Multilevel {
 public:
  Multilevel(const WeightedGraph& graph, int parts, const PartitionOptions& options, Rng& rng)
      : graph_(graph), parts_(parts), options_(options), rng_(rng) {
    mean_ = std::accumulate(graph.vertex_weight.begin(), graph.vertex_weight.end(), 0.0) / parts;
  }

  struct Result {
    std::vector<int> assignment;
    double excess = 0;
    double cut = 0;
    bool operator<(const Result& other) const {
      return excess < other.excess || (excess == other.excess && cut < other.cut);
    }
  };

  Result run() {
    std::vector<WeightedGraph> coarser;
    std::vector<std::vector<int>> cluster;
    const int target = std::max(options_.coarsen_to, 3 * parts_);
    const WeightedGraph* level = &graph_;
    coarser.reserve(32);  // Levels keep their addresses; each has at most 0.9 of the one before.
    while (level->vertices > target && coarser.size() < coarser.capacity()) {
      std::vector<int> matching = match_heavy_edges(*level, target, mean_ / 2, rng_);
      const int clusters = 1 + *std::max_element(matching.begin(), matching.end());
      if (clusters > 0.9 * level->vertices && clusters > target) break;
      cluster.push_back(std::move(matching));
      coarser.push_back(contract(*level, cluster.back()));
      level = &coarser.back();
    }
    std::vector<int> assignment(level->vertices, 0);
    std::vector<int> all(level->vertices);
    std::iota(all.begin(), all.end(), 0);
    bisect(*level, all, 0, parts_, assignment);
    Result result = refine(*level, std::move(assignment));
    for (std::size_t i = cluster.size(); i-- > 0;) {
      const WeightedGraph& finer = i == 0 ? graph_ : coarser[i - 1];
      std::vector<int> projected(finer.vertices);
      for (std::size_t v = 0; v < projected.size(); ++v) {
        projected[v] = result.assignment[cluster[i][v]];
      }
      result = refine(finer, std::move(projected));
    }
    return result;
  }

 private:
  Result refine(const WeightedGraph& graph, std::vector<int> assignment) {
    const PartLimit limit{options_.max_imbalance * mean_, 1};
    Refiner refiner(graph, std::vector<PartLimit>(parts_, limit), std::move(assignment));
    refiner.rebalance();
    refiner.refine(options_.refinement_passes, rng_);
    return {refiner.assignment(), refiner.excess(), refiner.cut()};
  }

  /// Splits `vertices` into the parts first ... first + parts - 1 of `assignment`.
  void bisect(const WeightedGraph& graph, const std::vector<int>& vertices, int first, int parts,
              std::vector<int>& assignment) {
    if (parts == 1) {
      for (const int v : vertices) assignment[v] = first;
      return;
    }
    const WeightedGraph part = subgraph(graph, vertices);
    const int left = parts / 2;
    const int right = parts - left;
    const double total = std::accumulate(part.vertex_weight.begin(), part.vertex_weight.end(), 0.0);
    // Half of the slack is left for the bisections below.
    const double slack = parts == 2 ? options_.max_imbalance : (1 + options_.max_imbalance) / 2;
    const double mean = std::max(mean_, total / parts);
    const std::vector<PartLimit> limits = {{slack * mean * left, left},
                                           {slack * mean * right, right}};
    Result best;
    best.excess = std::numeric_limits<double>::infinity();
    const std::vector<int> seeds = random_order(part.vertices, rng_);
    for (std::size_t s = 0; s < std::min(seeds.size(), as_size(kGrowthSeeds)); ++s) {
      Refiner refiner(part, limits, grow(part, seeds[s], total * left / parts, limits.data()));
      refiner.rebalance();
      refiner.refine(options_.refinement_passes, rng_);
      Result result{refiner.assignment(), refiner.excess(), refiner.cut()};
      if (result < best) best = std::move(result);
    }
    std::vector<int> sides[2];
    for (std::size_t i = 0; i < vertices.size(); ++i) {
      sides[best.assignment[i]].push_back(vertices[i]);
    }
    bisect(graph, sides[0], first, left, assignment);
    bisect(graph, sides[1], first + left, right, assignment);
  }

  const WeightedGraph& graph_;
  int parts_;
  const PartitionOptions& options_;
  Rng& rng_;
  double mean_ = 0;  ///< Mean weight of a part.
};

void number_by_first_vertex(std::vector<int>& assignment, int parts) {
  std::vector<int> number(parts, -1);
  int next = 0;
  for (int& part : assignment) {
    if (number[part] < 0) number[part] = next++;
    part = number[part];
  }
  ORRERY_CHECK(next == parts, "{} of {} parts hold vertices", next, parts);
}

}  // namespace

std::vector<int> partition(const WeightedGraph& graph, int parts, const PartitionOptions& options,
                           Rng& rng) {
  check_graph(graph);
  ORRERY_CHECK(parts >= 1 && parts <= graph.vertices, "{} parts of {} vertices", parts,
               graph.vertices);
  ORRERY_CHECK(options.max_imbalance >= 1 && options.coarsen_to >= 1 &&
                   options.refinement_passes >= 0 && options.starts >= 1,
               "imbalance {}, coarsen to {}, {} passes, {} starts", options.max_imbalance,
               options.coarsen_to, options.refinement_passes, options.starts);
  WeightedGraph negated;
  if (options.objective == CutObjective::kMaximize) {
    negated = graph;
    for (double& weight : negated.edge_weight) weight = -weight;
  }
  const bool minimize = options.objective == CutObjective::kMinimize;
  Multilevel multilevel(minimize ? graph : negated, parts, options, rng);
  Multilevel::Result best = multilevel.run();
  const int runs = std::max(1, options.starts * std::min(kFullStartParts, parts) / parts);
  for (int run = 1; run < runs; ++run) {
    Multilevel::Result result = multilevel.run();
    if (result < best) best = std::move(result);
  }
  number_by_first_vertex(best.assignment, parts);
  return best.assignment;
}

double cut(const WeightedGraph& graph, const std::vector<int>& assignment) {
  ORRERY_CHECK(assignment.size() == as_size(graph.vertices), "{} vertices, {} parts given",
               graph.vertices, assignment.size());
  double sum = 0;
  for (int u = 0; u < graph.vertices; ++u) {
    const double* row = graph.row(u);
    for (int v = 0; v < u; ++v) sum += assignment[u] == assignment[v] ? 0.0 : row[v];
  }
  return sum;
}

double imbalance(const WeightedGraph& graph, const std::vector<int>& assignment) {
  ORRERY_CHECK(assignment.size() == as_size(graph.vertices) && !assignment.empty(),
               "{} vertices, {} parts given", graph.vertices, assignment.size());
  std::vector<double> weight(as_size(1 + *std::max_element(assignment.begin(), assignment.end())),
                             0.0);
  double total = 0;
  for (std::size_t v = 0; v < assignment.size(); ++v) {
    weight[assignment[v]] += graph.vertex_weight[v];
    total += graph.vertex_weight[v];
  }
  if (total == 0) return 1;
  return *std::max_element(weight.begin(), weight.end()) * static_cast<double>(weight.size()) /
         total;
}

}  // namespace orrery::planners
