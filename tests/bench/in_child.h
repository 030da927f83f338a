/// For benchmarks whose every repetition runs in a fresh process.
#pragma once
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <time.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "sim/flow/fork.h"

namespace orrery::bench {

/// By this process so far.
inline double process_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double peak_megabytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

/// What the last repetition measured; nothing where one failed. Plain numbers in a struct.
template <class Measurement>
std::optional<Measurement> measure_in_children(
    benchmark::State& state, const std::function<Measurement()>& work,
    const std::function<double(const Measurement&)>& seconds) {
  Measurement last{};
  for (auto step : state) {
    const sim::ForkResult result = sim::run_forked([&] {
      const Measurement measurement = work();
      return std::string(reinterpret_cast<const char*>(&measurement), sizeof measurement);
    });
    if (const auto* failure = std::get_if<sim::ChildFailure>(&result)) {
      state.SkipWithError(failure->message.c_str());
      return std::nullopt;
    }
    std::memcpy(&last, std::get<std::string>(result).data(), sizeof last);
    state.SetIterationTime(seconds(last));
  }
  return last;
}

}  // namespace orrery::bench
