#include "planners/kit/estimate.h"

#include <algorithm>
#include <set>
#include <vector>

#include "models/cost/collective.h"
#include "models/cost/device_share.h"
#include "models/cost/host_step.h"
#include "models/schedule/closed_form.h"
#include "models/schedule/rounds.h"

namespace orrery::planners {
namespace {

using ir::CollectiveKind;
using models::CollectiveAlgorithm;

Bytes output_of(const models::Workload& workload, BlockId block, int samples) {
  return static_cast<double>(samples) * workload.block(block).output_bytes;
}

}  // namespace

PlanEstimator::PlanEstimator(const PlannerInput& input)
    : cluster_(input.cluster),
      workload_(input.workload),
      job_(input.job),
      path_([&topology = input.topology](DeviceId a, DeviceId b) { return topology.path(a, b); }),
      pricer_(input.cluster, input.workload, input.job, input.profile) {}

PlanEstimator::Passes PlanEstimator::compute(int gpu_type, const ir::Segment& segment,
                                             const ir::Group& group) const {
  const SegmentKey key{
      gpu_type,      segment.first_block.value, segment.last_block.value,
      group.samples, group.tensor_parallel,     static_cast<int>(segment.recompute)};
  const auto [place, added] = compute_.try_emplace(key);
  if (!added) return place->second;
  models::BlockQuery query;
  query.gpu_type = gpu_type;
  query.tensor_parallel = group.tensor_parallel;
  query.samples = group.samples;
  query.recompute = segment.recompute;
  for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
    query.block = b;
    query.pass = ir::Pass::forward;
    place->second.forward += pricer_.block(query);
    query.pass = ir::Pass::backward;
    place->second.backward += pricer_.block(query);
  }
  return place->second;
}

PlanEstimator::Passes PlanEstimator::group_passes(const ir::Segment& segment,
                                                  const ir::Group& group) const {
  Passes slowest;
  std::set<int> types;
  for (const DeviceId device : group.devices) types.insert(cluster_.device(device).gpu_type);
  for (const int type : types) {
    const Passes one = compute(type, segment, group);
    slowest = {std::max(slowest.forward, one.forward), std::max(slowest.backward, one.backward)};
  }
  if (group.tensor_parallel == 1) return slowest;
  Bytes last;
  Seconds time;
  for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
    const Bytes bytes = output_of(workload_, b, group.samples);
    if (bytes != last) {
      time = models::collective_time(CollectiveKind::all_reduce, CollectiveAlgorithm::ring,
                                     group.devices, bytes, path_);
      last = bytes;
    }
    const models::Block& block = workload_.block(b);
    const bool again =
        segment.recompute == ir::Recompute::full && models::is_recomputed(block.kind);
    slowest.forward += block.tensor_collectives * time;
    slowest.backward += block.tensor_collectives * (again ? 2 : 1) * time;
  }
  return slowest;
}

Seconds PlanEstimator::hop(const ir::Plan& plan, const ir::Stage& from, const ir::Stage& to) const {
  const ir::Group& sender = from.segments.back().groups.front();
  Seconds slowest;
  for (const ir::Group& group : to.segments.front().groups) {
    const Bytes bytes = output_of(workload_, from.segments.back().last_block, group.samples);
    const bool sliced = plan.communication.activation_transfer == ir::ActivationTransfer::sliced;
    const double parts = sliced ? static_cast<double>(group.devices.size()) : 1;
    const Seconds inside =
        models::collective_time(sliced ? CollectiveKind::all_gather : CollectiveKind::broadcast,
                                CollectiveAlgorithm::ring, group.devices, bytes, path_);
    slowest = std::max(
        slowest, inside + models::point_to_point_time(sender.devices.front(), group.devices.front(),
                                                      bytes / parts, path_));
  }
  return slowest;
}

std::vector<models::StageTime> PlanEstimator::stages(const ir::Plan& plan,
                                                     const ir::Pipeline& chain) const {
  std::vector<models::StageTime> stages;
  for (std::size_t s = 0; s < chain.stages.size(); ++s) {
    Passes slowest;
    const std::vector<ir::Segment>& segments = chain.stages[s].segments;
    for (std::size_t g = 0; g < segments.front().groups.size(); ++g) {
      Passes sum;
      for (const ir::Segment& segment : segments) {
        // Where the strategy changes inside the stage, the segment's slowest group.
        const bool alike = segment.groups.size() == segments.front().groups.size();
        Passes part = alike ? group_passes(segment, segment.groups[g]) : Passes{};
        for (std::size_t other = 0; !alike && other < segment.groups.size(); ++other) {
          const Passes one = group_passes(segment, segment.groups[other]);
          part = {std::max(part.forward, one.forward), std::max(part.backward, one.backward)};
        }
        sum = {sum.forward + part.forward, sum.backward + part.backward};
      }
      slowest = {std::max(slowest.forward, sum.forward), std::max(slowest.backward, sum.backward)};
    }
    const Seconds cut =
        s + 1 < chain.stages.size() ? hop(plan, chain.stages[s], chain.stages[s + 1]) : Seconds{};
    // Gradients of weights take as long as the forward pass: the same matrix products.
    const Seconds forward = slowest.forward + cut;
    stages.push_back({forward, slowest.backward + cut, forward});
  }
  return stages;
}

Seconds PlanEstimator::pipeline(const ir::Plan& plan, std::span<const models::StageTime> stages,
                                int micro_batches) {
  return models::schedule_entry(plan.schedule)
      .pipeline_time(stages, micro_batches, plan.virtual_stages);
}

/// Among groups of different degrees the gradient is cut into as many slices as the largest has
/// members; members of smaller groups take part in several slices, one after the other.
Seconds PlanEstimator::all_reduce(const std::vector<const ir::Group*>& holders,
                                  Bytes gradient) const {
  std::size_t smallest = holders.front()->devices.size();
  std::size_t largest = smallest;
  for (const ir::Group* group : holders) {
    smallest = std::min(smallest, group->devices.size());
    largest = std::max(largest, group->devices.size());
  }
  const auto node_of = [&](DeviceId device) { return cluster_.device(device).node; };
  Seconds slowest;
  for (std::size_t slice = 0; slice < largest; ++slice) {
    std::vector<DeviceId> ring;
    for (const ir::Group* group : holders) {
      ring.push_back(group->devices[slice * group->devices.size() / largest]);
    }
    slowest = std::max(
        slowest, models::collective_time(CollectiveKind::all_reduce, CollectiveAlgorithm::ring,
                                         models::ring_order(ring, node_of),
                                         gradient / static_cast<double>(largest), path_));
  }
  return static_cast<double>(largest) / static_cast<double>(smallest) * slowest;
}

Seconds PlanEstimator::synchronization(const ir::Plan& plan) const {
  struct Holding {
    const ir::Segment* segment;
    std::size_t stage;  // Over all pipelines.
  };
  std::vector<Holding> holdings;
  std::set<std::int32_t> starts;
  std::size_t stages = 0;
  for (const ir::Pipeline& chain : plan.pipelines) {
    for (const ir::Stage& stage : chain.stages) {
      for (const ir::Segment& segment : stage.segments) {
        holdings.push_back({&segment, stages});
        starts.insert(segment.first_block.value);
      }
      ++stages;
    }
  }
  const int rounds = models::gradient_rounds(plan, job_.gradient_synchronizations);
  std::vector<Seconds> by_stage(stages);
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    const auto next = std::next(start);
    const BlockId first{*start};
    const BlockId last{(next == starts.end() ? workload_.size() : *next) - 1};
    std::vector<const ir::Group*> holders;
    std::vector<std::size_t> touched;
    int zero = 0;
    for (const Holding& holding : holdings) {
      if (holding.segment->last_block < first || last < holding.segment->first_block) continue;
      for (const ir::Group& group : holding.segment->groups) holders.push_back(&group);
      touched.push_back(holding.stage);
      zero = std::max(zero, holding.segment->zero.stage);
    }
    if (holders.size() < 2) continue;
    const Bytes gradient{static_cast<double>(models::parameters(workload_, first, last)) *
                         job_.state_bytes.gradient};
    // ZeRO repeats the reduce-scatter half of the all-reduce every round; ZeRO-3 gathers twice.
    const double once = zero == 0 ? 0 : zero == 3 ? 1.0 : 0.5;
    const double each = zero == 0 ? 1.0 : 0.5;
    const Seconds time = (rounds * each + once) * all_reduce(holders, gradient);
    for (const std::size_t stage : touched) by_stage[stage] += time;
  }
  return by_stage.empty() ? Seconds{} : *std::max_element(by_stage.begin(), by_stage.end());
}

Seconds PlanEstimator::optimizer(const ir::Plan& plan) const {
  const int replicas = static_cast<int>(plan.pipelines.size());
  const std::optional<models::HostShares> hosts = models::host_shares(plan, cluster_);
  const double on_host = plan.optimizer_offload;
  Seconds slowest;
  for (const ir::Pipeline& chain : plan.pipelines) {
    for (const ir::Stage& stage : chain.stages) {
      double elements = 0;
      for (const ir::Segment& segment : stage.segments) {
        const double members = segment.groups.front().tensor_parallel;
        elements += static_cast<double>(
                        models::parameters(workload_, segment.first_block, segment.last_block)) /
                    members / models::shard_count(segment.zero, replicas);
      }
      for (const ir::Group& group : stage.segments.front().groups) {
        const int type = cluster_.device(group.devices.front()).gpu_type;
        slowest = std::max(slowest, pricer_.optimizer(type, (1 - on_host) * elements));
        if (!hosts) continue;
        const models::HostShare share = hosts->of(group.devices.front());
        slowest = std::max(slowest, host_step(share, on_host * elements, job_.state_bytes));
      }
    }
  }
  return slowest;
}

Seconds PlanEstimator::estimate(const ir::Plan& plan) const {
  std::vector<Seconds> pipelines;
  for (const ir::Pipeline& chain : plan.pipelines) {
    pipelines.push_back(pipeline(plan, stages(plan, chain), chain.micro_batches));
  }
  return models::iteration_time(pipelines, synchronization(plan) + optimizer(plan));
}

}  // namespace orrery::planners
