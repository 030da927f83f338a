#include "executor/bench/sampling.h"

#include <gtest/gtest.h>

#include <vector>

namespace orrery::executor::sampling_test {
namespace {

/// Time passes only as the work says.
class ToldClock final : public BenchClock {
 public:
  Seconds wall() override { return wall_; }
  Seconds thread_cpu() override { return cpu_; }
  void sleep(Seconds duration) override {
    wall_ += duration;
    slept_ += duration;
  }
  void pass(Seconds wall, Seconds cpu) {
    wall_ += wall;
    cpu_ += cpu;
  }
  Seconds slept() const { return slept_; }

 private:
  Seconds wall_{100};
  Seconds cpu_{7};
  Seconds slept_;
};

SamplingRule rule_of(int least, int most, int most_disturbed) {
  SamplingRule rule;
  rule.least = least;
  rule.most = most;
  rule.most_disturbed = most_disturbed;
  rule.enough = Seconds{1e9};
  rule.warm_up = 0;
  return rule;
}

/// Samples of work whose n-th run takes walls[n] (the last one for good) and cpu_share of it.
struct Taken {
  std::vector<ir::Measurement> samples;
  std::size_t runs = 0;
};
Taken take(const std::vector<double>& walls, const std::vector<double>& cpu_shares,
           const SamplingRule& rule, const std::vector<ir::Measurement>& before = {},
           double slowdown = 1, bool repeatable = false) {
  ToldClock clock;
  Taken taken;
  TimedWork work;
  work.slowdown = slowdown;
  work.repeatable = repeatable;
  work.run = [&](int runs) {
    for (int i = 0; i < runs; ++i) {
      const std::size_t n = taken.runs++;
      const double wall = walls[std::min(n, walls.size() - 1)];
      clock.pass(Seconds{wall}, Seconds{wall * cpu_shares[std::min(n, cpu_shares.size() - 1)]});
    }
  };
  take_samples(
      {}, work, rule, before, clock,
      [&](const ir::Measurement& sample) { taken.samples.push_back(sample); }, [] {});
  return taken;
}

TEST(Sampling, EndsAsSoonAsTheMedianIsStable) {
  const Taken taken = take({1.0}, {1}, rule_of(5, 30, 30));
  EXPECT_EQ(taken.samples.size(), 5u);
  for (const ir::Measurement& sample : taken.samples) {
    EXPECT_DOUBLE_EQ(sample.wall.value, 1.0);
    EXPECT_FALSE(sample.disturbed);
  }
}

TEST(Sampling, GoesOnWhileTheMedianIsNotStableButNotForEver) {
  std::vector<double> walls;
  for (int i = 0; i < 40; ++i) walls.push_back(i % 2 == 0 ? 1.0 : 2.0);
  EXPECT_EQ(take(walls, {1}, rule_of(5, 12, 30)).samples.size(), 12u);
}

TEST(Sampling, DisturbedRepetitionsAreKeptFlaggedAndReplaced) {
  // The second and the third lose the core for a tenth of their time.
  const Taken taken = take({1.0}, {1, 0.9, 0.9, 1}, rule_of(5, 30, 30));
  ASSERT_EQ(taken.samples.size(), 7u);
  for (std::size_t i = 0; i < taken.samples.size(); ++i) {
    EXPECT_EQ(taken.samples[i].disturbed, i == 1 || i == 2) << i;
    EXPECT_EQ(taken.samples[i].repetition, static_cast<int>(i));
  }
}

TEST(Sampling, WorkThatIsAlwaysDisturbedEndsAndAllItsSamplesSaySo) {
  const Taken taken = take({1.0}, {0.5}, rule_of(5, 30, 9));
  EXPECT_EQ(taken.samples.size(), 9u);
  for (const ir::Measurement& sample : taken.samples) EXPECT_TRUE(sample.disturbed);
}

TEST(Sampling, TheLimitIsTheRulesShareOfTheProcessorTimeAndSomeSlack) {
  const SamplingRule rule;
  EXPECT_FALSE(is_disturbed(rule, Seconds{1.049}, Seconds{1}));
  EXPECT_TRUE(is_disturbed(rule, Seconds{1.051}, Seconds{1}));
  EXPECT_FALSE(is_disturbed(rule, Seconds{8e-6}, Seconds{4e-6})) << "clocks cost that much";
  EXPECT_FALSE(is_disturbed(rule, Seconds{1}, Seconds{0})) << "it waited, which says nothing";
  EXPECT_FALSE(is_disturbed(rule, Seconds{3.9}, Seconds{1}, 4)) << "it would have slept anyway";
  EXPECT_TRUE(is_disturbed(rule, Seconds{4.1}, Seconds{1}, 4));
}

TEST(Sampling, LongWorkIsContentWithThree) {
  SamplingRule rule = rule_of(5, 30, 30);
  rule.enough = Seconds{2.5};
  std::vector<double> walls;
  for (int i = 0; i < 40; ++i) walls.push_back(i % 2 == 0 ? 1.0 : 2.0);
  EXPECT_EQ(take(walls, {1}, rule).samples.size(), 3u);
}

TEST(Sampling, SamplesOfAnInterruptedRunCountAndAreNotRepeated) {
  const SamplingRule rule = rule_of(5, 30, 30);
  Taken first = take({1.0}, {1}, rule);
  first.samples.resize(3);
  const Taken second = take({1.0}, {1}, rule, first.samples);
  ASSERT_EQ(second.samples.size(), 2u);
  EXPECT_EQ(second.samples.front().repetition, 3);
  EXPECT_EQ(second.samples.back().repetition, 4);
  first.samples.insert(first.samples.end(), second.samples.begin(), second.samples.end());
  EXPECT_EQ(take({1.0}, {1}, rule, first.samples).runs, 0u);
}

TEST(Sampling, ShortWorkRunsOftenEnoughInOneSample) {
  SamplingRule rule = rule_of(3, 3, 3);
  rule.at_least = Seconds{1e-3};
  const Taken taken = take({1e-6}, {1}, rule, {}, 1, true);
  ASSERT_EQ(taken.samples.size(), 3u);
  EXPECT_GE(taken.runs, 3000u);
  for (const ir::Measurement& sample : taken.samples) {
    EXPECT_NEAR(sample.wall.value, 1e-6, 1e-12);
    EXPECT_NEAR(sample.cpu.value, 1e-6, 1e-12);
  }
}

TEST(Sampling, ASlowerDeviceTakesItsMultipleOfTheProcessorTime) {
  const Taken taken = take({1.0}, {1}, rule_of(3, 3, 3), {}, 4);
  ASSERT_EQ(taken.samples.size(), 3u);
  for (const ir::Measurement& sample : taken.samples) {
    EXPECT_NEAR(sample.wall.value, 4.0, 1e-9);
    EXPECT_NEAR(sample.cpu.value, 1.0, 1e-9);
    EXPECT_FALSE(sample.disturbed);
  }
  // Half of the time another process had the core: that is part of the stretch.
  const Taken shared = take({2.0}, {0.5}, rule_of(3, 3, 3), {}, 4);
  EXPECT_NEAR(shared.samples.front().wall.value, 4.0, 1e-9);
  EXPECT_FALSE(shared.samples.front().disturbed);
}

TEST(Sampling, StopsBetweenTwoRepetitions) {
  ToldClock clock;
  TimedWork work;
  work.run = [&](int) { clock.pass(Seconds{1}, Seconds{1}); };
  int samples = 0;
  const auto check = [&] {
    if (samples == 2) throw BenchInterrupted();
  };
  EXPECT_THROW(take_samples(
                   {}, work, rule_of(5, 30, 30), {}, clock,
                   [&](const ir::Measurement&) { ++samples; }, check),
               BenchInterrupted);
  EXPECT_EQ(samples, 2);
}

}  // namespace
}  // namespace orrery::executor::sampling_test
