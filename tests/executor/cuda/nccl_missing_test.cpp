// What the NCCL transport says where there is no NCCL.
#include <gtest/gtest.h>

#include <stdexcept>

#include "executor/cuda/nccl_transport.h"

namespace orrery::executor::nccl_missing_test {
namespace {

TEST(NcclMissing, IsSaidWithItsReason) {
  if (nccl_problem().empty()) GTEST_SKIP() << "NCCL is there";
  try {
    make_nccl_transport(nullptr);
    ADD_FAILURE() << "a transport without a device";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), nccl_problem());
  }
}

}  // namespace
}  // namespace orrery::executor::nccl_missing_test
