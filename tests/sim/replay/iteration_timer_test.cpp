#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/spec/topology.h"
#include "sim/iteration/evaluator.h"
#include "sim/replay/device_renaming.h"
#include "sim/replay/pipeline_order.h"
#include "sim/replay/simulated_iteration_timer.h"
#include "tests/sim/in_child.h"
#include "tests/sim/iteration/support.h"
#include "tests/sim/replay/support.h"

namespace orrery::sim::iteration_timer_test {
namespace {

/// The plan with each device moved.
ir::Plan moved(ir::Plan plan, const std::map<int, int>& to) {
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) {
            const auto found = to.find(device.value);
            if (found != to.end()) device = {found->second};
          }
        }
      }
    }
  }
  return plan;
}

std::vector<int> names(const models::Cluster& cluster, const std::vector<int>& devices,
                       const models::DegradedLinks& degraded = {}, bool ignore_leaves = false) {
  const models::Topology topology(cluster);
  const DeviceRenaming renaming(cluster, topology, ignore_leaves);
  std::vector<DeviceId> order;
  for (const int device : devices) order.push_back({device});
  const IdVector<DeviceId, DeviceId> to = renaming.names(order, degraded).to;
  std::vector<int> result;
  for (const int device : devices) result.push_back(to[{device}].value);
  return result;
}

using Ids = std::vector<int>;

TEST(DeviceRenaming, EqualNodesAndPositionsTakeTheFirstNames) {
  const models::Cluster cluster = replay_cluster(4, 2);
  EXPECT_EQ(names(cluster, {7, 6, 2, 3}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(names(cluster, {5, 2, 4}), (Ids{0, 2, 1}));
}

TEST(DeviceRenaming, DevicesThatShareANicOrASwitchStayTogether) {
  models::Cluster cluster = replay_cluster(2, 4);
  for (models::Node& node : cluster.nodes) {
    node.pcie = {{{0, 2}, "slot", "slot"}, {{1, 3}, "slot", "slot"}};
    node.nics = {{"nic", {0, 2}}, {"nic", {1, 3}}};
  }
  models::seal(cluster);
  EXPECT_EQ(names(cluster, {0, 1}), (Ids{0, 1}));
  EXPECT_EQ(names(cluster, {3, 1}), (Ids{0, 2}));
  EXPECT_EQ(names(cluster, {5, 6, 7}), (Ids{0, 1, 2}));
  EXPECT_EQ(names(cluster, {5, 7, 6}), (Ids{0, 2, 1}));
}

TEST(DeviceRenaming, LeavesKindsOverridesAndDegradedLinksAreKeptApart) {
  models::Cluster cluster = replay_cluster(6, 2);
  for (int n = 3; n < 6; ++n) cluster.nodes[n].leaf = 1;
  models::seal(cluster);
  EXPECT_EQ(names(cluster, {8, 6}), (Ids{0, 2}));  // both on one leaf
  EXPECT_EQ(names(cluster, {8, 2}), (Ids{0, 6}));  // on two
  EXPECT_EQ(names(cluster, {8, 2}, {}, true), (Ids{0, 2}));
  EXPECT_EQ(names(cluster, {2, 4}, {{"node1/nic0/up", 0.5}}), (Ids{2, 0}));
  EXPECT_EQ(names(cluster, {2, 8}, {{"leaf1/up", 0.5}}), (Ids{0, 8}));

  cluster.overrides = {{{0}, {1}, BytesPerSecond{1e9}, std::nullopt}};
  models::seal(cluster);
  EXPECT_EQ(names(cluster, {2, 4}), (Ids{2, 4}));
  EXPECT_EQ(names(cluster, {4, 0}), (Ids{4, 0}));

  cluster = replay_cluster(3, 2);
  cluster.gpu_types.push_back(cluster.gpu_types[0]);
  cluster.nodes[0].gpu_types = {0, 1};
  models::seal(cluster);
  EXPECT_EQ(names(cluster, {4, 1}), (Ids{2, 1}));  // a mixed node keeps its positions
}

TEST(DeviceRenaming, WhereDomainsOverlapPositionsAreKept) {
  models::Cluster cluster = replay_cluster(2, 4);
  const std::string link = cluster.nodes.front().nics.front().link;
  for (models::Node& node : cluster.nodes) {
    node.domains = {{{0, 1}, link}, {{1, 2}, link}, {{2, 3}, link}};
  }
  models::seal(cluster);
  EXPECT_EQ(names(cluster, {7, 5}), (Ids{3, 1}));
}

/// Runs `work` with a timer in a process of its own; returns what it says.
std::string with_timer(const models::Cluster& cluster,
                       const std::function<std::string(const SimulatedIterationTimer&,
                                                       const SimulatorEvaluator&)>& work) {
  const models::Workload workload = make_workload(4);
  const models::Job job = make_job();
  const ir::Profile profile;
  return in_child([&] {
    const models::Topology topology(cluster);
    const TransferPaths paths(cluster, topology);
    IterationSimulator simulator(cluster, topology);
    return work(SimulatedIterationTimer(simulator, paths, workload, job, profile),
                SimulatorEvaluator(simulator, workload, job, profile));
  });
}

models::Cluster four_nodes() {
  ClusterShape shape;
  shape.nodes = 4;
  shape.gpus = 2;
  return make_cluster(shape);
}

ir::Plan two_stages() {
  PlanShape shape;
  shape.stages = 2;
  shape.tensor_parallel = 2;
  return make_plan(shape, 4);
}

TEST(SimulatedIterationTimer, RemembersPlansUpToARenamingOfEqualDevices) {
  const std::string said = with_timer(four_nodes(), [](const auto& timer, const auto& judge) {
    const ir::Plan plan = two_stages();
    const ir::Plan other = moved(plan, {{0, 7}, {1, 6}, {2, 4}, {3, 5}});
    const ir::Plan inside = moved(plan, {{2, 4}, {3, 5}});
    const Seconds a = timer.time(plan);
    const Seconds b = timer.time(other);
    const models::Evaluation c = CachedEvaluator(timer).evaluate(inside);
    const bool right = a == b && a == c.iteration_time && a == judge.evaluate(plan).iteration_time;
    // The verdict names a device of the plan that was asked for: the last stage is on 4 and 5.
    const int device = timer.evaluate(other).memory.by_gpu_type.at(0).device.value;
    return fmt::format("{} {} {} {}", timer.counts().asked, timer.counts().simulated, right,
                       device >= 4);
  });
  EXPECT_EQ(said, "4 1 true true");
}

TEST(SimulatedIterationTimer, RemembersWhichStageIsDeadWhicheverPipelineItIsOf) {
  const std::string said = with_timer(four_nodes(), [](const auto& timer, const auto&) {
    PlanShape shape;
    shape.pipelines = 3;
    shape.stages = 2;
    ir::Plan plan = make_plan(shape, 4);
    ir::Plan other = plan;
    plan.pipelines[0].reroutes = {{1, 0, 1}, {1, 1, 2}, {1, 2, 1}, {1, 3, 2}};
    other.pipelines[2].reroutes = {{1, 0, 0}, {1, 1, 1}, {1, 2, 0}, {1, 3, 1}};
    const models::Evaluation a = timer.evaluate(plan);
    const models::Evaluation b = timer.evaluate(other);
    const bool moved = a.pipeline_times.at(0) == b.pipeline_times.at(2) &&
                       a.pipeline_times.at(1) == b.pipeline_times.at(0) &&
                       a.pipeline_times.at(2) == b.pipeline_times.at(1);
    // A slow device belongs to its pipeline wherever that is in the order.
    const Seconds slow = timer.time(plan, {.slow = {{{2}, 0.5}}});
    const Seconds same = timer.time(other, {.slow = {{{0}, 0.5}}});
    return fmt::format("{} {} {} {} {}", a.iteration_time == b.iteration_time, moved, slow == same,
                       slow > a.iteration_time, timer.counts().simulated);
  });
  EXPECT_EQ(said, "true true true true 2");
}

TEST(SimulatedIterationTimer, StaggeredPlansHaveTimesOfTheirOwn) {
  const std::string said = with_timer(four_nodes(), [](const auto& timer, const auto&) {
    PlanShape shape;
    shape.pipelines = 2;
    shape.stages = 4;
    shape.schedule = ir::ScheduleKind::zero_bubble;
    ir::Plan plan = make_plan(shape, 4);
    plan.pipelines[0].reroutes = {{3, 0, 1}, {3, 1, 1}, {3, 2, 1}, {3, 3, 1}};
    const Seconds together = timer.time(plan);
    plan.optimizer = ir::OptimizerStart::staggered;
    const Seconds staggered = timer.time(plan);
    return fmt::format("{} {} {}", staggered < together, timer.time(plan) == staggered,
                       timer.counts().simulated);
  });
  EXPECT_EQ(said, "true true 2");
}

TEST(PipelineOrder, ReroutesLeadToTheSamePipelinesInAnyOrder) {
  const models::Cluster cluster = four_nodes();
  const models::Topology topology(cluster);
  const DeviceRenaming renaming(cluster, topology, false);
  PlanShape shape;
  shape.stages = 2;
  shape.pipelines = 4;
  ir::Plan plan = make_plan(shape, 4);
  plan.pipelines[2].reroutes = {{1, 0, 0}, {1, 1, 3}};
  const ir::Plan sorted = reordered(plan, order_of_pipelines(plan, {}, renaming));
  EXPECT_EQ(sorted.pipelines.size(), 4U);
  for (const ir::Pipeline& pipeline : sorted.pipelines) {
    if (pipeline.reroutes.empty()) continue;
    EXPECT_EQ(pipeline.stages, plan.pipelines[2].stages);
    const auto& first = sorted.pipelines[pipeline.reroutes[0].to_pipeline];
    const auto& second = sorted.pipelines[pipeline.reroutes[1].to_pipeline];
    EXPECT_EQ(first.stages, plan.pipelines[0].stages);
    EXPECT_EQ(second.stages, plan.pipelines[3].stages);
  }
  ir::Plan sharded = plan;
  sharded.pipelines[0].stages[0].segments[0].zero = {1, 2};
  EXPECT_EQ(order_of_pipelines(sharded, {}, renaming), (std::vector<std::size_t>{0, 1, 2, 3}));
}

TEST(SimulatedIterationTimer, SlowDevicesAndLinksMakeTimesOfTheirOwn) {
  const std::string said = with_timer(four_nodes(), [](const auto& timer, const auto&) {
    const ir::Plan plan = two_stages();
    const ir::Plan other = moved(plan, {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
    const double healthy = timer.time(plan).value;
    const double slow = timer.time(plan, {.slow = {{{3}, 0.5}}}).value;
    const double same = timer.time(other, {.slow = {{{0}, 0.1}, {{7}, 0.5}}}).value;
    const double link = timer.time(plan, {.degraded_links = {{"node0/nic0/up", 0.01}}}).value;
    const double elsewhere = timer.time(other, {.degraded_links = {{"node0/nic0/up", 0.01}}}).value;
    return fmt::format("{} {} {} {} {}", slow > 1.3 * healthy, slow == same, link > healthy,
                       elsewhere == healthy, timer.counts().simulated);
  });
  EXPECT_EQ(said, "true true true true 3");
}

TEST(SimulatedIterationTimer, BackgroundTransfersTakeTheirShareOfTheNetwork) {
  models::Cluster cluster = four_nodes();
  cluster.storage = models::ObjectStorage{BytesPerSecond{1e12}, models::BandwidthScope::shared, {}};
  const models::Topology topology(cluster);
  std::vector<LinkId> nic;
  topology.nic_link({0}, true, nic);
  const models::Link& link = topology.links()[nic.front()];
  const std::string name = topology.name_of(nic.front());
  const std::string said = with_timer(cluster, [&](const auto& timer, const auto&) {
    const ir::Plan plan = two_stages();
    const auto upload = [&](int device, double share) -> std::vector<models::StateTransfer> {
      return {{ir::Location::host_memory,
               ir::Location::cloud,
               {device},
               {},
               Bytes{share * link.bandwidth.value}}};
    };
    const Seconds alone = timer.time(plan);
    const Seconds quarter = timer.time(plan, {.background = upload(0, 0.25)});
    const Seconds all = timer.time(plan, {.background = upload(0, 0.9)});
    const ir::Plan other = moved(plan, {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
    const auto simulated = timer.counts().simulated;
    return fmt::format("{} {} {} {} {}", alone < quarter,
                       timer.time(plan, {.degraded_links = {{name, 0.75}}}) == quarter,
                       timer.time(plan, {.degraded_links = {{name, 0.5}}}) == all,
                       timer.time(other, {.background = upload(4, 0.25)}) == quarter, simulated);
  });
  EXPECT_EQ(said, "true true true true 3");
}

TEST(SimulatedIterationTimer, AnswersDoNotDependOnWhatWasAskedBefore) {
  const auto ask = [](bool other_first) {
    return with_timer(four_nodes(), [=](const auto& timer, const auto&) {
      const ir::Plan plan = two_stages();
      const ir::Plan other = moved(plan, {{0, 5}, {1, 4}, {2, 1}, {3, 0}});
      if (other_first) timer.time(other, {.slow = {{{1}, 0.7}}});
      return fmt::format("{:a}", timer.time(plan, {.slow = {{{3}, 0.7}}}).value);
    });
  };
  EXPECT_EQ(ask(false), ask(true));
}

TEST(SimulatedIterationTimer, SeveralEvaluationsAreUnderWayAtOnce) {
  const std::string said = with_timer(four_nodes(), [](const auto& timer, const auto& judge) {
    const CachedEvaluator started(timer);
    const ir::Plan plan = two_stages();
    ir::Plan longer = plan;
    longer.pipelines.front().micro_batches *= 2;
    const ir::Plan same = moved(plan, {{0, 7}, {1, 6}, {2, 4}, {3, 5}});
    const auto first = started.start(longer), second = started.start(plan);
    const auto third = started.start(same);
    const Seconds a = second->join().iteration_time, b = first->join().iteration_time;
    const models::Evaluation c = third->join();
    const Seconds again = started.start(plan)->join().iteration_time;
    const bool right = a == judge.evaluate(plan).iteration_time &&
                       b == judge.evaluate(longer).iteration_time && c.iteration_time == a &&
                       again == a && a < b;
    const int device = c.memory.by_gpu_type.at(0).device.value;
    return fmt::format("{} {} {} {}", timer.counts().asked, timer.counts().simulated, right,
                       device >= 4);
  });
  EXPECT_EQ(said, "4 2 true true");
}

}  // namespace
}  // namespace orrery::sim::iteration_timer_test
