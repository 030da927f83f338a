/// How often a measurement is repeated, and which repetitions count.
///
/// Repetitions go on until the median is stable: half of the distance between the order statistics
/// of rank n / 2 -+ sqrt(n) / 2 is below a share of it; that is its standard error whatever the
/// distribution [David and Nagaraja 2003, Order Statistics, chapter 7; unverified]. A repetition
/// during which another process had the core (wall over CPU time of the thread above a limit) is
/// kept but flagged, and does not count towards that; its place is tried again a bounded number of
/// times.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/ir/measurement.h"

namespace orrery::executor {

/// Time as the micro-benchmarks read it. Given from outside, so that tests can say what a
/// measurement took.
class BenchClock {
 public:
  virtual ~BenchClock() = default;
  virtual Seconds wall() = 0;        ///< Monotonic, from any origin.
  virtual Seconds thread_cpu() = 0;  ///< That this thread has computed.
  virtual void sleep(Seconds duration) = 0;
};

/// This machine's.
BenchClock& system_bench_clock();

struct SamplingRule {
  int least = 5;             ///< Repetitions that count; 3 once they have taken `enough`.
  int most = 30;             ///< Repetitions that count.
  int most_disturbed = 30;   ///< Further ones that do not.
  double spread = 0.02;      ///< Standard error of the median over the median.
  Seconds enough{1.0};       ///< Time of all repetitions after which few suffice.
  Seconds at_least{200e-6};  ///< Of one sample: shorter work runs several times in it.
  double wall_over_cpu = 1.05;
  /// Cost of reading the clocks and of a timer interrupt, which is no disturbance.
  Seconds slack{5e-6};
  int warm_up = 1;  ///< Runs that are not measured, for caches and libraries; short work: more.
};

void describe(config::Visitor& v, SamplingRule& rule);

/// Rule for a quick look: few repetitions.
SamplingRule quick_rule();

/// Another process had the core during work that took so long, for longer than an emulated slower
/// device would have slept anyway. `cpu` 0: the thread only waited, which tells nothing; false.
bool is_disturbed(const SamplingRule& rule, Seconds wall, Seconds cpu, double slowdown = 1);

/// Keeps account of the repetitions of one measurement.
class Sampler {
 public:
  /// `before`: samples of an earlier run that was interrupted; they count.
  Sampler(const SamplingRule& rule, const std::vector<ir::Measurement>& before);

  /// No more repetitions are needed, or allowed.
  bool done() const;
  void add(Seconds wall, bool disturbed);
  int next_repetition() const { return next_; }
  int good() const { return static_cast<int>(walls_.size()); }
  int disturbed() const { return disturbed_; }
  /// Wall time over the repetitions that count; 0 without any.
  Seconds median() const;

 private:
  bool stable() const;

  SamplingRule rule_;
  std::vector<double> walls_;
  int disturbed_ = 0;
  int next_ = 0;
  Seconds total_;
};

/// Thrown between two repetitions when the user wants to stop.
struct BenchInterrupted {};

/// Something that can be timed.
struct TimedWork {
  std::function<void()> prepare;      ///< Before each repetition, not timed; may be empty.
  std::function<void(int)> run;       ///< Repeats it this many times.
  std::function<void()> synchronize;  ///< Waits for what runs elsewhere; may be empty.
  bool repeatable = false;            ///< run(n) may be called with n > 1 after one prepare().
  bool computes = true;               ///< CPU time of the thread tells whether it was disturbed.
  int parts = 1;                      ///< How many of what is measured run(1) does.
  /// Emulated slower device: as with WorkerOptions::slowdown, a sample lasts this multiple of its
  /// CPU time, or as long as it took if that was longer; of its time where `computes` is false.
  double slowdown = 1;
};

/// Repeats the work as the rule says; each repetition goes to `sink` as `key` with its times. Calls
/// `check` before each; it may throw.
void take_samples(const ir::Measurement& key, const TimedWork& work, const SamplingRule& rule,
                  const std::vector<ir::Measurement>& before, BenchClock& clock,
                  const std::function<void(const ir::Measurement&)>& sink,
                  const std::function<void()>& check);

}  // namespace orrery::executor
