// Steps of the wall clock, as a time daemon or a person makes them: nothing in a run may notice,
// neither a deadline nor a time in the log. All processes run under clock_shim.h.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "executor/launcher/rank.h"
#include "executor/net/store.h"
#include "models/base/file.h"
#include "models/ir/wire.h"
#include "tests/executor/launcher/clock_shim.h"
#include "tests/executor/launcher/runs.h"

namespace orrery::executor::clock_steps_test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kHour = 3600;
/// Nothing here takes so long, however noisy the machine; a step of the clock is longer.
constexpr double kMostSeconds = 1200;

/// This process's clock; null where the shim is not loaded.
SharedClock* shared_clock() {
  const auto find =
      reinterpret_cast<SharedClock* (*)()>(::dlsym(RTLD_DEFAULT, "orrery_shared_clock"));
  return find == nullptr ? nullptr : find();
}

/// Runs this program again with the shim before the C library. Returns where that cannot be had.
void load_shim(char** argv) {
#if defined(__SANITIZE_ADDRESS__)
  return;  // Wants to be loaded first itself.
#endif
  if (shared_clock() != nullptr || ::getenv(kClockFile) != nullptr) return;
  // In memory, for as long as this process lives, so that nothing is left of it.
  const int file = ::memfd_create("clock", 0);
  if (file < 0 || ::ftruncate(file, sizeof(SharedClock)) != 0) return;
  ::setenv(kClockFile, fmt::format("/proc/{}/fd/{}", ::getpid(), file).c_str(), 1);
  ::setenv("LD_PRELOAD", ORRERY_CLOCK_SHIM, 1);
  ::execv("/proc/self/exe", argv);
}

class ClockSteps : public testing::Test {
 protected:
  void SetUp() override {
    clock_ = shared_clock();
    if (clock_ == nullptr) GTEST_SKIP() << "LD_PRELOAD has no effect here, or a sanitizer runs";
    clock_->offset_seconds = 0;
  }
  void TearDown() override {
    if (clock_ != nullptr) clock_->offset_seconds = 0;
  }
  void step_to(std::int64_t seconds) { clock_->offset_seconds = seconds; }

  SharedClock* clock_ = nullptr;
};

TEST_F(ClockSteps, AreSeenByTheWallClockAndByNoOther) {
  const auto wall = std::chrono::system_clock::now();
  const auto steady = Clock::now();
  const std::time_t coarse = std::time(nullptr);
  step_to(kHour);
  EXPECT_GE(std::chrono::system_clock::now() - wall, std::chrono::seconds(kHour));
  EXPECT_GE(std::time(nullptr) - coarse, kHour);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - steady).count(), kMostSeconds);
}

TEST_F(ClockSteps, NeitherEndNorProlongAWait) {
  const StoreServer server(Listener("", 0), "token");
  StoreClient client({"127.0.0.1", server.port()}, "token");
  for (const std::int64_t step : {kHour, -kHour}) {
    const auto begin = Clock::now();
    std::thread stepper([&] {
      std::this_thread::sleep_for(milliseconds(100));
      step_to(step);
    });
    EXPECT_EQ(client.get("never", milliseconds(400)), std::nullopt);
    const auto taken = Clock::now() - begin;
    stepper.join();
    EXPECT_GE(taken, milliseconds(390)) << step;
    EXPECT_LT(std::chrono::duration<double>(taken).count(), kMostSeconds) << step;
  }
}

/// Forward after step 3, back by more than that after step 6, and a rank is killed in step 9.
TEST_F(ClockSteps, ChangeNothingInARunThatLosesARank) {
  const models::Workload workload = tiny_workload();
  const ir::Program program =
      lower_for_executor(pipeline_plan(workload, 2, ir::ScheduleKind::one_f_one_b), workload);
  constexpr int kSteps = 12;
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(program, kSteps);
  options.out = folder.path("out");
  options.settings.elastic = true;
  options.settings.checkpoint_every = 2;
  options.settings.cloud_checkpoints = folder.path("cloud");
  options.settings.faults = {{1, 9, 4, false}};
  options.next_program = [&](const LostDevices&) -> std::variant<NextProgram, std::string> {
    return NextProgram{lower_for_executor(single_device_plan(workload, 2), workload), "alone"};
  };
  options.on_step = [&](const StepLine& line) {
    if (line.step == 3) step_to(kHour);
    if (line.step == 6) step_to(-2 * kHour);
  };
  std::string said;
  options.on_message = [&](const std::string& line) { said += line + "\n"; };
  const std::int64_t before = clock_->processes;
  const LaunchReport report = launch(options);
  ASSERT_EQ(report.result, LaunchReport::Result::completed) << report.problem;
  EXPECT_EQ(clock_->processes - before, 2) << "both ranks ran under the shim";
  EXPECT_LE(worst_difference(losses_of(report), expected_losses(program, kSteps)), 1e-12);
  // The kill is all that happened: no limit of time was met.
  ASSERT_EQ(report.generations.size(), 2u) << said;
  EXPECT_NE(said.find("device 1: killed by signal 9"), std::string::npos) << said;
  EXPECT_EQ(said.find("silent"), std::string::npos) << said;
  for (std::size_t g = 0; g < report.generations.size(); ++g) {
    std::string bytes;
    ASSERT_EQ(read_file(folder.path(fmt::format("out/generation-{}/run.log", g)), bytes),
              std::nullopt);
    const auto log = std::get<ir::RunLog>(ir::parse_run_log(bytes));
    EXPECT_FALSE(log.spans.empty());
    for (const ir::Span& span : log.spans) {
      EXPECT_GE(span.start.nanoseconds, 0);
      EXPECT_LE(span.start, span.end);
      EXPECT_LT(static_cast<double>(span.end.nanoseconds) * 1e-9, kMostSeconds);
    }
    for (const ir::ClockOffset& clock : log.clocks) {
      EXPECT_LT(std::abs(static_cast<double>(clock.offset.count)) * 1e-9, kMostSeconds);
    }
    for (const ir::LogEvent& event : log.events) {
      EXPECT_LT(std::abs(static_cast<double>(event.at.nanoseconds)) * 1e-9, kMostSeconds)
          << event.kind;
    }
  }
  double start = 0;
  for (const StepLine& line : report.steps) {
    EXPECT_GE(line.start_seconds, start) << line.step;
    EXPECT_LT(line.seconds, kMostSeconds) << line.step;
    EXPECT_GT(line.seconds, 0) << line.step;
    start = line.start_seconds;
  }
}

}  // namespace
}  // namespace orrery::executor::clock_steps_test

/// Also the rank process that it starts.
int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc > 1 && std::string(argv[1]) == "execute-rank") {
    return orrery::executor::run_rank_process();
  }
  orrery::executor::clock_steps_test::load_shim(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
