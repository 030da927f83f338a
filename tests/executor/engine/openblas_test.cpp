// Does the other matrix library train as Eigen does?
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "executor/compute/cpu_gemm.h"
#include "tests/executor/engine/equality_checks.h"

namespace orrery::executor::openblas_test {
namespace {

TEST(OpenBlas, TrainsAsEigenDoesInOneThread) {
  if (!has_openblas()) GTEST_SKIP() << "OpenBLAS was not found at configure time";
  const models::Workload workload = tiny_workload();
  for (const Precision precision : {Precision::fp64, Precision::fp32}) {
    TrainingOptions options = training(precision, 20);
    const auto with = [&](const std::string& library, const ir::Plan& plan) {
      options.backend = [&](int) { return make_cpu_backend(precision, library); };
      return train(lower_for_executor(plan, workload), options);
    };
    const TrainingRun expected = with("eigen", single_device_plan(workload));
    for (const std::uint64_t seed : {3u, 8u, 21u}) {
      const ir::Plan plan = random_training_plan(seed, workload);
      for (const char* library : {"eigen", "openblas"}) {
        expect_equal(with(library, plan), expected, precision,
                     library + (", plan " + std::to_string(seed)));
      }
    }
  }
  void* const symbol = ::dlsym(RTLD_DEFAULT, "openblas_get_num_threads");
  if (symbol == nullptr) GTEST_SKIP() << "linked statically: its threads cannot be asked for";
  EXPECT_EQ(reinterpret_cast<int (*)()>(symbol)(), 1);
}

}  // namespace
}  // namespace orrery::executor::openblas_test
