// A node that loses all its ranks: its agent still serves its checkpoints, unless it is gone, too.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "tests/executor/launcher/runs.h"

namespace orrery::executor::lost_node_test {
namespace {

constexpr int kSteps = 10;
/// After which ranks are killed. The checkpoint after step 4 is whole then: the one after step 6
/// was begun when it was.
constexpr std::int64_t kLast = 7;
constexpr std::int64_t kWhole = 4;

/// Ranks of the node, on this machine.
std::vector<int> ranks_of(const std::string& node) {
  std::vector<int> out;
  for (const int pid : processes_with("execute-rank")) {
    std::ifstream file(fmt::format("/proc/{}/environ", pid));
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find("ORRERY_NODE=" + node + '\0') != std::string::npos) out.push_back(pid);
  }
  return out;
}

struct Lost {
  LaunchReport report;
  std::string said;
};

/// Three stages, of which the last two are on a node of their own that loses its ranks, and its
/// agent gets the signal `agent` (0: none). Training goes on with what is left.
Lost run_and_lose(const std::string& name, int agent, const std::string& checkpoints) {
  // Tests may run side by side.
  const std::string node = fmt::format("{}-of-{}", name, ::getpid());
  const models::Workload workload = tiny_workload();
  const ir::Program program = pipeline_of(3);
  LaunchOptions options = launch_options(program, kSteps);
  options.devices.resize(3);
  options.hosts = {{"stays", 1, {"--address", "127.0.0.1"}}, {node, 2, {"--address", "127.0.0.1"}}};
  options.listen = "127.0.0.1";
  options.settings.elastic = true;
  options.settings.checkpoint_every = 2;
  options.settings.local_checkpoints = checkpoints;
  options.next_program = [&](const LostDevices& lost) -> std::variant<NextProgram, std::string> {
    const ir::Plan plan = pipeline_plan(workload, 1, ir::ScheduleKind::gpipe);
    EXPECT_EQ(lost.live, (std::vector<DeviceId>{{0}}));
    return NextProgram{lower_for_executor(on_devices(plan, lost.live), workload), "what is left"};
  };
  // The steps that are left take longer than the signal.
  FaultInjection hold{0, kLast + 1, 0, false, FaultPoint::before_update};
  hold.hold = std::chrono::milliseconds(6'000);
  options.settings.faults = {hold};
  bool struck = false;
  options.on_step = [&](const StepLine& line) {
    if (line.step != kLast || std::exchange(struck, true)) return;
    if (agent != 0) {
      for (const int pid : processes_with(node)) {
        if (pid != ::getpid()) ::kill(pid, agent);
      }
    }
    for (const int pid : ranks_of(node)) ::kill(pid, SIGKILL);
  };
  Lost out;
  listen(options, out.said);
  out.report = complete(options);
  EXPECT_TRUE(struck);
  EXPECT_LE(worst_difference(losses_of(out.report), expected_losses(program, kSteps)), 1e-12);
  return out;
}

TEST(LostNode, ServesItsCheckpointsThroughItsAgent) {
  const TemporaryFolder folder;
  const Lost lost = run_and_lose("loses-its-ranks", 0, folder.path());
  EXPECT_NE(lost.said.find(" has no rank left: its agent serves its checkpoints"),
            std::string::npos)
      << lost.said;
  EXPECT_GT(first_repeated_step(lost.report, kSteps), kWhole) << lost.said;
}

// Neither is waited for when the training has ended.
TEST(LostNode, WhoseAgentIsGoneOrStoppedTooIsSaidToBeOutOfReach) {
  for (const auto& [name, signal] :
       {std::pair{"loses-its-agent", SIGKILL}, {"stops-it", SIGSTOP}}) {
    const TemporaryFolder folder;
    const Lost lost = run_and_lose(name, signal, folder.path());
    EXPECT_NE(lost.said.find(" does not answer: its checkpoints are out of reach"),
              std::string::npos)
        << lost.said;
    // No other copy is there.
    EXPECT_EQ(first_repeated_step(lost.report, kSteps), 1);
  }
}

}  // namespace
}  // namespace orrery::executor::lost_node_test
