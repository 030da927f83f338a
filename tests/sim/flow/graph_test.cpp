// The task graph: order, callbacks, tasks added and canceled while it runs, size.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdio>

#include "models/base/ids.h"
#include "tests/sim/flow/support.h"

namespace orrery::sim::graph_test {
namespace {

TEST(Graph, BarrierWaitsForAllAndTakesNoTime) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId slow = engine.add_delay(Seconds{3});
    const TaskId quick = engine.add_delay(Seconds{1});
    const TaskId barrier = engine.add_barrier();
    const TaskId after = engine.add_delay(Seconds{0});
    engine.add_dependency(slow, barrier);
    engine.add_dependency(quick, barrier);
    engine.add_dependency(barrier, after);
    engine.run();
    return {engine.start_time(barrier).value, engine.end_time(barrier).value,
            engine.end_time(after).value};
  });
  EXPECT_EQ(t, (std::vector<double>{3, 3, 3}));
}

// A chain of zero-time tasks must not recurse.
TEST(Graph, LongChainsOfBarriersEnd) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    TaskId last = engine.add_barrier();
    for (int i = 0; i < 1'000'000; ++i) {
      const TaskId next = engine.add_barrier();
      engine.add_dependency(last, next);
      last = next;
    }
    engine.run();
    return {number(engine.state(last)), engine.now().value};
  });
  EXPECT_EQ(t, (std::vector<double>{kDone, 0}));
}

RC_GTEST_PROP(Graph, DelaysEndAtTheLongestPath, ()) {
  const int tasks = *rc::gen::inRange(1, 60);
  const auto durations = *rc::gen::container<std::vector<int>>(tasks, rc::gen::inRange(0, 9));
  std::vector<std::pair<int, int>> edges;
  for (int i = 0; tasks > 1 && i < 2 * tasks; ++i) {
    const int after = *rc::gen::inRange(1, tasks);
    edges.emplace_back(*rc::gen::inRange(0, after), after);
  }
  std::vector<double> expected(tasks, 0);
  for (int task = 0; task < tasks; ++task) {
    const std::size_t t = task;
    for (const auto& [before, after] : edges)
      if (after == task) expected[t] = std::max(expected[t], expected[before]);
    expected[t] += durations[t];
  }
  const auto ends = simulate(cluster(2), [&](FlowEngine& engine) {
    for (const int duration : durations) engine.add_delay(Seconds{static_cast<double>(duration)});
    for (const auto& [before, after] : edges) engine.add_dependency({before}, {after});
    engine.run();
    std::vector<double> result;
    for (int task = 0; task < tasks; ++task) result.push_back(engine.end_time({task}).value);
    return result;
  });
  RC_ASSERT(ends == expected);
}

TEST(Graph, CallbacksMayAddTasks) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    int calls = 0;
    engine.on_end(TaskKind::delay, [&](TaskId task, TaskState) {
      if (++calls == 5) return;
      const TaskId next = engine.add_delay(Seconds{1});
      const TaskId flow = engine.add_flow(0, 1, Bytes{50e9});  // 1 s
      engine.add_dependency(task, next);                       // already done: no wait
      engine.add_dependency(flow, next);
    });
    engine.add_delay(Seconds{1});
    engine.run();
    return {static_cast<double>(calls), engine.now().value,
            static_cast<double>(engine.unfinished().size())};
  });
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t[0], 5);
  EXPECT_NEAR(t[1], 9 + 4 * 5e-6, 1e-9);
  EXPECT_EQ(t[2], 0);
}

TEST(Graph, CallbacksSeeTheirKindOnly) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    std::vector<double> seen(3, 0);
    for (const TaskKind kind : {TaskKind::delay, TaskKind::flow, TaskKind::barrier})
      engine.on_end(kind, [&engine, &seen, kind](TaskId task, TaskState state) {
        if (engine.kind(task) == kind && state == TaskState::done) ++seen[index_of(kind)];
      });
    engine.add_delay(Seconds{1});
    engine.add_delay(Seconds{1});
    engine.add_flow(0, 1, Bytes{1});
    engine.add_barrier();
    engine.run();
    return seen;
  });
  EXPECT_EQ(t, (std::vector<double>{2, 1, 1}));
}

TEST(Graph, CanceledTasksStopAtOnceAndFreeTheirShare) {
  const auto t = simulate(cluster(3), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId kept = engine.add_flow(0, 1, Bytes{50e9});
    const TaskId cut = engine.add_flow(0, 2, Bytes{500e9});
    const TaskId nap = engine.add_delay(Seconds{1000});
    const TaskId tail = engine.add_flow(1, 2, Bytes{1}, Seconds{1000});
    const TaskId waiting = engine.add_delay(Seconds{1});
    engine.add_dependency(nap, waiting);
    engine.at(Seconds{1}, [&, tasks = std::vector{cut, nap, tail}] {
      engine.cancel(tasks);
      engine.cancel(tasks);
    });
    engine.run();
    return {engine.end_time(kept).value,
            number(engine.state(cut)),
            engine.end_time(cut).value,
            number(engine.state(nap)),
            number(engine.state(tail)),
            number(engine.state(waiting)),
            static_cast<double>(engine.unfinished().size()),
            engine.now().value};
  });
  ASSERT_EQ(t.size(), 8u);
  EXPECT_NEAR(t[0], 1.5 + 5e-6, 1e-9);  // half the NIC for 1 s, all of it for 0.5 s
  EXPECT_EQ(t[1], kCanceled);
  EXPECT_EQ(t[2], 1);
  EXPECT_EQ(t[3], kCanceled);
  EXPECT_EQ(t[4], kCanceled);
  EXPECT_EQ(t[5], kWaiting);
  EXPECT_EQ(t[6], 1);
  EXPECT_EQ(t[7], t[0]);  // canceled events do not hold the clock
}

TEST(Graph, TasksCanceledBetweenRunsStaySo) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId flow = engine.add_flow(0, 1, Bytes{500e9});
    engine.run_until(Seconds{1});
    engine.cancel({&flow, 1});
    const TaskId next = engine.add_flow(0, 1, Bytes{50e9});
    engine.run();
    return {number(engine.state(flow)), engine.end_time(next).value};
  });
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t[0], kCanceled);
  EXPECT_NEAR(t[1], 2 + 5e-6, 1e-9);
}

TEST(Clock, RunUntilStopsExactlyThereAndGoesOn) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId delay = engine.add_delay(Seconds{2});
    engine.run_until(Seconds{2 - 4e-6});
    const double before = engine.now().value;
    const double state = number(engine.state(delay));
    engine.run_until(Seconds{2});
    const double end = number(engine.state(delay));
    engine.run_until(Seconds{3});  // nothing is pending
    return {before, state, end, engine.now().value};
  });
  EXPECT_EQ(t, (std::vector<double>{2 - 4e-6, kRunning, kDone, 3}));
}

TEST(Clock, TracesOfChainedCallbacksFireInOrder) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) {
    std::vector<double> times;
    std::function<void()> next = [&] {
      times.push_back(engine.now().value);
      if (times.size() < 4) engine.at(engine.now() + Seconds{0.25}, next);
    };
    engine.at(Seconds{0.25}, next);
    engine.at(Seconds{0.3}, [&] { times.push_back(-1); });
    engine.run();
    return times;
  });
  EXPECT_EQ(t, (std::vector<double>{0.25, -1, 0.5, 0.75}));
}

TEST(Rewind, ForgetsLaterTasksAndKeepsTheBackground) {
  const auto t = simulate(cluster(3), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId background = engine.add_flow(0, 1, Bytes{5000e9});
    const FlowEngine::Mark mark = engine.mark();
    std::vector<double> result;
    for (int round = 0; round < 100; ++round) {
      const TaskId delay = engine.add_delay(Seconds{0.01});
      const TaskId flow = engine.add_flow(0, 2, Bytes{250e6});
      const TaskId never = engine.add_barrier();
      engine.add_dependency(delay, flow);
      engine.add_dependency(background, never);
      engine.run_until(engine.now() + Seconds{0.1});
      if (engine.state(flow) != TaskState::done || engine.state(never) != TaskState::waiting)
        return {};
      engine.rewind(mark);
    }
    const double tasks = static_cast<double>(engine.tasks());
    const TaskId last = engine.add_barrier();
    engine.add_dependency(background, last);
    engine.run();
    return {tasks, engine.end_time(last).value};
  });
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t[0], 1);
  EXPECT_NEAR(t[1], (5000e9 + 100 * 250e6) / 50e9 + 5e-6, 1e-6);
}

double resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long total = 0, resident = 0;
  if (std::fscanf(file, "%ld %ld", &total, &resident) != 2) resident = 0;
  std::fclose(file);
  return static_cast<double>(resident) * 4096;
}

TEST(Memory, ShrinkGivesItBackAndKeepsTimesUntilRewind) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    constexpr int kTasks = 200'000;
    const TaskId background = engine.add_flow(0, 1, Bytes{50e9 * 1000});
    const FlowEngine::Mark mark = engine.mark();
    std::vector<double> result;
    for (int round = 0; round < 2; ++round) {
      const double start = engine.now().value;
      for (int i = 0; i < kTasks; ++i) {
        const TaskId task = engine.add_delay(Seconds{1e-3});
        if (i > 0) engine.add_dependency({task.value - 1}, task);
      }
      engine.run_until(engine.now() + Seconds{300});
      const TaskId last{kTasks};
      const double before = resident_bytes();
      engine.shrink(mark);
      result.push_back(before - resident_bytes());
      result.push_back(engine.end_time(last).value - start);
      result.push_back(number(engine.state(last)));
      engine.rewind(mark);
    }
    engine.run();
    result.push_back(engine.end_time(background).value);
    return result;
  });
  ASSERT_EQ(t.size(), 7u);
  for (const std::size_t round : {0u, 3u}) {
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
    EXPECT_GT(t[round], 3e6);
#endif
    EXPECT_NEAR(t[round + 1], 200, 1e-6);
    EXPECT_EQ(t[round + 2], kDone);
  }
  EXPECT_NEAR(t[6], 1000 + 5e-6, 1e-6);
}

TEST(Memory, AMillionTasksNeedLessThan100MB) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer surrounds what is allocated with memory of its own";
#endif
  const auto t = simulate(cluster(64), [](FlowEngine& engine) -> std::vector<double> {
    constexpr int kTasks = 1'000'000;
    const double before = resident_bytes();
    engine.reserve(kTasks, 2 * kTasks);
    for (int i = 0; i < kTasks; ++i) {
      const TaskId task = i % 2 == 0 ? engine.add_delay(Seconds{1e-3}, i % 64)
                                     : engine.add_flow(i % 64, (i + 1) % 64, Bytes{1e6});
      if (i >= 64) engine.add_dependency({i - 64}, task);
      if (i >= 65) engine.add_dependency({i - 65}, task);
    }
    engine.run_until(Seconds{1e-4});
    return {resident_bytes() - before};
  });
  ASSERT_EQ(t.size(), 1u);
  EXPECT_LT(t[0], 100e6);
}

TEST(EngineDeathTest, ASecondEngineInOneProcessAborts) {
  const ForkResult result = run_forked([] {
    { const FlowEngine first(cluster(2)); }
    std::freopen("/dev/null", "w", stderr);
    const FlowEngine second(cluster(2));
    return std::string("no abort");
  });
  ASSERT_TRUE(std::holds_alternative<ChildFailure>(result));
  EXPECT_EQ(std::get<ChildFailure>(result).kind, ChildFailure::Kind::signal);
}

}  // namespace
}  // namespace orrery::sim::graph_test
