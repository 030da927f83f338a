// Does training go on as if nothing had happened when ranks die or plans change?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/executor/launcher/runs.h"

namespace orrery::executor::elastic_test {
namespace {

/// Two replicas; the first of two stages of one device, the second of one device at TP 2.
ir::Plan uneven_replicas(const models::Workload& workload, bool zero) {
  ir::Plan plan = pipeline_plan(workload, 2, ir::ScheduleKind::one_f_one_b);
  plan.pipelines[0].micro_batches = 4;
  ir::Plan second = single_device_plan(workload, 2);
  ir::Pipeline& pipeline = second.pipelines[0];
  pipeline.micro_batches = 2;
  ir::Group& group = pipeline.stages[0].segments[0].groups[0];
  group.devices = {{2}, {3}};
  group.tensor_parallel = 2;
  plan.pipelines.push_back(pipeline);
  for (ir::Pipeline& one : plan.pipelines) {
    for (ir::Stage& stage : one.stages) {
      for (ir::Segment& segment : stage.segments) segment.zero.stage = zero ? 1 : 0;
    }
  }
  return plan;
}

/// As many stages as devices of the first four live.
NextProgramFunction shorter_pipeline(const models::Workload& workload) {
  return [&workload](const LostDevices& lost) -> std::variant<NextProgram, std::string> {
    std::vector<DeviceId> left;
    for (const DeviceId device : lost.live) {
      if (device.value < 4) left.push_back(device);
    }
    const int stages = std::min<int>(3, static_cast<int>(left.size()));
    if (stages == 0) return "no device is left";
    const ir::Plan plan = pipeline_plan(workload, stages, ir::ScheduleKind::gpipe);
    return NextProgram{lower_for_executor(on_devices(plan, left), workload), "shorter pipeline"};
  };
}

TEST(Elastic, ReplicasBringBackTheStateOfAKilledRankFromMemory) {
  const models::Workload workload = tiny_workload();
  const ir::Program program = lower_for_executor(uneven_replicas(workload, false), workload);
  constexpr int kSteps = 8;
  const std::vector<double> expected = expected_losses(program, kSteps);
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    LaunchOptions options = launch_options(program, kSteps);
    options.settings.elastic = true;
    options.settings.faults = {{static_cast<std::int32_t>(seed % 4), 4, seed, false}};
    options.next_program = shorter_pipeline(workload);
    const LaunchReport report = complete(options);
    ASSERT_EQ(report.generations.size(), 2u) << "seed " << seed;
    EXPECT_LE(worst_difference(losses_of(report), expected), 1e-12) << "seed " << seed;
    // Nothing but the step in flight is repeated.
    EXPECT_GE(first_repeated_step(report, kSteps), 3);
    for (const char* kind :
         {"t_fail", "t_detect", "t_plan", "t_spawn", "t_comm", "t_load", "t_first_step"}) {
      EXPECT_TRUE(has_event(report.generations[1], kind)) << kind;
    }
  }
}

TEST(Elastic, WithoutACopyInMemoryALocalOrCloudCheckpointBringsItBack) {
  const models::Workload workload = tiny_workload();
  const ir::Program program = pipeline_of(3);
  constexpr int kSteps = 9;
  const std::vector<double> expected = expected_losses(program, kSteps);
  for (const bool cloud : {false, true}) {
    const TemporaryFolder folder;
    LaunchOptions options = launch_options(program, kSteps);
    options.settings.elastic = true;
    options.settings.checkpoint_every = 2;
    (cloud ? options.settings.cloud_checkpoints : options.settings.local_checkpoints) =
        folder.path();
    options.settings.faults = {{1, 6, 5, false}};
    options.next_program = shorter_pipeline(workload);
    const LaunchReport report = complete(options);
    EXPECT_LE(worst_difference(losses_of(report), expected), 1e-12);
    const std::int64_t first = first_repeated_step(report, kSteps);
    EXPECT_TRUE(first == 3 || first == 5) << first;  // After step 2 or 4.
  }
}

TEST(Elastic, ARankThatCannotWriteCheckpointsCostsNobodyTheLastCompleteOne) {
  const models::Workload workload = tiny_workload();
  const ir::Program program = pipeline_of(3);
  constexpr int kSteps = 9;
  constexpr int kComplete = 2;
  for (const bool cloud : {false, true}) {
    const TemporaryFolder folder;
    LaunchOptions options = launch_options(program, kSteps);
    options.devices.resize(3);
    options.hosts = {{"a", 2, {"--address", "127.0.0.1"}}, {"b", 1, {"--address", "127.0.0.1"}}};
    options.listen = "127.0.0.1";
    options.settings.elastic = true;
    options.settings.run = "run";
    options.settings.checkpoint_every = 1;
    (cloud ? options.settings.cloud_checkpoints : options.settings.local_checkpoints) =
        folder.path();
    // Folders lie where device 2, which is lost later, would put its files after step 2.
    for (int step = kComplete + 1; step <= kSteps; ++step) {
      for (std::size_t block = 0; block < program.header.blocks.size(); ++block) {
        std::filesystem::create_directories(
            folder.path(fmt::format("run/{}/step-{}.generation-0.block-{}.device-2.state/full",
                                    cloud ? "." : "b", step, block)));
      }
    }
    options.settings.faults = {{2, kSteps - 1, 5, false}};
    options.next_program = shorter_pipeline(workload);
    const LaunchReport report = complete(options);
    EXPECT_LE(worst_difference(losses_of(report), expected_losses(program, kSteps)), 1e-12);
    EXPECT_EQ(first_repeated_step(report, kSteps), kComplete + 1);
  }
}

TEST(Elastic, ShardedStatesThatAreNowhereElseStartTheTrainingFromScratch) {
  const models::Workload workload = tiny_workload();
  const ir::Program program = lower_for_executor(uneven_replicas(workload, true), workload);
  LaunchOptions options = launch_options(program, 5);
  options.settings.elastic = true;
  options.settings.faults = {{3, 3, 9, false}};
  options.next_program = shorter_pipeline(workload);
  const LaunchReport report = complete(options);
  EXPECT_LE(worst_difference(losses_of(report), expected_losses(program, 5)), 1e-12);
}

TEST(Elastic, TwoFailuresInARowAndSinglePrecision) {
  const models::Workload workload = tiny_workload();
  const ir::Program program = lower_for_executor(uneven_replicas(workload, false), workload);
  constexpr int kSteps = 8;
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(program, kSteps);
  options.settings.precision = Precision::fp32;
  options.settings.elastic = true;
  options.settings.checkpoint_every = 1;
  options.settings.cloud_checkpoints = folder.path();
  options.settings.faults = {{2, 3, 1, false}, {0, 6, 2, false}};
  options.next_program = shorter_pipeline(workload);
  const LaunchReport report = complete(options);
  EXPECT_EQ(report.generations.size(), 3u);
  EXPECT_LE(worst_difference(losses_of(report), expected_losses(program, kSteps, Precision::fp32)),
            1e-6);
}

TEST(Elastic, WithoutElasticAKilledRankIsAFailureThatNamesIt) {
  LaunchOptions options = launch_options(pipeline_of(2), 5);
  options.settings.faults = {{1, 2, 3, false}};
  const LaunchReport report = launch(options);
  EXPECT_EQ(report.result, LaunchReport::Result::failed);
  EXPECT_NE(report.problem.find("device 1: killed by signal 9"), std::string::npos)
      << report.problem;
}

TEST(Elastic, RanksThatNeverReachEachOtherAreNotTriedForever) {
  const models::Workload workload = tiny_workload();
  LaunchOptions options = launch_options(pipeline_of(2), 5);
  options.settings.elastic = true;
  options.settings.connect = std::chrono::milliseconds(0);
  options.next_program = shorter_pipeline(workload);
  const LaunchReport report = launch(options);
  EXPECT_EQ(report.result, LaunchReport::Result::failed);
  EXPECT_NE(report.problem.find("4 generations in a row lost no device and ended no step: "),
            std::string::npos)
      << report.problem;
  EXPECT_EQ(report.generations.size(), 4u);
}

TEST(Switch, BetweenPipelinesDoesNotChangeABit) {
  const models::Workload workload = tiny_workload();
  const auto pipeline = [&](int stages, std::vector<DeviceId> devices) {
    const ir::Plan plan = pipeline_plan(workload, stages, ir::ScheduleKind::one_f_one_b);
    return lower_for_executor(on_devices(plan, devices), workload);
  };
  const ir::Program first = pipeline(2, {{0}, {1}});
  LaunchOptions options = launch_options(first, 7);
  // Devices join, leave with state that others need, and come back.
  options.switches = {{2, {pipeline(3, {{1}, {2}, {3}}), "three stages"}},
                      {4, {pipeline(1, {{0}}), "one device"}}};
  const LaunchReport report = complete(options);
  EXPECT_EQ(report.generations.size(), 3u);
  EXPECT_EQ(report.steps.size(), 7u);
  EXPECT_EQ(losses_of(report), expected_losses(first, 7));
}

TEST(Switch, BetweenShardedStatesKeepsMomentsToo) {
  const models::Workload workload = tiny_workload();
  const ir::Program first = lower_for_executor(uneven_replicas(workload, true), workload);
  LaunchOptions options = launch_options(first, 6);
  options.switches = {{2, {one_device(), "one device"}}, {4, {first, "back"}}};
  const LaunchReport report = complete(options);
  EXPECT_LE(worst_difference(losses_of(report), expected_losses(first, 6)), 1e-12);
}

/// A tied matrix has one state, whichever end a rank holds: on one device both, in a pipeline each
/// end on a rank of its own, with ZeRO-1 in shards of both.
TEST(Switch, BetweenTiedEndsThatLieTogetherAndApartKeepsMomentsToo) {
  const models::Workload workload = tiny_workload(kTinyGpt);
  const ir::Program single = lower_for_executor(single_device_plan(workload), workload);
  const ir::Program first = lower_for_executor(uneven_replicas(workload, true), workload);
  const ir::Program pipeline =
      lower_for_executor(pipeline_plan(workload, 3, ir::ScheduleKind::one_f_one_b), workload);
  LaunchOptions options = launch_options(first, 8);
  options.switches = {
      {2, {single, "one device"}}, {4, {pipeline, "pipeline"}}, {6, {first, "back"}}};
  const LaunchReport report = complete(options);
  EXPECT_EQ(report.generations.size(), 4u);
  EXPECT_LE(worst_difference(losses_of(report), expected_losses(first, 8)), 1e-12);
}

}  // namespace
}  // namespace orrery::executor::elastic_test
