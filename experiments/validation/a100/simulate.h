/// Predicts the iteration time of rows: kernel model for compute, the simulator for everything
/// else. Each simulation runs in a forked copy of the process, so that results do not depend on
/// what ran before; several run at once.
#pragma once
#include <functional>
#include <vector>

#include "experiments/validation/a100/row.h"
#include "models/base/units.h"
#include "models/cost/pricer.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/program.h"
#include "models/spec/library.h"

namespace orrery::experiments {

struct A100Prediction {
  Seconds iteration;
  models::Breakdown breakdown;
};

/// A row with the parameters that it is predicted with.
struct A100Question {
  const A100Row* row = nullptr;  ///< Must outlive the call.
  A100Parameters parameters;
};

struct A100Simulation {
  bool folded = false;  ///< See programs.h.
  int jobs = 1;         ///< Simulations at once.
  /// Called after each simulation with how many are done, and of how many.
  std::function<void(std::size_t, std::size_t)> progress;
};

/// One answer for each question, in their order. Throws std::runtime_error naming the row where a
/// simulation fails.
std::vector<A100Prediction> simulate(const std::vector<A100Question>& questions,
                                     const models::Library& library, const A100Simulation& options);

/// Times of the compute ops of a row's program. A pass of a layer takes its kernels' time, or what
/// the host needs to launch them less the time of its tensor-parallel collectives, if that is
/// longer: kernels are launched ahead and wait for each other only [unverified].
std::vector<Seconds> op_times(const A100Row& row, const A100Parameters& parameters,
                              const models::GpuType& gpu, const ir::Program& program,
                              double state_bytes_per_parameter);

}  // namespace orrery::experiments
