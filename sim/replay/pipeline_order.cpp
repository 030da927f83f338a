#include "sim/replay/pipeline_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace orrery::sim {
namespace {

/// What of a pipeline does not depend on the names of its devices.
using Shape = std::vector<double>;

bool order_stays(const ir::Plan& plan) {
  if (std::all_of(plan.pipelines.begin(), plan.pipelines.end(),
                  [](const ir::Pipeline& pipeline) { return pipeline.reroutes.empty(); })) {
    return true;
  }
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (segment.zero.shard_group != 0 || segment.expert_parallel > 1) return true;
      }
    }
  }
  return false;
}

/// Writes shapes down.
class PipelineShapes {
 public:
  PipelineShapes(const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
                 const DeviceRenaming& renaming)
      : renaming_(renaming) {
    for (const models::SlowDevice& device : slow) factor_[device.device] = device.factor;
    for (const DeviceId device : devices_in_order(plan)) ++uses_[renaming.node_of(device)];
    taken_.resize(plan.pipelines.size());
    for (const ir::Pipeline& pipeline : plan.pipelines) {
      for (const ir::Reroute& reroute : pipeline.reroutes) {
        taken_[reroute.to_pipeline].emplace_back(reroute.stage, reroute.micro_batch);
      }
    }
    for (auto& taken : taken_) std::sort(taken.begin(), taken.end());
  }

  Shape of(const ir::Plan& plan, std::size_t index) const {
    const ir::Pipeline& pipeline = plan.pipelines[index];
    Shape shape;
    const auto add = [&](auto value) { shape.push_back(static_cast<double>(value)); };
    std::map<NodeId, std::size_t> seen;
    add(pipeline.stages.size());
    add(pipeline.micro_batches);
    add(pipeline.micro_batch_size);
    if (pipeline.length_range) {
      add(pipeline.length_range->shortest);
      add(pipeline.length_range->longest);
    }
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        add(segment.first_block.value);
        add(segment.last_block.value);
        add(segment.virtual_stage);
        add(segment.recompute);
        add(segment.zero.stage);
        for (const ir::Group& group : segment.groups) {
          add(group.tensor_parallel);
          add(group.sequence);
          add(group.sequence_degree);
          add(group.samples);
          add(group.state_weight);
          for (const DeviceId device : group.devices) {
            const NodeId node = renaming_.node_of(device);
            const auto factor = factor_.find(device);
            add(renaming_.kind_of(node));
            add(seen.try_emplace(node, seen.size()).first->second);
            add(uses_.at(node));
            add(factor == factor_.end() ? 1.0 : factor->second);
          }
        }
      }
    }
    add(pipeline.reroutes.size());
    for (const ir::Reroute& reroute : pipeline.reroutes) {
      add(reroute.stage);
      add(reroute.micro_batch);
    }
    for (const auto& [stage, micro_batch] : taken_[index]) {
      add(stage);
      add(micro_batch);
    }
    return shape;
  }

 private:
  const DeviceRenaming& renaming_;
  std::map<DeviceId, double> factor_;
  std::map<NodeId, int> uses_;  ///< How often the plan names a device of the node.
  /// By pipeline: stages and micro-batches of others that it computes.
  std::vector<std::vector<std::pair<int, int>>> taken_;
};

}  // namespace

std::vector<std::size_t> order_of_pipelines(const ir::Plan& plan,
                                            const std::vector<models::SlowDevice>& slow,
                                            const DeviceRenaming& renaming) {
  std::vector<std::size_t> order(plan.pipelines.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() < 2 || order_stays(plan)) return order;
  const PipelineShapes shapes(plan, slow, renaming);
  std::vector<Shape> of;
  of.reserve(order.size());
  for (std::size_t p = 0; p < order.size(); ++p) of.push_back(shapes.of(plan, p));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return of[a] < of[b]; });
  return order;
}

ir::Plan reordered(const ir::Plan& plan, const std::vector<std::size_t>& order) {
  ir::Plan result = plan;
  std::vector<int> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int>(i);
    result.pipelines[i] = plan.pipelines[order[i]];
  }
  for (ir::Pipeline& pipeline : result.pipelines) {
    for (ir::Reroute& reroute : pipeline.reroutes) {
      reroute.to_pipeline = place[reroute.to_pipeline];
    }
  }
  return result;
}

}  // namespace orrery::sim
