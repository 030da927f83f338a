// Can the libraries be loaded, and have they all that is called? Neither needs a device.
#include <gtest/gtest.h>

#include "executor/cuda/backend.h"
#include "executor/cuda/cublas.h"
#include "executor/cuda/dynamic_library.h"
#include "executor/cuda/error.h"
#include "executor/cuda/nccl_transport.h"
#include "executor/cuda/nccl_version.h"

namespace orrery::executor::libraries_test {
namespace {

TEST(Libraries, CublasHasAllThatIsCalled) {
  const Cublas& cublas = Cublas::get();
  EXPECT_NE(std::string(cublas.status_string(CUBLAS_STATUS_NOT_SUPPORTED)), "");
  EXPECT_NO_THROW(cublas.check(CUBLAS_STATUS_SUCCESS, "nothing"));
  EXPECT_THROW(cublas.check(CUBLAS_STATUS_ALLOC_FAILED, "much"), std::bad_alloc);
  EXPECT_THROW(cublas.check(CUBLAS_STATUS_NOT_SUPPORTED, "this"), std::runtime_error);
}

TEST(Libraries, NcclHasAllThatIsCalled) { EXPECT_EQ(nccl_problem(), cuda_status().problem); }

TEST(Libraries, NcclOfAnOldOrAnotherMajorVersionIsRefused) {
  EXPECT_EQ(nccl_version_problem(21701), "");
  EXPECT_EQ(nccl_version_problem(22809), "");
  EXPECT_NE(nccl_version_problem(21605).find("2.16.5"), std::string::npos);
  EXPECT_NE(nccl_version_problem(2708).find("2708"), std::string::npos);  // 2.7.8's own code
  EXPECT_NE(nccl_version_problem(30000).find("3.0.0"), std::string::npos);
}

TEST(Libraries, WhatCannotBeLoadedSaysWhy) {
  try {
    DynamicLibrary({"libnone.so.1", "/nowhere/libnone.so"});
    ADD_FAILURE() << "loaded";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("libnone.so.1"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("/nowhere/libnone.so"), std::string::npos);
  }
}

TEST(Errors, OfTheRuntimeBecomeExceptions) {
  EXPECT_NO_THROW(check_cuda(cudaSuccess, "nothing"));
  EXPECT_THROW(check_cuda(cudaErrorMemoryAllocation, "much"), std::bad_alloc);
  EXPECT_THROW(check_cuda(cudaErrorInvalidValue, "this"), std::runtime_error);
}

}  // namespace
}  // namespace orrery::executor::libraries_test
