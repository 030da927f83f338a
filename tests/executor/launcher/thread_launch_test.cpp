// Do ranks that are threads train and write what ranks that are processes do, and does one that
// fails or hangs end the run with its reason?
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "executor/launcher/launcher.h"
#include "models/ir/timeline.h"
#include "models/ir/wire.h"
#include "tests/executor/launcher/runs.h"

namespace orrery::executor::thread_launch_test {
namespace {

using std::chrono::milliseconds;
using Result = LaunchReport::Result;

TEST(ThreadLaunch, TrainsAsProcessesDoBitForBit) {
  const models::Workload workload = tiny_workload();
  for (const std::uint64_t seed : {3u, 8u}) {
    const ir::Program program = lower_for_executor(random_training_plan(seed, workload), workload);
    const std::vector<double> expected = expected_losses(program, 3);
    for (const bool threads : {true, false}) {
      EXPECT_EQ(losses_of(complete(launch_options(program, 3), threads)), expected)
          << "plan " << seed;
    }
  }
}

TEST(ThreadLaunch, StaggeredStepsTrainBitForBitAsOthersAndLastFromEndToEnd) {
  const models::Workload workload = tiny_workload();
  for (const std::uint64_t seed : {3u, 8u}) {
    ir::Plan plan = random_training_plan(seed, workload);
    const ir::Program together = lower_for_executor(plan, workload);
    plan.optimizer = ir::OptimizerStart::staggered;
    const ir::Program staggered = lower_for_executor(plan, workload);
    EXPECT_NE(ir::program_hash(staggered), ir::program_hash(together));
    for (const bool threads : {true, false}) {
      const LaunchReport report = complete(launch_options(staggered, 5), threads);
      EXPECT_EQ(losses_of(report), expected_losses(together, 5)) << "plan " << seed;
      ASSERT_EQ(report.steps.size(), 5u);
      for (std::size_t k = 1; k < report.steps.size(); ++k) {
        const StepLine& last = report.steps[k - 1];
        EXPECT_NEAR(report.steps[k].start_seconds, last.start_seconds + last.seconds, 1e-6);
        EXPECT_GT(report.steps[k].seconds, 0);
      }
    }
  }
}

TEST(ThreadLaunch, WritesTheFilesAndTrafficOfProcesses) {
  const ir::Program program = pipeline_of(2);
  const TemporaryFolder folder;
  const TemporaryFolder other;
  LaunchOptions options = launch_options(program, 4);
  options.settings.log_steps = 3;
  options.out = folder.path();
  const LaunchReport report = complete(options, true);
  options.out = other.path();
  const LaunchReport expected = complete(options);

  const ir::RunLog log = read_log(folder.path("generation-0/run.log"));
  EXPECT_EQ(ir::find_mismatch(program, log), "");
  EXPECT_EQ(log.spans.size(), 3 * program.ops.size());
  EXPECT_EQ(log.iterations.size(), 4u);
  EXPECT_EQ(log.memory.size(), read_log(other.path("generation-0/run.log")).memory.size());
  for (const ir::ClockOffset& clock : log.clocks) {
    EXPECT_EQ(clock.offset.count, 0);
    EXPECT_EQ(clock.uncertainty.count, 0);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(other.path())) {
    const auto name = std::filesystem::relative(entry.path(), other.path());
    EXPECT_TRUE(std::filesystem::exists(folder.path(name.string()))) << name;
  }
  ASSERT_EQ(report.generations.size(), 1u);
  const GenerationSummary& mine = report.generations[0];
  const GenerationSummary& theirs = expected.generations[0];
  EXPECT_TRUE(has_event(mine, "mesh"));
  EXPECT_TRUE(has_event(mine, "disturbed"));
  ASSERT_EQ(mine.links.size(), theirs.links.size());
  for (std::size_t r = 0; r < theirs.ranks.size(); ++r) {
    EXPECT_EQ(mine.ranks[r].device, theirs.ranks[r].device);
    // What has arrived early is held, too: how much that is depends on the machine's load.
    const auto peak = static_cast<double>(theirs.ranks[r].peak_bytes);
    EXPECT_NEAR(static_cast<double>(mine.ranks[r].peak_bytes), peak, 0.02 * peak);
    EXPECT_EQ(mine.ranks[r].received_bytes, mine.ranks[1 - r].sent_bytes);
  }
}

TEST(ThreadLaunch, EachRankComputesOnTheBackEndThatIsMadeForIt) {
  LaunchOptions options = launch_options(pipeline_of(2), 1);
  std::mutex mutex;
  std::map<int, int> devices;
  ThreadRanks ranks;
  ranks.backend = [&](int rank, DeviceId device) {
    const std::lock_guard lock(mutex);
    devices[rank] = device.value;
    return make_cpu_backend(Precision::fp32);
  };
  const LaunchReport report = launch_on_threads(options, ranks);
  ASSERT_EQ(report.result, Result::completed) << report.problem;
  EXPECT_EQ(devices, (std::map<int, int>{{0, 0}, {1, 1}}));
  EXPECT_EQ(losses_of(report), expected_losses(pipeline_of(2), 1, Precision::fp32));
}

TEST(ThreadLaunch, AnErrorOfOneRankEndsAllWithItsReasonAndKeepsTheLog) {
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(pipeline_of(2), 1'000'000);
  options.out = folder.path();
  std::atomic<std::int64_t> steps = 0;
  options.on_step = [&](const StepLine& line) { steps = line.step; };
  ThreadRanks ranks;
  ranks.before_op = [&](int rank, OpId) {
    if (rank == 1 && steps >= 2) throw std::runtime_error("the second device is broken");
  };
  const LaunchReport report = launch_on_threads(options, ranks);
  EXPECT_EQ(report.result, Result::failed);
  EXPECT_NE(report.problem.find(": device 1: the second device is broken"), std::string::npos)
      << report.problem;
  EXPECT_EQ(report.problem.find("device 0"), std::string::npos) << report.problem;
  EXPECT_GE(report.steps.size(), 2u);
  EXPECT_EQ(read_log(folder.path("generation-0/run.log")).iterations.size(), report.steps.size());
}

TEST(ThreadLaunch, ABackEndThatCannotBeHadEndsTheRunBeforeTheFirstStep) {
  ThreadRanks ranks;
  ranks.backend = [](int rank, DeviceId) -> std::unique_ptr<Backend> {
    if (rank == 1) throw std::runtime_error("no multiprocessors are left");
    return make_cpu_backend(Precision::fp64);
  };
  const LaunchReport report = launch_on_threads(launch_options(pipeline_of(2), 2), ranks);
  EXPECT_EQ(report.result, Result::failed);
  EXPECT_EQ(report.problem, "after step 0: device 1: no multiprocessors are left");
  EXPECT_TRUE(report.steps.empty());
}

TEST(ThreadLaunch, ARankThatHangsIsNamedAndLeftBehind) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
    bool passed = false;
  };
  const auto gate = std::make_shared<Gate>();
  LaunchOptions options = launch_options(pipeline_of(2), 2);
  // The hanging rank never ends, however long; the other one only waits for it.
  options.settings.connect = options.settings.deadline = milliseconds(2'000);
  ThreadRanks ranks;
  ranks.stall = milliseconds(500);
  ranks.backend = [gate](int rank, DeviceId) {
    std::unique_lock lock(gate->mutex);
    if (rank == 1) gate->changed.wait(lock, [&] { return gate->open; });
    if (rank == 1) gate->passed = true;
    gate->changed.notify_all();
    return make_cpu_backend(Precision::fp64);
  };
  const LaunchReport report = launch_on_threads(options, ranks);
  EXPECT_EQ(report.result, Result::failed);
  EXPECT_NE(report.problem.find("no op has begun for 0.5 s"), std::string::npos) << report.problem;
  EXPECT_NE(report.problem.find("device 1: does not answer"), std::string::npos) << report.problem;
  std::unique_lock lock(gate->mutex);
  gate->open = true;
  gate->changed.notify_all();
  EXPECT_TRUE(gate->changed.wait_for(lock, std::chrono::seconds(60), [&] { return gate->passed; }));
}

}  // namespace
}  // namespace orrery::executor::thread_launch_test
