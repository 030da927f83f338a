/// The CUDA back end: cuBLAS for matrix products (bf16 with sums in fp32; fp32 without TF32 unless
/// asked for; fp64), own kernels for everything else, all deterministic. It is found at configure
/// time (ORRERY_WITH_CUDA) and probed at run time; these functions exist in every build and say
/// what is missing.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/compute/backend.h"

namespace orrery::executor {

struct CudaDeviceInfo {
  std::string name;
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
  int major = 0;  ///< Compute capability.
  int minor = 0;
};

struct CudaStatus {
  /// Why there is no device: built without CUDA, no driver, none present. Empty: there is one.
  std::string problem;
  std::vector<CudaDeviceInfo> devices;
};
/// Never throws; initializes the driver.
CudaStatus cuda_status();
/// "2 devices: NVIDIA H100 80GB HBM3 (79.1 GiB, 132 SMs, 9.0), ..." or the problem.
std::string describe(const CudaStatus& status);

/// Multiprocessors of a part of a card in percent: whole groups of what the hardware splits by,
/// rounded down, at least one group, so that parts that add up to 100 fit. Groups are the least
/// that a context can have: 8 from compute capability 9.0 on, 4 on 8.x, else 2. [CUDA driver
/// API, 6.35 "Green Contexts", cuDevSmResourceSplitByCount]
int multiprocessors_of_share(const CudaDeviceInfo& gpu, std::int64_t percent);

/// Name of such a part as a GPU type of profiles and cluster files: "H100-80GB 50%".
std::string type_of_share(const std::string& gpu_type, std::int64_t percent);

/// The device for process `number` of a node: they share what is there in turn. 0 without any.
int cuda_device_for(int number);

/// A back end on a device, with a stream, a memory pool and a cuBLAS handle of its own. With
/// `sm_count` it is confined to at least that many multiprocessors, which others may use as well
/// (make_green_backends gives disjoint ones); 0: all. With `tf32`, fp32 products round their
/// operands to TF32. Throws std::runtime_error with the reason when it cannot be had.
std::unique_ptr<Backend> make_cuda_backend(Precision precision, int device = 0, int sm_count = 0,
                                           bool tf32 = false);

/// Emulated devices of different strength: one back end for each count, on multiprocessors that no
/// other one uses. Counts are rounded up to what the hardware splits by (8 on sm_90, 4 on sm_80).
/// Caches and memory bandwidth are shared, so that these are no model of another device's memory.
/// Throws std::runtime_error, also when the device has too few.
std::vector<std::unique_ptr<Backend>> make_green_backends(Precision precision, int device,
                                                          const std::vector<int>& sm_counts);

}  // namespace orrery::executor
