/// Micro-benchmarks of one device: passes over blocks, matrix products, copies, optimizer steps,
/// kept memory, the engine's cost of an op. On any back end.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "executor/bench/cases.h"
#include "executor/bench/sampling.h"
#include "executor/compute/backend.h"

namespace orrery::executor {

/// Where samples go, and what is asked between repetitions (throws BenchInterrupted to stop).
struct BenchSink {
  std::function<void(const ir::Measurement&)> sample;
  std::function<void()> check = [] {};
};

class ComputeBench {
 public:
  /// Keeps references. Weights are filled with small random numbers, the same for each tile of
  /// them: GPUs slow down by what they multiply, so that zeros would look too fast.
  ComputeBench(Backend& backend, const BenchModel& model, BenchClock& clock);
  ~ComputeBench();

  /// Kinds block, gemm, memory_bandwidth, optimizer, memory and op_overhead. Throws what the back
  /// end throws, std::bad_alloc among it.
  void run(const BenchCase& one, const SamplingRule& rule,
           const std::vector<ir::Measurement>& before, const BenchSink& sink);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Header of a program with `layers` layers between embedding and head.
ir::ProgramHeader bench_header(const BenchModel& model, int layers);

/// A program for one rank of `ops` ops that do nothing: optimizer steps of a rank without blocks.
ir::Program empty_program(const BenchModel& model, int ops);

}  // namespace orrery::executor
