// How long does an iteration take when each stage steps on its own and begins the next one?
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/rng.h"
#include "models/lower/lower.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::staggered_law_test {
namespace {

using ir::OptimizerStart;

/// A cluster whose communication takes no time that counts.
models::Cluster free_communication(int nodes = 2) {
  ClusterShape shape;
  shape.nodes = nodes;
  shape.nvlink = shape.pcie = shape.nic = BytesPerSecond{1e18};
  shape.latency = Seconds{0};
  return make_cluster(shape);
}

Outcome run(const models::Cluster& cluster, ir::Plan plan, int blocks, OptimizerStart optimizer,
            const IterationOptions& options = {}, bool collapsed = true) {
  plan.optimizer = optimizer;
  return simulate(cluster, make_workload(blocks), plan, collapsed, options);
}

std::pair<double, double> both(const models::Cluster& cluster, const ir::Plan& plan, int blocks) {
  return {run(cluster, plan, blocks, OptimizerStart::together).iteration_time,
          run(cluster, plan, blocks, OptimizerStart::staggered).iteration_time};
}

/// Three pipelines of four stages of a block, six micro-batches each; the first pipeline leaves
/// all of its micro-batches at `stage` to the other two.
ir::Plan three_pipelines_without(int stage) {
  PlanShape shape;
  shape.pipelines = 3;
  shape.stages = 4;
  shape.micro_batches = 6;
  shape.schedule = ir::ScheduleKind::zero_bubble;
  ir::Plan plan = make_plan(shape, 4);
  for (int m = 0; m < 6; ++m) plan.pipelines[0].reroutes.push_back({stage, m, 1 + m % 2});
  return plan;
}

/// A plan with unequal stages, schedules and reroutes.
ir::Plan random_plan(Rng& rng, int& blocks) {
  PlanShape shape;
  shape.pipelines = static_cast<int>(rng.integer(1, 3));
  shape.stages = static_cast<int>(rng.integer(1, 4));
  shape.micro_batches = static_cast<int>(rng.integer(1, 6));
  shape.overlap = rng.bernoulli(0.5);
  const ir::ScheduleKind kinds[] = {ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b,
                                    ir::ScheduleKind::zero_bubble};
  shape.schedule = kinds[rng.integer(0, 2)];
  for (int s = 0; s < shape.stages; ++s) {
    shape.blocks.push_back(static_cast<int>(rng.integer(1, 3)));
  }
  blocks = std::accumulate(shape.blocks.begin(), shape.blocks.end(), 0);
  ir::Plan plan = make_plan(shape, blocks);
  if (shape.pipelines == 1 || rng.bernoulli(0.3)) return plan;
  const int stage = static_cast<int>(rng.integer(0, shape.stages - 1));
  for (int m = 0; m < shape.micro_batches; ++m) {
    plan.pipelines[0].reroutes.push_back({stage, m, 1 + m % (shape.pipelines - 1)});
  }
  return plan;
}

// Forward, input's and weights' gradients take 1 ms each; the peers of a lost stage have nine
// micro-batches of 3 ms. [notes on ReCycle, C11: 27 slots of work each]
TEST(Staggered, PeersOfALostStageAreBusyButForOneSlotWhicheverStageItIs) {
  const models::Cluster cluster = free_communication();
  const double together_ms[] = {28, 29, 29, 30};
  for (int stage = 0; stage < 4; ++stage) {
    const auto [together, staggered] = both(cluster, three_pipelines_without(stage), 4);
    EXPECT_NEAR(together * 1e3, together_ms[stage], 1e-5) << "stage " << stage;
    EXPECT_NEAR(staggered * 1e3, 28, 1e-5) << "stage " << stage;
  }
}

TEST(Staggered, WholeBackwardPassesKeepTheFirstStageToTheEndSoThatNothingIsGained) {
  const models::Cluster cluster = free_communication();
  for (const int stages : {1, 2, 4}) {
    PlanShape shape;
    shape.pipelines = 2;
    shape.stages = stages;
    shape.micro_batches = 6;
    const auto [together, staggered] = both(cluster, make_plan(shape, 4), 4);
    // (m + p - 1) (F + B), F + B = 3 ms a block.
    EXPECT_NEAR(together * 1e3, (6 + stages - 1) * 3 * 4.0 / stages, 1e-5);
    EXPECT_NEAR(staggered, together, 1e-8) << stages << " stages";
  }
}

TEST(Staggered, OneStageTakesAsLongAsTogether) {
  const models::Cluster cluster = make_cluster({});
  for (const int pipelines : {1, 2, 4}) {
    PlanShape shape;
    shape.pipelines = pipelines;
    const auto [together, staggered] = both(cluster, make_plan(shape, 2), 2);
    EXPECT_NEAR(staggered / together, 1, 1e-6) << pipelines;
  }
}

TEST(Staggered, NeverTakesLongerThanTogetherWhereNoLinkIsShared) {
  const models::Cluster cluster = free_communication();
  Rng rng(11);
  int shorter = 0;
  for (int round = 0; round < 60; ++round) {
    int blocks = 0;
    const ir::Plan plan = random_plan(rng, blocks);
    const auto [together, staggered] = both(cluster, plan, blocks);
    EXPECT_LE(staggered, together * (1 + 1e-6)) << "round " << round;
    shorter += staggered < together * (1 - 1e-3) ? 1 : 0;
    // A stage does not do its work in less time than it takes.
    const Outcome outcome = run(cluster, plan, blocks, OptimizerStart::staggered);
    EXPECT_TRUE(outcome.settled) << "round " << round;
    for (const ir::RankBreakdown& rank : outcome.ranks) {
      EXPECT_LE(to_seconds(rank.compute).value, staggered * (1 + 1e-6)) << "round " << round;
    }
  }
  EXPECT_GT(shorter, 5);
}

TEST(Staggered, OfSharedLinksItIsNotMuchLonger) {
  const models::Cluster cluster = make_cluster({.nodes = 2, .nic_per_gpu = false});
  Rng rng(12);
  for (int round = 0; round < 30; ++round) {
    int blocks = 0;
    const ir::Plan plan = random_plan(rng, blocks);
    const auto [together, staggered] = both(cluster, plan, blocks);
    EXPECT_LE(staggered, together * 1.02) << "round " << round;
  }
}

std::int64_t sum(const ir::RankBreakdown& parts) { return parts.total().count; }

TEST(Staggered, LogsThreeIterationsThatFollowEachOtherAtThePaceAndOverlap) {
  const Outcome outcome =
      run(make_cluster({.nodes = 2}), three_pipelines_without(3), 4, OptimizerStart::staggered);
  const Outcome alone =
      run(make_cluster({.nodes = 2}), three_pipelines_without(3), 4, OptimizerStart::together);
  const std::int64_t period = std::llround(outcome.iteration_time * 1e9);
  EXPECT_TRUE(outcome.settled);
  EXPECT_GE(outcome.iterations, 3);
  EXPECT_EQ(alone.iterations, 1);
  EXPECT_EQ(alone.marks.size(), 1u);
  ASSERT_EQ(outcome.marks.size(), 3u);
  EXPECT_EQ(outcome.marks[0].first, 0);
  for (std::size_t k = 1; k < 3; ++k) {
    EXPECT_LT(outcome.marks[k].first, outcome.marks[k - 1].second) << "somebody has gone on";
    EXPECT_NEAR(static_cast<double>(outcome.marks[k].second - outcome.marks[k - 1].second),
                static_cast<double>(period), 4);
  }
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(outcome.spans), 3 * lines(alone.spans));
}

TEST(Staggered, WhatIsRecordedChangesNoTime) {
  IterationOptions bare;
  bare.record_spans = bare.record_memory = bare.record_links = false;
  const models::Cluster cluster = make_cluster({.nodes = 2});
  std::set<int> iterations;
  for (const int stage : {0, 1, 2, 3}) {
    const ir::Plan plan = three_pipelines_without(stage);
    const Outcome logged = run(cluster, plan, 4, OptimizerStart::staggered);
    const Outcome outcome = run(cluster, plan, 4, OptimizerStart::staggered, bare);
    EXPECT_EQ(outcome.iteration_time, logged.iteration_time);
    EXPECT_EQ(outcome.peak_memory, logged.peak_memory);
    EXPECT_LE(outcome.iterations, logged.iterations);
    iterations.insert(outcome.iterations);
  }
  EXPECT_TRUE(iterations.contains(2)) << "a pace that is there at once";
}

TEST(Staggered, BusyAndIdleAddUpToThePaceOnEachRank) {
  IterationOptions options;
  options.jitter = 0.1;
  for (options.seed = 0; options.seed < 3; ++options.seed) {
    for (const int stage : {0, 3}) {
      const Outcome outcome = run(make_cluster({.nodes = 2}), three_pipelines_without(stage), 4,
                                  OptimizerStart::staggered, options);
      ASSERT_TRUE(outcome.settled);
      ASSERT_EQ(outcome.ranks.size(), 11u);
      for (const ir::RankBreakdown& rank : outcome.ranks) {
        EXPECT_NEAR(static_cast<double>(sum(rank)) / (outcome.iteration_time * 1e9), 1, 2e-6);
      }
    }
  }
}

TEST(Staggered, MovesAndHoldsAsMuchInAnIterationAsTogether) {
  for (const bool collapsed : {true, false}) {
    const models::Cluster cluster = make_cluster({.nodes = 2});
    const Outcome together =
        run(cluster, three_pipelines_without(2), 4, OptimizerStart::together, {}, collapsed);
    const Outcome staggered =
        run(cluster, three_pipelines_without(2), 4, OptimizerStart::staggered, {}, collapsed);
    EXPECT_EQ(staggered.links, together.links);
    EXPECT_EQ(staggered.peak_memory, together.peak_memory);
    EXPECT_EQ(staggered.work.flows, staggered.iterations * together.work.flows);
    for (std::size_t r = 0; r < together.ranks.size(); ++r) {
      EXPECT_NEAR(static_cast<double>(staggered.ranks[r].compute.count),
                  static_cast<double>(together.ranks[r].compute.count), 100);
    }
  }
}

TEST(Staggered, ARankBeginsAnIterationWhenItHasEndedTheOneBefore) {
  const Outcome outcome =
      run(make_cluster({.nodes = 2}), three_pipelines_without(1), 4, OptimizerStart::staggered);
  // By rank: starts and ends of its spans, iteration by iteration (spans of an op are in order).
  std::map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> extents;
  std::istringstream lines(outcome.spans);
  std::int64_t rank = 0, op = 0, start = 0, end = 0, inner = 0, last_op = -1;
  double bytes = 0;
  std::size_t k = 0;
  while (lines >> rank >> op >> start >> end >> inner >> bytes) {
    k = op == last_op ? k + 1 : 0;
    last_op = op;
    auto& of_rank = extents[static_cast<int>(rank)];
    if (of_rank.size() <= k) of_rank.emplace_back(start, end);
    of_rank[k].first = std::min(of_rank[k].first, start);
    of_rank[k].second = std::max(of_rank[k].second, end);
  }
  ASSERT_EQ(extents.size(), 11u);
  for (const auto& [r, of_rank] : extents) {
    ASSERT_EQ(of_rank.size(), 3u);
    EXPECT_LE(of_rank[0].second, of_rank[1].first) << "rank " << r;
    EXPECT_LE(of_rank[1].second, of_rank[2].first) << "rank " << r;
  }
  // Samples of memory are in the order of time.
  for (std::size_t i = 3; i + 2 < outcome.memory_samples.size(); i += 3) {
    if (outcome.memory_samples[i] != outcome.memory_samples[i - 3]) continue;
    EXPECT_LE(outcome.memory_samples[i - 2], outcome.memory_samples[i + 1]);
  }
}

TEST(Staggered, GivesTheSameBytesInEveryProcess) {
  IterationOptions options;
  options.jitter = 0.05;
  options.seed = 4;
  const auto once = [&] {
    return run(make_cluster({.nodes = 2}), three_pipelines_without(2), 4, OptimizerStart::staggered,
               options, false);
  };
  const Outcome first = once();
  const Outcome second = once();
  EXPECT_EQ(first.iteration_time, second.iteration_time);
  EXPECT_EQ(first.spans, second.spans);
  EXPECT_EQ(first.memory_samples, second.memory_samples);
  EXPECT_EQ(first.links, second.links);
}

}  // namespace
}  // namespace orrery::sim::staggered_law_test
