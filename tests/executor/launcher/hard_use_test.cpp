// Hard use: every case ends with a clear error or a recovery, never with a hang or an orphan.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "executor/launcher/agent.h"
#include "executor/launcher/messages.h"
#include "executor/net/handshake.h"
#include "executor/net/store.h"
#include "tests/executor/launcher/runs.h"

namespace orrery::executor::hard_use_test {
namespace {

using std::chrono::milliseconds;

/// True when no process with this word is left before the limit.
bool all_gone(const std::string& word, milliseconds limit = milliseconds(60'000)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!processes_with(word).empty()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

TEST(HardUse, TwoLaunchersOnOnePortAreTold) {
  const StoreServer other(Listener("", 0), "token");
  LaunchOptions options = launch_options(pipeline_of(2), 2);
  options.port = other.port();
  try {
    launch(options);
    FAIL() << "the port was taken";
  } catch (const TransportError& error) {
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos) << error.what();
  }
}

TEST(HardUse, AReportWhoseConnectionBreaksIsSentAgain) {
  auto store = std::make_unique<StoreServer>(Listener("", 0), "token");
  const Endpoint endpoint{"127.0.0.1", store->port()};
  Reporter reporter(endpoint, "token");
  reporter.post("first", "1");
  reporter.drain();
  store.reset();  // With all its connections.
  store = std::make_unique<StoreServer>(Listener("", endpoint.port), "token");
  reporter.post("second", "2");
  reporter.post("third", "3");
  reporter.drain();
  const std::map<std::string, std::string> expected = {{"second", "2"}, {"third", "3"}};
  EXPECT_EQ(StoreClient(endpoint, "token").list(""), expected);
}

TEST(HardUse, AnAgentWithAWrongTokenIsRefused) {
  const StoreServer server(Listener("", 0), "right");
  AgentOptions options;
  options.store = {"127.0.0.1", server.port()};
  options.token = "wrong";
  options.node = "n";
  try {
    run_agent(options);
    FAIL() << "the token was wrong";
  } catch (const TransportError& error) {
    EXPECT_EQ(error.kind(), TransportError::Kind::refused);
    EXPECT_NE(std::string(error.what()).find("wrong token"), std::string::npos) << error.what();
  }
}

TEST(HardUse, AStoppedRankIsLostAfterTheSilenceLimit) {
  LaunchOptions options = launch_options(pipeline_of(2), 6);
  options.settings.silence = milliseconds(4'000);
  options.settings.elastic = true;
  options.settings.faults = {{1, 3, 4, true}};
  options.next_program = [&](const LostDevices& lost) -> std::variant<NextProgram, std::string> {
    EXPECT_EQ(lost.lost, (std::vector<DeviceId>{{1}}));
    return NextProgram{one_device(), "alone"};
  };
  options.arguments = {"execute-rank", "marker-stopped-rank"};
  const LaunchReport report = complete(options);
  EXPECT_EQ(losses_of(report).size(), 6u);
  EXPECT_TRUE(all_gone("marker-stopped-rank"));
}

TEST(HardUse, AnInterruptedRunKeepsItsFinishedStepsAndLeavesNoProcess) {
  for (const bool threads : {false, true}) {
    std::atomic<bool> interrupted = false;
    const TemporaryFolder folder;
    LaunchOptions options = launch_options(pipeline_of(2), 1'000'000);
    options.arguments = {"execute-rank", "marker-interrupted"};
    options.out = folder.path();
    options.interrupted = &interrupted;
    options.on_step = [&](const StepLine& line) { interrupted = line.step >= 3; };
    const LaunchReport report = threads ? launch_on_threads(options) : launch(options);
    EXPECT_EQ(report.result, LaunchReport::Result::interrupted) << report.problem;
    EXPECT_GE(report.steps.size(), 3u);
    EXPECT_EQ(read_log(folder.path("generation-0/run.log")).iterations.size(), report.steps.size());
    EXPECT_TRUE(all_gone("marker-interrupted"));
  }
}

TEST(HardUse, RanksEndWithALauncherThatIsKilled) {
  LaunchOptions options = launch_options(pipeline_of(2), 1'000'000);
  options.arguments = {"execute-rank", "marker-killed-launcher"};
  launch_and_kill(options, 2,
                  [] { EXPECT_FALSE(processes_with("marker-killed-launcher").empty()); });
  EXPECT_TRUE(all_gone("marker-killed-launcher"));
}

/// The first connection of this process to a port that it listens on itself: the launcher's to its
/// store.
int connection_to_own_store() {
  std::set<in_port_t> listening;
  const auto port_of = [](int fd, int (*name)(int, sockaddr*, socklen_t*)) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    const bool found = name(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    return found && address.sin_family == AF_INET ? address.sin_port : in_port_t{0};
  };
  for (int fd = 3; fd < 256; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0) {
      listening.insert(port_of(
          fd, [](int of, sockaddr* to, socklen_t* most) { return ::getsockname(of, to, most); }));
    }
  }
  for (int fd = 3; fd < 256; ++fd) {
    const in_port_t peer = port_of(
        fd, [](int of, sockaddr* to, socklen_t* most) { return ::getpeername(of, to, most); });
    if (peer != 0 && listening.contains(peer)) return fd;
  }
  return -1;
}

TEST(HardUse, ALauncherThatLosesItsStoreEndsTheRunAndItsRanks) {
  LaunchOptions options = launch_options(pipeline_of(2), 1'000'000);
  options.arguments = {"execute-rank", "marker-lost-store"};
  options.on_step = [](const StepLine& line) {
    if (line.step != 2) return;
    const int fd = connection_to_own_store();
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::shutdown(fd, SHUT_RDWR), 0);
  };
  const LaunchReport report = launch(options);
  EXPECT_EQ(report.result, LaunchReport::Result::failed);
  EXPECT_NE(report.problem.find("the store failed"), std::string::npos) << report.problem;
  EXPECT_TRUE(all_gone("marker-lost-store"));
}

TEST(HardUse, AFullDiskWhileCheckpointingIsSaidAndTrainingGoesOn) {
  // Ranks inherit the limit: files end at 4 KiB, as on a disk that is full.
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(pipeline_of(2), 4);
  options.settings.checkpoint_every = 1;
  options.settings.local_checkpoints = folder.path();
  std::string said;
  listen(options, said);
  options.on_step = [&](const StepLine& line) {
    // Each rank has said it with a step before.
    if (line.step == 4) {
      EXPECT_NE(said.find("checkpoint failed"), std::string::npos);
    }
  };
  ::setrlimit(RLIMIT_FSIZE, &small);
  const LaunchReport report = complete(options);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(report.steps.size(), 4u);
  EXPECT_NE(said.find("checkpoint failed"), std::string::npos) << said;
  EXPECT_NE(said.find("File too large"), std::string::npos) << said;
}

}  // namespace
}  // namespace orrery::executor::hard_use_test
