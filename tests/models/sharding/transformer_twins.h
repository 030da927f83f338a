/// An annotated graph and the workload that lowering takes, of one random plan.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/sharding/specialize.h"
#include "models/sharding/transformer.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"
#include "tests/models/sharding/random_transformer.h"
#include "tests/worlds/clusters.h"

namespace orrery::models::testing {

inline constexpr std::int64_t kTokens = 64;
/// Divisible by every number of copies that may share shards.
inline constexpr int kUnit = 55440;

using Groups = std::set<std::vector<int>>;

/// Sets of devices that the groups connect.
inline Groups connected(const Groups& groups) {
  Groups all;
  for (std::vector<int> group : groups) {
    for (auto other = all.begin(); other != all.end();) {
      const bool meets = std::any_of(other->begin(), other->end(), [&](int device) {
        return std::find(group.begin(), group.end(), device) != group.end();
      });
      if (meets) group.insert(group.end(), other->begin(), other->end());
      other = meets ? all.erase(other) : std::next(other);
    }
    std::sort(group.begin(), group.end());
    group.erase(std::unique(group.begin(), group.end()), group.end());
    all.insert(group);
  }
  return all;
}

inline std::string to_text(const Groups& groups) { return fmt::format("{}", groups); }

struct Twins {
  TransformerCase made;
  Graph graph;
  SpecializedGraph special;
  Workload workload;
  Cluster cluster;
};

/// Nothing where a shard group cannot be said, or the ends of the tied matrix differ.
inline std::optional<Twins> random_twins(Rng& rng, TransformerFeatures features) {
  features.ends = true;
  auto made = TransformerMaker(rng, features).make(draw(rng, 1, 3), kUnit);
  if (features.experts) made.model.experts = 8;
  if (made.model.kv_heads == 8) {  // Enough for lowering to cut them among all copies.
    made.model.head_dim = 1;
    made.model.heads = made.model.kv_heads = 8 * kUnit;
  }
  auto graph = transformer_graph(made.model, made.plan);
  if (const auto* problem = std::get_if<GraphProblem>(&graph)) {
    const bool known = problem->reason.find("shard group") != std::string::npos ||
                       problem->reason.find("unequal parts") != std::string::npos;
    EXPECT_TRUE(known) << problem->reason;
    return std::nullopt;
  }
  auto special = specialize(std::get<Graph>(graph),
                            binding_of(made.plan, kTokens, rows_per_expert(made.model, kTokens)));
  if (const auto* problem = std::get_if<GraphProblem>(&special)) {
    ADD_FAILURE() << problem->reason;
    return std::nullopt;
  }
  Workload workload = build_workload(made.model, kTokens, ir::Dtype::bf16);
  return Twins{std::move(made), std::get<Graph>(std::move(graph)),
               std::get<SpecializedGraph>(std::move(special)), std::move(workload),
               worlds::one_node(kMostDevices)};
}

}  // namespace orrery::models::testing
