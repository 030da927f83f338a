// Do the bodies of the CUDA kernels, and what composes them, compute what the CPU does? Here they
// run in loops on the host.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/cuda/backend.h"
#include "executor/cuda/groups.h"
#include "tests/executor/cuda/host_device.h"
#include "tests/executor/cuda/kernel_checks.h"

namespace orrery::executor {

std::unique_ptr<Backend> make_tested_backend(Precision precision) {
  return make_host_lanes_backend(precision);
}

}  // namespace orrery::executor

namespace orrery::executor::host_kernels_test {

namespace {

TEST(Bf16Numbers, RoundToTheNearestAndKeepWhatTheyHold) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bf16 number = {static_cast<std::uint16_t>(bits)};
    const float wide = widen(number);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(widen(narrow(wide)))) << bits;
    } else {
      EXPECT_EQ(narrow(wide).bits, bits);
    }
  }
  EXPECT_EQ(narrow(1.00390625F).bits, 0x3f80);  // Half of the last place: to even.
  EXPECT_EQ(narrow(1.01171875F).bits, 0x3f82);
}

TEST(CudaStatus, SaysWhatIsThereOrWhy) {
  const CudaStatus status = cuda_status();
  EXPECT_EQ(status.problem.empty(), !status.devices.empty());
  EXPECT_NE(describe(status), "");
  if (status.problem.empty()) return;
  try {
    make_cuda_backend(Precision::fp32);
    ADD_FAILURE() << "a back end without a device";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), status.problem);
  }
  EXPECT_THROW(make_green_backends(Precision::fp32, 0, {8}), std::runtime_error);
}

TEST(CudaStatus, IsDescribedInOneLine) {
  CudaStatus status;
  status.devices = {{"A", std::int64_t{80} << 30, 132, 9, 0},
                    {"B", std::int64_t{1} << 29, 2, 8, 0}};
  EXPECT_EQ(describe(status), "2 devices: A (80.0 GiB, 132 SMs, 9.0), B (0.5 GiB, 2 SMs, 8.0)");
}

TEST(GreenParts, TakeWholeGroupsUntilNoneIsLeft) {
  EXPECT_EQ(groups_for({8, 9, 100}, 8, 16), (std::vector<int>{1, 2, 13}));
  EXPECT_THROW(groups_for({8, 9, 105}, 8, 16), std::runtime_error);
  EXPECT_THROW(groups_for({0}, 8, 16), std::runtime_error);
}

}  // namespace
}  // namespace orrery::executor::host_kernels_test
