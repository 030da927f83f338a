// Do Oobleck's templates cover any number of nodes, is the instantiation the best one, and what
// happens to pipelines that lose nodes?
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "planners/recovery/oobleck/reconfigure.h"
#include "planners/recovery/oobleck/templates.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::oobleck_test {
namespace {

/// Nodes of one GPU, the model fits on two of them.
std::unique_ptr<World> nodes_of_one(int nodes) { return equal_nodes({nodes, 24, 1, 2.9, 12}); }

std::optional<double> best_by_enumeration(const std::vector<TemplateRate>& templates, int nodes,
                                          int pipelines, int micro_batches) {
  std::optional<double> best;
  std::vector<PipelineRate> chosen;
  const std::function<void(std::size_t, int)> extend = [&](std::size_t t, int left) {
    if (static_cast<int>(chosen.size()) >= pipelines &&
        static_cast<int>(chosen.size()) <= micro_batches) {
      const std::vector<int> shares = split_batch(chosen, micro_batches);
      double time = 0;
      for (std::size_t p = 0; p < shares.size(); ++p) {
        time = std::max(time, chosen[p].time(shares[p]));
      }
      if (!best || time < *best) best = time;
    }
    for (std::size_t next = t; next < templates.size(); ++next) {
      if (templates[next].nodes > left) continue;
      chosen.push_back(templates[next].rate);
      extend(next, left - templates[next].nodes);
      chosen.pop_back();
    }
  };
  extend(0, nodes);
  return best;
}

TEST(OobleckInstantiation, IsAsGoodAsTheBestOfAllCounts) {
  Rng rng(3);
  int possible = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<TemplateRate> templates;
    const int smallest = static_cast<int>(rng.integer(1, 3));
    for (int t = 0; t < rng.integer(1, 4); ++t) {
      templates.push_back({smallest + t, {1 + 5 * rng.uniform(), 0.1 + 2 * rng.uniform()}});
    }
    const int nodes = static_cast<int>(rng.integer(1, 11));
    const int pipelines = static_cast<int>(rng.integer(1, 3));
    const int micro_batches = static_cast<int>(rng.integer(1, 10));
    const auto best = best_by_enumeration(templates, nodes, pipelines, micro_batches);
    const auto found = instantiate(templates, nodes, pipelines, micro_batches);
    ASSERT_EQ(found.has_value(), best.has_value()) << "round " << round;
    if (!found) continue;
    ++possible;
    EXPECT_DOUBLE_EQ(found->seconds, *best) << "round " << round;
    int used = 0;
    int count = 0;
    for (std::size_t t = 0; t < templates.size(); ++t) {
      used += found->counts[t] * templates[t].nodes;
      count += found->counts[t];
    }
    EXPECT_LE(used, nodes);
    EXPECT_GE(count, pipelines);
    EXPECT_LE(count, micro_batches);
  }
  EXPECT_GT(possible, 150);
}

TEST(OobleckTemplates, SumsOfTheirSizesCoverAnyNumberOfNodesThatHoldsEnoughReplicas) {
  const auto world = nodes_of_one(11);
  const PolicyInput input = policy_input(*world);
  const UnitChains chains(input, CutCriterion::oobleck);
  for (const int threshold : {1, 2}) {
    const OobleckTemplates templates(chains, 11, threshold, 1);
    ASSERT_FALSE(templates.empty());
    ASSERT_EQ(templates.fewest(), 2);
    EXPECT_EQ(templates.most(), 11 - threshold * 2);
    // Frobenius: consecutive sizes n0 .. N - f n0, f + 1 of them at least.
    for (int nodes = (threshold + 1) * 2; nodes <= 11; ++nodes) {
      std::vector<std::vector<char>> reach(12, std::vector<char>(13, 0));
      reach[0][0] = 1;
      for (int k = 1; k <= 11; ++k) {
        for (int n = 0; n <= 11; ++n) {
          for (int size = templates.fewest(); size <= templates.most(); ++size) {
            if (size > n || templates.at(size) == nullptr) continue;
            if (reach[k - 1][n - size] != 0) {
              reach[k][n] = 1;
            }
          }
        }
      }
      bool covered = false;
      for (int k = threshold + 1; k <= 11; ++k) {
        covered = covered || reach[k][nodes] != 0;
      }
      EXPECT_TRUE(covered) << nodes << " nodes, f = " << threshold;
      EXPECT_GE(static_cast<int>(templates.sizes(nodes).size()), threshold + 1) << nodes;
    }
  }
}

TEST(UnitChains, SizesOfMicroBatchesDivideTheBatchAlsoWhereTheJobAllowsAny) {
  const auto world = nodes_of_one(3);
  world->job.allowed.max_micro_batch_size = std::numeric_limits<int>::max();
  const PolicyInput input = policy_input(*world);
  const std::vector<int> sizes = UnitChains(input, CutCriterion::oobleck).micro_batch_sizes();
  std::vector<int> divisors;
  for (int size = 1; size <= world->job.global_batch; ++size) {
    if (world->job.global_batch % size == 0) divisors.push_back(size);
  }
  EXPECT_EQ(sizes, divisors);
}

TEST(OobleckTemplates, HoldAllLayersAndGetFasterWithMoreNodes) {
  const auto world = nodes_of_one(11);
  const PolicyInput input = policy_input(*world);
  const UnitChains chains(input, CutCriterion::oobleck);
  const OobleckTemplates templates(chains, 11, 1, 1);
  double last = 1e300;
  for (int n = templates.fewest(); n <= templates.most(); ++n) {
    const Chain* chain = templates.at(n);
    ASSERT_NE(chain, nullptr);
    int layers = 0;
    for (const int count : chain->layers) layers += count;
    EXPECT_EQ(layers, 12);
    EXPECT_EQ(chain->shape.stages, n);
    EXPECT_LE(chain->rate().next, last);
    last = chain->rate().next;
  }
}

std::vector<NodeList> lists(const std::vector<std::vector<int>>& ids) {
  std::vector<NodeList> result;
  for (const auto& pipeline : ids) {
    NodeList& nodes = result.emplace_back();
    for (const int id : pipeline) nodes.push_back({DeviceId{id}});
  }
  return result;
}

std::vector<int> sizes(const std::vector<NodeList>& pipelines) {
  std::vector<int> result;
  for (const NodeList& nodes : pipelines) result.push_back(static_cast<int>(nodes.size()));
  return result;
}

bool from_two_to_five(int nodes) { return nodes >= 2 && nodes <= 5; }

TEST(OobleckReconfiguration, TakesTheSmallerTemplateFirst) {
  const auto done = reconfigure(lists({{0, 1, 2}, {3, 4, 5}}), {}, from_two_to_five, 2);
  EXPECT_EQ(sizes(done.pipelines), (std::vector<int>{3, 3}));
  const auto hit = reconfigure(lists({{0, 2}, {3, 4, 5}}), {}, from_two_to_five, 2);
  EXPECT_EQ(sizes(hit.pipelines), (std::vector<int>{2, 3}));
  EXPECT_EQ(hit.what, "smaller templates");
}

TEST(OobleckReconfiguration, BorrowsFromTheLargestPipelineThatKeepsATemplate) {
  const auto done = reconfigure(lists({{0}, {1, 2, 3}, {4, 5, 6, 7}}), {}, from_two_to_five, 2);
  EXPECT_EQ(sizes(done.pipelines), (std::vector<int>{2, 3, 3}));
  EXPECT_EQ(done.what, "nodes borrowed");
  // Spare nodes come before those of others.
  const auto spare = reconfigure(lists({{0}, {1, 2, 3}}), {{DeviceId{9}}}, from_two_to_five, 2);
  EXPECT_EQ(sizes(spare.pipelines), (std::vector<int>{2, 3}));
  EXPECT_EQ(spare.pipelines[0][1], (Unit{DeviceId{9}}));
}

TEST(OobleckReconfiguration, MergesWhenNobodyCanLend) {
  const auto done = reconfigure(lists({{0}, {1, 2}, {3, 4}}), {}, from_two_to_five, 2);
  EXPECT_EQ(sizes(done.pipelines), (std::vector<int>{3, 2}));
  EXPECT_EQ(done.what, "pipelines merged");
  const auto nothing = reconfigure(lists({{0}}), {}, from_two_to_five, 2);
  EXPECT_TRUE(nothing.pipelines.empty());
}

TEST(OobleckAssignment, KeepsPipelinesWhoseSizeStays) {
  std::vector<Unit> nodes;
  for (int i = 0; i < 9; ++i) nodes.push_back({DeviceId{i}});
  const auto before = lists({{5, 6, 7}, {0, 1}});
  const auto after = assign_nodes({4, 3, 2}, before, nodes);
  EXPECT_EQ(sizes(after), (std::vector<int>{4, 3, 2}));
  EXPECT_EQ(after[1], before[0]);
  EXPECT_EQ(after[2], before[1]);
}

class OobleckLife : public PolicyLife {
 protected:
  void start(int nodes) { PolicyLife::start("oobleck", nodes_of_one(nodes)); }
};

TEST_F(OobleckLife, ALossCostsTheIterationInFlightOnlyAndLayersComeFromReplicas) {
  start(8);
  ASSERT_EQ(life->fire(device_event(ir::EventKind::fail, 1)), "");
  const models::RecoveryDecision& decision = life->decision();
  EXPECT_EQ(decision.resume_iteration, 100);
  ASSERT_FALSE(decision.transfers.empty());
  for (const models::StateTransfer& t : decision.transfers) {
    EXPECT_EQ(t.from, ir::Location::peer);
  }
  // Constants of Oobleck's simulator: 2 s for the smallest model.
  Seconds stall;
  for (const models::RecoveryPhase& phase : decision.phases) stall += to_seconds(phase.duration);
  EXPECT_DOUBLE_EQ(stall.value, 2);
}

TEST_F(OobleckLife, WithoutAReplicaOfALayerItGoesBackToTheCheckpoint) {
  start(6);
  ASSERT_GE(life->state().plan->pipelines.size(), 2U);
  life->train(25);
  // The first stages of all pipelines at once.
  ir::ClusterEvent event;
  event.kind = ir::EventKind::fail;
  for (const ir::Pipeline& pipeline : life->state().plan->pipelines) {
    event.scope.devices.push_back(ir::devices_of(pipeline.stages.front()).front());
  }
  ASSERT_EQ(life->fire(event), "");
  EXPECT_EQ(life->decision().resume_iteration, 120) << "the last checkpoint";
  EXPECT_EQ(life->decision().transfers.front().from, ir::Location::cloud);
  EXPECT_EQ(life->state().plan->pipelines.size(), 1U);
}

TEST_F(OobleckLife, ReturningNodesAreInstantiatedAtTheEndOfAnIteration) {
  start(8);
  const std::size_t devices = ir::devices_of(*life->state().plan).size();
  ASSERT_EQ(life->fire(device_event(ir::EventKind::fail, 1)), "");
  life->train(10);
  ASSERT_EQ(life->fire(device_event(ir::EventKind::repair, 1)), "");
  EXPECT_EQ(life->decision().action, models::RecoveryDecision::Action::resume);
  EXPECT_EQ(life->decision().run_on, Nanoseconds{0});
  EXPECT_EQ(ir::devices_of(*life->state().plan).size(), devices);
}

TEST_F(OobleckLife, TooFewNodesForTheReplicasAreInfeasible) {
  const auto small = nodes_of_one(3);
  const PolicyInput view = policy_input(*small);
  EXPECT_EQ(make_policy("oobleck", view), nullptr);
  EXPECT_NE(make_policy("oobleck", view, {{"fault_threshold", "0"}}), nullptr);
}

}  // namespace
}  // namespace orrery::planners::oobleck_test
