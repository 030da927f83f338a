/// Time as the micro-benchmarks read it. Given from outside, so that tests can say what a
/// measurement took.
#pragma once
#include "models/base/units.h"

namespace orrery::executor {

class BenchClock {
 public:
  virtual ~BenchClock() = default;
  virtual Seconds wall() = 0;        ///< Monotonic, from any origin.
  virtual Seconds thread_cpu() = 0;  ///< That this thread has computed.
  virtual void sleep(Seconds duration) = 0;
};

/// This machine's.
BenchClock& system_bench_clock();

}  // namespace orrery::executor
