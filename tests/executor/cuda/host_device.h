/// A Device of executor/cuda/kernel_backend.h whose kernels are loops on the host, so that all of
/// the CUDA back end but launches, streams and cuBLAS is tested where no GPU is.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/cuda/attention_kernels.h"
#include "executor/cuda/gemm_call.h"
#include "executor/cuda/kernel_backend.h"

namespace orrery::executor {

struct HostCount {
  std::size_t now = 0;
  std::size_t peak = 0;
};

class HostMemory final : public Memory {
 public:
  HostMemory(std::size_t bytes, std::shared_ptr<HostCount> count)
      : data_((bytes + 15) / 8), bytes_(bytes), count_(std::move(count)) {
    count_->now += bytes_;
    count_->peak = std::max(count_->peak, count_->now);
  }
  ~HostMemory() override { count_->now -= bytes_; }
  std::byte* data() override { return reinterpret_cast<std::byte*>(data_.data()); }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::vector<double> data_;
  std::size_t bytes_;
  std::shared_ptr<HostCount> count_;
};

class HostDevice {
 public:
  std::string name() const { return "host"; }
  MemoryPointer allocate(std::size_t bytes) { return std::make_shared<HostMemory>(bytes, count_); }
  std::size_t allocated() const { return count_->now; }
  std::size_t peak() const { return count_->peak; }
  void reset_peak() { count_->peak = count_->now; }
  std::unique_lock<std::mutex> turn() { return std::unique_lock(mutex_); }
  std::byte* use(Memory& memory) { return memory.data(); }
  void copy(const void* from, void* to, std::size_t bytes) { std::memmove(to, from, bytes); }
  void send(std::span<const std::byte> bytes, Memory& memory) { upload(bytes, memory, 0); }
  void upload(std::span<const std::byte> bytes, Memory& memory, std::size_t offset) {
    if (!bytes.empty()) std::memcpy(memory.data() + offset, bytes.data(), bytes.size());
  }
  void download(Memory& memory, std::size_t offset, std::span<std::byte> into) {
    std::memcpy(into.data(), memory.data() + offset, into.size());
  }
  void synchronize() {}
  template <class Kernel>
  void each(const Kernel& kernel, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) kernel(i);
  }
  template <class Kernel>
  void rows(const Kernel& kernel, std::size_t count) {
    for (std::size_t row = 0; row < count; ++row) kernel(row, HostLanes());
  }
  void gemm(const GemmCall& call) {
    if (call.in == Number::f64) return multiply<double, double>(call, call.a, call.b, call.c);
    if (call.in == Number::f32) return multiply<float, float>(call, call.a, call.b, call.c);
    if (call.out == Number::f32) return multiply<Bf16, float>(call, call.a, call.b, call.c);
    multiply<Bf16, Bf16>(call, call.a, call.b, call.c);
  }
  void gemm_batched(const GemmCall& call, int count) {
    for (int i = 0; i < count; ++i) {
      GemmCall one = call;
      one.a = static_cast<const void* const*>(call.a)[i];
      one.b = static_cast<const void* const*>(call.b)[i];
      one.c = static_cast<void* const*>(call.c)[i];
      gemm(one);
    }
  }

 private:
  template <class In, class Out>
  static void multiply(const GemmCall& call, const void* a, const void* b, void* c) {
    const auto* x = static_cast<const In*>(a);
    const auto* y = static_cast<const In*>(b);
    auto* z = static_cast<Out*>(c);
    for (std::ptrdiff_t i = 0; i < call.m; ++i) {
      for (std::ptrdiff_t j = 0; j < call.n; ++j) {
        WideOf<In> sum = 0;
        for (std::ptrdiff_t l = 0; l < call.k; ++l) {
          sum += load(x[call.transpose_a ? l * call.lda + i : i * call.lda + l]) *
                 load(y[call.transpose_b ? j * call.ldb + l : l * call.ldb + j]);
        }
        Out& out = z[i * call.ldc + j];
        const auto scaled = static_cast<WideOf<In>>(call.alpha) * sum;
        out = store<Out>(call.beta == 0 ? scaled
                                        : scaled + static_cast<WideOf<In>>(call.beta) * load(out));
      }
    }
  }

  std::mutex mutex_;
  std::shared_ptr<HostCount> count_ = std::make_shared<HostCount>();
};

inline std::unique_ptr<Backend> make_host_lanes_backend(Precision precision) {
  const auto device = std::make_shared<HostDevice>();
  switch (precision) {
    case Precision::fp32:
      return std::make_unique<KernelBackend<HostDevice, float>>(device);
    case Precision::fp64:
      return std::make_unique<KernelBackend<HostDevice, double>>(device);
    case Precision::bf16:
      break;
  }
  return std::make_unique<KernelBackend<HostDevice, Bf16>>(device);
}

}  // namespace orrery::executor
