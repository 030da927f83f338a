// Does every policy pay the runtime's price, the same for doing the same?
#include "planners/recovery/kit/bring_up.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/node_classes.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::bring_up_test {
namespace {

using Kind = models::RecoveryPhase::Kind;

/// Prices so far apart that a sum tells what was paid.
constexpr double kNode = 100'000;
constexpr double kProcess = 1'000;
constexpr double kRank = 1;
constexpr double kLoss = 7;
constexpr double kEnd = 3;

PolicyInput priced_input(const World& world) {
  PolicyInput input = policy_input(world);
  input.runtime.detect_loss = Seconds{kLoss};
  input.runtime.detect_process = Seconds{kEnd};
  input.runtime.start_node = Seconds{kNode};
  input.runtime.start_process = Seconds{kProcess};
  input.runtime.connect_rank = Seconds{kRank};
  return input;
}

double seconds_of(const models::RecoveryDecision& decision, Kind kind) {
  double sum = 0;
  for (const models::RecoveryPhase& phase : decision.phases) {
    if (phase.kind == kind) sum += to_seconds(phase.duration).value;
  }
  return sum;
}

TEST(RanksToConnect, AreThoseWhosePeersHaveChanged) {
  const auto world = equal_nodes({8, 8, 2});
  const ir::Plan plan = uniform_plan(*world, 2, 2, 2);  // Stages on nodes 0, 1 and 2, 3.
  EXPECT_EQ(ranks_to_connect(world->cluster, nullptr, plan), 8);
  EXPECT_EQ(ranks_to_connect(world->cluster, &plan, plan), 0);
  DeviceRenaming to;
  for (int d = 0; d < world->cluster.size(); ++d) to.push_back(d);
  std::swap(to[0], to[14]);
  std::swap(to[1], to[15]);
  // The new node, its neighbor in the pipeline and the other holder of the stage.
  EXPECT_EQ(ranks_to_connect(world->cluster, &plan, renamed(plan, to)), 6);
  ir::Plan fewer = plan;
  fewer.pipelines.pop_back();
  EXPECT_EQ(ranks_to_connect(world->cluster, &plan, fewer), 4);
}

TEST(RanksToConnect, OfADetourAreItsStageAndTheNeighborsOfTheStageThatItPasses) {
  const auto world = equal_nodes({8, 8, 2});
  const ir::Plan plan = uniform_plan(*world, 2, 4, 2);
  ASSERT_EQ(ranks_to_connect(world->cluster, nullptr, plan), 16);
  for (const int stage : {1, 2}) {
    ir::Plan detour = plan;
    detour.pipelines[0].reroutes = {{stage, 0, 1}};
    EXPECT_EQ(ranks_to_connect(world->cluster, &plan, detour), 3 * 2) << stage;
    detour.pipelines[0].reroutes.push_back({stage, 1, 1});
    EXPECT_EQ(ranks_to_connect(world->cluster, &plan, detour), 3 * 2) << "a second micro-batch";
  }
  for (const int end : {0, 3}) {
    ir::Plan detour = plan;
    detour.pipelines[0].reroutes = {{end, 0, 1}};
    EXPECT_EQ(ranks_to_connect(world->cluster, &plan, detour), 2 * 2) << end;
  }
}

TEST(BringUp, NodesAndProcessesStartSideBySideAndThenRanksAreConnected) {
  const auto world = equal_nodes({8, 8, 2});
  const PolicyInput input = priced_input(*world);
  const ir::Plan plan = uniform_plan(*world, 2, 2, 2);
  const auto seconds = [&](const ir::Plan* from, const BringUp& how) {
    return bring_up(input, from, plan, how).duration.value;
  };
  EXPECT_EQ(seconds(&plan, {}), kProcess + 8 * kRank);
  EXPECT_EQ(seconds(nullptr, {}), kNode + 8 * kRank);
  EXPECT_EQ(seconds(nullptr, {.warm_spares = true}), kProcess + 8 * kRank);
  EXPECT_EQ(seconds(nullptr, {.prepared = true}), kProcess + 8 * kRank);
  EXPECT_EQ(seconds(&plan, {.processes = Processes::stay}), 0);
  EXPECT_EQ(seconds(nullptr, {.processes = Processes::stay}), kNode + 8 * kRank);
}

TEST(InterruptionsSeen, CountWhatWasSeenBesideOneExpected) {
  const auto world = equal_nodes({4, 8, 2});
  PolicyInput input = policy_input(*world);
  input.interruptions_per_second = 0.01;
  auto seen = std::make_shared<InterruptionsSeen>();
  input.seen = seen;
  EXPECT_DOUBLE_EQ(expected_interruptions(input), 0.01);
  seen->count = 9;
  seen->elapsed = Seconds{400};
  EXPECT_DOUBLE_EQ(expected_interruptions(input), 10.0 / 500);
}

/// What a policy does at a loss, and its own mechanism in seconds.
struct Habit {
  Processes processes = Processes::restart;
  bool warm_spares = false;
  std::set<double> mechanism = {0};
};

const std::map<std::string, Habit>& habits() {
  const Habit stays = {Processes::stay, false, {0}};
  static const std::map<std::string, Habit> kAll = {
      {"autohet", {}},
      {"bamboo", stays},
      {"checkfreq", {}},
      {"checkpoint_restart", {}},
      {"gemini", {}},
      {"hetu", {Processes::stay, false, {10}}},
      {"hot_spare", {Processes::restart, true, {0}}},
      {"oobleck", stays},
      {"parcae", {Processes::stay, false, {0, 0.275}}},
      {"recycle", stays},
      {"torchft", stays},
      {"unicron", stays},
      {"varuna", {}}};
  return kAll;
}

class PolicyPays : public testing::TestWithParam<const RecoveryEntry*> {};

TEST_P(PolicyPays, ForALostNodeWhatTheRuntimeTakes) {
  const auto world = recovery_world();
  const PolicyInput input = priced_input(*world);
  const auto policy = make_policy(GetParam()->name, input);
  ASSERT_NE(policy, nullptr);
  const Habit& habit = habits().at(GetParam()->name);
  int losses = 0;
  for (int node = 0; node < 6; ++node) {
    JobLife life(*world, input, *policy);
    ASSERT_TRUE(life.state().training);
    life.train(100);
    const models::PlanPointer before = life.state().plan;
    ASSERT_EQ(life.fire(node_event(ir::EventKind::fail, node)), "");
    const models::RecoveryDecision& decision = life.decision();
    if (decision.action != models::RecoveryDecision::Action::resume) continue;
    ++losses;
    EXPECT_NEAR(seconds_of(decision, Kind::detect), kLoss, 1e-6) << node;
    EXPECT_EQ(seconds_of(decision, Kind::decide), 0) << node;
    // Who keeps processes loses them only with the state that they held.
    const bool rolled = habit.processes == Processes::stay && decision.resume_iteration < 100 &&
                        std::string(GetParam()->name) != "unicron";
    BringUp how{habit.processes, habit.warm_spares, false};
    if (rolled) how.processes = Processes::restart;
    const double price = bring_up(input, before.get(), *decision.plan, how).duration.value;
    const double paid = seconds_of(decision, Kind::reinitialize);
    const bool known =
        rolled ? paid == price : habit.mechanism.contains(std::round((paid - price) * 1e6) / 1e6);
    EXPECT_TRUE(known) << "node " << node << ": paid " << paid << ", the runtime takes " << price
                       << ": " << decision.reason;
  }
  EXPECT_GT(losses, 0);
}

TEST_P(PolicyPays, ForAFailedJobTheSameAsAllOthers) {
  const auto world = recovery_world();
  const PolicyInput input = priced_input(*world);
  const auto policy = make_policy(GetParam()->name, input);
  ASSERT_NE(policy, nullptr);
  JobLife life(*world, input, *policy);
  life.train(100);
  ir::ClusterEvent job;
  job.scope.kind = ir::EventScope::Kind::job;
  ASSERT_EQ(life.fire(job), "");
  const models::RecoveryDecision& decision = life.decision();
  ASSERT_EQ(decision.action, models::RecoveryDecision::Action::resume);
  const auto ranks = static_cast<double>(ir::working_devices(*decision.plan).size());
  EXPECT_NEAR(seconds_of(decision, Kind::detect), kEnd, 1e-6);
  EXPECT_NEAR(seconds_of(decision, Kind::reinitialize), kProcess + ranks * kRank, 1e-6)
      << decision.reason;
}

TEST_P(PolicyPays, ItsPapersConstantsWhenAsked) {
  const auto world = recovery_world();
  PolicyInput cheap = priced_input(*world);
  PolicyInput dear = priced_input(*world);
  dear.runtime.start_process = Seconds{kProcess * 7};
  dear.runtime.detect_loss = Seconds{kLoss * 7};
  const auto phases = [&](const PolicyInput& input) {
    const auto policy = make_policy(GetParam()->name, input, {{"constants", "as_published"}});
    JobLife life(*world, input, *policy);
    life.train(100);
    EXPECT_EQ(life.fire(node_event(ir::EventKind::fail, 0)), "");
    double sum = 0;
    for (const models::RecoveryPhase& phase : life.decision().phases) {
      sum += to_seconds(phase.duration).value;
    }
    return sum;
  };
  EXPECT_EQ(phases(cheap), phases(dear)) << "what was published does not depend on the runtime";
}

INSTANTIATE_TEST_SUITE_P(Catalog, PolicyPays,
                         testing::ValuesIn(recovery_catalog().begin(), recovery_catalog().end()),
                         [](const auto& entry) { return std::string(entry.param->name); });

TEST(PricedSearch, IsPaidWhereAPlannerIsAskedOnly) {
  const auto world = recovery_world();
  PolicyInput input = priced_input(*world);
  input.runtime.search = {{"megatron_grid", Seconds{50}}, {"autohet", Seconds{60}}};
  input.plan =
      uniform_plan(*world, 2, 1, 2);  // On nodes 0 and 1; 2 and 3 are spares of their kind.
  for (const auto& [name, search] : {std::pair{"checkpoint_restart", 50.0}, {"autohet", 60.0}}) {
    const auto policy = make_policy(name, input);
    JobLife life(*world, input, *policy);
    for (const int node : {0, 1, 2}) {
      life.train(100);
      ASSERT_EQ(life.fire(node_event(ir::EventKind::fail, node)), "");
      EXPECT_NEAR(seconds_of(life.decision(), Kind::decide), node < 2 ? 0 : search, 1e-6)
          << name << " node " << node << ": " << life.decision().reason;
    }
  }
}

TEST(PlannedChange, StartsNewNodesBesideTraining) {
  const auto world = recovery_world();
  const PolicyInput input = priced_input(*world);
  for (const char* name : {"checkpoint_restart", "gemini", "unicron"}) {
    const auto policy = make_policy(name, input, {{"grow", "always"}});
    JobLife life(*world, input, *policy);
    for (const int node : {0, 1, 2}) {
      life.train(100);
      ASSERT_EQ(life.fire(node_event(ir::EventKind::fail, node)), "");
    }
    life.train(100);
    ASSERT_EQ(life.fire(node_event(ir::EventKind::repair, 0)), "");
    const models::RecoveryDecision& decision = life.decision();
    ASSERT_EQ(decision.action, models::RecoveryDecision::Action::resume) << name;
    EXPECT_EQ(decision.run_on, to_nanoseconds(Seconds{kNode})) << name;
    EXPECT_LT(seconds_of(decision, Kind::reinitialize), kNode) << name;
  }
}

TEST(SparesOption, AreTakenBesideTrainingWhereAnOptionSaysSo) {
  for (const char* name : {"recycle", "torchft"}) {
    const auto world = equal_nodes({6, 12, 2});
    PolicyInput input = priced_input(*world);
    input.plan = uniform_plan(*world, 2, 2, 2);  // On nodes 0 to 3.
    for (const bool takes : {false, true}) {
      const auto policy = make_policy(name, input, {{"spares", takes ? "take" : "leave"}});
      ASSERT_NE(policy, nullptr);
      EXPECT_EQ(policy->asks_after_recovery(), takes);
      JobLife life(*world, input, *policy);
      life.train(100);
      ASSERT_EQ(life.fire(node_event(ir::EventKind::fail, 1)), "");
      EXPECT_EQ(ir::working_devices(*life.state().plan).size(), name[0] == 'r' ? 6U : 4U);
      life.train(10);
      const models::RecoveryDecision again = policy->on_events(life.state(), {});
      if (!takes) continue;
      ASSERT_EQ(again.action, models::RecoveryDecision::Action::resume) << again.reason;
      EXPECT_EQ(ir::working_devices(*again.plan).size(), 8U);
      EXPECT_EQ(again.run_on, to_nanoseconds(Seconds{kNode}));
      EXPECT_EQ(again.resume_iteration, life.state().iteration);
    }
  }
}

TEST(VarunaPlans, RefusesPlansWithTensorParallelism) {
  const auto world = recovery_world();
  PolicyInput input = priced_input(*world);
  input.plan = uniform_plan(*world, 2, 1, 2);
  const auto made = find_policy("varuna")->make(input, {});
  ASSERT_TRUE(std::holds_alternative<models::Infeasible>(made));
  EXPECT_EQ(std::get<models::Infeasible>(made).constraint, "tensor parallelism");
  input.plan = uniform_plan(*world, 2, 2, 1);
  EXPECT_FALSE(std::holds_alternative<models::Infeasible>(find_policy("varuna")->make(input, {})));
}

}  // namespace
}  // namespace orrery::planners::bring_up_test
