// Does every kernel compute on the GPU what the CPU does?
#include <gtest/gtest.h>

#include "executor/cuda/backend.h"
#include "tests/executor_cuda/gpu_main.h"
#include "tests/executor_cuda/kernel_checks.h"

namespace orrery::executor {

std::unique_ptr<Backend> make_tested_backend(Precision precision) {
  return make_cuda_backend(precision);
}

}  // namespace orrery::executor

int main(int argc, char** argv) { return orrery::executor::run_gpu_tests(argc, argv); }
