#include "planners/recovery/recycle/reroutes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>

#include "planners/recovery/kit/replan.h"

namespace orrery::planners {
namespace {

/// Spreads the micro-batches of one stage of a pipeline over peers. `load`: micro-batches of that
/// stage by pipeline.
void spread(ir::Plan& plan, std::size_t own, int stage, const std::vector<std::size_t>& peers,
            std::vector<int>& load) {
  for (int m = 0; m < plan.pipelines[own].micro_batches; ++m) {
    // The first of the least loaded, counting from the pipeline itself.
    const std::size_t to =
        *std::min_element(peers.begin(), peers.end(), [&](std::size_t a, std::size_t b) {
          const std::size_t all = plan.pipelines.size();
          return std::pair(load[a], (a + all - own) % all) <
                 std::pair(load[b], (b + all - own) % all);
        });
    ++load[to];
    plan.pipelines[own].reroutes.push_back({stage, m, static_cast<int>(to)});
  }
}

/// True when two stages hold the same blocks in the same way, so that each can compute for the
/// other.
bool interchangeable(const ir::Stage& a, const ir::Stage& b) {
  return std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    [](const ir::Segment& x, const ir::Segment& y) {
                      return x.first_block == y.first_block && x.last_block == y.last_block &&
                             x.virtual_stage == y.virtual_stage;
                    });
}

bool may_stand_in(const ir::Pipeline& own, const ir::Pipeline& peer, std::size_t stage) {
  return own.stages.size() == peer.stages.size() && own.micro_batch_size == peer.micro_batch_size &&
         interchangeable(own.stages[stage], peer.stages[stage]);
}

}  // namespace

std::vector<std::pair<int, int>> dead_stages(const ir::Plan& plan,
                                             const std::vector<DeviceId>& live) {
  std::vector<std::pair<int, int>> dead;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const std::vector<ir::Stage>& stages = plan.pipelines[p].stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (all_live(ir::devices_of(stages[s]), live)) continue;
      dead.emplace_back(static_cast<int>(p), static_cast<int>(s));
    }
  }
  return dead;
}

std::variant<ir::Plan, models::Infeasible> reroute(const ir::Plan& plan,
                                                   const std::vector<DeviceId>& live) {
  ir::Plan result = plan;
  result.predicted.reset();
  for (ir::Pipeline& pipeline : result.pipelines) pipeline.reroutes.clear();
  std::vector<std::pair<int, int>> dead = dead_stages(plan, live);
  const std::set<std::pair<int, int>> all_dead(dead.begin(), dead.end());
  // Stage by stage, so that all dead replicas of a stage see the same loads.
  std::stable_sort(dead.begin(), dead.end(),
                   [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<int> load;
  int stage = -1;
  for (const auto& [p, s] : dead) {
    if (s != stage) {
      stage = s;
      load.clear();
      for (const ir::Pipeline& pipeline : result.pipelines) load.push_back(pipeline.micro_batches);
    }
    const ir::Pipeline& own = result.pipelines[p];
    std::vector<std::size_t> peers;
    for (std::size_t q = 0; q < result.pipelines.size(); ++q) {
      if (all_dead.contains({static_cast<int>(q), s})) continue;
      if (!may_stand_in(own, result.pipelines[q], s)) continue;
      peers.push_back(q);
    }
    if (peers.empty()) {
      return models::Infeasible{
          "data-parallel peers",
          fmt::format("no live pipeline has the same stage {} as pipeline {}", s, p)};
    }
    spread(result, p, s, peers, load);
  }
  return result;
}

}  // namespace orrery::planners
