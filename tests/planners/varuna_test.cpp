#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "models/cost/pricer.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/varuna/simulator.h"
#include "tests/planners/family.h"

namespace orrery::planners::varuna_test {
namespace {

VarunaPipeline equal_stages(int stages, double forward, double recompute, double backward,
                            double send) {
  const std::size_t n = stages;
  return {std::vector<Seconds>(n, Seconds{forward}), std::vector<Seconds>(n, Seconds{recompute}),
          std::vector<Seconds>(n, Seconds{backward}), std::vector<Seconds>(n - 1, Seconds{send}),
          true};
}

TEST(VarunaSimulator, OneStageNeitherSendsNorRecomputes) {
  EXPECT_EQ(simulate_varuna(equal_stages(1, 2, 2, 3, 0), 4).value, 4 * 5);
}

TEST(VarunaSimulator, OneMicroBatchRecomputesBehindTheNextStage) {
  // Forward 2 + send 1 + forward 2 + backward 4 + send 1 + backward 4; the first stage recomputes
  // from the middle of the last one's backward pass at 7 until 9, before the gradient comes at 10.
  EXPECT_EQ(simulate_varuna(equal_stages(2, 2, 2, 4, 1), 1).value, 14);
  // A recomputation of 5 ends at 12: the backward pass waits for it.
  EXPECT_EQ(simulate_varuna(equal_stages(2, 2, 5, 4, 1), 1).value, 16);
}

TEST(VarunaSimulator, KeptActivationsNeedNoRecomputation) {
  VarunaPipeline pipeline = equal_stages(2, 2, 50, 4, 1);
  pipeline.recomputes = false;
  EXPECT_EQ(simulate_varuna(pipeline, 1).value, 14);
  // Stage 1: forwards at 3 and 9 (after a backward pass); stage 0 ends with the second backward.
  // 0-2 F0, 2-4 F1 | 3-5 F0, 5-9 B0, 9-11 F1, 11-15 B1 | stage 0: 10-14 B0, 16-20 B1.
  EXPECT_EQ(simulate_varuna(pipeline, 2).value, 20);
}

TEST(VarunaSimulator, BackwardGoesBeforeForward) {
  // Two micro-batches on two stages, no time on the wire: the last stage alternates, 2-3 F, 3-5 B,
  // 5-6 F, 6-8 B counted from its first forward pass at 1. The first recomputes 4-5 and 7-8.
  EXPECT_EQ(simulate_varuna(equal_stages(2, 1, 1, 2, 0), 2).value, 9);
}

RC_GTEST_PROP(VarunaSimulator, LiesBetweenItsBottleneckAndDoingOneThingAtATime, ()) {
  const auto stages = *rc::gen::inRange<std::size_t>(1, 6);
  const int micro_batches = *rc::gen::inRange(1, 12);
  VarunaPipeline pipeline;
  double sequential = 0;
  double busiest = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    const double forward = *rc::gen::inRange(1, 20);
    const double recompute = *rc::gen::inRange(0, 20);
    const double backward = *rc::gen::inRange(1, 40);
    const double send = *rc::gen::inRange(0, 10);
    pipeline.forward.push_back(Seconds{forward});
    pipeline.recompute.push_back(Seconds{recompute});
    pipeline.backward.push_back(Seconds{backward});
    const bool last = s + 1 == stages;
    if (!last) pipeline.send.push_back(Seconds{send});
    const double work = forward + backward + (last ? 0 : recompute);
    sequential += work + (last ? 0 : 2 * send);
    busiest = std::max(busiest, work);
  }
  const double time = simulate_varuna(pipeline, micro_batches).value;
  RC_ASSERT(time >= micro_batches * busiest - 1e-9);
  RC_ASSERT(time <= micro_batches * sequential + 1e-9);
  RC_ASSERT(simulate_varuna(pipeline, micro_batches + 1).value > time);
}

/// Varuna's space and cost once more, from prices of single blocks.
class BruteForce {
 public:
  explicit BruteForce(const World& world)
      : world_(world), pricer_(world.cluster, world.workload, world.job, world.profile) {
    smallest_ = world.cluster;
    Bytes memory = world.cluster.gpu_types.front().memory;
    for (const auto& gpu : smallest_.gpu_types) memory = std::min(memory, gpu.memory);
    for (auto& gpu : smallest_.gpu_types) gpu.memory = memory;
  }

  std::optional<double> best() const {
    std::optional<double> best;
    for (int depth = 1; depth <= std::min(world_.cluster.size(), layers()); ++depth) {
      const auto batch = static_cast<int>(world_.job.global_batch);
      const int replicas = std::min(world_.cluster.size() / depth, batch);
      int largest = 0;
      for (int size = 1; size <= world_.job.allowed.max_micro_batch_size; ++size) {
        if (batch % size == 0 && batch / size >= replicas && fits(depth, replicas, size)) {
          largest = size;
        }
      }
      if (largest == 0) continue;
      const double time = estimate(depth, replicas, largest);
      if (!best || time < *best) best = time;
    }
    return best;
  }

 private:
  int layers() const { return count_layers(world_.workload); }

  ir::Plan plan(int depth, int replicas, int size) const {
    ir::Plan plan;
    const int all = static_cast<int>(world_.job.global_batch) / size;
    int device = 0;
    for (int r = 0; r < replicas; ++r) {
      ir::Pipeline pipeline;
      pipeline.micro_batch_size = size;
      pipeline.micro_batches = (all + replicas - 1 - r) / replicas;
      int first = 0;
      for (int s = 0; s < depth; ++s) {
        const int count = (layers() + depth - 1 - s) / depth;
        const std::vector<DeviceId> devices = {DeviceId{device++}};
        pipeline.stages.push_back(stage_of_layers(world_.workload, first, count,
                                                  tensor_groups(devices, 1, size),
                                                  ir::Recompute::full, 0));
        first += count;
      }
      plan.pipelines.push_back(pipeline);
    }
    return plan;
  }

  bool fits(int depth, int replicas, int size) const {
    return models::check_memory(plan(depth, replicas, size), smallest_, world_.workload, world_.job,
                                world_.profile)
        .fits();
  }

  Seconds mean(BlockId block, ir::Pass pass, ir::Recompute recompute, int samples) const {
    Seconds sum;
    for (const models::Device& device : world_.cluster.devices) {
      models::BlockQuery query;
      query.gpu_type = device.gpu_type;
      query.block = block;
      query.pass = pass;
      query.recompute = recompute;
      query.samples = samples;
      sum += pricer_.block(query);
    }
    return sum / world_.cluster.size();
  }

  models::Path neighbors(bool inside) const {
    double per_byte = 0;
    Seconds latency;
    int count = 0;
    for (int d = 1; d < world_.cluster.size(); ++d) {
      const DeviceId a{d - 1};
      const DeviceId b{d};
      if ((world_.cluster.device(a).node == world_.cluster.device(b).node) != inside) continue;
      const models::Path path = world_.topology.path(a, b);
      per_byte += 1 / path.bandwidth.value;
      latency += path.latency;
      ++count;
    }
    models::Path path;
    if (count == 0) return neighbors(!inside);
    path.bandwidth = BytesPerSecond{count / per_byte};
    path.latency = latency / count;
    return path;
  }

  double estimate(int depth, int replicas, int size) const {
    const ir::Plan shape = plan(depth, replicas, size);
    const auto in_first_node = static_cast<int>(world_.cluster.nodes.front().gpu_types.size());
    VarunaPipeline pipeline;
    Bytes largest;
    for (int s = 0; s < depth; ++s) {
      const ir::Segment& segment = shape.pipelines.front().stages[s].segments.front();
      Seconds forward, backward, again;
      double elements = 0;
      for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
        forward += mean(b, ir::Pass::forward, ir::Recompute::full, size);
        backward += mean(b, ir::Pass::backward, ir::Recompute::none, size);
        again += mean(b, ir::Pass::backward, ir::Recompute::full, size) -
                 mean(b, ir::Pass::backward, ir::Recompute::none, size);
        for (const auto& p : world_.workload.block(b).parameters) {
          elements += static_cast<double>(p.elements);
        }
      }
      pipeline.forward.push_back(forward);
      pipeline.backward.push_back(backward);
      pipeline.recompute.push_back(again);
      largest = std::max(largest, Bytes{elements * world_.job.state_bytes.gradient});
      if (s + 1 == depth) break;
      const models::Path path = neighbors((s + 1) % in_first_node != 0);
      const Bytes bytes = static_cast<double>(size) *
                          world_.workload.block(BlockId{segment.last_block.value + 1}).input_bytes;
      pipeline.send.push_back(path.latency + bytes / path.bandwidth);
    }
    Seconds time = simulate_varuna(pipeline, shape.pipelines.front().micro_batches);
    if (replicas > 1) {
      const models::Path path = neighbors(replicas * depth <= in_first_node);
      time += 2.0 * (replicas - 1) *
              (path.latency + largest / static_cast<double>(replicas) / path.bandwidth);
    }
    return time.value;
  }

  const World& world_;
  models::Pricer pricer_;
  models::Cluster smallest_;
};

TEST(Varuna, EqualsBruteForceOnTheFamily) {
  int feasible = 0;
  int infeasible = 0;
  for (std::uint64_t number = 0; number < 80; ++number) {
    const auto world = tiny_world(number);
    const std::optional<double> best = BruteForce(*world).best();
    const PlannerResult result = run_planner("varuna", world->input());
    ASSERT_EQ(plan_of(result) != nullptr, best.has_value()) << number;
    EXPECT_EQ(complaint(*world, world->input(), result), "") << number;
    EXPECT_TRUE(result.report.complete) << number;
    ++(best ? feasible : infeasible);
    if (best) {
      EXPECT_NEAR(estimate_of(result), *best, 1e-9 * *best) << number;
    }
  }
  EXPECT_GE(feasible, 50);
  EXPECT_GE(infeasible, 1);
}

TEST(Varuna, NeverUsesTensorParallelism) {
  const World world(make_cluster({{"X", 300, 80, 8, 200, 2}}, 5), small_model(16), 32, 1024);
  const PlannerResult result = run_planner("varuna", world.input());
  for (const ir::Pipeline& pipeline : std::get<ir::Plan>(result.outcome).pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      EXPECT_EQ(stage.segments.front().groups.front().tensor_parallel, 1);
    }
  }
}

TEST(Varuna, PublicDepthsDivideTheLayers) {
  const World world(make_cluster({{"X", 300, 3, 5, 200, 1}}, 5), small_model(6), 12, 1024);
  const PlannerResult result =
      run_planner("varuna", world.input(), {{"depths", "divisors_public"}});
  EXPECT_EQ(result.report.work, 3) << "1, 2 and 3 of 5 GPUs and 6 layers";
}

}  // namespace
}  // namespace orrery::planners::varuna_test
