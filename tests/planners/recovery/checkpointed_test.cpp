// What the policies that go back to checkpoints do, each in its own way.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>

#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/transfer_estimate.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::checkpointed_test {
namespace {

using Action = models::RecoveryDecision::Action;
using Kind = models::RecoveryPhase::Kind;

double seconds_of(const models::RecoveryDecision& decision, Kind kind) {
  double sum = 0;
  for (const models::RecoveryPhase& phase : decision.phases) {
    if (phase.kind == kind) sum += to_seconds(phase.duration).value;
  }
  return sum;
}

bool reads_only(const models::RecoveryDecision& decision, ir::Location location) {
  return !decision.transfers.empty() &&
         std::all_of(decision.transfers.begin(), decision.transfers.end(),
                     [&](const auto& t) { return t.from == location; });
}

/// A policy, with the constants of its paper, and a plan of the user on the tiny world: nodes 0 to
/// 3 A, 4 and 5 B, two GPUs each.
struct Fixture {
  explicit Fixture(const std::string& name, const Options& options = {},
                   const std::optional<std::array<int, 3>>& shape = {}, double rate = 1 / 86'400.0)
      : world(recovery_world()), input(with_plan(policy_input(*world), *world, shape, rate)) {
    Options all = {{"constants", "as_published"}};
    all.insert(all.end(), options.begin(), options.end());
    policy = make_policy(name, input, all);
    life.emplace(*world, input, *policy);
  }
  static PolicyInput with_plan(PolicyInput given, const World& world,
                               const std::optional<std::array<int, 3>>& shape, double rate) {
    given.interruptions_per_second = rate;
    if (shape) given.plan = uniform_plan(world, (*shape)[0], (*shape)[1], (*shape)[2]);
    return given;
  }
  const models::RecoveryDecision& fire(const ir::ClusterEvent& event, bool interrupted = false) {
    EXPECT_EQ(life->fire(event, interrupted), "");
    return life->decision();
  }
  const models::RecoveryDecision& lose_node(int node, bool interrupted = false) {
    return fire(node_event(ir::EventKind::fail, node), interrupted);
  }

  std::unique_ptr<World> world;
  PolicyInput input;
  std::unique_ptr<models::RecoveryPolicy> policy;
  std::optional<JobLife> life;
};

constexpr std::array<int, 3> kTwoReplicas = {2, 1, 2};  // On nodes 0 and 1.

TEST(CheckpointRestart, ASpareKeepsThePlanAndTheCloudHoldsTheState) {
  Fixture f("checkpoint_restart", {}, kTwoReplicas);
  f.life->train(100);
  const auto& d = f.lose_node(0);
  ASSERT_EQ(d.action, Action::resume);
  EXPECT_EQ(ir::devices_of(*d.plan), (std::vector<DeviceId>{{2}, {3}, {4}, {5}}));
  EXPECT_LT(d.resume_iteration, 100);
  EXPECT_GE(d.resume_iteration, 60);
  EXPECT_TRUE(reads_only(d, ir::Location::cloud));
  EXPECT_EQ(d.transfers.size(), 4u);
  EXPECT_DOUBLE_EQ(seconds_of(d, Kind::detect), 600);
  EXPECT_DOUBLE_EQ(seconds_of(d, Kind::reinitialize), 300);
}

TEST(CheckpointRestart, WithoutSparesAUniformGridOnWholeNodes) {
  Fixture f("checkpoint_restart", {}, kTwoReplicas);
  f.life->train(100);
  for (const int node : {0, 1, 2}) f.lose_node(node);
  const auto& d = f.fire(device_event(ir::EventKind::fail, 8));
  for (int device : {8, 9}) {  // Node 4 has lost one GPU.
    const auto devices = ir::devices_of(*f.life->state().plan);
    EXPECT_FALSE(std::binary_search(devices.begin(), devices.end(), DeviceId{device}));
  }
  ASSERT_EQ(d.action == Action::resume || d.action == Action::proceed, true);
}

TEST(CheckpointRestart, TheTracesDetectionWinsAndFailedProcessesAreNoticedSooner) {
  Fixture f("checkpoint_restart", {}, kTwoReplicas);
  f.life->train(100);
  ir::ClusterEvent job;
  job.scope.kind = ir::EventScope::Kind::job;
  EXPECT_DOUBLE_EQ(seconds_of(f.fire(job), Kind::detect), 5);
  job.detection = Nanoseconds{42'000'000'000};
  EXPECT_DOUBLE_EQ(seconds_of(f.fire(job), Kind::detect), 42);
  EXPECT_EQ(*f.life->state().plan, *f.input.plan);
}

TEST(CheckpointRestart, OnNvmeALostNodesSharesNeedAReplica) {
  for (const int replicas : {1, 2}) {
    Fixture f("checkpoint_restart", {{"location", "nvme"}}, std::array<int, 3>{replicas, 1, 2});
    f.life->train(100);
    const auto& d = f.lose_node(0);
    if (replicas == 1) {
      EXPECT_EQ(d.resume_iteration, 0);
      EXPECT_TRUE(d.transfers.empty());
    } else {
      EXPECT_GT(d.resume_iteration, 0);
      EXPECT_TRUE(reads_only(d, ir::Location::nvme));
    }
  }
}

ir::ClusterEvent notice(int node, double seconds) {
  ir::ClusterEvent event = node_event(ir::EventKind::notice, node);
  event.notice = to_nanoseconds(Seconds{seconds});
  return event;
}

TEST(CheckpointRestart, LeavesBeforeTheDeadlineWhenAllOfItFits) {
  Fixture f("checkpoint_restart", {}, kTwoReplicas);
  f.life->train(100);
  const Seconds iteration = f.life->state().iteration_time;
  const auto& d = f.fire(notice(0, 1000));
  ASSERT_EQ(d.action, Action::resume);
  EXPECT_GE(d.run_on.count, 0);
  double total =
      to_seconds(d.run_on).value + iteration.value + transfer_estimate(f.input, d.transfers).value;
  for (const models::RecoveryPhase& phase : d.phases) total += to_seconds(phase.duration).value;
  EXPECT_NEAR(total, 1000, 1e-3);
  const auto devices = ir::devices_of(*d.plan);
  EXPECT_FALSE(std::binary_search(devices.begin(), devices.end(), DeviceId{0}));
}

TEST(CheckpointRestart, ANoticeThatIsTooShortChangesNothing) {
  Fixture f("checkpoint_restart", {}, kTwoReplicas);
  f.life->train(100);
  EXPECT_EQ(f.fire(notice(0, 120)).action, Action::proceed);
}

TEST(CheckpointRestart, GrowsBackWhenItPays) {
  for (const std::string grow : {"never", "always", "pays"}) {
    for (const double rate : {1 / 200.0, 1e-6}) {
      Fixture f("checkpoint_restart", {{"grow", grow}}, {}, rate);
      f.life->train(100);
      for (const int node : {0, 1, 2}) f.lose_node(node);
      f.life->train(100);
      const auto before = f.life->state().iteration_time;
      const auto& d = f.fire(node_event(ir::EventKind::repair, 0));
      const bool grows = grow == "always" || (grow == "pays" && rate < 1e-3);
      EXPECT_EQ(d.action == Action::resume, grows) << grow << " " << rate << ": " << d.reason;
      if (grows) {
        EXPECT_EQ(d.run_on.count, 0);
        EXPECT_LT(f.life->state().iteration_time, before);
      }
    }
  }
}

TEST(Checkfreq, IntervalIsTheShortestWithinBudgetAndStorage) {
  for (const double iteration : {0.001, 0.02, 0.5, 30.0}) {
    Fixture f("checkfreq", {{"location", "nvme"}}, kTwoReplicas);
    const auto levels = f.policy->checkpoints(*f.input.plan, Seconds{iteration});
    ASSERT_EQ(levels.size(), 1u);
    const double stall = to_seconds(levels[0].stall).value;
    const double persist = to_seconds(levels[0].persist).value;
    const auto good = [&](double k) {
      return stall <= 0.035 * k * iteration + 1e-6 && persist <= k * iteration + stall + 1e-6;
    };
    const auto k = static_cast<double>(levels[0].every);
    EXPECT_TRUE(good(k)) << iteration;
    EXPECT_TRUE(k == 1 || !good(k - 1)) << iteration;
    const auto cost = checkpoint_cost(f.input, *f.input.plan, ir::Location::nvme);
    EXPECT_NEAR(stall, std::max(0.0, cost.snapshot.value - iteration), 1e-9);
  }
}

TEST(Gemini, ALostNodesSharesComeFromItsGroupAndThenFromTheCloud) {
  Fixture f("gemini", {}, std::array<int, 3>{1, 4, 2});  // Nodes 0 to 3, no replicas in GPUs.
  f.life->train(100);
  {
    const auto& d = f.lose_node(2, true);
    ASSERT_EQ(d.action, Action::resume);
    EXPECT_TRUE(reads_only(d, ir::Location::host_memory));
    EXPECT_GE(d.resume_iteration, 80);
    const bool from_mate = std::any_of(d.transfers.begin(), d.transfers.end(), [](const auto& t) {
      return t.source == DeviceId{6} || t.source == DeviceId{7};
    });
    EXPECT_TRUE(from_mate);  // Node 3 is node 2's mate.
  }
  const auto& d = f.lose_node(3);
  ASSERT_EQ(d.action, Action::resume);
  EXPECT_GT(d.resume_iteration, 0);
  const bool cloud = std::any_of(d.transfers.begin(), d.transfers.end(),
                                 [](const auto& t) { return t.from == ir::Location::cloud; });
  EXPECT_TRUE(cloud);
}

TEST(HotSpare, KeepsSparesOutSwapsThemAndThenShrinks) {
  Fixture f("hot_spare", {{"spares", "2"}});
  const auto nodes_of = [&](const ir::Plan& plan) {
    std::set<int> nodes;
    for (const DeviceId device : ir::devices_of(plan)) {
      nodes.insert(f.world->cluster.device(device).node.value);
    }
    return nodes;
  };
  const auto first = nodes_of(*f.life->state().plan);
  EXPECT_LE(first.size(), 4u);
  for (const int spare : {2, 3}) EXPECT_FALSE(first.contains(spare));  // Of the most common kind.
  f.life->train(100);
  const std::size_t size = ir::devices_of(*f.life->state().plan).size();
  for (const int node : {0, 1}) {
    const auto& d = f.lose_node(node);
    EXPECT_EQ(ir::devices_of(*d.plan).size(), size);
    EXPECT_DOUBLE_EQ(seconds_of(d, Kind::reinitialize), 27.6);
    f.life->train(100);
  }
  const auto& d = f.lose_node(2);
  ASSERT_EQ(d.action, Action::resume);
  EXPECT_LT(ir::devices_of(*d.plan).size(), size);
  EXPECT_DOUBLE_EQ(seconds_of(d, Kind::reinitialize), 300);
}

TEST(HotSpare, KeepsSparesOfSeveralKindsWhereOneHasTooFewNodes) {
  Fixture f("hot_spare", {{"spares", "5"}});  // Of A there are four.
  std::set<NodeId> nodes;
  for (const DeviceId device : ir::devices_of(*f.life->state().plan)) {
    nodes.insert(f.world->cluster.device(device).node);
  }
  EXPECT_EQ(nodes.size(), 1u) << "six nodes less five spares";
}

TEST(HotSpare, RefusesToSpareEveryNode) {
  const auto world = recovery_world();
  EXPECT_EQ(make_policy("hot_spare", policy_input(*world), {{"spares", "6"}}), nullptr);
  EXPECT_FALSE(find_policy("hot_spare")->check({{"spares", "many"}}).empty());
}

TEST(Unicron, TakesTheStateOfTheLastIterationFromAPeersGpu) {
  Fixture f("unicron", {}, kTwoReplicas);
  f.life->train(103);
  const auto& d = f.lose_node(0);
  ASSERT_EQ(d.action, Action::resume);
  EXPECT_EQ(d.resume_iteration, 103);
  EXPECT_TRUE(reads_only(d, ir::Location::peer));
  EXPECT_DOUBLE_EQ(seconds_of(d, Kind::detect), 5.6);
  EXPECT_DOUBLE_EQ(seconds_of(d, Kind::reinitialize), 5);
}

TEST(Unicron, FailedProcessesStartAgainInPlace) {
  Fixture f("unicron", {}, kTwoReplicas);
  f.life->train(103);
  ir::ClusterEvent job;
  job.scope.kind = ir::EventScope::Kind::job;
  const auto& d = f.fire(job);
  EXPECT_EQ(*d.plan, *f.input.plan);
  EXPECT_TRUE(reads_only(d, ir::Location::host_memory));
  EXPECT_DOUBLE_EQ(seconds_of(d, Kind::detect), 1.8);
  EXPECT_DOUBLE_EQ(seconds_of(d, Kind::reinitialize), 27.2);
}

TEST(VarunaMorphing, PlansHaveNoTensorParallelismAndTheStateComesFromTheCloud) {
  Fixture f("varuna");
  f.life->train(100);
  const auto& d = f.fire(device_event(ir::EventKind::fail, 0));
  ASSERT_EQ(d.action, Action::resume);
  EXPECT_TRUE(reads_only(d, ir::Location::cloud));
  for (const ir::Pipeline& pipeline : d.plan->pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      EXPECT_EQ(stage.segments[0].groups[0].tensor_parallel, 1);
    }
  }
}

TEST(VarunaMorphing, TrainingStopsForTheLocalWriteOnly) {
  Fixture f("varuna", {{"every", "10"}});
  const auto levels = f.policy->checkpoints(*f.life->state().plan, Seconds{1});
  ASSERT_EQ(levels.size(), 1u);
  EXPECT_EQ(levels[0].every, 10);
  EXPECT_EQ(levels[0].location, ir::Location::cloud);
  const auto& plan = *f.life->state().plan;
  const auto local = checkpoint_cost(f.input, plan, ir::Location::nvme);
  const auto cloud = checkpoint_cost(f.input, plan, ir::Location::cloud);
  const auto replicas = static_cast<double>(plan.pipelines.size());
  const Seconds stall = (local.snapshot + local.persist) / replicas;
  EXPECT_EQ(levels[0].stall, to_nanoseconds(stall));
  EXPECT_EQ(levels[0].persist, to_nanoseconds(stall + cloud.persist));
}

TEST(CheckpointedOptions, BadValuesNameTheOption) {
  const auto problem = [&](const char* policy, const char* option, const char* value) {
    const config::Diagnostics found = find_policy(policy)->check({{option, value}});
    return found.empty() ? "" : found.problems().front().at.file;
  };
  EXPECT_EQ(problem("checkpoint_restart", "planner", "none"), "planner");
  EXPECT_EQ(problem("checkpoint_restart", "planner_options", "order"), "planner_options");
  EXPECT_EQ(problem("checkpoint_restart", "planner_options", "order=no"), "planner_options");
  EXPECT_EQ(problem("checkpoint_restart", "planner_options", "order=tp-pp-dp"), "");
  EXPECT_EQ(problem("checkpoint_restart", "planner", "deepspeed"), "");
  EXPECT_EQ(problem("checkpoint_restart", "interval", "often"), "interval");
  EXPECT_EQ(problem("checkpoint_restart", "detect", "-1"), "detect");
  EXPECT_EQ(problem("gemini", "replicas", "0"), "replicas");
  EXPECT_EQ(problem("unicron", "grow", "maybe"), "grow");
  EXPECT_EQ(problem("autohet", "memory", "maybe"), "memory");
  EXPECT_EQ(problem("autohet", "local_interval", "often"), "local_interval");
  EXPECT_EQ(problem("hetu", "interval", "never"), "interval");
  EXPECT_EQ(problem("torchft", "checkpoint_interval", "never"), "");
  EXPECT_EQ(problem("bamboo", "stages", "1"), "stages");
  EXPECT_EQ(problem("recycle", "planner", "none"), "planner");
  EXPECT_EQ(problem("oobleck", "reinitialize", "-2"), "reinitialize");
  EXPECT_EQ(problem("oobleck", "reinitialize", "auto"), "");
  EXPECT_EQ(problem("varuna", "planner", "megatron_grid"), "planner");
  EXPECT_EQ(problem("unicron", "constants", "ours"), "constants");
}

TEST(CheckpointedOptions, WithoutObjectStorageCloudPoliciesAreInfeasible) {
  models::Cluster cluster = make_cluster({{"A", 100, 24, 2, 100, 2}}, 5);
  World world(cluster, small_model(4), 8, 512);
  const PolicyInput input = policy_input(world);
  for (const char* name : {"checkpoint_restart", "checkfreq", "varuna"}) {
    EXPECT_EQ(make_policy(name, input), nullptr) << name;
  }
  EXPECT_NE(make_policy("gemini", input), nullptr);
}

}  // namespace
}  // namespace orrery::planners::checkpointed_test
