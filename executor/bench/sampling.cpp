#include "executor/bench/sampling.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "models/base/median.h"

namespace orrery::executor {
namespace {

/// Enough once time is short.
constexpr int kLeastSlow = 3;
/// Runs inside one sample.
constexpr int kMostRuns = 1 << 20;
/// Short work warms up more often: up to this multiple of what was asked for, or until it has run
/// for this many samples.
constexpr int kMostWarmUps = 10;
/// Samples that are always disturbed end after this multiple of `enough`.
constexpr double kPatience = 4;

class SystemClock final : public BenchClock {
 public:
  Seconds wall() override { return read(CLOCK_MONOTONIC); }
  Seconds thread_cpu() override { return read(CLOCK_THREAD_CPUTIME_ID); }
  void sleep(Seconds duration) override {
    // Ends within a microsecond of its time instead of within 50, as the worker's sleeps do.
    ::prctl(PR_SET_TIMERSLACK, 1000UL);
    std::this_thread::sleep_for(std::chrono::duration<double>(duration.value));
  }

 private:
  static Seconds read(clockid_t id) {
    timespec now{};
    ::clock_gettime(id, &now);
    return Seconds{static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec)};
  }
};

struct WorkTimes {
  Seconds wall;
  Seconds cpu;
};

WorkTimes time_once(const TimedWork& work, int runs, BenchClock& clock) {
  if (work.prepare) work.prepare();
  if (work.synchronize) work.synchronize();
  const Seconds cpu = clock.thread_cpu();
  const Seconds wall = clock.wall();
  work.run(runs);
  if (work.synchronize) work.synchronize();
  const Seconds wall_end = clock.wall();
  const Seconds cpu_end = clock.thread_cpu();
  return {wall_end - wall, cpu_end - cpu};
}

/// How many runs make a sample long enough; warms up by the way.
int count_runs(const TimedWork& work, const SamplingRule& rule, BenchClock& clock) {
  int runs = 1;
  Seconds warm;
  for (int i = 0; i < rule.warm_up * kMostWarmUps; ++i) {
    warm += time_once(work, 1, clock).wall;
    if (i + 1 >= rule.warm_up && warm >= rule.at_least * kMostWarmUps) break;
  }
  if (!work.repeatable) return runs;
  while (runs < kMostRuns) {
    const Seconds taken = time_once(work, runs, clock).wall;
    if (taken >= rule.at_least) break;
    const double factor = taken.value > 0 ? rule.at_least / taken : 16;
    runs = std::min(kMostRuns, static_cast<int>(std::ceil(runs * std::clamp(factor, 1.5, 16.0))));
  }
  return runs;
}

}  // namespace

BenchClock& system_bench_clock() {
  static SystemClock clock;
  return clock;
}

void describe(config::Visitor& v, SamplingRule& rule) {
  v.required("least", rule.least, "repetitions that count");
  v.required("most", rule.most, "repetitions that count");
  v.required("most_disturbed", rule.most_disturbed, "further ones");
  v.required("spread", rule.spread, "standard error of the median");
  v.required("enough", rule.enough.value, "time of all repetitions, s");
  v.required("at_least", rule.at_least.value, "of one sample, s");
  v.required("wall_over_cpu", rule.wall_over_cpu, "above which a sample is disturbed");
  v.required("slack", rule.slack.value, "cost of the clocks, s");
  v.required("warm_up", rule.warm_up, "runs");
}

SamplingRule quick_rule() {
  SamplingRule rule;
  rule.least = 3;
  rule.most = 6;
  rule.most_disturbed = 6;
  rule.spread = 0.1;
  rule.enough = Seconds{0.05};
  return rule;
}

Sampler::Sampler(const SamplingRule& rule, const std::vector<ir::Measurement>& before)
    : rule_(rule) {
  for (const ir::Measurement& sample : before) {
    add(sample.wall, sample.disturbed);
    next_ = std::max(next_, sample.repetition + 1);
  }
}

bool is_disturbed(const SamplingRule& rule, Seconds wall, Seconds cpu, double slowdown) {
  return cpu.value > 0 && wall > cpu * std::max(rule.wall_over_cpu, slowdown) + rule.slack;
}

void Sampler::add(Seconds wall, bool disturbed) {
  ++next_;
  total_ += wall;
  if (disturbed) {
    ++disturbed_;
  } else {
    walls_.push_back(wall.value);
  }
}

Seconds Sampler::median() const { return Seconds{walls_.empty() ? 0 : orrery::median(walls_)}; }

bool Sampler::stable() const {
  std::vector<double> sorted = walls_;
  std::sort(sorted.begin(), sorted.end());
  const double last = static_cast<double>(sorted.size()) - 1;
  const double half = 0.5 * std::sqrt(static_cast<double>(sorted.size()));
  const auto at = [&](double rank) {
    return sorted[static_cast<std::size_t>(std::clamp(rank, 0.0, last))];
  };
  const double width = at(std::ceil(0.5 * last + half)) - at(std::floor(0.5 * last - half));
  return 0.5 * width <= rule_.spread * orrery::median(sorted);
}

bool Sampler::done() const {
  if (good() >= rule_.most) return true;
  if (good() >= rule_.least && (total_ >= rule_.enough || stable())) return true;
  if (good() >= kLeastSlow && total_ >= rule_.enough) return true;
  if (good() + disturbed_ >= kLeastSlow && total_ >= rule_.enough * kPatience) return true;
  return disturbed_ >= rule_.most_disturbed;
}

void take_samples(const ir::Measurement& key, const TimedWork& work, const SamplingRule& rule,
                  const std::vector<ir::Measurement>& before, BenchClock& clock,
                  const std::function<void(const ir::Measurement&)>& sink,
                  const std::function<void()>& check) {
  Sampler sampler(rule, before);
  if (sampler.done()) return;
  check();
  const int runs = count_runs(work, rule, clock);
  const double count = static_cast<double>(runs) * work.parts;
  while (!sampler.done()) {
    check();
    const WorkTimes times = time_once(work, runs, clock);
    ir::Measurement sample = key;
    sample.repetition = sampler.next_repetition();
    sample.wall = times.wall / count;
    sample.cpu = work.computes ? times.cpu / count : Seconds{0};
    sample.disturbed = work.computes && is_disturbed(rule, times.wall, times.cpu, work.slowdown);
    if (work.slowdown > 1) {
      const Seconds own = work.computes ? times.cpu : times.wall;
      const Seconds rest = own * work.slowdown - times.wall;
      const Seconds start = clock.wall();
      if (rest.value > 0) clock.sleep(rest);
      sample.wall += (clock.wall() - start) / count;
    }
    sampler.add(sample.wall, sample.disturbed);
    sink(sample);
  }
}

}  // namespace orrery::executor
