/// Parts of one GPU that emulate devices of different strength, as `--shares` of calibrate and
/// execute name them: percent of the multiprocessors. Both turn a share into the same part, so that
/// what was measured on it holds for what runs on it. Private to tools.
#pragma once
#include <cstdint>
#include <string>

#include "executor/cuda/backend.h"

namespace orrery::tools {

/// Multiprocessors of a share: whole groups of what the hardware splits by, rounded down, at least
/// one group, so that shares that add up to 100 fit. Groups are the least that a context can have:
/// 8 from compute capability 9.0 on, 4 on 8.x, else 2. [CUDA driver API, 6.35 "Green Contexts",
/// cuDevSmResourceSplitByCount]
int multiprocessors_of_share(const executor::CudaDeviceInfo& gpu, std::int64_t percent);

/// Name of such a part as a GPU type of profiles and cluster files: "H100-80GB 50%".
std::string type_of_share(const std::string& gpu_type, std::int64_t percent);

}  // namespace orrery::tools
