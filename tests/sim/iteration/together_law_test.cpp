// How fast are jobs that run at once on disjoint devices of one cluster?
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "models/base/rng.h"
#include "models/cost/pricer.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "sim/iteration/together.h"
#include "tests/sim/in_child.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::together_law_test {
namespace {

/// A job by its program, and what its ops take.
struct Job {
  ir::Program program;
  models::ProgramPrices prices;
  double start = 0;
};

struct Together {
  std::vector<double> alone;    ///< Of the simulator of one iteration.
  std::vector<double> periods;  ///< Of all jobs at once.
  std::vector<double> steady;
  std::vector<double> partners;  ///< Of each job: how many jobs it shares links with, itself one.
};

/// Two nodes of `gpus` GPUs with one NIC of 1 GB/s for all; nothing takes time but bytes.
models::Cluster narrow(int nodes, int gpus = 2) {
  ClusterShape shape;
  shape.nodes = nodes;
  shape.gpus = gpus;
  shape.nvlink = shape.pcie = BytesPerSecond{1e18};
  shape.nic = BytesPerSecond{1e9};
  shape.latency = Seconds{0};
  shape.nic_per_gpu = false;
  return make_cluster(shape);
}

std::string bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

Together run(const models::Cluster& cluster, const std::vector<Job>& jobs,
             const IterationOptions& options = {}) {
  std::vector<JobProgram> programs;
  for (const Job& job : jobs) programs.push_back({job.program, job.prices, Seconds{job.start}});
  const std::size_t count = jobs.size();
  const auto one = [&](const std::function<std::vector<double>(IterationSimulator&)>& ask) {
    const std::string bytes = in_child([&] {
      const models::Topology topology(cluster);
      IterationSimulator simulator(cluster, topology);
      return bytes_of(ask(simulator));
    });
    std::vector<double> values(bytes.size() / sizeof(double));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  Together all;
  for (const JobProgram& job : programs) {
    all.alone.push_back(one([&](IterationSimulator& simulator) {
                          return std::vector<double>{
                              simulator.run(job.program, job.prices, options).iteration_time.value};
                        }).at(0));
  }
  const std::vector<double> told = one([&](IterationSimulator& simulator) {
    std::vector<double> values;
    for (const JobPace& pace : run_together(simulator, programs, options)) {
      values.push_back(pace.period.value);
      values.push_back(pace.steady ? 1 : 0);
    }
    std::vector<LinkTraffic> traffic;
    for (const JobProgram& job : programs) traffic.push_back(traffic_of(simulator, job, options));
    std::vector<double> partners(programs.size());
    for (const auto& group : sharing_jobs(traffic)) {
      for (const std::size_t job : group) partners[job] = static_cast<double>(group.size());
    }
    values.insert(values.end(), partners.begin(), partners.end());
    return values;
  });
  for (std::size_t i = 0; i < count; ++i) {
    all.periods.push_back(told.at(2 * i));
    all.steady.push_back(told.at(2 * i + 1));
    all.partners.push_back(told.at(2 * count + i));
  }
  return all;
}

/// Computes for `seconds` on `source`, then sends `bytes` from there.
Job compute_and_send(int source, int destination, double seconds, double bytes, double start = 0) {
  ir::Program program = message_program({{{source}, {destination}, Bytes{bytes}}});
  ir::Op compute;
  compute.kind = ir::OpKind::kernel;
  compute.rank = {0};
  program.ops.insert(program.ops.begin(), compute);
  program.ops[1].match = 2;
  program.ops[2].match = 1;
  program.stream_begin = {0, 1, 2, 2, 2, 3, 3};
  program.dependency_begin = {0, 0, 1, 1};
  program.dependencies = {{0}};
  return {std::move(program), models::ProgramPrices({Seconds{seconds}, {}, {}}), start};
}

TEST(Together, EqualJobsInOnePhaseHaveHalfOfTheLinkEach) {
  // 1 s of compute, 0.5 s of a free link.
  const Together both =
      run(narrow(2), {compute_and_send(0, 2, 1, 0.5e9), compute_and_send(1, 3, 1, 0.5e9)});
  for (const std::size_t job : {0, 1}) {
    EXPECT_NEAR(both.alone[job], 1.5, 1e-9);
    EXPECT_NEAR(both.periods[job], 1 + 2 * 0.5, 1e-9);
    EXPECT_EQ(both.steady[job], 1);
    EXPECT_EQ(both.partners[job], 2);
  }
}

TEST(Together, EqualJobsThatStartApartTakeTurnsOnTheLink) {
  const Together both =
      run(narrow(2), {compute_and_send(0, 2, 1, 0.5e9), compute_and_send(1, 3, 1, 0.5e9, 0.7)});
  for (const std::size_t job : {0, 1}) EXPECT_NEAR(both.periods[job], 1.5, 1e-9);
}

TEST(Together, AJobGoesOnAtOnceWhileAnotherOfAnotherLengthIsUnderWay) {
  // The first one sends without a pause. The second computes for C = 1 s, in which the first has
  // all of the link, W = 1 GB/s, and then sends b = 0.5 GB at half of it, in 2 b / W. In that time
  // the first moves W C + b = 1.5 GB: 15 iterations of 0.1 GB.
  const Together both =
      run(narrow(2), {compute_and_send(0, 2, 0, 0.1e9), compute_and_send(1, 3, 1, 0.5e9)});
  EXPECT_NEAR(both.alone[0], 0.1, 1e-9);
  EXPECT_NEAR(both.periods[1], 1 + 2 * 0.5, 1e-9);
  // Its own iterations are whole, so that a window holds one more or less.
  EXPECT_NEAR(both.periods[0], 2.0 / 15, 2.0 / 15 * 0.02);
}

TEST(Together, OppositeDirectionsOfALinkAreNotShared) {
  const Together both =
      run(narrow(2), {compute_and_send(0, 2, 1, 0.5e9), compute_and_send(3, 1, 1, 0.5e9)});
  for (const std::size_t job : {0, 1}) {
    EXPECT_NEAR(both.periods[job], 1.5, 1e-9);
    EXPECT_EQ(both.partners[job], 1);
  }
}

TEST(Together, ThreeJobsOfWhichTwoPairsShareALinkAreOneGroup) {
  const models::Cluster cluster = narrow(4, 4);
  const Together all =
      run(cluster, {compute_and_send(0, 4, 1, 0.5e9), compute_and_send(1, 8, 1, 0.5e9),
                    compute_and_send(9, 12, 1, 0.5e9), compute_and_send(5, 13, 1, 0.5e9)});
  // Out of node 0: 0 and 1. Into node 3: 2 and 3.
  EXPECT_EQ(all.partners, (std::vector<double>{2, 2, 2, 2}));
  const Together chain =
      run(cluster, {compute_and_send(0, 4, 1, 0.5e9), compute_and_send(1, 8, 1, 0.5e9),
                    compute_and_send(5, 9, 1, 0.5e9), compute_and_send(14, 15, 1, 0.5e9)});
  EXPECT_EQ(chain.partners, (std::vector<double>{3, 3, 3, 1}));
}

/// A plan of two or more groups, with its devices counted from `first` on in steps of `step`.
Job planned(Rng& rng, const models::Cluster& cluster, int first, int step) {
  PlanShape shape;
  shape.pipelines = static_cast<int>(rng.integer(1, 2));
  shape.stages = static_cast<int>(rng.integer(1, 2));
  if (shape.pipelines * shape.stages < 2) shape.pipelines = 2;
  shape.micro_batches = static_cast<int>(rng.integer(1, 5));
  shape.overlap = rng.bernoulli(0.5);
  if (rng.bernoulli(0.5)) shape.schedule = ir::ScheduleKind::zero_bubble;
  ir::Plan plan = make_plan(shape, 4);
  if (rng.bernoulli(0.5)) plan.optimizer = ir::OptimizerStart::staggered;
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Group& group : stage.segments.front().groups) {
        for (DeviceId& device : group.devices) device.value = first + step * device.value;
      }
    }
  }
  const models::Workload workload = make_workload(4, Bytes{4 << 20});
  const models::Job job = make_job();
  ir::Program program = models::lower(plan, cluster, workload, job, {});
  const ir::Profile profile;
  models::ProgramPrices prices(program, models::Pricer(cluster, workload, job, profile));
  return {std::move(program), std::move(prices), rng.uniform()};
}

TEST(Together, JobsThatShareNoLinkTakeAsLongAsAlone) {
  const models::Cluster cluster = make_cluster({.nodes = 4, .gpus = 4, .nic_per_gpu = false});
  Rng rng(5);
  for (int round = 0; round < 20; ++round) {
    // A GPU of each of two nodes, and the other two nodes for the other job; every third time both
    // stay inside a node.
    const bool inside = round % 3 == 0;
    const Together both =
        run(cluster, {planned(rng, cluster, 0, inside ? 1 : 2), planned(rng, cluster, 8, 2)});
    for (const std::size_t job : {0, 1}) {
      EXPECT_EQ(both.partners[job], 1) << "round " << round;
      EXPECT_LT(relative_difference(both.periods[job], both.alone[job]), 2e-6)
          << "round " << round << ": " << both.periods[job] << " and " << both.alone[job];
    }
  }
}

TEST(Together, EqualJobsThatStartAtOnceTakeEquallyLong) {
  const models::Cluster cluster = make_cluster({.nodes = 4, .gpus = 2, .nic_per_gpu = false});
  int slower = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Rng even(seed), odd(seed);
    Job a = planned(even, cluster, 0, 2);
    Job b = planned(odd, cluster, 1, 2);
    a.start = b.start = 0;
    const Together both = run(cluster, {a, b});
    EXPECT_EQ(both.partners[0], 2);
    EXPECT_LT(relative_difference(both.periods[0], both.periods[1]), 1e-6) << seed;
    slower += both.periods[0] > 1.01 * both.alone[0] ? 1 : 0;
  }
  EXPECT_GT(slower, 4);
}

TEST(Together, OneJobAloneKeepsItsPaceInEveryDetailOfTheSimulation) {
  const models::Cluster cluster = make_cluster({.nodes = 2, .gpus = 4, .nic_per_gpu = false});
  IterationOptions options;
  options.jitter = 0.1;
  options.slow_links = {{"node0/nic0/up", 3}};
  options.inner = InnerMode::aggregated;
  ASSERT_TRUE(find_problems(options, cluster, models::Topology(cluster)).empty());
  Rng rng(3);
  for (int round = 0; round < 6; ++round) {
    const Together one = run(cluster, {planned(rng, cluster, 0, 2)}, options);
    EXPECT_LT(relative_difference(one.periods[0], one.alone[0]), 2e-6) << round;
  }
}

}  // namespace
}  // namespace orrery::sim::together_law_test
