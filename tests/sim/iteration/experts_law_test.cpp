/// Do groups that hold experts together wait for each other in every pass, and do they share the
/// NICs between them?
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <vector>

#include "models/base/ids.h"
#include "models/lower/lower.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::experts_law_test {
namespace {

models::Workload expert_workload(int blocks) {
  models::Workload workload = make_workload(blocks);
  workload.shape.experts = 4;
  workload.shape.top_k = 1;
  for (models::Block& block : workload.blocks) block.expert_all_to_all = true;
  return workload;
}

/// One stage of groups, pairs of which share experts.
ir::Plan sharing_plan(int groups, int tensor_parallel) {
  PlanShape shape;
  shape.groups = groups;
  shape.tensor_parallel = tensor_parallel;
  ir::Plan plan = make_plan(shape, 2);
  plan.pipelines[0].stages[0].segments[0].expert_parallel = 2;
  return plan;
}

/// By rank: the ends of its passes, in order.
std::map<int, std::vector<long long>> pass_ends(const Outcome& run, const ir::Program& program) {
  std::map<int, std::vector<long long>> ends;
  std::istringstream lines(run.spans);
  int rank = 0;
  int op = 0;
  long long start = 0;
  long long end = 0;
  double inner = 0;
  double bytes = 0;
  while (lines >> rank >> op >> start >> end >> inner >> bytes) {
    if (program.ops[op].kind <= ir::OpKind::backward) {
      ends[rank].push_back(end);
    }
  }
  return ends;
}

TEST(Experts, ASlowGroupHoldsThoseThatShareItsExpertsInEveryPass) {
  const models::Cluster cluster = make_cluster({});
  const models::Workload workload = expert_workload(2);
  const ir::Plan plan = sharing_plan(4, 2);
  IterationOptions options;
  options.stragglers = {{DeviceId{0}, 2.0}};
  for (const bool collapsed : {true, false}) {
    models::LowerOptions lowering;
    lowering.collapsed = collapsed;
    const ir::Program program = models::lower(plan, cluster, workload, make_job(), lowering);
    const auto ends = pass_ends(simulate(cluster, workload, program, options), program);
    const int of_group = collapsed ? 1 : 2;
    ASSERT_EQ(ends.size(), as_size(4 * of_group));
    ASSERT_EQ(ends.at(0).size(), 2u * 4u);
    // Ranks go group by group; the first two groups share experts, the others run on.
    for (int rank = 0; rank < 2 * of_group; ++rank) EXPECT_EQ(ends.at(rank), ends.at(0));
    for (int rank = 2 * of_group; rank < 4 * of_group; ++rank) {
      EXPECT_EQ(ends.at(rank), ends.at(2 * of_group));
      for (std::size_t i = 0; i < ends.at(rank).size(); ++i) {
        EXPECT_LT(ends.at(rank)[i], ends.at(0)[i]);
      }
    }
  }
}

TEST(Experts, CollapsedGroupsShareANicAsTheirFlowsDo) {
  const models::Workload workload = expert_workload(2);
  const ir::Plan plan = sharing_plan(2, 4);
  const auto seconds = [&](const models::Cluster& cluster, bool collapsed, double slowdown) {
    models::LowerOptions lowering;
    lowering.collapsed = collapsed;
    IterationOptions options;
    if (slowdown > 1) options.slow_links = {{"node0/nic0/up", slowdown}};
    const ir::Program program = models::lower(plan, cluster, workload, make_job(), lowering);
    return simulate(cluster, workload, program, options).iteration_time;
  };
  // A group on each node.
  const models::Cluster own = make_cluster({.nodes = 2, .gpus = 4, .nic_per_gpu = true});
  const models::Cluster one = make_cluster({.nodes = 2, .gpus = 4, .nic_per_gpu = false});
  for (const double slowdown : {1.0, 3.0}) {
    for (const models::Cluster* cluster : {&own, &one}) {
      const double flows = seconds(*cluster, false, slowdown);
      EXPECT_NEAR(seconds(*cluster, true, slowdown), flows, 1e-6 * flows);
    }
    EXPECT_GT(seconds(one, true, slowdown), 1.1 * seconds(own, true, slowdown));
  }
}

/// Groups of one device that share experts unlike: three samples and one expert, one and three.
TEST(Experts, UnlikeGroupsTakeTheLongestBesideAndTheLongestInsideTheExperts) {
  models::Workload workload = expert_workload(2);
  for (models::Block& block : workload.blocks) {
    block.kind = ir::BlockKind::moe;
    block.expert_flops = 0.6 * block.forward_flops;
  }
  ir::Plan plan = sharing_plan(2, 1);
  plan.pipelines[0].micro_batch_size = 4;
  std::vector<ir::Group>& groups = plan.pipelines[0].stages[0].segments[0].groups;
  groups[0].samples = 3;
  groups[0].experts = 1;
  groups[1].experts = 3;
  models::Cluster cluster = make_cluster({});
  cluster.gpu_types.push_back(cluster.gpu_types.front());
  cluster.gpu_types[1].name = "slow";
  for (auto& [dtype, peak] : cluster.gpu_types[1].peak) peak = 0.7 * peak;
  cluster.devices[groups[1].devices.front().index()].gpu_type = 1;
  for (const bool collapsed : {true, false}) {
    models::LowerOptions lowering;
    lowering.collapsed = collapsed;
    const ir::Program program = models::lower(plan, cluster, workload, make_job(), lowering);
    const models::Pricer pricer(cluster, workload, make_job(), {});
    const models::ProgramPrices prices(program, pricer);
    Seconds expected;
    for (const BlockId block : ids_from_to(BlockId{0}, BlockId{1})) {
      const auto parts = [&](int type, int samples, int experts) {
        return pricer.block_parts({.gpu_type = type,
                                   .block = block,
                                   .samples = samples,
                                   .expert_parallel = 2,
                                   .experts = experts,
                                   .expert_samples = 4,
                                   .sequence_parallel = false});
      };
      const models::BlockParts fast = parts(0, 3, 1), slow = parts(1, 1, 3);
      EXPECT_GT(fast.all - fast.experts, slow.all - slow.experts);
      EXPECT_LT(fast.experts, slow.experts);
      expected += fast.all - fast.experts + slow.experts;
    }
    int passes = 0;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      if (program.ops[i].kind != ir::OpKind::forward) continue;
      ++passes;
      EXPECT_NEAR(prices.compute({static_cast<std::int32_t>(i)}).value, expected.value,
                  1e-12 * expected.value);
    }
    EXPECT_EQ(passes, 2 * 4);
    const auto ends = pass_ends(simulate(cluster, workload, program), program);
    EXPECT_EQ(ends.at(0), ends.at(1));
  }
}

}  // namespace
}  // namespace orrery::sim::experts_law_test
