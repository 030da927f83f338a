#include "models/lower/zero_gathers.h"

#include <algorithm>
#include <set>

namespace orrery::models {

ZeroGathers::ZeroGathers(const Workload& workload, const BlockReplicas& replicas,
                         double bytes_per_weight)
    : class_of_(workload.size(), -1) {
  for (const BlockId block : class_of_.ids()) {
    if (!replicas.zero(block).shards_parameters()) continue;
    // The matrix that embedding and head share makes the ends special.
    const BlockId before{block.value - 1};
    const bool end = block.value < 2 || block.value + 1 == workload.size();
    if (end || class_of(before) < 0 || !replicas.alike(before, block)) {
      classes_.push_back(make_class(block, workload, replicas, bytes_per_weight));
    }
    class_of_[block] = static_cast<int>(classes_.size()) - 1;
  }
}

ZeroGathers::BlockClass ZeroGathers::make_class(BlockId block, const Workload& workload,
                                                const BlockReplicas& replicas,
                                                double bytes_per_weight) {
  std::map<std::vector<DeviceId>, Bytes> bytes;
  const std::vector<Parameter>& parameters = workload.block(block).parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Bytes whole{static_cast<double>(parameters[i].elements) * bytes_per_weight};
    for (const ParameterStep& step : replicas.steps(block, i, SyncPhase::gather)) {
      std::vector<DeviceId> devices;
      for (const int owner : step.step.group) devices.push_back({owner});
      std::sort(devices.begin(), devices.end());
      bytes[std::move(devices)] += step.share * whole;
    }
  }
  BlockClass out;
  for (const auto& [devices, size] : bytes) {
    for (const DeviceId device : devices) out.of_device[device].push_back(out.gathers.size());
    out.gathers.push_back({devices, size});
  }
  return out;
}

std::vector<GatherRound> ZeroGathers::rounds(int block_class, const ir::Group& group) const {
  if (block_class < 0) return {};
  const BlockClass& all = classes_[block_class];
  std::set<std::size_t> own;
  for (const DeviceId device : group.devices) {
    if (const auto at = all.of_device.find(device); at != all.of_device.end()) {
      own.insert(at->second.begin(), at->second.end());
    }
  }
  std::vector<GatherRound> rounds;
  std::vector<std::set<DeviceId>> busy;  // By round: members that take part.
  for (const std::size_t index : own) {
    const Gather& gather = all.gathers[index];
    std::vector<DeviceId> members;
    for (const DeviceId device : group.devices) {
      if (std::binary_search(gather.devices.begin(), gather.devices.end(), device)) {
        members.push_back(device);
      }
    }
    std::size_t round = 0;
    while (round < rounds.size() &&
           std::any_of(members.begin(), members.end(),
                       [&](DeviceId device) { return busy[round].count(device) > 0; })) {
      ++round;
    }
    rounds.resize(std::max(rounds.size(), round + 1));
    busy.resize(rounds.size());
    rounds[round].sets.push_back(gather.devices);
    rounds[round].bytes += gather.bytes;
    busy[round].insert(members.begin(), members.end());
  }
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    rounds[i].bytes = rounds[i].bytes / static_cast<double>(rounds[i].sets.size());
    for (const DeviceId device : group.devices) {
      if (busy[i].count(device) == 0) rounds[i].sets.push_back({device});
    }
  }
  return rounds;
}

}  // namespace orrery::models
