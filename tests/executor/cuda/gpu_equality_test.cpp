// Do plans on the GPU mean what they say? Ranks are threads that share one GPU.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <stdexcept>

#include "executor/cuda/backend.h"
#include "tests/executor/cuda/gpu_main.h"
#include "tests/executor/engine/equality_checks.h"

namespace orrery::executor::gpu_equality_test {
namespace {

TrainingOptions on_gpu(Precision precision) {
  TrainingOptions options;
  options.precision = precision;
  options.steps = 20;
  options.backend = [precision](int) { return make_cuda_backend(precision); };
  return options;
}

TEST(Cuda, RandomPlansTrainAsOneDeviceDoesInDoublePrecision) {
  expect_plans_equal(on_gpu(Precision::fp64), {}, 0, 30);
}

TEST(Cuda, RandomPlansTrainAsOneDeviceDoesInSinglePrecision) {
  expect_plans_equal(on_gpu(Precision::fp32), {ir::Activation::gelu}, 30, 30);
}

TEST(Cuda, GptTrainsAsOneDeviceDoes) {
  expect_plans_equal(on_gpu(Precision::fp64), kTinyGpt, 80, 20);
}

TEST(Cuda, PartsOfTheSequenceAndExpertsTrainAsOneDeviceDoes) {
  expect_plans_equal(on_gpu(Precision::fp64), {}, 100, 20, divided_training_plan);
  expect_plans_equal(on_gpu(Precision::fp64), {.experts = 4}, 120, 20, divided_training_plan);
}

TEST(Cuda, RandomPlansTrainAsOneDeviceDoesInBf16) {
  expect_plans_equal(on_gpu(Precision::bf16), {}, 60, 20);
}

TEST(Cuda, SchedulesAndPipelinesDoNotChangeABit) {
  const models::Workload workload = tiny_workload();
  using Kind = ir::ScheduleKind;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    TrainingOptions options = on_gpu(precision);
    options.steps = 5;
    const TrainingRun expected =
        train(lower_for_executor(single_device_plan(workload, 2), workload), options);
    for (const Kind kind :
         {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved_one_f_one_b, Kind::zero_bubble}) {
      const int chunks = kind == Kind::interleaved_one_f_one_b ? 2 : 1;
      const TrainingRun run =
          train(lower_for_executor(pipeline_plan(workload, 2, kind, chunks), workload), options);
      EXPECT_EQ(run.losses, expected.losses) << static_cast<int>(kind);
      EXPECT_EQ(run.gradients, expected.gradients) << static_cast<int>(kind);
      EXPECT_EQ(run.weights, expected.weights) << static_cast<int>(kind);
    }
  }
}

/// Four emulated devices, two of them with twice the multiprocessors of the others.
TEST(GreenContexts, APlanOnUnequalPartsOfOneGpuTrainsAsOneDeviceDoes) {
  const models::Workload workload = tiny_workload();
  std::vector<std::unique_ptr<Backend>> parts;
  try {
    parts = make_green_backends(Precision::fp32, 0, {16, 16, 8, 8});
  } catch (const std::runtime_error& error) {
    GTEST_SKIP() << error.what();
  }
  TrainingOptions options = on_gpu(Precision::fp32);
  const TrainingRun expected =
      train(lower_for_executor(single_device_plan(workload, 2), workload), options);
  std::mutex mutex;
  options.backend = [&](int rank) {
    const std::lock_guard lock(mutex);
    return std::move(parts.at(rank));
  };
  const ir::Plan plan = pipeline_plan(workload, 4, ir::ScheduleKind::one_f_one_b);
  expect_equal(train(lower_for_executor(plan, workload), options), expected, Precision::fp32,
               "four parts");
}

TEST(GreenContexts, FewerMultiprocessorsTakeLonger) {
  std::vector<std::unique_ptr<Backend>> parts;
  try {
    parts = make_green_backends(Precision::fp32, 0, {64, 8});
  } catch (const std::runtime_error& error) {
    GTEST_SKIP() << error.what();
  }
  std::vector<double> seconds;
  for (const auto& part : parts) {
    const int n = 4096;
    const Tensor a = part->allocate(n * n, false), b = part->allocate(n * n, false);
    part->fill(a, 1);
    part->gemm(false, false, n, n, n, 1, a, a, 0, b);  // Loads the library.
    part->synchronize();
    double best = 1e9;
    for (int run = 0; run < 3; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 5; ++i) part->gemm(false, false, n, n, n, 1, a, a, 0, b);
      part->synchronize();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count());
    }
    seconds.push_back(best);
  }
  EXPECT_GT(seconds[1], 3 * seconds[0])
      << "8 and 64 multiprocessors: " << seconds[1] << " and " << seconds[0] << " s";
}

}  // namespace
}  // namespace orrery::executor::gpu_equality_test

int main(int argc, char** argv) { return orrery::executor::run_gpu_tests(argc, argv); }
