#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "executor/cuda/backend.h"
#include "executor/cuda/groups.h"

namespace orrery::executor {

std::string describe(const CudaStatus& status) {
  if (!status.problem.empty()) return status.problem;
  std::string text =
      fmt::format("{} device{}:", status.devices.size(), status.devices.size() == 1 ? "" : "s");
  for (const CudaDeviceInfo& device : status.devices) {
    const double gib = static_cast<double>(device.memory_bytes) / (1 << 30);
    text += fmt::format("{} {} ({:.1f} GiB, {} SMs, {}.{})", text.back() == ':' ? "" : ",",
                        device.name, gib, device.multiprocessors, device.major, device.minor);
  }
  return text;
}

int multiprocessors_of_share(const CudaDeviceInfo& gpu, std::int64_t percent) {
  const int unit = gpu.major >= 9 ? 8 : gpu.major == 8 ? 4 : 2;
  const std::int64_t groups = gpu.multiprocessors / unit;
  return static_cast<int>(std::max<std::int64_t>(1, groups * percent / 100)) * unit;
}

std::string type_of_share(const std::string& gpu_type, std::int64_t percent) {
  return fmt::format("{} {}%", gpu_type, percent);
}

int cuda_device_for(int number) {
  const int devices = static_cast<int>(cuda_status().devices.size());
  return devices > 0 ? number % devices : 0;
}

std::vector<int> groups_for(const std::vector<int>& counts, int unit, int groups) {
  std::vector<int> out;
  int sum = 0;
  for (const int count : counts) {
    if (count < 1) throw std::runtime_error(fmt::format("a part of {} multiprocessors", count));
    out.push_back((count + unit - 1) / unit);
    sum += out.back();
  }
  if (sum > groups) {
    throw std::runtime_error(fmt::format(
        "the parts need {} groups of {} multiprocessors, the device has {}", sum, unit, groups));
  }
  return out;
}

}  // namespace orrery::executor
