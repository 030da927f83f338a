/// Training by plans against training on one device.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/executor/engine/training_plans.h"

namespace orrery::executor {

/// Relative bounds of losses at every step, and of gradients by norm at the first.
struct EqualityBounds {
  double loss = 0, gradient = 0;
};
/// bf16: as llm.c compares its bf16 runs with PyTorch's (1e-2, 2e-2), gradients twice as far for
/// the rounding of partial sums over tensor-parallel ranks.
inline EqualityBounds bounds_of(Precision precision) {
  if (precision == Precision::fp64) return {1e-12, 1e-12};
  if (precision == Precision::fp32) return {1e-6, 1e-5};
  return {1e-2, 4e-2};
}

inline void expect_equal(const TrainingRun& run, const TrainingRun& expected, Precision precision,
                         const std::string& what) {
  const EqualityBounds bounds = bounds_of(precision);
  ASSERT_EQ(run.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_LE(std::abs(run.losses[i] / expected.losses[i] - 1), bounds.loss)
        << what << ", step " << i + 1 << ": " << run.losses[i] << " and " << expected.losses[i];
  }
  EXPECT_LE(relative_distance(run.gradients, expected.gradients), bounds.gradient) << what;
  EXPECT_EQ(run.disagreement, "") << what;
}

/// On the CPU.
inline TrainingOptions training(Precision precision, int steps) {
  TrainingOptions options;
  options.precision = precision;
  options.steps = steps;
  return options;
}

/// One device.
inline TrainingRun reference(const models::Workload& workload, Precision precision, int steps) {
  return train(lower_for_executor(single_device_plan(workload), workload),
               training(precision, steps));
}

/// `plans` random plans from `seed` against one device with the same back end, and that against
/// the CPU's fp64.
inline void expect_plans_equal(const TrainingOptions& options, const TinyModel& model,
                               std::uint64_t seed, std::uint64_t plans,
                               ir::Plan (*make)(std::uint64_t,
                                                const models::Workload&) = random_training_plan) {
  const models::Workload workload = tiny_workload(model);
  const ir::Program single = lower_for_executor(single_device_plan(workload), workload);
  const TrainingRun expected = train(single, options);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  expect_equal(expected, reference(workload, Precision::fp64, options.steps), options.precision,
               "one device");
  for (std::uint64_t i = seed; i < seed + plans; ++i) {
    const ir::Program program = lower_for_executor(make(i, workload), workload);
    if (model.tied_embeddings && !find_unsupported(program).empty()) continue;
    expect_equal(train(program, options), expected, options.precision, "plan " + std::to_string(i));
  }
}

}  // namespace orrery::executor
