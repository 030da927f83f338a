// How long do members of a generation wait for one that reads checkpoints?
#include "executor/launcher/state_fetch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>
#include <vector>

#include "executor/launcher/generation_keys.h"
#include "executor/launcher/rank.h"
#include "executor/net/store.h"
#include "models/ir/program.h"

namespace orrery::executor::state_fetch_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kToken = "token";
constexpr std::int64_t kGeneration = 1;  ///< The first that looks for files.
constexpr int kMembers = 2;

/// A member without a worker, on a node that both share: publishes what it has, waits for the
/// other.
std::vector<StateReport> exchange(const Endpoint& store, const RunSettings& settings, int me) {
  const RankEnvironment environment{store, kToken, me, "node", "127.0.0.1", kGeneration};
  StoreClient client(store, kToken);
  Reporter reporter(store, kToken);
  CommandListener commands(environment, milliseconds(100), CommandListener::WhenLost::stop);
  RankContext context{environment, settings, client, reporter, commands};
  GenerationKeys keys(context, kGeneration, me);
  const ir::Program program;
  return StateFetch(context, keys, program, kMembers).exchange(nullptr);
}

TEST(StateFetch, WaitsForWhoReadsCheckpointsAsLongAsFileFollowsFile) {
  std::string name = (fs::temp_directory_path() / "orrery-state-fetch-XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  RunSettings settings;
  settings.run = "run";
  settings.checkpoint_every = 1;
  settings.local_checkpoints = folder.string();
  settings.connect = milliseconds(100);
  settings.deadline = milliseconds(3'000);
  // Pipes in place of files, each of which is read until it is opened and closed here.
  std::vector<fs::path> pipes;
  fs::create_directories(folder / "run" / "node");
  for (int block = 0; block < 5; ++block) {
    pipes.push_back(folder / "run" / "node" /
                    fmt::format("step-1.generation-0.block-{}.device-0.state", block));
    ASSERT_EQ(::mkfifo(pipes.back().c_str(), 0600), 0);
  }
  const StoreServer server(Listener(), kToken);
  const Endpoint store{"127.0.0.1", server.port()};
  std::vector<std::future<std::vector<StateReport>>> members;
  for (int m = 0; m < kMembers; ++m) {
    members.push_back(
        std::async(std::launch::async, [&, m] { return exchange(store, settings, m); }));
  }
  const auto limit = Clock::now() + std::chrono::minutes(1);
  for (const fs::path& pipe : pipes) {
    std::this_thread::sleep_for(milliseconds(1'000));
    int end = -1;
    while ((end = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK)) < 0 && Clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_GE(end, 0) << pipe << " is not read";
    ::close(end);
  }
  for (auto& member : members) EXPECT_EQ(member.get().size(), std::size_t{kMembers});
  fs::remove_all(folder);
}

TEST(StateFetch, WaitsNoLongerThanTheDeadlineForWhoDoesNothing) {
  RunSettings settings;
  settings.deadline = milliseconds(200);
  const StoreServer server(Listener(), kToken);
  try {
    exchange({"127.0.0.1", server.port()}, settings, 1);
    ADD_FAILURE() << "member 0 has said nothing";
  } catch (const TransportError& error) {
    EXPECT_EQ(error.kind(), TransportError::Kind::timeout);
    EXPECT_STREQ(error.what(), "g/1/state/0 did not come");
  }
}

}  // namespace
}  // namespace orrery::executor::state_fetch_test
