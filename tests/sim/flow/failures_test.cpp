// Links and hosts that are off, or go off while something runs.
#include <gtest/gtest.h>

#include "tests/sim/flow/support.h"

namespace orrery::sim::failures_test {
namespace {

TEST(DeadLink, FlowFailsAtItsStartAndNothingHangs) {
  const auto t = simulate(cluster(3), [](FlowEngine& engine) -> std::vector<double> {
    engine.set_link(down(1), false);
    const TaskId before = engine.add_delay(Seconds{1});
    const TaskId flow = engine.add_flow(0, 1, Bytes{1e9});
    const TaskId successor = engine.add_barrier();
    const TaskId other = engine.add_flow(0, 2, Bytes{50e9});
    engine.add_dependency(before, flow);
    engine.add_dependency(flow, successor);
    engine.run();
    const auto unfinished = engine.unfinished();
    return {number(engine.state(flow)),
            engine.end_time(flow).value,
            number(engine.state(successor)),
            number(engine.state(other)),
            static_cast<double>(unfinished.size()),
            static_cast<double>(unfinished.at(0).value)};
  });
  EXPECT_EQ(t, (std::vector<double>{kFailed, 1, kWaiting, kDone, 1, 2}));
}

TEST(DeadLink, FlowWithoutBytesFailsToo) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    engine.set_link(up(0), false);
    const TaskId flow = engine.add_flow(0, 1, Bytes{0});
    engine.run();
    return {number(engine.state(flow))};
  });
  EXPECT_EQ(t, (std::vector<double>{kFailed}));
}

TEST(LinkOff, FailsItsFlowsAtThatInstantAndFreesTheOthers) {
  const auto t = simulate(cluster(3), [](FlowEngine& engine) -> std::vector<double> {
    std::vector<double> seen;
    engine.on_end(TaskKind::flow, [&](TaskId task, TaskState state) {
      seen.push_back(task.value);
      seen.push_back(number(state));
      seen.push_back(engine.now().value);
    });
    engine.add_flow(0, 1, Bytes{500e9});
    engine.add_flow(0, 2, Bytes{50e9});
    engine.at(Seconds{1}, [&] { engine.set_link(down(1), false); });
    engine.run();
    seen.push_back(engine.now().value);
    return seen;
  });
  ASSERT_EQ(t.size(), 7u);
  EXPECT_EQ(std::vector<double>(t.begin(), t.begin() + 3), (std::vector<double>{0, kFailed, 1}));
  EXPECT_EQ(t[3], 1);
  EXPECT_EQ(t[4], kDone);
  EXPECT_NEAR(t[5], 1.5 + 5e-6, 1e-9);
}

TEST(LinkOff, FailsFlowsThatWaitForTheirLatency) {
  const auto t = simulate(cluster(3), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId hit = engine.add_flow(0, 1, Bytes{1}, Seconds{10});
    const TaskId spared = engine.add_flow(0, 2, Bytes{1}, Seconds{3});
    engine.at(Seconds{1}, [&] { engine.set_link(down(1), false); });
    engine.run();
    return {number(engine.state(hit)), engine.end_time(hit).value, number(engine.state(spared)),
            engine.now().value};
  });
  ASSERT_EQ(t.size(), 4u);
  EXPECT_EQ(t[0], kFailed);
  EXPECT_EQ(t[1], 1);
  EXPECT_EQ(t[2], kDone);
  EXPECT_NEAR(t[3], 3 + 5e-6, 1e-9);
}

TEST(LinkOff, BetweenRunsFailsAtOnceAndTheLinkReturns) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId flow = engine.add_flow(0, 1, Bytes{500e9});
    engine.run_until(Seconds{1});
    engine.set_link(up(0), false);
    const double off = engine.link_on(up(0));
    const double state = number(engine.state(flow));
    engine.set_link(up(0), true);
    const TaskId next = engine.add_flow(0, 1, Bytes{50e9});
    engine.run();
    return {off, state, engine.end_time(flow).value, number(engine.state(next)),
            engine.end_time(next).value};
  });
  ASSERT_EQ(t.size(), 5u);
  EXPECT_EQ(t[0], 0);
  EXPECT_EQ(t[1], kFailed);
  EXPECT_EQ(t[2], 1);
  EXPECT_EQ(t[3], kDone);
  EXPECT_NEAR(t[4], 2 + 5e-6, 1e-9);
}

TEST(HostOff, FailsItsDelaysAndFlowsAndNoOthers) {
  const auto t = simulate(cluster(4), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId delay = engine.add_delay(Seconds{10}, 1);
    const TaskId to = engine.add_flow(0, 1, Bytes{500e9});
    const TaskId from = engine.add_flow(1, 2, Bytes{500e9});
    const TaskId own = engine.add_flow(1, 1, Bytes{1}, Seconds{10});
    const TaskId latency = engine.add_flow(3, 1, Bytes{1}, Seconds{10});
    const TaskId spared = engine.add_delay(Seconds{2}, 0);
    const TaskId nowhere = engine.add_delay(Seconds{2});
    engine.at(Seconds{1}, [&] { engine.set_host(1, false); });
    engine.run();
    std::vector<double> result;
    for (const TaskId task : {delay, to, from, own, latency}) {
      result.push_back(number(engine.state(task)));
      result.push_back(engine.end_time(task).value);
    }
    result.push_back(number(engine.state(spared)));
    result.push_back(number(engine.state(nowhere)));
    result.push_back(engine.now().value);
    return result;
  });
  EXPECT_EQ(t, (std::vector<double>{kFailed, 1, kFailed, 1, kFailed, 1, kFailed, 1, kFailed, 1,
                                    kDone, kDone, 2}));
}

TEST(HostOff, FailsWhatStartsThereUntilItReturns) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    engine.set_host(1, false);
    const TaskId delay = engine.add_delay(Seconds{1}, 1);
    const TaskId to = engine.add_flow(0, 1, Bytes{1});
    const TaskId from = engine.add_flow(1, 0, Bytes{1});
    const TaskId own = engine.add_flow(1, 1, Bytes{1});
    engine.run();
    engine.set_host(1, true);
    const TaskId later = engine.add_flow(0, 1, Bytes{1});
    engine.run();
    return {number(engine.state(delay)), number(engine.state(to)), number(engine.state(from)),
            number(engine.state(own)), number(engine.state(later))};
  });
  EXPECT_EQ(t, (std::vector<double>{kFailed, kFailed, kFailed, kFailed, kDone}));
}

TEST(Bandwidth, ChangesApplyToRunningFlows) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId flow = engine.add_flow(0, 1, Bytes{100e9});
    engine.at(Seconds{1}, [&] { engine.set_link_bandwidth(up(0), BytesPerSecond{12.5e9}); });
    engine.run();
    return {engine.end_time(flow).value};
  });
  ASSERT_EQ(t.size(), 1u);
  EXPECT_NEAR(t[0], 1 + 4 + 5e-6, 1e-9);
}

// What a recovery does: a failure cancels the rest, new work starts in the same instant.
TEST(Failure, CallbackCancelsTheRestAndStartsAgain) {
  const auto t = simulate(cluster(4), [](FlowEngine& engine) -> std::vector<double> {
    std::vector<TaskId> first;
    TaskId again;
    engine.on_end(TaskKind::flow, [&](TaskId, TaskState state) {
      if (state != TaskState::failed || again.valid()) return;
      engine.cancel(first);
      again = engine.add_flow(2, 3, Bytes{50e9});
    });
    for (int i = 0; i < 100; ++i) first.push_back(engine.add_flow(2, 3, Bytes{500e9}));
    first.push_back(engine.add_flow(0, 1, Bytes{500e9}));
    first.push_back(engine.add_delay(Seconds{500}, 3));
    engine.at(Seconds{1}, [&] { engine.set_host(0, false); });
    engine.run();
    double canceled = 0;
    for (const TaskId task : first) canceled += engine.state(task) == TaskState::canceled;
    return {canceled, engine.end_time(again).value, engine.now().value};
  });
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t[0], 101);
  EXPECT_NEAR(t[1], 2 + 5e-6, 1e-9);
  EXPECT_EQ(t[2], t[1]);
}

TEST(Failure, BetweenRunsCallbacksMayCancelAndAddTasks) {
  const auto t = simulate(cluster(4), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId hit = engine.add_flow(0, 1, Bytes{500e9});
    const TaskId other = engine.add_flow(2, 3, Bytes{500e9});
    TaskId next;
    engine.on_end(TaskKind::flow, [&](TaskId task, TaskState state) {
      if (task != hit) return;
      engine.cancel({&other, 1});
      if (state == TaskState::failed) next = engine.add_flow(2, 3, Bytes{50e9});
    });
    engine.run_until(Seconds{1});
    engine.set_host(0, false);
    const double waiting = number(engine.state(next));
    const double canceled = number(engine.state(other));
    engine.run();
    return {waiting, canceled, engine.end_time(next).value};
  });
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t[0], kWaiting);
  EXPECT_EQ(t[1], kCanceled);
  EXPECT_NEAR(t[2], 2 + 5e-6, 1e-9);
}

// Canceled while the next run starts its tasks, before the clock moves.
TEST(Failure, CancellationAtTheStartOfARunFreesTheShareAtOnce) {
  const auto t = simulate(cluster(4), [](FlowEngine& engine) -> std::vector<double> {
    std::vector<TaskId> first;
    for (int i = 0; i < 200; ++i) first.push_back(engine.add_flow(0, 1, Bytes{500e9}));
    engine.run_until(Seconds{1});
    engine.on_end(TaskKind::barrier, [&](TaskId, TaskState) { engine.cancel(first); });
    engine.add_barrier();
    const TaskId next = engine.add_flow(0, 1, Bytes{50e9});
    engine.run();
    return {engine.end_time(next).value, engine.now().value};
  });
  ASSERT_EQ(t.size(), 2u);
  EXPECT_NEAR(t[0], 2 + 5e-6, 1e-9);
  EXPECT_EQ(t[1], t[0]);
}

}  // namespace
}  // namespace orrery::sim::failures_test
