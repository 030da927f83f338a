// Do processes train as threads do, and does the run log say what happened?
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "executor/cuda/nccl_transport.h"
#include "executor/net/message.h"
#include "models/base/file.h"
#include "models/ir/timeline.h"
#include "models/ir/wire.h"
#include "tests/executor/launcher/runs.h"

namespace orrery::executor::launch_test {
namespace {

TEST(Launch, TheRunLogHasEveryOpOfEveryStepOnOneClock) {
  const ir::Program program = pipeline_of(2);
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(program, 4);
  options.settings.log_steps = 3;
  options.out = folder.path();
  complete(options);
  const ir::RunLog log = read_log(folder.path("generation-0/run.log"));
  EXPECT_EQ(log.source, "executor");
  EXPECT_EQ(log.program_hash, ir::program_hash(program));
  EXPECT_EQ(ir::find_mismatch(program, log), "");
  EXPECT_EQ(log.spans.size(), 3 * program.ops.size());
  ASSERT_EQ(log.iterations.size(), 4u);
  EXPECT_EQ(log.clocks.size(), 2u);
  EXPECT_EQ(log.links.size(), 2u);
  for (std::size_t i = 1; i < log.iterations.size(); ++i) {
    EXPECT_GE(log.iterations[i].start, log.iterations[i - 1].start);
  }
  // A message is not received before it is sent, but for the uncertainty of the clocks.
  std::map<std::int32_t, std::vector<const ir::Span*>> of;
  for (const ir::Span& span : log.spans) of[span.op.value].push_back(&span);
  std::int64_t uncertainty = 0;
  for (const ir::ClockOffset& clock : log.clocks) uncertainty += clock.uncertainty.count;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    if (op.kind != ir::OpKind::send) continue;
    for (std::size_t s = 0; s < 3; ++s) {
      const ir::Span* sent = of[static_cast<std::int32_t>(i)][s];
      const ir::Span* received = of[op.match][s];
      EXPECT_LE(sent->start.nanoseconds, received->end.nanoseconds + uncertainty);
    }
  }
  for (const char* name :
       {"generation-0/program.pb", "generation-0/timeline.perfetto-trace", "losses.csv"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path(name))) << name;
  }
}

TEST(Launch, TheRunLogHasEveryCheckpointOfEveryRankThatWritesOne) {
  const ir::Program program = pipeline_of(2);
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(program, 5);
  options.settings.checkpoint_every = 2;
  options.settings.local_checkpoints = folder.path("checkpoints");
  options.out = folder.path("out");
  complete(options);
  const ir::RunLog log = read_log(folder.path("out/generation-0/run.log"));
  std::set<std::pair<int, int>> seen;
  for (const ir::LogEvent& event : log.events) {
    if (event.kind != "checkpoint") continue;
    int rank = -1;
    int step = -1;
    long long bytes = -1;
    double seconds = -1;
    int used = 0;
    ASSERT_EQ(std::sscanf(event.detail.c_str(), "rank=%d iteration=%d bytes=%lld seconds=%lf%n",
                          &rank, &step, &bytes, &seconds, &used),
              4)
        << event.detail;
    EXPECT_EQ(used, static_cast<int>(event.detail.size())) << event.detail;
    EXPECT_GT(bytes, 0);
    EXPECT_GT(seconds, 0);
    EXPECT_TRUE(seen.insert({rank, step}).second) << event.detail;
  }
  EXPECT_EQ(seen, (std::set<std::pair<int, int>>{{0, 2}, {0, 4}, {1, 2}, {1, 4}}));
}

TEST(Launch, ABadDataFileIsAnErrorWithItsReason) {
  LaunchOptions options = launch_options(one_device(), 2);
  options.settings.data = "/nowhere/text";
  // Agents look before anything starts.
  for (const auto& [report, result] :
       {std::pair(launch(options), LaunchReport::Result::refused),
        std::pair(launch_on_threads(options), LaunchReport::Result::failed)}) {
    EXPECT_EQ(report.result, result);
    EXPECT_NE(report.problem.find("/nowhere/text"), std::string::npos) << report.problem;
  }
}

TEST(Launch, NcclThatIsNotThereIsAnErrorWithItsReason) {
  if (nccl_problem().empty()) GTEST_SKIP() << "it is there";
  LaunchOptions options = launch_options(one_device(), 2);
  options.settings.transport = "nccl";
  const LaunchReport report = launch(options);
  EXPECT_EQ(report.result, LaunchReport::Result::failed);
  EXPECT_NE(report.problem.find(nccl_problem()), std::string::npos) << report.problem;
}

TEST(Settings, SurviveTheStore) {
  RunSettings settings;
  settings.run = "r";
  settings.data = "a file";
  settings.learning_rate = 0.1;
  settings.precision = Precision::fp64;
  settings.faults = {{3, 7, 5, true},
                     {2, 8, 6, false, FaultPoint::after_update, std::chrono::milliseconds(9), 4}};
  settings.prune_checkpoints = true;
  settings.slowdowns = {{2, 1.5}};
  const auto back = from_message<RunSettings>(to_message(settings), "settings");
  EXPECT_EQ(to_message(back), to_message(settings));
  EXPECT_EQ(back.faults.at(0).device, 3);
  EXPECT_EQ(back.faults.at(1).point, FaultPoint::after_update);
  EXPECT_EQ(back.faults.at(1).hold.count(), 9);
  EXPECT_EQ(back.faults.at(1).after, 4);
  EXPECT_EQ(back.slowdowns.at(2), 1.5);
  EXPECT_THROW(from_message<RunSettings>("{steps: many}", "settings"), std::runtime_error);
}

}  // namespace
}  // namespace orrery::executor::launch_test
