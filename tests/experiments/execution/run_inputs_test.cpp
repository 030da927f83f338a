#include "experiments/execution/run_inputs.h"

#include <gtest/gtest.h>

#include "experiments/execution/compare.h"
#include "experiments/execution/twin.h"
#include "models/config/document.h"
#include "tests/worlds/clusters.h"

namespace orrery::experiments::run_inputs_test {
namespace {

RunInputs some_inputs() {
  RunInputs inputs;
  inputs.cluster = "cluster.yaml";
  inputs.model = "model.yaml";
  inputs.job = "job.yaml";
  inputs.plan = "plan.yaml";
  inputs.backend = "cpu";
  inputs.precision = "fp32";
  inputs.transport = "tcp";
  inputs.steps = 3;
  inputs.slowdowns = {{"0", 2}, {"1", 3}, {"2", 5}};
  inputs.lab_slowdowns = {{"0", 2}, {"1", 1.5}};
  return inputs;
}

TEST(RunInputs, ComeBackAsTheyWereWritten) {
  const std::string text = config::dump(some_inputs());
  config::Diagnostics problems;
  const auto read = config::load_text<RunInputs>(text, "run.yaml", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(config::dump(read), text);
}

TEST(RunInputs, UnknownWordsAreProblemsAtTheirPlace) {
  RunInputs inputs = some_inputs();
  inputs.precision = "bf17";
  inputs.network = "lopback";
  inputs.checkpoint_places = {"tape"};
  config::Diagnostics problems;
  config::load_text<RunInputs>(config::dump(inputs), "run.yaml", problems);
  ASSERT_EQ(problems.problems().size(), 3U);
  for (const config::Problem& problem : problems.problems()) EXPECT_GT(problem.at.line, 1);
  EXPECT_EQ(problems.problems()[0].what, "precision: unknown value 'bf17'");
  EXPECT_EQ(problems.problems()[1].hint, "did you mean 'loopback'?");
}

TEST(RunInputs, StragglersAreSlowerThanTheirTypeInTheLab) {
  const std::vector<sim::Straggler> stragglers = stragglers_of(some_inputs());
  ASSERT_EQ(stragglers.size(), 2U);
  EXPECT_EQ(stragglers[0].device.value, 1);
  EXPECT_DOUBLE_EQ(stragglers[0].slowdown, 2);
  EXPECT_EQ(stragglers[1].device.value, 2);
  EXPECT_DOUBLE_EQ(stragglers[1].slowdown, 5);
}

models::Cluster two_types() {
  std::vector<models::GpuType> types(2);
  types[0].name = "fast";
  types[1].name = "slow";
  return worlds::bare_cluster({{0, 1}}, types);
}

ir::Profile cpu_profile() {
  ir::Profile profile;
  ir::BlockTime block;
  block.gpu = "cpu";
  block.time = Seconds{1};
  profile.block_times = {block};
  profile.pass_overheads = {{"cpu", ir::Pass::forward, Seconds{0.1}, {}}};
  profile.optimizers = {{"cpu", ir::Dtype::fp32, Seconds{0.2}, Seconds{1e-9}, {}}};
  return profile;
}

TEST(ProfileForCluster, ACoreStandsForEveryTypeWithItsSlowdown) {
  const ir::Profile profile = for_cluster(cpu_profile(), two_types(), {{"0", 2}, {"1", 4}});
  ASSERT_EQ(profile.block_times.size(), 3U);
  EXPECT_EQ(profile.block_times[1].gpu, "fast");
  EXPECT_DOUBLE_EQ(profile.block_times[1].time.value, 2);
  EXPECT_EQ(profile.block_times[2].gpu, "slow");
  EXPECT_DOUBLE_EQ(profile.block_times[2].time.value, 4);
  EXPECT_DOUBLE_EQ(profile.pass_overheads[2].time.value, 0.4);
  EXPECT_DOUBLE_EQ(profile.optimizers[1].per_parameter.value, 2e-9);
  EXPECT_NE(profile.block_times[2].provenance.source.find("'cpu', x 4"), std::string::npos);
}

TEST(ProfileForCluster, MeasuredTypesStayAsTheyAre) {
  ir::Profile measured = cpu_profile();
  measured.block_times.push_back(measured.block_times.front());
  measured.block_times.back().gpu = "fast";
  const ir::Profile profile = for_cluster(measured, two_types(), {{"0", 2}});
  ASSERT_EQ(profile.block_times.size(), 3U);
  EXPECT_DOUBLE_EQ(profile.block_times[1].time.value, 1);
  EXPECT_EQ(profile.block_times[2].gpu, "slow");
  EXPECT_DOUBLE_EQ(profile.block_times[2].time.value, 1);  // not slowed down
}

TEST(ProfileOverLoopback, StandsForEachClassOfTheClusterAndSaysSo) {
  models::Cluster cluster;
  cluster.nodes.resize(1);
  cluster.nodes[0].nics = {{"fast", {}}, {"measured", {}}};
  ir::Profile profile;
  profile.links = {{"loopback", Bytes{0}, Seconds{1e-5}, BytesPerSecond{3e9}, {}},
                   {"measured", Bytes{0}, Seconds{1e-3}, BytesPerSecond{1e8}, {}}};
  profile.collectives = {{"all_reduce", "loopback", 2, 1.5, {}}};
  profile = over_loopback(profile, cluster);
  ASSERT_EQ(profile.links.size(), 3U);
  EXPECT_EQ(profile.links[2].link_class, "fast");
  EXPECT_DOUBLE_EQ(profile.links[2].bandwidth.value, 3e9);
  EXPECT_NE(profile.links[2].provenance.source.find("over loopback in place of fast"),
            std::string::npos);
  ASSERT_EQ(profile.collectives.size(), 2U);
  EXPECT_EQ(profile.collectives[1].link_class, "fast");
}

}  // namespace
}  // namespace orrery::experiments::run_inputs_test
