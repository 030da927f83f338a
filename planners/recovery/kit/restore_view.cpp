#include "planners/recovery/kit/restore_view.h"

#include <algorithm>

namespace orrery::planners {
namespace {

/// Maps devices of equal groups onto each other; false when two plans differ in what decides the
/// shares of their devices.
class ShareMatch {
 public:
  explicit ShareMatch(int devices)
      : forward_(static_cast<std::size_t>(devices), -1),
        taken_(static_cast<std::size_t>(devices), false) {}

  bool match(const ir::Plan& a, const ir::Plan& b) {
    if (a.redundancy != b.redundancy || a.virtual_stages != b.virtual_stages ||
        a.pipelines.size() != b.pipelines.size()) {
      return false;
    }
    for (std::size_t p = 0; p < a.pipelines.size(); ++p) {
      if (!match(a.pipelines[p], b.pipelines[p])) return false;
    }
    return true;
  }
  std::vector<int> take() { return std::move(forward_); }

 private:
  bool match(const ir::Pipeline& a, const ir::Pipeline& b) {
    if (a.stages.size() != b.stages.size() || a.reroutes != b.reroutes) return false;
    // Whether a stage is idle, and so holds nothing, depends on the number of micro-batches.
    if (!a.reroutes.empty() && a.micro_batches != b.micro_batches) return false;
    for (std::size_t s = 0; s < a.stages.size(); ++s) {
      const auto& left = a.stages[s].segments;
      const auto& right = b.stages[s].segments;
      if (left.size() != right.size()) return false;
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (!match(left[i], right[i])) return false;
      }
    }
    return true;
  }

  bool match(const ir::Segment& a, const ir::Segment& b) {
    if (a.first_block != b.first_block || a.last_block != b.last_block ||
        a.virtual_stage != b.virtual_stage || a.zero != b.zero ||
        a.expert_parallel != b.expert_parallel || a.groups.size() != b.groups.size()) {
      return false;
    }
    for (std::size_t g = 0; g < a.groups.size(); ++g) {
      if (!match(a.groups[g], b.groups[g])) return false;
    }
    return true;
  }

  bool match(const ir::Group& a, const ir::Group& b) {
    if (a.tensor_parallel != b.tensor_parallel || a.sequence != b.sequence ||
        a.sequence_degree != b.sequence_degree || a.devices.size() != b.devices.size()) {
      return false;
    }
    for (std::size_t i = 0; i < a.devices.size(); ++i) {
      int& known = forward_[a.devices[i].index()];
      const int device = b.devices[i].value;
      if (known == device) continue;
      if (known >= 0 || taken_[b.devices[i].index()]) return false;
      known = device;
      taken_[b.devices[i].index()] = true;
    }
    return true;
  }

  std::vector<int> forward_;
  std::vector<bool> taken_;
};

}  // namespace

std::optional<std::vector<int>> same_shares(const ir::Plan& layout, const ir::Plan& plan,
                                            int devices) {
  ShareMatch matching(devices);
  if (!matching.match(layout, plan)) return std::nullopt;
  return matching.take();
}

ir::Location location_of(StateSource source) {
  switch (source) {
    case StateSource::own_gpu:
    case StateSource::peer_gpu:
      return ir::Location::peer;
    case StateSource::own_host:
    case StateSource::peer_host:
      return ir::Location::host_memory;
    case StateSource::own_nvme:
    case StateSource::peer_nvme:
      return ir::Location::nvme;
    case StateSource::cloud:
      break;
  }
  return ir::Location::cloud;
}

RestoreView::RestoreView(const models::Cluster& cluster, const models::JobState& state,
                         std::int64_t iteration)
    : cluster_(cluster),
      live_(static_cast<std::size_t>(cluster.size()), false),
      live_of_node_(cluster.nodes.size(), -1) {
  for (const DeviceId device : state.live) {
    live_[device.index()] = true;
    int& first = live_of_node_[cluster.device(device).node.index()];
    if (first < 0) first = device.value;
  }
  for (const models::StateReplica& copy : state.replicas) {
    if (copy.iteration != iteration || copy.layout == nullptr) continue;
    ViewedCopy viewed;
    viewed.location = copy.location;
    const auto known = std::find_if(layouts_.begin(), layouts_.end(), [&](const ir::Plan* layout) {
      return layout == copy.layout.get() || *layout == *copy.layout;
    });
    viewed.layout = static_cast<std::size_t>(known - layouts_.begin());
    if (known == layouts_.end()) layouts_.push_back(copy.layout.get());
    viewed.reader.assign(static_cast<std::size_t>(cluster.size()), -1);
    const std::vector<DeviceId> devices = ir::devices_of(*copy.layout);
    std::size_t gone = 0;
    std::size_t reached = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (gone < copy.lost_shards.size() && copy.lost_shards[gone] == i) {
        ++gone;
        continue;
      }
      const DeviceId holder = copy.stored_on.empty() ? devices[i] : copy.stored_on[i];
      int& reader = viewed.reader[devices[i].index()];
      reader = copy.location == ir::Location::cloud ? devices[i].value
                                                    : reader_of(copy.location, holder);
      if (reader >= 0) ++reached;
    }
    viewed.whole = reached == devices.size();
    copies_.push_back(std::move(viewed));
  }
}

int RestoreView::reader_of(ir::Location location, DeviceId holder) const {
  if (live_[holder.index()]) return holder.value;
  if (location == ir::Location::peer) return -1;
  return live_of_node_[cluster_.device(holder).node.index()];
}

bool RestoreView::reaches(StateSource source, int reader, int receiver) const {
  const auto same_node = [&] {
    return cluster_.device({reader}).node == cluster_.device({receiver}).node;
  };
  switch (source) {
    case StateSource::own_gpu:
      return reader == receiver;
    case StateSource::own_host:
    case StateSource::own_nvme:
      return same_node();
    case StateSource::peer_gpu:
      return reader != receiver;
    case StateSource::peer_host:
    case StateSource::peer_nvme:
      return !same_node();
    case StateSource::cloud:
      break;
  }
  return true;
}

}  // namespace orrery::planners
