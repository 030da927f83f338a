#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "models/config/document.h"
#include "models/spec/topology.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::noise_law_test {
namespace {

models::Cluster two_nodes() {
  ClusterShape shape;
  shape.nodes = 2;
  return make_cluster(shape);
}

ir::Plan grid() {
  PlanShape shape;
  shape.pipelines = 2;
  shape.stages = 2;
  shape.tensor_parallel = 2;
  shape.micro_batches = 6;
  shape.overlap = true;
  return make_plan(shape, 4);
}

std::int64_t sum(const ir::RankBreakdown& parts) {
  return parts.compute.count + parts.tensor_parallel.count + parts.zero.count +
         parts.pipeline.count + parts.data_parallel.count + parts.optimizer.count +
         parts.bubble.count;
}

TEST(NoisyBreakdown, BusyAndIdleAddUpToTheIterationOnEachRank) {
  const models::Workload workload = make_workload(4);
  IterationOptions options;
  options.jitter = 0.2;
  for (options.seed = 0; options.seed < 5; ++options.seed) {
    for (const bool collapsed : {true, false}) {
      const Outcome run = simulate(two_nodes(), workload, grid(), collapsed, options);
      ASSERT_EQ(run.ranks.size(), collapsed ? 4u : 8u);
      EXPECT_EQ(run.duration, std::llround(run.iteration_time * 1e9));
      for (const ir::RankBreakdown& rank : run.ranks) {
        EXPECT_EQ(sum(rank), run.duration);
        EXPECT_GT(rank.bubble.count, 0);
        EXPECT_GT(rank.pipeline.count, 0);
        EXPECT_GT(rank.data_parallel.count, 0);
      }
    }
  }
}

TEST(Seed, GivesTheSameBytesInEveryProcess) {
  const models::Workload workload = make_workload(4);
  IterationOptions options;
  options.jitter = 0.1;
  options.seed = 3;
  const Outcome first = simulate(two_nodes(), workload, grid(), false, options);
  const Outcome second = simulate(two_nodes(), workload, grid(), false, options);
  EXPECT_FALSE(first.spans.empty());
  EXPECT_EQ(first.spans, second.spans);
  EXPECT_EQ(first.memory_samples, second.memory_samples);
  options.seed = 4;
  const Outcome other = simulate(two_nodes(), workload, grid(), false, options);
  EXPECT_NE(first.spans, other.spans);
}

TEST(Seed, DoesNotMatterWithoutJitter) {
  const models::Workload workload = make_workload(4);
  IterationOptions options;
  const Outcome first = simulate(two_nodes(), workload, grid(), true, options);
  options.seed = 4;
  EXPECT_EQ(first.spans, simulate(two_nodes(), workload, grid(), true, options).spans);
}

TEST(Jitter, HasTheMeanAndTheDeviationThatItSays) {
  const models::Workload workload = make_workload(1);
  PlanShape shape;
  shape.micro_batches = 4000;
  IterationOptions options;
  options.jitter = 0.4;
  const Outcome run = simulate(two_nodes(), workload, make_plan(shape, 1), true, options);
  // Spans of forward ops: every other op of the compute stream, 1 ms each.
  std::istringstream lines(run.spans);
  std::vector<double> forward;
  std::int64_t rank, op, start, end, inner;
  double bytes;
  while (lines >> rank >> op >> start >> end >> inner >> bytes) {
    if (op < 8000 && op % 2 == 0) forward.push_back(static_cast<double>(end - start) * 1e-6);
  }
  ASSERT_EQ(forward.size(), 4000u);
  const double mean = std::accumulate(forward.begin(), forward.end(), 0.0) / 4000;
  double variance = 0;
  for (const double x : forward) variance += (x - mean) * (x - mean) / 4000;
  EXPECT_NEAR(mean, 1, 0.03);
  EXPECT_NEAR(std::sqrt(variance), 0.4, 0.05);
}

TEST(Jitter, IsTheSameForCollapsedAndExpandedTeams) {
  // One tensor-parallel group: an op is as late as its slowest member.
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.tensor_parallel = 4;
  shape.micro_batches = 8;
  IterationOptions options;
  options.jitter = 0.1;
  const ir::Plan plan = make_plan(shape, 4);
  const Outcome collapsed = simulate(two_nodes(), workload, plan, true, options);
  const Outcome expanded = simulate(two_nodes(), workload, plan, false, options);
  EXPECT_LT(relative_difference(collapsed.iteration_time, expanded.iteration_time), 1e-9);
}

TEST(StepJitter, IsOneFactorForAllOpsOfADevice) {
  const models::Workload workload = make_workload(4);
  const ir::Plan plan = make_plan({}, 4);  // one device
  const Outcome plain = simulate(two_nodes(), workload, plan, true);
  IterationOptions options;
  options.step_jitter = 0.1;
  double sum = 0;
  double squares = 0;
  constexpr int kSteps = 400;
  for (options.seed = 0; options.seed < kSteps; ++options.seed) {
    const Outcome step = simulate(two_nodes(), workload, plan, true, options);
    const double factor = step.iteration_time / plain.iteration_time;
    sum += factor;
    squares += factor * factor;
  }
  const double mean = sum / kSteps;
  // Three standard errors.
  EXPECT_NEAR(mean, 1, 3 * 0.1 / std::sqrt(kSteps));
  EXPECT_NEAR(std::sqrt(squares / kSteps - mean * mean), 0.1, 3 * 0.1 / std::sqrt(2.0 * kSteps));
}

TEST(StepJitter, OfMoreDevicesMakesStepsLonger) {
  // All wait for the slowest.
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.tensor_parallel = 4;
  IterationOptions options;
  options.step_jitter = 0.1;
  double one = 0;
  double four = 0;
  const ir::Plan alone = make_plan({}, 4);
  const ir::Plan team = make_plan(shape, 4);
  const double alone_time = simulate(two_nodes(), workload, alone, true).iteration_time;
  const double team_time = simulate(two_nodes(), workload, team, true).iteration_time;
  for (options.seed = 0; options.seed < 100; ++options.seed) {
    one += simulate(two_nodes(), workload, alone, true, options).iteration_time / alone_time;
    four += simulate(two_nodes(), workload, team, true, options).iteration_time / team_time;
  }
  EXPECT_GT(four, 1.02 * one);
}

TEST(LinkJitter, ChangesTransfersAlone) {
  const models::Workload workload = make_workload(4);
  IterationOptions options;
  options.link_jitter = 0.3;
  options.seed = 1;
  const Outcome one = simulate(two_nodes(), workload, make_plan({}, 4), true, options);
  EXPECT_EQ(one.iteration_time,
            simulate(two_nodes(), workload, make_plan({}, 4), true).iteration_time);
  const Outcome noisy = simulate(two_nodes(), workload, grid(), true, options);
  const Outcome quiet = simulate(two_nodes(), workload, grid(), true);
  EXPECT_NE(noisy.iteration_time, quiet.iteration_time);
  EXPECT_EQ(noisy.ranks.at(0).compute.count, quiet.ranks.at(0).compute.count);
}

TEST(Straggler, StretchesTheIterationByItsFactor) {
  const models::Workload workload = make_workload(4);
  const ir::Plan plan = make_plan({}, 4);
  const Outcome healthy = simulate(two_nodes(), workload, plan, true);
  IterationOptions options;
  options.stragglers = {{{0}, 1.5}};
  const Outcome slow = simulate(two_nodes(), workload, plan, true, options);
  EXPECT_NEAR(slow.iteration_time / healthy.iteration_time, 1.5, 1e-9);
  options.stragglers = {{{1}, 1.5}};  // takes no part
  const Outcome same = simulate(two_nodes(), workload, plan, true, options);
  EXPECT_EQ(same.iteration_time, healthy.iteration_time);
}

TEST(Straggler, HoldsUpItsTensorParallelGroup) {
  const models::Workload workload = make_workload(4);
  PlanShape shape;
  shape.tensor_parallel = 4;
  const ir::Plan plan = make_plan(shape, 4);
  IterationOptions options;
  options.stragglers = {{{2}, 2.0}};
  for (const bool collapsed : {true, false}) {
    const Outcome healthy = simulate(two_nodes(), workload, plan, collapsed);
    const Outcome slow = simulate(two_nodes(), workload, plan, collapsed, options);
    const double compute = 4 * 4 * 3 * kBlockSeconds / 4;
    EXPECT_NEAR(slow.iteration_time - healthy.iteration_time, compute, 1e-6 * compute);
  }
}

TEST(IterationOptions, SurviveTheEffectiveConfig) {
  IterationOptions options;
  options.jitter = 0.05;
  options.seed = 42;
  options.stragglers = {{{3}, 1.25}};
  options.slow_links = {{"node0/nic0/up", 2}};
  options.inner = InnerMode::per_block;
  options.ring = RingMode::stepwise;
  options.record_memory = false;
  const std::string text = config::dump(options);
  config::Diagnostics problems;
  const auto read = config::load_text<IterationOptions>(text, "dump", problems);
  EXPECT_TRUE(problems.problems().empty());
  EXPECT_EQ(config::dump(read), text);
  EXPECT_EQ(read.inner, InnerMode::per_block);
  EXPECT_EQ(read.stragglers.at(0).device, DeviceId{3});
}

TEST(IterationOptions, NameDevicesAndLinksThatTheClusterLacks) {
  const models::Cluster cluster = two_nodes();
  const models::Topology topology(cluster);
  IterationOptions options;
  EXPECT_TRUE(find_problems(options, cluster, topology).empty());
  options.stragglers = {{{16}, 2}, {{0}, 0}};
  options.slow_links = {{"node0/nic0/up", 2}, {"node9/nic0/up", 2}};
  const std::vector<std::string> problems = find_problems(options, cluster, topology);
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_NE(problems[0].find("no device 16"), std::string::npos) << problems[0];
  EXPECT_NE(problems[2].find("node9/nic0/up"), std::string::npos) << problems[2];
  // No bandwidth is divided by next to nothing, by one slowdown or by several together.
  options.stragglers.clear();
  options.slow_links = {{"node0/nic0/up", 1e-4}};
  EXPECT_TRUE(find_problems(options, cluster, topology).empty());
  options.slow_links.push_back(options.slow_links.front());
  EXPECT_EQ(
      find_problems(options, cluster, topology),
      std::vector<std::string>{"slowdown 1e-08 of link 'node0/nic0/up', must be at least 1e-06"});
}

}  // namespace
}  // namespace orrery::sim::noise_law_test
