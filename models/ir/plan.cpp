#include "models/ir/plan.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <utility>

#include "models/base/check.h"

namespace orrery::ir {

namespace {

void append(const Stage& stage, std::vector<DeviceId>& devices) {
  ORRERY_CHECK(!stage.segments.empty(), "a stage without segments");
  for (const Group& group : stage.segments.front().groups) {
    devices.insert(devices.end(), group.devices.begin(), group.devices.end());
  }
}

/// Ascending, each once; by marks where ids are dense, as they mostly are.
void make_ascending(std::vector<DeviceId>& devices) {
  if (devices.empty()) return;
  const auto [least, most] = std::minmax_element(devices.begin(), devices.end());
  constexpr std::size_t kSparse = 64;
  if (least->value < 0 || most->index() > kSparse * devices.size()) {
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    return;
  }
  constexpr std::size_t kBits = 64;
  std::vector<std::uint64_t> there(most->index() / kBits + 1, 0);
  for (const DeviceId device : devices) {
    there[device.index() / kBits] |= std::uint64_t{1} << device.index() % kBits;
  }
  devices.clear();
  for (std::size_t w = 0; w < there.size(); ++w) {
    for (std::uint64_t left = there[w]; left != 0; left &= left - 1) {
      devices.push_back({static_cast<std::int32_t>(kBits * w) + std::countr_zero(left)});
    }
  }
}

}  // namespace

std::vector<DeviceId> devices_of(const Stage& stage) {
  std::vector<DeviceId> devices;
  append(stage, devices);
  return devices;
}

std::vector<DeviceId> devices_of(const Plan& plan) {
  std::vector<DeviceId> devices;
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      append(stage, devices);
    }
  }
  make_ascending(devices);
  return devices;
}

std::vector<DeviceId> working_devices(const Plan& plan) {
  std::set<std::pair<int, int>> hosts;  // Pipeline, stage that takes rerouted micro-batches.
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Reroute& reroute : pipeline.reroutes) {
      hosts.insert({reroute.to_pipeline, reroute.stage});
    }
  }
  if (hosts.empty()) return devices_of(plan);
  std::vector<DeviceId> devices;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Pipeline& pipeline = plan.pipelines[p];
    std::vector<int> left(pipeline.stages.size(), 0);
    for (const Reroute& reroute : pipeline.reroutes) {
      ++left.at(reroute.stage);
    }
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const bool host = hosts.contains({static_cast<int>(p), static_cast<int>(s)});
      if (left[s] >= pipeline.micro_batches && !host) continue;
      append(pipeline.stages[s], devices);
    }
  }
  make_ascending(devices);
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
