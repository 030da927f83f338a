#include "models/ir/plan.h"

#include <algorithm>

#include "models/base/check.h"

namespace orrery::ir {

std::vector<DeviceId> devices_of(const Stage& stage) {
  ORRERY_CHECK(!stage.segments.empty(), "a stage without segments");
  std::vector<DeviceId> devices;
  for (const Group& group : stage.segments.front().groups) {
    devices.insert(devices.end(), group.devices.begin(), group.devices.end());
  }
  return devices;
}

std::vector<DeviceId> devices_of(const Plan& plan) {
  std::vector<DeviceId> devices;
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      const auto more = devices_of(stage);
      devices.insert(devices.end(), more.begin(), more.end());
    }
  }
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

std::int64_t global_batch(const Plan& plan) {
  std::int64_t samples = 0;
  for (const Pipeline& pipeline : plan.pipelines) {
    samples += std::int64_t{pipeline.micro_batches} * pipeline.micro_batch_size;
  }
  return samples;
}

}  // namespace orrery::ir
