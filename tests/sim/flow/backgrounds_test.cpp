// Delays that something beside them slows: do they take their own time, and the share of the time
// that they have in common with it?
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "tests/sim/flow/support.h"

namespace orrery::sim::backgrounds_test {
namespace {

/// A delay of `work` from 0 on, beside delays of `lengths` that begin at `starts`.
double end_beside(double work, double share, const std::vector<double>& starts,
                  const std::vector<double>& lengths) {
  return simulate(cluster(2), [&](FlowEngine& engine) -> std::vector<double> {
    const BackgroundId background = engine.add_background();
    const TaskId slowed = engine.add_delay(Seconds{work});
    engine.slow_down(slowed, background, share);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const TaskId before = engine.add_delay(Seconds{starts[i]});
      const TaskId beside = engine.add_delay(Seconds{lengths[i]});
      engine.add_dependency(before, beside);
      engine.run_beside(background, beside, beside);
    }
    engine.run();
    return {engine.end_time(slowed).value};
  })[0];
}

TEST(Backgrounds, ADelayTakesTheShareOfTheTimeInCommonLonger) {
  EXPECT_NEAR(end_beside(10, 0.2, {}, {}), 10, 0);
  EXPECT_NEAR(end_beside(10, 0.2, {3}, {4}), 10.8, 1e-9);
  EXPECT_NEAR(end_beside(10, 0.2, {3, 4}, {4, 1}), 10.8, 1e-9) << "one inside of the other";
  EXPECT_NEAR(end_beside(10, 0.2, {0}, {100}), 10 / 0.8, 1e-9) << "all along";
  EXPECT_NEAR(end_beside(10, 0.2, {9}, {100}), 9 + 1 / 0.8, 1e-9);
  EXPECT_NEAR(end_beside(10, 0.2, {10}, {5}), 10, 1e-9) << "begins when the delay ends";
  EXPECT_NEAR(end_beside(10, 0, {0}, {100}), 10, 0);
}

// Whatever runs when: the time is the work, and the share of the time in common.
RC_GTEST_PROP(Backgrounds, TimeIsWorkAndShareOfTheTimeInCommon, ()) {
  const double work = *rc::gen::inRange(0, 20);
  const double share = *rc::gen::element(0.05, 0.3, 0.8);
  std::vector<double> starts, lengths;
  const int count = *rc::gen::inRange(0, 5);
  for (int i = 0; i < count; ++i) {
    starts.push_back(*rc::gen::inRange(0, 30));
    lengths.push_back(*rc::gen::inRange(0, 15));
  }
  const double end = end_beside(work, share, starts, lengths);
  double common = 0;  // Starts and ends are whole.
  for (int second = 0; second < 100; ++second) {
    const bool runs = std::any_of(starts.begin(), starts.end(), [&](const double& start) {
      return second >= start && second < start + lengths[as_size(&start - starts.data())];
    });
    if (runs) common += std::clamp(end - second, 0.0, 1.0);
  }
  RC_ASSERT(std::abs(end - (work + share * common)) < 1e-9);
}

TEST(Backgrounds, EndWithATaskThatIsCanceledAndAreForgottenWithTheirTasks) {
  const auto t = simulate(cluster(2), [](FlowEngine& engine) -> std::vector<double> {
    const FlowEngine::Mark mark = engine.mark();
    std::vector<double> ends;
    for (int i = 0; i < 2; ++i) {
      const Seconds start = engine.now();
      const BackgroundId background = engine.add_background();
      const TaskId slowed = engine.add_delay(Seconds{10});
      engine.slow_down(slowed, background, 0.5);
      const TaskId first = engine.add_delay(Seconds{1});
      const TaskId last = engine.add_delay(Seconds{100});
      engine.add_dependency(first, last);
      engine.run_beside(background, first, last);
      const TaskId never = engine.add_barrier();
      engine.add_dependency(last, never);
      engine.run_beside(background, never, never);
      const std::vector<TaskId> both = {last, never};
      engine.at(start + Seconds{4}, [&engine, &both] { engine.cancel(both); });
      engine.run();
      ends.push_back((engine.end_time(slowed) - start).value);
      ends.push_back(background.value);
      engine.rewind(mark);
    }
    return ends;
  });
  EXPECT_NEAR(t[0], 12, 1e-9);
  EXPECT_NEAR(t[2], 12, 1e-9);
  EXPECT_EQ(t[1], t[3]) << "the same number again";
}

}  // namespace
}  // namespace orrery::sim::backgrounds_test
