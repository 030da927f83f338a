#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/cost/pricer.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "tests/sim/in_child.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::programs_test {
namespace {

/// Two pipelines of two stages on 16 devices; `change` alters every segment.
ir::Plan varied(const std::function<void(ir::Segment&)>& change) {
  PlanShape shape;
  shape.pipelines = 2;
  shape.stages = 2;
  shape.tensor_parallel = 4;
  shape.micro_batches = 3;
  shape.overlap = true;
  ir::Plan plan = make_plan(shape, 4);
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) change(stage.segments.front());
  }
  return plan;
}

/// The second pipeline has two groups of two where the first has one of four.
ir::Plan uneven() {
  ir::Plan plan = varied([](ir::Segment&) {});
  plan.pipelines[1].micro_batch_size = 3;
  for (ir::Stage& stage : plan.pipelines[1].stages) {
    std::vector<ir::Group>& groups = stage.segments.front().groups;
    const std::vector<DeviceId> all = groups.front().devices;
    groups.assign(2, groups.front());
    groups[0].devices = {all[0], all[1]};
    groups[1].devices = {all[2], all[3]};
    groups[0].tensor_parallel = groups[1].tensor_parallel = 2;
    groups[1].samples = 2;
  }
  return plan;
}

std::vector<std::pair<std::string, ir::Plan>> plans() {
  const auto groups = [](const std::function<void(ir::Group&)>& change) {
    return varied([&](ir::Segment& segment) {
      for (ir::Group& group : segment.groups) change(group);
    });
  };
  const auto zero = [](int stage) {
    return varied([&](ir::Segment& segment) { segment.zero.stage = stage; });
  };
  return {
      {"megatron sequence",
       groups([](ir::Group& group) { group.sequence = ir::SequenceParallelism::megatron; })},
      {"ulysses", groups([](ir::Group& group) {
         group.sequence = ir::SequenceParallelism::ulysses;
         group.tensor_parallel = group.sequence_degree = 2;
       })},
      {"ring attention", groups([](ir::Group& group) {
         group.sequence = ir::SequenceParallelism::ring;
         group.tensor_parallel = 1;
         group.sequence_degree = 4;
       })},
      {"zero 1", zero(1)},
      {"zero 2", zero(2)},
      {"zero 3", zero(3)},
      {"full recompute",
       varied([](ir::Segment& segment) { segment.recompute = ir::Recompute::full; })},
      {"uneven groups", uneven()},
  };
}

TEST(Programs, OfEveryKindOfPlanRunToTheirEndInEveryMode) {
  ClusterShape shape;
  shape.nodes = 2;
  shape.nic_per_gpu = false;
  const models::Cluster cluster = make_cluster(shape);
  const models::Workload workload = make_workload(4);
  for (const auto& [name, plan] : plans()) {
    for (const bool collapsed : {true, false}) {
      for (const InnerMode inner :
           {InnerMode::closed_form, InnerMode::aggregated, InnerMode::per_block}) {
        IterationOptions options;
        options.inner = inner;
        options.ring = inner == InnerMode::per_block ? RingMode::stepwise : RingMode::aggregated;
        options.jitter = 0.05;
        const Outcome run = simulate(cluster, workload, plan, collapsed, options);
        ASSERT_FALSE(run.ranks.empty()) << name;
        // Two stages, a quarter of a millisecond per block and sample on four devices.
        EXPECT_GT(run.iteration_time, 0.8 * 4 * 2 * 3 * kBlockSeconds / 4) << name;
        EXPECT_LT(run.iteration_time, 0.2) << name;
        for (const ir::RankBreakdown& rank : run.ranks) {
          EXPECT_EQ(rank.total().count, run.duration) << name;
          EXPECT_GT(rank.compute.count, 0) << name;
        }
      }
    }
  }
}

TEST(Programs, LastBackwardOfAPipelineComesBeforeItsSynchronization) {
  const models::Cluster cluster = make_cluster({});
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.pipelines = 2;
  ir::Plan plan = make_plan(shape, 4);
  plan.pipelines[1].micro_batches = 2;
  const Outcome run = simulate(cluster, workload, plan, true);
  ASSERT_EQ(run.pipeline_times.size(), 2u);
  EXPECT_NEAR(run.pipeline_times[0], 4 * 4 * 3 * kBlockSeconds, 1e-9);
  EXPECT_NEAR(run.pipeline_times[1], 2 * 4 * 3 * kBlockSeconds, 1e-9);
  EXPECT_GT(run.iteration_time, run.pipeline_times[0]);
  // The second pipeline waits for the first, then both synchronize.
  EXPECT_NEAR(static_cast<double>(run.ranks[1].bubble.count) * 1e-9,
              run.pipeline_times[0] - run.pipeline_times[1], 1e-8);
  EXPECT_EQ(run.ranks[0].bubble.count, 0);
  EXPECT_EQ(run.ranks[0].data_parallel, run.ranks[1].data_parallel);
}

/// One state op on device 0.
ir::Program state_program(ir::OpKind kind, ir::Location location, Bytes bytes) {
  ir::Program program = collective_program(ir::CollectiveKind::all_reduce, 1, bytes);
  program.ops[0].kind = kind;
  program.ops[0].purpose = ir::Purpose::state;
  program.ops[0].location = location;
  program.ops[0].match = ir::kNone;
  program.transfer_sets = {{{{1}, {0}, bytes}}};
  program.ops[0].transfers = 0;
  program.collectives.clear();
  return program;
}

TEST(StateOps, TakeTheBandwidthOfWhereTheStateLies) {
  models::Cluster cluster = make_cluster({});
  for (models::Node& node : cluster.nodes) {
    node.host_memory_bandwidth = BytesPerSecond{20e9};
    node.nvme_read = BytesPerSecond{5e9};
    node.nvme_write = BytesPerSecond{2e9};
  }
  cluster.storage =
      models::ObjectStorage{BytesPerSecond{1e9}, models::BandwidthScope::shared, Seconds{0.05}};
  const Bytes bytes{1e10};
  const auto time = [&](ir::OpKind kind, ir::Location location) {
    const Outcome run = simulate(cluster, make_workload(1), state_program(kind, location, bytes));
    EXPECT_EQ(run.ranks.at(0).data_parallel.count, run.duration);
    return run.iteration_time;
  };
  const auto load = ir::OpKind::load_state, save = ir::OpKind::save_state;
  EXPECT_DOUBLE_EQ(time(load, ir::Location::host_memory), 0.5);
  EXPECT_DOUBLE_EQ(time(load, ir::Location::nvme), 2);
  EXPECT_DOUBLE_EQ(time(save, ir::Location::nvme), 5);
  EXPECT_DOUBLE_EQ(time(save, ir::Location::cloud), 10.05);
  EXPECT_NEAR(time(load, ir::Location::peer), 0.05 + 2e-6, 1e-9);  // NVLink
}

TEST(IterationSimulator, RunsInOneProcessDoNotInfluenceEachOther) {
  const models::Cluster cluster = make_cluster({});
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.pipelines = 2;
  shape.stages = 2;
  const ir::Plan plan = make_plan(shape, 4);
  const std::string wrong = in_child([&]() -> std::string {
    const models::Topology topology(cluster);
    IterationSimulator simulator(cluster, topology);
    const models::Pricer pricer(cluster, workload, make_job(), ir::Profile{});
    const ir::Program program = models::lower(plan, cluster, workload, make_job(), {});
    IterationOptions slow;
    slow.slow_links = {{"node0/gpu0/nvlink/up", 100}};
    const IterationResult first = simulator.run(program, pricer, {});
    const IterationResult other = simulator.run(program, pricer, slow);
    const IterationResult again = simulator.run(program, pricer, {});
    if (relative_difference(first.iteration_time.value, again.iteration_time.value) > 1e-9) {
      return "the link stays slow";
    }
    if (other.iteration_time.value < 1.01 * first.iteration_time.value) return "no slow link";
    if (first.log.links.empty() || first.log.links != again.log.links) return "links add up";
    return "nothing";
  });
  EXPECT_EQ(wrong, "nothing");
}

}  // namespace
}  // namespace orrery::sim::programs_test
