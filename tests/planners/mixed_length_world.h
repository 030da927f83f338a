/// The 32 H20 of Hetu v2 and a Llama of its width, for tests of step planners. With 20 layers TP 1
/// does not hold 16384 tokens, with 60 not even TP 2 holds any.
#pragma once
#include <memory>
#include <vector>

#include "models/spec/library.h"
#include "planners/mixed_length/prepared_strategy.h"

namespace orrery::planners {

using Lengths = std::vector<std::int64_t>;

struct MixedLengthWorld {
  explicit MixedLengthWorld(int layers) {
    config::Diagnostics diagnostics;
    const models::Library library =
        models::load_library(models::default_library_root(), diagnostics);
    cluster = models::load_cluster("hetu_32h20", library, {}, diagnostics);
    shape = models::load_model("hetu_32b", library, {}, diagnostics);
    diagnostics.raise();
    shape.heads = shape.kv_heads = 64;
    shape.head_dim = shape.hidden / shape.heads;
    shape.layers = layers;
    topology = std::make_unique<models::Topology>(cluster);
    pricer = std::make_unique<models::LengthPricer>(cluster, shape, models::Job{}, ir::Profile{});
  }
  MixedLengthInput input(const StrategySet& set, std::int64_t context) const {
    return {*pricer, *topology, context, 256, set};
  }

  models::Cluster cluster;
  ir::ModelShape shape;
  std::unique_ptr<models::Topology> topology;
  std::unique_ptr<models::LengthPricer> pricer;
};

}  // namespace orrery::planners
