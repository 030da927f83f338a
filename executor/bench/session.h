/// The driver of micro-benchmarks that need processes: brings one up for each device, on this
/// machine or on named hosts, and has them take cases one after the other. Agents and store are the
/// launcher's.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/bench/bench_rank.h"
#include "executor/bench/compute_bench.h"
#include "executor/launcher/spawner.h"

namespace orrery::executor {

struct BenchSessionOptions : SpawnOptions {
  BenchModel model;
  SamplingRule rule;
};

class BenchSession {
 public:
  /// Returns when all processes have joined. Throws std::runtime_error (TransportError among it)
  /// with what went wrong, and BenchInterrupted; nothing is left running then.
  explicit BenchSession(BenchSessionOptions options);
  ~BenchSession();

  /// Has the case's devices take it; new samples go to `sample` as they come. Throws
  /// std::runtime_error when a process ends or does not answer, and BenchInterrupted.
  void run(const BenchCase& one, const std::vector<ir::Measurement>& before,
           const std::function<void(const ir::Measurement&)>& sample);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::executor
