// Does the host side of the CUDA back end order its work? Against a runtime that does everything as
// late as it may (late_runtime.cpp), where a forgotten wait gives wrong numbers.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <vector>

#include "executor/cuda/backend.h"
#include "tests/executor/cuda/kernel_checks.h"
#include "tests/executor/cuda/late_runtime.h"

namespace orrery::executor {

std::unique_ptr<Backend> make_tested_backend(Precision precision) {
  return make_cuda_backend(precision);
}

}  // namespace orrery::executor

namespace orrery::executor::late_device_test {

namespace {

TEST(LateDevice, ATransferWaitsForTheKernelsOfItsOwnMemoryOnly) {
  const auto backend = make_cuda_backend(Precision::fp64);
  const Tensor done = backend->allocate(1, false), busy = backend->allocate(1, false);
  backend->fill(done, 1);
  backend->synchronize();
  backend->fill(busy, 2);
  double value = 0;
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&value, 1));
  backend->download(done, bytes);
  EXPECT_EQ(value, 1);
  backend->download(busy, bytes);
  EXPECT_EQ(value, 2);
  backend->fill(busy, 3);
  value = 4;
  backend->upload(bytes, busy);
  backend->download(busy, bytes);
  EXPECT_EQ(value, 4) << "the kernel came after the upload";
}

TEST(LateDevice, WhatIsSentMayChangeAtOnce) {
  constexpr int kTokens = 3, kCalls = 40;  // More than are on their way at a time.
  const auto backend = make_cuda_backend(Precision::fp64);
  const Tensor table = backend->allocate(kCalls + kTokens, false);
  std::vector<double> rows(kCalls + kTokens);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(i);
  backend->upload(std::as_bytes(std::span(rows)), table);
  std::vector<Tensor> out;
  std::vector<std::int32_t> tokens(kTokens);
  for (int call = 0; call < kCalls; ++call) {
    for (int i = 0; i < kTokens; ++i) tokens[i] = call + i;
    out.push_back(backend->allocate(kTokens, false));
    backend->embed(tokens, table, 0, kCalls + kTokens, 1, out.back());
    tokens.assign(kTokens, 0);
  }
  for (int call = 0; call < kCalls; ++call) {
    std::vector<double> got(kTokens);
    backend->download(out[call], std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, (std::vector<double>{call + 0.0, call + 1.0, call + 2.0})) << call;
  }
}

TEST(LateDevice, MemoryIsFreedInItsTurn) {
  const auto backend = make_cuda_backend(Precision::fp64);
  std::optional<Tensor> dropped = backend->allocate(8, false);
  std::future<void> dropping;
  const int before = LateRuntime::frees;
  int during = -1;
  // Another thread frees while this one enqueues an allocation.
  LateRuntime::in_allocation = [&] {
    dropping = std::async(std::launch::async, [&] { dropped.reset(); });
    dropping.wait_for(std::chrono::milliseconds(100));
    during = LateRuntime::frees - before;
  };
  const Tensor other = backend->allocate(8, false);
  dropping.wait();
  EXPECT_EQ(during, 0) << "freed in the middle of an allocation";
  EXPECT_EQ(LateRuntime::frees - before, 1);
  backend->synchronize();
}

TEST(LateDevice, APartOfAGpuHasStreamAndEventsOfOneContext) {
  for (const auto& backend : make_green_backends(Precision::fp64, 0, {1, 3})) {
    const Tensor some = backend->allocate(1, false);
    double value = 0;
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&value, 1));
    backend->fill(some, 2);
    backend->download(some, bytes);
    EXPECT_EQ(value, 2);
    backend->embed(std::vector<std::int32_t>{0}, some, 0, 1, 1, some);
    backend->download(some, bytes);
    EXPECT_EQ(value, 2);
  }
}

TEST(LateDevice, ThePeakIsTheMostThatWasAllocatedAtATime) {
  const auto backend = make_cuda_backend(Precision::bf16);
  EXPECT_EQ(backend->name(), "cuda late 4 SMs bf16");
  const std::size_t workspace = backend->allocated();
  EXPECT_EQ(workspace, 32u << 20) << "what cuBLAS has from the start";
  Tensor first = backend->allocate(1000, false);
  { const Tensor second = backend->allocate(500, true); }
  EXPECT_EQ(backend->allocated(), workspace + 2000);
  EXPECT_EQ(backend->peak(), workspace + 4000);
  backend->reset_peak();
  EXPECT_EQ(backend->peak(), workspace + 2000);
  EXPECT_THROW(make_cuda_backend(Precision::bf16, 1), std::runtime_error);
}

}  // namespace
}  // namespace orrery::executor::late_device_test
