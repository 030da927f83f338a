// Agents of named hosts: who may join, what a host that does not answer or lacks a file leads to,
// and what is left of a run whose launcher is killed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "executor/launcher/agent.h"
#include "executor/launcher/checkpoint.h"
#include "executor/net/message.h"
#include "executor/net/store.h"
#include "tests/executor/launcher/runs.h"

namespace orrery::executor::agents_test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

/// A program named ssh, first in PATH until destruction.
class FakeSsh {
 public:
  explicit FakeSsh(const std::string& body) : path_(::getenv("PATH")) {
    const std::string file = folder_.path("ssh");
    std::ofstream(file) << "#!/bin/sh\n" << body;
    fs::permissions(file, fs::perms::owner_all);
    ::setenv("PATH", (folder_.path() + ":" + path_).c_str(), 1);
  }
  ~FakeSsh() { ::setenv("PATH", path_.c_str(), 1); }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

std::string refusal(const AgentOptions& options) {
  try {
    run_agent(options);
  } catch (const AgentRefused& error) {
    return error.what();
  }
  return "";
}

TEST(Agents, WithUnknownOrTakenNamesAreRefused) {
  const StoreServer server(Listener("", 0), "token");
  StoreClient launcher({"127.0.0.1", server.port()}, "token");
  launcher.set("nodes", "a\nb\n");
  launcher.set("settings", to_message(RunSettings{}));
  AgentOptions options;
  options.store = {"127.0.0.1", server.port()};
  options.token = "token";
  options.node = "c";
  EXPECT_EQ(refusal(options), "the launcher has no node 'c', it has a, b");
  options.node = "b";
  launcher.set("spawn/b/0", "end");
  int joined = 0;
  options.on_joined = [&](const std::string& address) {
    ++joined;
    EXPECT_EQ(address, "127.0.0.1");
  };
  EXPECT_EQ(refusal(options), "");
  EXPECT_EQ(joined, 1);
  EXPECT_EQ(refusal(options), "node 'b' has an agent already");
  EXPECT_EQ(joined, 1);
}

TEST(Agents, ThatFindNoLauncherGiveUp) {
  const Listener closed("", 0);  // Listens, and nobody answers.
  AgentOptions options;
  options.store = {"127.0.0.1", closed.port()};
  options.wait = milliseconds(300);
  EXPECT_THROW(run_agent(options), TransportError);
}

TEST(Agents, OfAHostThatSshDoesNotReachEndTheRunWithItsName) {
  const FakeSsh ssh("echo no route to host >&2; exit 255\n");
  LaunchOptions options = launch_options(one_device(), 2);
  options.hosts = {{"far", 1, {}}};
  options.listen = "127.0.0.1";
  options.ssh = true;
  const LaunchReport report = launch(options);
  EXPECT_EQ(report.result, LaunchReport::Result::failed);
  EXPECT_EQ(report.problem, "ssh to far ended with status 255 before it joined");
}

TEST(Agents, StartedBySshTrain) {
  const FakeSsh ssh("for last; do :; done; exec sh -c \"$last\"\n");
  LaunchOptions options = launch_options(one_device(), 2);
  options.hosts = {{"localhost", 1, {}}};
  options.listen = "127.0.0.1";
  options.ssh = true;
  EXPECT_EQ(losses_of(complete(options)), expected_losses(one_device(), 2));
}

TEST(Agents, StartedHereTrainUnderTheNamesOfTheirNodes) {
  const ir::Program program = pipeline_of(2, ir::ScheduleKind::gpipe);
  LaunchOptions options = launch_options(program, 2);
  options.hosts = {{"n0", 1, {"--address", "127.0.0.1"}}, {"n1", 1, {"--address", "127.0.0.1"}}};
  options.listen = "127.0.0.1";
  EXPECT_EQ(losses_of(complete(options)), expected_losses(program, 2));
}

TEST(Agents, ThatLackAFileOrAFolderStopTheRunBeforeItStarts) {
  LaunchOptions options = launch_options(one_device(), 2);
  options.hosts = {{"n0", 1, {"--address", "127.0.0.1"}}};
  options.listen = "127.0.0.1";
  options.settings.data = "/nowhere/text";
  options.settings.checkpoint_every = 1;
  options.settings.local_checkpoints = "/proc/checkpoints";
  const LaunchReport report = launch(options);
  EXPECT_EQ(report.result, LaunchReport::Result::refused);
  EXPECT_NE(report.problem.find("n0: /nowhere/text: "), std::string::npos) << report.problem;
  EXPECT_NE(report.problem.find("n0: /proc/checkpoints: "), std::string::npos) << report.problem;
  EXPECT_TRUE(report.generations.empty());
}

TEST(Agents, WhoseRanksCannotListenStopTheRunBeforeItStarts) {
  LaunchOptions options = launch_options(one_device(), 2);
  // An address of the block for documentation: no machine has it. [RFC 5737]
  options.hosts = {{"n0", 1, {"--address", "192.0.2.1"}}};
  options.listen = "127.0.0.1";
  const LaunchReport report = launch(options);
  EXPECT_EQ(report.result, LaunchReport::Result::refused);
  EXPECT_NE(report.problem.find("n0: cannot listen on 192.0.2.1"), std::string::npos)
      << report.problem;
}

TEST(Losses, AreOnDiskAsStepsFinishAlsoWhenTheLauncherIsKilled) {
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(one_device(), 1'000'000);
  options.out = folder.path();
  launch_and_kill(options, 3);
  std::ifstream file(folder.path("losses.csv"));
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::string> rows;
  for (std::string row; std::getline(text, row);) rows.push_back(row);
  ASSERT_GE(rows.size(), 4u);
  EXPECT_EQ(rows[0], "generation,step,loss,start_seconds,step_seconds,tokens_per_second");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].rfind(fmt::format("0,{},", i), 0), 0u) << rows[i];
    EXPECT_EQ(std::count(rows[i].begin(), rows[i].end(), ','), 5) << rows[i];
  }
  EXPECT_EQ(text.str().back(), '\n');
}

TEST(Losses, OfTwoRunsAreNotWrittenIntoOneFolder) {
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(one_device(), 2);
  options.out = folder.path();
  LaunchOptions second = options;
  std::string refusal;
  options.on_step = [&](const StepLine& line) {
    if (line.step > 1) return;
    EXPECT_TRUE(is_written(folder.path()));
    try {
      launch(second);
    } catch (const std::runtime_error& error) {
      refusal = error.what();
    }
  };
  complete(options);
  EXPECT_NE(refusal.find("another run writes it"), std::string::npos) << refusal;
  EXPECT_FALSE(is_written(folder.path()));
  std::ifstream file(folder.path("losses.csv"));
  std::size_t rows = 0;
  for (std::string row; std::getline(file, row);) ++rows;
  EXPECT_EQ(rows, 3u) << "the header and both steps of the first run";
}

TEST(Checkpoints, OfEarlierRunsAreRemovedOnlyWhenThatIsAskedFor) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& name, bool prune) {
    LaunchOptions options = launch_options(one_device(), 2);
    options.settings.run = name;
    options.settings.checkpoint_every = 1;
    options.settings.local_checkpoints = folder.path();
    options.settings.prune_checkpoints = prune;
    std::string said;
    listen(options, said);
    complete(options);
    return said;
  };
  run("first", false);
  run("second", false);
  EXPECT_FALSE(CheckpointFolder(folder.path(), "first", "local").read().banks.empty());
  const std::string said = run("third", true);
  EXPECT_NE(said.find("/first\n"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(folder.path("first")));
  EXPECT_FALSE(fs::exists(folder.path("second")));
  EXPECT_FALSE(CheckpointFolder(folder.path(), "third", "local").read().banks.empty());
}

}  // namespace
}  // namespace orrery::executor::agents_test
