// Does every kernel compute on the GPU what the CPU does?
#include <gtest/gtest.h>

#include "executor/cuda/backend.h"
#include "tests/executor/cuda/gpu_main.h"
#include "tests/executor/cuda/kernel_checks.h"

namespace orrery::executor {

std::unique_ptr<Backend> make_tested_backend(Precision precision) {
  return make_cuda_backend(precision);
}

}  // namespace orrery::executor

namespace orrery::executor::gpu_kernels_test {}  // namespace orrery::executor::gpu_kernels_test

int main(int argc, char** argv) { return orrery::executor::run_gpu_tests(argc, argv); }
