// Flows against closed forms: sharing, rings, latency, precision.
#include <gtest/gtest.h>

#include "tests/sim/flow/support.h"

namespace orrery::sim::flows_test {
namespace {

constexpr double kGiga = 1e9;

void expect_relative(double value, double expected, double tolerance) {
  EXPECT_NEAR(value, expected, tolerance * expected) << "relative " << value / expected - 1;
}

TEST(Flow, TakesBytesOverBandwidthPlusLatency) {
  for (const double bytes : {4096.0, 65536.0, 1e9, 1e13}) {
    const auto t = simulate(cluster(2), [&](FlowEngine& engine) -> std::vector<double> {
      const TaskId flow = engine.add_flow(0, 1, Bytes{bytes});
      engine.run();
      return {engine.start_time(flow).value, engine.end_time(flow).value, engine.now().value};
    });
    ASSERT_EQ(t.size(), 3u);
    EXPECT_EQ(t[0], 0);
    expect_relative(t[1], bytes / kNic.value + kLatency.value, 1e-12);
    EXPECT_EQ(t[2], t[1]);
  }
}

TEST(Flow, OfZeroBytesTakesItsLatency) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId plain = engine.add_flow(0, 1, Bytes{0});
    const TaskId longer = engine.add_flow(0, 1, Bytes{0.4}, Seconds{1e-3});
    engine.run();
    return {engine.end_time(plain).value, engine.end_time(longer).value};
  });
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t[0], 5e-6);
  EXPECT_EQ(t[1], 1e-3 + 5e-6);
}

TEST(Flow, ToItsOwnHostTakesNoTimeAndNoLink) {
  const auto t = simulate(cluster(2),
                          [](FlowEngine& engine) -> std::vector<double> {
                            const TaskId own = engine.add_flow(0, 0, Bytes{kGiga});
                            const TaskId delayed =
                                engine.add_flow(0, 0, Bytes{kGiga}, Seconds{0.5});
                            const TaskId other = engine.add_flow(0, 1, Bytes{kGiga});
                            engine.run();
                            return {engine.end_time(own).value, engine.end_time(delayed).value,
                                    engine.end_time(other).value, engine.link_bytes()[0].value};
                          },
                          {.count_link_bytes = true});
  ASSERT_EQ(t.size(), 4u);
  EXPECT_EQ(t[0], 0);
  EXPECT_EQ(t[1], 0.5);
  expect_relative(t[2], 0.02 + 5e-6, 1e-12);
  EXPECT_EQ(t[3], kGiga);
}

TEST(Sharing, TwoFlowsOnOneNicTakeTwiceAsLong) {
  const auto t = simulate(cluster(3), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId a = engine.add_flow(0, 1, Bytes{kGiga});
    const TaskId b = engine.add_flow(0, 2, Bytes{kGiga});
    engine.run();
    const TaskId c = engine.add_flow(1, 0, Bytes{kGiga});
    const TaskId d = engine.add_flow(2, 0, Bytes{kGiga});
    engine.run();
    return {engine.end_time(a).value, engine.end_time(b).value,
            (engine.end_time(c) - engine.start_time(c)).value,
            (engine.end_time(d) - engine.start_time(d)).value};
  });
  ASSERT_EQ(t.size(), 4u);
  for (const double time : t) expect_relative(time, 2 * kGiga / kNic.value + 5e-6, 1e-9);
}

TEST(Sharing, DirectionsOfANicAreIndependent) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId out = engine.add_flow(0, 1, Bytes{kGiga});
    const TaskId back = engine.add_flow(1, 0, Bytes{kGiga});
    engine.run();
    return {engine.end_time(out).value, engine.end_time(back).value};
  });
  ASSERT_EQ(t.size(), 2u);
  for (const double time : t) expect_relative(time, kGiga / kNic.value + 5e-6, 1e-12);
}

// Flow 0->1 is limited to 4 by its down link; 0->2 and 3->2 then share the down link of 2 (9), as
// the up link of 0 (10) still has 6.
TEST(Sharing, ThreeFlowsWithDifferentBottlenecksAreMaxMin) {
  const std::vector<BytesPerSecond> links = {{10e9}, {99e9}, {99e9}, {4e9},
                                             {99e9}, {9e9},  {6e9},  {99e9}};
  const auto t = simulate(
      star(links, [](int, int) { return Seconds{}; }),
      [](FlowEngine& engine) -> std::vector<double> {
        const TaskId a = engine.add_flow(0, 1, Bytes{8e9});
        const TaskId b = engine.add_flow(0, 2, Bytes{4.5e9});
        const TaskId c = engine.add_flow(3, 2, Bytes{9e9});
        engine.run();
        return {engine.end_time(a).value, engine.end_time(b).value, engine.end_time(c).value};
      });
  ASSERT_EQ(t.size(), 3u);
  expect_relative(t[0], 2, 1e-9);              // 4 GB/s throughout
  expect_relative(t[1], 1, 1e-9);              // 4.5 GB/s
  expect_relative(t[2], 1 + 4.5 / 6.0, 1e-9);  // 4.5 GB/s, then 6 of its own up link
}

TEST(Sharing, DoesNotDependOnLatency) {
  const auto platform = star(std::vector<BytesPerSecond>(6, kNic), [](int, int destination) {
    return Seconds{destination == 1 ? 1e-6 : 1e-3};
  });
  const auto t = simulate(platform, [](FlowEngine& engine) -> std::vector<double> {
    const TaskId near = engine.add_flow(0, 1, Bytes{kGiga});
    const TaskId far = engine.add_flow(0, 2, Bytes{kGiga});
    engine.run();
    return {engine.end_time(near).value, engine.end_time(far).value};
  });
  ASSERT_EQ(t.size(), 2u);
  expect_relative(t[0], 0.04 + 1e-6, 1e-9);
  expect_relative(t[1], 0.04 + 1e-3, 1e-9);
}

TEST(Sharing, LongRoutesAreNotLimitedByLatency) {
  const auto platform =
      star(std::vector<BytesPerSecond>(4, kNic), [](int, int) { return Seconds{0.1}; });
  const auto t = simulate(platform, [](FlowEngine& engine) -> std::vector<double> {
    const TaskId flow = engine.add_flow(0, 1, Bytes{10 * kGiga});
    engine.run();
    return {engine.end_time(flow).value};
  });
  ASSERT_EQ(t.size(), 1u);
  expect_relative(t[0], 0.2 + 0.1, 1e-12);
}

TEST(Sharing, BackgroundFlowTakesHalfUntilTheOtherEnds) {
  const auto t = simulate(cluster(3), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId background = engine.add_flow(0, 1, Bytes{5 * kGiga});
    engine.run_until(Seconds{0.02});
    const TaskId first = engine.add_flow(0, 2, Bytes{kGiga});
    engine.run_until(Seconds{0.08});
    const double state = number(engine.state(background));
    engine.run();
    return {state, engine.end_time(first).value, engine.end_time(background).value};
  });
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t[0], kRunning);
  expect_relative(t[1], 0.02 + 0.04 + 5e-6, 1e-9);
  expect_relative(t[2], 0.12 + 5e-6, 1e-9);  // 6 GB in all through one up link
}

TEST(Sharing, EndsOfFlowsAMicrosecondApartStayApart) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const TaskId first = engine.add_flow(0, 1, Bytes{50e6});          // 1 ms
    const TaskId second = engine.add_flow(1, 0, Bytes{50e6 + 50e3});  // 1 us longer
    engine.run();
    return {engine.end_time(first).value, engine.end_time(second).value};
  });
  ASSERT_EQ(t.size(), 2u);
  EXPECT_NEAR(t[0], 1005e-6, 1e-11);
  EXPECT_NEAR(t[1], 1006e-6, 1e-11);
}

double ring_closed_form(int n, double bytes) {
  return 2 * (n - 1) * (bytes / n / kNic.value + kLatency.value);
}

TEST(Ring, OneLongFlowPerEdgeEqualsTheClosedForm) {
  for (const int n : {2, 4, 15, 32}) {
    const double bytes = 6'000'000.0 * n;
    const auto t = simulate(cluster(n), [&](FlowEngine& engine) -> std::vector<double> {
      for (int rank = 0; rank < n; ++rank)
        engine.add_flow(rank, (rank + 1) % n, Bytes{2 * (n - 1) * bytes / n},
                        (2 * (n - 1) - 1) * kLatency);
      engine.run();
      return {engine.now().value};
    });
    ASSERT_EQ(t.size(), 1u);
    expect_relative(t[0], ring_closed_form(n, bytes), 1e-9);
  }
}

TEST(Ring, StepByStepEqualsTheClosedForm) {
  for (const int n : {2, 4, 15, 32}) {
    const double bytes = 6'000'000.0 * n;
    const auto t = simulate(cluster(n), [&](FlowEngine& engine) -> std::vector<double> {
      std::vector<TaskId> previous;
      for (int step = 0; step < 2 * (n - 1); ++step) {
        std::vector<TaskId> current;
        for (int rank = 0; rank < n; ++rank) {
          const std::size_t r = rank;
          current.push_back(engine.add_flow(rank, (rank + 1) % n, Bytes{bytes / n}));
          if (step == 0) continue;
          engine.add_dependency(previous[r], current[r]);
          if (n > 2)
            engine.add_dependency(previous[(r + previous.size() - 1) % previous.size()],
                                  current[r]);
        }
        previous = current;
      }
      engine.run();
      return {engine.now().value};
    });
    ASSERT_EQ(t.size(), 1u);
    expect_relative(t[0], ring_closed_form(n, bytes), 1e-9);
  }
}

TEST(LinkBytes, AreTheSumOfFinishedFlowsAlongTheirRoutes) {
  const auto t = simulate(cluster(3),
                          [](FlowEngine& engine) {
                            engine.add_flow(0, 1, Bytes{100});
                            engine.add_flow(0, 2, Bytes{30});
                            engine.add_flow(2, 1, Bytes{7});
                            const TaskId cut = engine.add_flow(1, 0, Bytes{1e12});
                            engine.run_until(Seconds{1});
                            engine.cancel({&cut, 1});
                            engine.run();
                            std::vector<double> bytes;
                            for (const Bytes value : engine.link_bytes())
                              bytes.push_back(value.value);
                            return bytes;
                          },
                          {.count_link_bytes = true});
  EXPECT_EQ(t, (std::vector<double>{130, 0, 0, 107, 7, 30}));
}

TEST(EffectiveConfig, NamesTheModelAndItsSwitches) {
  const std::string text = in_child([] {
    const FlowEngine engine(cluster(2));
    std::string lines;
    for (const auto& [name, value] : engine.effective_config()) lines += name + "=" + value + "\n";
    return lines;
  });
  for (const char* line :
       {"network/model=CM02\n", "network/crosstraffic=0\n", "network/optim=Lazy\n",
        "network/TCP-gamma=1e+20\n", "contexts/factory=raw\n", "network/bandwidth-factor=1\n",
        "network/latency-factor=1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " not in\n" << text;
}

}  // namespace
}  // namespace orrery::sim::flows_test
