// Children: results, crashes, and equal bytes from equal runs.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <stdexcept>

#include "models/base/rng.h"
#include "sim/flow/forked_server.h"
#include "tests/sim/flow/support.h"

namespace orrery::sim::fork_test {
namespace {

ChildFailure failure_of(const ForkResult& result) {
  if (const auto* failure = std::get_if<ChildFailure>(&result)) return *failure;
  ADD_FAILURE() << "the child delivered " << std::get<std::string>(result).size() << " bytes";
  return {};
}

TEST(RunForked, DeliversBytesOfAnyLengthAndContent) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3'000'000}}) {
    std::string sent(size, '\0');
    for (std::size_t i = 0; i < size; ++i) sent[i] = static_cast<char>(i * 7);
    const ForkResult result = run_forked([&] { return sent; });
    ASSERT_TRUE(std::holds_alternative<std::string>(result));
    EXPECT_TRUE(std::get<std::string>(result) == sent);
  }
}

TEST(RunForked, ChangesNothingInTheParent) {
  int value = 1;
  const ForkResult result = run_forked([&] { return std::to_string(++value); });
  EXPECT_EQ(std::get<std::string>(result), "2");
  EXPECT_EQ(value, 1);
}

TEST(RunForked, ReturnsExceptionsExitsAndSignalsAsValues) {
  const ChildFailure thrown =
      failure_of(run_forked([]() -> std::string { throw std::runtime_error("no route"); }));
  EXPECT_EQ(thrown.kind, ChildFailure::Kind::exception);
  EXPECT_EQ(thrown.message, "no route");

  const ChildFailure left = failure_of(run_forked([]() -> std::string { _exit(3); }));
  EXPECT_EQ(left.kind, ChildFailure::Kind::exited);
  EXPECT_EQ(left.code, 3);

  const ChildFailure silent = failure_of(run_forked([]() -> std::string { _exit(0); }));
  EXPECT_EQ(silent.kind, ChildFailure::Kind::exited);

  const ChildFailure killed = failure_of(run_forked([]() -> std::string {
    raise(SIGKILL);
    return "";
  }));
  EXPECT_EQ(killed.kind, ChildFailure::Kind::signal);
  EXPECT_EQ(killed.code, SIGKILL);
}

TEST(ForkedRun, ThatIsNotJoinedIsKilled) {
  const ForkedRun run([]() -> std::string {
    for (;;) pause();
  });
  EXPECT_GE(run.file_descriptor(), 0);
}

TEST(ForkedServer, AnswersAsTheProcessWasWhenItWasMade) {
  int value = 1;
  ForkedServer server([&](const std::string& question) {
    if (question == "throw") throw std::runtime_error("no route");
    return question + std::to_string(++value);
  });
  value = 7;
  for (const char* answer : {"a2", "a3"}) {
    server.ask("a");
    EXPECT_TRUE(server.busy());
    const ForkResult result = server.join();
    ASSERT_TRUE(std::holds_alternative<std::string>(result));
    EXPECT_EQ(std::get<std::string>(result), answer);
  }
  server.ask("throw");
  EXPECT_EQ(failure_of(server.join()).message, "no route");
  const std::string large(3'000'000, 'x');
  server.ask(large);
  EXPECT_EQ(std::get<std::string>(server.join()), large + "4");
}

TEST(ForkedServer, ThatDiesIsAFailureOfEachAnswer) {
  ForkedServer server([](const std::string&) -> std::string {
    raise(SIGKILL);
    return "";
  });
  for (int i = 0; i < 2; ++i) {
    server.ask("a");
    EXPECT_FALSE(failure_of(server.join()).message.empty());
  }
}

/// Jittered delays and flows between random hosts; the bytes of all times.
std::string random_run(FlowEngine& engine, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<TaskId> tasks;
  for (int i = 0; i < 2000; ++i) {
    const int source = static_cast<int>(rng.integer(0, 15));
    const int destination = static_cast<int>(rng.integer(0, 15));
    tasks.push_back(i % 2 == 0 ? engine.add_delay(Seconds{rng.exponential(1000)}, source)
                               : engine.add_flow(source, destination, Bytes{1e7 * rng.uniform()}));
    if (i >= 32) engine.add_dependency(tasks[i - rng.integer(1, 32)], tasks.back());
  }
  engine.run();
  std::string bytes;
  for (const TaskId task : tasks) {
    const double times[2] = {engine.start_time(task).value, engine.end_time(task).value};
    bytes.append(reinterpret_cast<const char*>(times), sizeof times);
  }
  return bytes;
}

// In a child of its own, as the engine is built before the forks.
TEST(ForkedRun, EqualSeedsGiveEqualBytesInSiblingsAndParent) {
  const ForkResult result = run_forked([]() -> std::string {
    FlowEngine engine(cluster(16));
    ForkedRun first([&] { return random_run(engine, 7); });
    ForkedRun second([&] { return random_run(engine, 7); });
    ForkedRun other([&] { return random_run(engine, 8); });
    const ForkResult a = first.join(), b = second.join(), c = other.join();
    if (a.index() != 0 || b.index() != 0 || c.index() != 0) return "a child failed";
    if (std::get<0>(a).size() != 2000 * 16) return "wrong size";
    if (std::get<0>(a) != std::get<0>(b)) return "siblings differ";
    if (std::get<0>(a) == std::get<0>(c)) return "seeds do not matter";
    return random_run(engine, 7) == std::get<0>(a) ? "equal" : "the parent differs";
  });
  ASSERT_TRUE(std::holds_alternative<std::string>(result)) << failure_of(result).message;
  EXPECT_EQ(std::get<std::string>(result), "equal");
}

TEST(Signals, AnEngineLeavesTheHandlersOfItsProgram) {
  const ForkResult result = run_forked([]() -> std::string {
    signal(SIGINT, SIG_IGN);
    FlowEngine engine(cluster(2), {});
    return signal(SIGINT, SIG_DFL) == SIG_IGN ? "kept" : "replaced";
  });
  ASSERT_TRUE(std::holds_alternative<std::string>(result));
  EXPECT_EQ(std::get<std::string>(result), "kept");
}

}  // namespace
}  // namespace orrery::sim::fork_test
