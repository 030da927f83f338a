#include <gtest/gtest.h>

#include <algorithm>

#include "tests/planners/support.h"

namespace orrery::planners::megatron_grid_test {
namespace {

/// The plan at one point of the grid over devices 0 ... tp x pp x dp - 1, written down on its own.
ir::Plan grid_plan(const World& world, int tp, int pp, int dp, int size, ir::Recompute recompute) {
  const int layers = world.workload.shape.layers;
  const int batches = static_cast<int>(world.job.global_batch) / size;
  ir::Plan plan;
  plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  for (int d = 0; d < dp; ++d) {
    ir::Pipeline chain;
    chain.micro_batch_size = size;
    chain.micro_batches = (batches + dp - 1 - d) / dp;
    int block = 1;
    for (int p = 0; p < pp; ++p) {
      // Stages 1, 2, ... take the remainder first, stage 0 last.
      const bool more = (p + pp - 1) % pp < layers % pp;
      const int count = layers / pp + (more ? 1 : 0);
      ir::Group group;
      for (int t = 0; t < tp; ++t) group.devices.push_back(DeviceId{t + tp * (d + dp * p)});
      group.tensor_parallel = tp;
      group.samples = size;
      ir::Segment segment;
      segment.first_block = BlockId{p == 0 ? 0 : block};
      block += count;
      segment.last_block = BlockId{p + 1 == pp ? layers + 1 : block - 1};
      segment.groups = {group};
      segment.recompute = recompute;
      chain.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(chain);
  }
  return plan;
}

/// `equal`: only degrees that divide the batch. `idle`: as many replicas as there can be, devices
/// may be left over.
Best brute_force(const World& world, bool equal, bool idle) {
  Best best;
  const models::Evaluator& judge = world.input().evaluator;
  const int devices = world.cluster.size();
  for (int tp = 1; tp <= devices; ++tp) {
    const bool inside =
        std::all_of(world.cluster.nodes.begin(), world.cluster.nodes.end(),
                    [&](const models::Node& node) { return node.gpu_types.size() % tp == 0; });
    if (!inside || 16 % tp != 0) continue;
    for (int pp = 1; pp <= world.workload.shape.layers; ++pp) {
      if (tp * pp > devices || (!idle && devices % (tp * pp) != 0)) continue;
      int dp = devices / (tp * pp);
      while (idle && equal && world.job.global_batch % dp != 0) --dp;
      for (int size = 1; size <= 8; ++size) {
        if (world.job.global_batch % size != 0 || world.job.global_batch / size < dp) continue;
        if (equal && world.job.global_batch % (size * dp) != 0) continue;
        for (const auto recompute : {ir::Recompute::none, ir::Recompute::full}) {
          const ir::Plan plan = grid_plan(world, tp, pp, dp, size, recompute);
          EXPECT_EQ(world.defects(plan), "");
          ++best.examined;
          if (!world.verdict(plan).fits()) {
            ++best.rejected;
            continue;
          }
          best.time = std::min(best.time, judge.evaluate(plan).iteration_time.value);
        }
      }
    }
  }
  return best;
}

void expect_brute_force(const World& world, bool idle = false) {
  int examined = 0;
  for (const bool equal : {true, false}) {
    const Best best = brute_force(world, equal, idle);
    const PlannerResult result = run_planner("megatron_grid", world.input(),
                                             {{"evaluate_top", "0"},
                                              {"use_all", idle ? "no" : "yes"},
                                              {"equal_batches", equal ? "yes" : "no"}});
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
    const auto& plan = std::get<ir::Plan>(result.outcome);
    EXPECT_EQ(world.input().evaluator.evaluate(plan).iteration_time.value, best.time);
    EXPECT_EQ(result.report.plans_examined, best.examined);
    EXPECT_EQ(result.report.rejected_by_memory, best.rejected);
    EXPECT_GT(best.examined, examined) << "unequal batches allow more degrees";
    examined = best.examined;
  }
}

TEST(MegatronGrid, EqualsBruteForceOnOneType) {
  expect_brute_force(World(make_cluster({{"X", 100, 8, 4, 100, 2}}, 5), small_model(10), 12, 2048));
}

TEST(MegatronGrid, EqualsBruteForceOnMixedNodes) {
  expect_brute_force(
      World(make_cluster(
                {{"X", 300, 24, 4, 200, 1}, {"Y", 80, 10, 2, 16, 2}, {"Z", 160, 12, 4, 32, 1}}, 1),
            small_model(13), 20, 2048));
}

TEST(MegatronGrid, EqualsBruteForceWhereTheBatchDoesNotDivide) {
  expect_brute_force(World(make_cluster({{"X", 100, 24, 3, 100, 2}}, 5), small_model(7), 22, 1024));
}

TEST(MegatronGrid, EqualsBruteForceWhereDevicesMayIdle) {
  // Tensor-parallel degrees divide nodes of four, so that devices idle at the end only.
  expect_brute_force(World(make_cluster({{"X", 100, 24, 4, 100, 3}}, 5), small_model(7), 20, 1024),
                     true);
}

/// Likes plans with two pipelines.
class LikesTwo final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    models::Evaluation result;
    result.iteration_time = plan.pipelines.size() == 2 ? 1_s : 2_s;
    return result;
  }
  std::string name() const override { return "likes two"; }
};

TEST(MegatronGrid, LaysOutTheCaseStudyAsItsFigureOneShows) {
  // [A, A, B, C] and [A, B, B, C]; memory is ample, so that two replicas fit.
  World world(make_cluster({{"A800", 312, 800, 3, 200, 1},
                            {"RTX4090", 165.2, 800, 3, 32, 1},
                            {"RTX3090", 80, 800, 2, 16, 1}},
                           1),
              llama2_13b(), 24);
  world.job.allowed.max_micro_batch_size = 1;
  world.job.allowed.recompute = {ir::Recompute::full};
  const LikesTwo evaluator;
  const PlannerInput all = world.input();
  const PlannerInput input{world.cluster, world.topology, world.workload, world.job,
                           world.profile, evaluator,      all.devices};
  const PlannerResult result = run_planner("megatron_grid", input, {{"use_all", "yes"}});
  EXPECT_EQ(result.report.plans_examined, 4);  // TP 1, as nodes hold 3, 3 and 2; DP 1, 2, 4, 8.
  const auto& plan = std::get<ir::Plan>(result.outcome);
  std::vector<std::string> types;
  for (const ir::Pipeline& chain : plan.pipelines) {
    types.emplace_back();
    EXPECT_EQ(chain.micro_batches, 12);
    for (const ir::Stage& stage : chain.stages) {
      types.back() += world.cluster.gpu(ir::devices_of(stage).front()).name + " ";
    }
  }
  EXPECT_EQ(types, (std::vector<std::string>{"A800 A800 RTX4090 RTX3090 ",
                                             "A800 RTX4090 RTX4090 RTX3090 "}));
}

TEST(MegatronGrid, KeepsDataParallelDevicesApartUnderTheOtherOrder) {
  World world(make_cluster({{"X", 100, 24, 4, 100, 2}}, 5), small_model(8), 16, 1024);
  const PlannerResult result =
      run_planner("megatron_grid", world.input(), {{"order", "tp-pp-dp"}, {"evaluate_top", "0"}});
  const auto& plan = std::get<ir::Plan>(result.outcome);
  EXPECT_EQ(world.defects(plan), "");
  int next = 0;
  for (const ir::Pipeline& chain : plan.pipelines) {
    for (const ir::Stage& stage : chain.stages) {
      for (const DeviceId device : ir::devices_of(stage)) EXPECT_EQ(device.value, next++);
    }
  }
}

TEST(MegatronGrid, LeavesDevicesIdleOnlyWhereNoGridUsesAll) {
  // Seven devices and six layers: only DP 7 uses all of them, and a batch of 6 forbids it.
  const World world(make_cluster({{"X", 100, 24, 7, 100, 1}}, 5), small_model(6), 6, 1024);
  const PlannerResult yes = run_planner("megatron_grid", world.input(), {{"use_all", "yes"}});
  ASSERT_TRUE(std::holds_alternative<models::Infeasible>(yes.outcome));
  EXPECT_EQ(std::get<models::Infeasible>(yes.outcome).constraint, "symmetric grid");
  const std::string why = std::get<models::Infeasible>(yes.outcome).witness;
  EXPECT_NE(why.find("a batch of 6 to divide into equal parts"), std::string::npos) << why;
  const PlannerResult rest = run_planner("megatron_grid", world.input());
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(rest.outcome));
  EXPECT_EQ(ir::devices_of(std::get<ir::Plan>(rest.outcome)).size(), 6U);
}

TEST(MegatronGrid, PutsOptimizerStatesIntoHostMemoryOnlyWhereNothingElseFitsAndItMay) {
  World world(make_cluster({{"X", 100, 24, 2, 100, 1}}, 5), small_model(6), 4, 1024);
  models::Node& node = world.cluster.nodes.front();
  node.host_memory = 64_GiB;
  node.host_memory_bandwidth = BytesPerSecond{50e9};
  world.job.allowed.max_optimizer_offload = 1;
  const PlannerResult roomy = run_planner("megatron_grid", world.input());
  ASSERT_NE(plan_of(roomy), nullptr);
  EXPECT_EQ(plan_of(roomy)->optimizer_offload, 0);
  world.job.allowed.max_optimizer_offload = 0;
  Bytes& memory = world.cluster.gpu_types.front().memory;
  while (plan_of(run_planner("megatron_grid", world.input())) != nullptr) memory = 0.95 * memory;
  world.job.allowed.max_optimizer_offload = 1;
  const PlannerResult tight = run_planner("megatron_grid", world.input());
  ASSERT_NE(plan_of(tight), nullptr);
  EXPECT_GT(plan_of(tight)->optimizer_offload, 0);
  EXPECT_TRUE(world.verdict(*plan_of(tight)).fits());
  EXPECT_EQ(world.defects(*plan_of(tight)), "");
  ir::Plan less = *plan_of(tight);
  less.optimizer_offload -= 0.25;
  EXPECT_FALSE(world.verdict(less).fits());
  node.host_memory_bandwidth = {};  // Where the cluster file does not say it.
  EXPECT_EQ(plan_of(run_planner("megatron_grid", world.input())), nullptr);
}

int samples(const ir::Pipeline& chain) { return chain.micro_batches * chain.micro_batch_size; }

TEST(MegatronGrid, PipelinesGetEqualBatches) {
  // Six GPUs and a batch of 64: three or six replicas do not divide it.
  const World world(make_cluster({{"Fast", 400, 80, 2, 200, 1}, {"Slow", 100, 80, 2, 200, 2}}, 20),
                    small_model(12), 64, 1024);
  for (const char* use_all : {"yes", "no"}) {
    const PlannerResult result =
        run_planner("megatron_grid", world.input(), {{"use_all", use_all}, {"evaluate_top", "0"}});
    const auto& plan = std::get<ir::Plan>(result.outcome);
    EXPECT_EQ(world.defects(plan), "");
    for (const ir::Pipeline& chain : plan.pipelines) {
      EXPECT_EQ(samples(chain) * std::ssize(plan.pipelines), 64) << use_all;
    }
  }
}

TEST(MegatronGrid, UnequalBatchesFavorTheFirstRanksOnlyWhereAsked) {
  // One layer leaves data parallelism alone: three replicas, the first of them fast, share a batch
  // of 4 as 2 + 1 + 1.
  World world(make_cluster({{"Fast", 400, 80, 1, 200, 1}, {"Slow", 100, 80, 1, 200, 2}}, 20),
              small_model(1), 4, 1024);
  const PlannerResult unequal =
      run_planner("megatron_grid", world.input(), {{"equal_batches", "no"}, {"use_all", "yes"}});
  std::vector<int> shares;
  for (const ir::Pipeline& chain : std::get<ir::Plan>(unequal.outcome).pipelines) {
    shares.push_back(samples(chain));
  }
  EXPECT_EQ(shares, (std::vector<int>{2, 1, 1}));
  const PlannerResult none = run_planner("megatron_grid", world.input(), {{"use_all", "yes"}});
  EXPECT_TRUE(std::holds_alternative<models::Infeasible>(none.outcome));
  // As many replicas as divide the batch, the last device idles.
  const PlannerResult some = run_planner("megatron_grid", world.input());
  EXPECT_EQ(ir::devices_of(std::get<ir::Plan>(some.outcome)), (std::vector<DeviceId>{{0}, {1}}));
}

TEST(MegatronGrid, AskingTheEvaluatorAboutFewFindsTheSameWhereBothUseTheClosedForm) {
  const World world(make_cluster({{"X", 100, 24, 4, 100, 2}}, 5), small_model(8), 16, 1024);
  const auto one = run_planner("megatron_grid", world.input(), {{"evaluate_top", "1"}});
  const auto all = run_planner("megatron_grid", world.input(), {{"evaluate_top", "0"}});
  EXPECT_EQ(std::get<ir::Plan>(one.outcome), std::get<ir::Plan>(all.outcome));
}

}  // namespace
}  // namespace orrery::planners::megatron_grid_test
