#include "tools/commands/gpu_shares.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::tools {

int multiprocessors_of_share(const executor::CudaDeviceInfo& gpu, std::int64_t percent) {
  const int unit = gpu.major >= 9 ? 8 : gpu.major == 8 ? 4 : 2;
  const std::int64_t groups = gpu.multiprocessors / unit;
  return static_cast<int>(std::max<std::int64_t>(1, groups * percent / 100)) * unit;
}

std::string type_of_share(const std::string& gpu_type, std::int64_t percent) {
  return fmt::format("{} {}%", gpu_type, percent);
}

}  // namespace orrery::tools
