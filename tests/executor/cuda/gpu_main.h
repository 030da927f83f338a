/// main() of tests that need a GPU: without one they say why and exit with 77, which ctest counts
/// as skipped.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "executor/cuda/backend.h"

namespace orrery::executor {

inline int run_gpu_tests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const CudaStatus status = cuda_status();
  if (!status.problem.empty() && !::testing::GTEST_FLAG(list_tests)) {
    fmt::print("skipped: {}\n", status.problem);
    return 77;
  }
  return RUN_ALL_TESTS();
}

}  // namespace orrery::executor
