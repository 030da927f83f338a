#include "sim/replay/replica_store.h"

#include <algorithm>

#include "models/base/check.h"

namespace orrery::sim {

PlanDevices::PlanDevices(const ir::Plan& plan)
    : all(std::make_shared<std::vector<DeviceId>>(ir::devices_of(plan))),
      working(std::make_shared<std::vector<DeviceId>>(ir::working_devices(plan))) {
  auto next = working->begin();  // Both ascend.
  for (std::size_t i = 0; i < all->size(); ++i) {
    if (next != working->end() && *next == (*all)[i]) {
      ++next;
    } else {
      idle.push_back(static_cast<std::uint32_t>(i));
    }
  }
}

bool PlanDevices::works(DeviceId device) const {
  return std::binary_search(working->begin(), working->end(), device);
}

void ReplicaStore::set_gpu(std::int64_t iteration, models::PlanPointer plan,
                           const PlanDevices& devices) {
  gpu_ = Replica{iteration,       ir::Location::peer,
                 std::move(plan), devices.all,
                 devices.working, nullptr,
                 devices.idle,    {}};
}

void ReplicaStore::set_gpu_iteration(std::int64_t iteration) {
  if (gpu_) gpu_->iteration = iteration;
}

std::int64_t ReplicaStore::counts_from(Slot slot, std::int64_t now) {
  return counts_from_.try_emplace(slot, now).first->second;
}

void ReplicaStore::persist(Slot slot, std::int64_t iteration, models::PlanPointer plan,
                           const PlanDevices& devices, DeviceList stored_on, Instant end) {
  Persisted& state = slots_[slot];
  ORRERY_CHECK(!state.pending, "a checkpoint starts before the one before it is persisted");
  counts_from_[slot] = iteration;
  state.pending = Replica{iteration,       slot.first,           std::move(plan), devices.all,
                          devices.working, std::move(stored_on), devices.idle,    end};
}

std::optional<Instant> ReplicaStore::pending(Slot slot) const {
  const auto at = slots_.find(slot);
  if (at == slots_.end() || !at->second.pending) return std::nullopt;
  return at->second.pending->end;
}

void ReplicaStore::shift(Slot slot, std::int64_t iterations, Nanoseconds time) {
  if (const auto last = counts_from_.find(slot); last != counts_from_.end()) {
    last->second += iterations;
  }
  const auto at = slots_.find(slot);
  if (at == slots_.end() || !at->second.pending) return;
  at->second.pending->iteration += iterations;
  at->second.pending->end = at->second.pending->end + time;
}

void ReplicaStore::settle(Instant now) {
  for (auto& [slot, state] : slots_) {
    if (!state.pending || state.pending->end > now) continue;
    if (!state.kept.empty() && state.kept.back().iteration == state.pending->iteration) {
      state.kept.pop_back();
    }
    state.kept.push_back(std::move(*state.pending));
    state.pending.reset();
    if (state.kept.size() > kKept) state.kept.pop_front();
  }
}

void ReplicaStore::roll_back(std::int64_t iteration) {
  if (gpu_ && gpu_->iteration != iteration) gpu_.reset();
  for (auto& [slot, state] : slots_) {
    std::erase_if(state.kept, [&](const Replica& one) { return one.iteration > iteration; });
    if (state.pending && state.pending->iteration > iteration) state.pending.reset();
  }
  for (auto& [slot, from] : counts_from_) from = std::min(from, iteration);
}

void ReplicaStore::Replica::lose_shard(std::size_t position) {
  const auto shard = static_cast<std::uint32_t>(position);
  const auto at = std::lower_bound(lost_shards.begin(), lost_shards.end(), shard);
  if (at == lost_shards.end() || *at != shard) lost_shards.insert(at, shard);
}

void ReplicaStore::lose(const DeviceStates::Change& change) {
  for (const DeviceId device : change.died) lose_device(device);
  for (const NodeId node : change.lost_nodes) lose_node(node);
  if (!change.job_failed) return;
  gpu_.reset();
  for (auto& [slot, state] : slots_) state.pending.reset();
}

void ReplicaStore::lose_device(DeviceId device) {
  if (gpu_) {
    const auto at = std::lower_bound(gpu_->devices->begin(), gpu_->devices->end(), device);
    if (at != gpu_->devices->end() && *at == device) {
      gpu_->lose_shard(at - gpu_->devices->begin());
    }
  }
  for (auto& [slot, state] : slots_) {
    if (!state.pending) continue;
    const std::vector<DeviceId>& sources = *state.pending->sources;
    if (std::binary_search(sources.begin(), sources.end(), device)) state.pending.reset();
  }
}

void ReplicaStore::lose_node(NodeId node) {
  const auto on_node = [&](DeviceId device) { return cluster_.device(device).node == node; };
  for (auto& [slot, state] : slots_) {
    if (slot.first == ir::Location::cloud) continue;
    if (state.pending) {
      const std::vector<DeviceId>& places = state.pending->places();
      if (std::any_of(places.begin(), places.end(), on_node)) state.pending.reset();
    }
    for (Replica& replica : state.kept) {
      const std::vector<DeviceId>& places = replica.places();
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (on_node(places[i])) replica.lose_shard(i);
      }
    }
  }
}

std::vector<models::StateReplica> ReplicaStore::list() const {
  std::vector<const Replica*> found;
  if (gpu_) found.push_back(&*gpu_);
  for (const auto& [slot, state] : slots_) {
    for (const Replica& replica : state.kept) found.push_back(&replica);
  }
  std::erase_if(found,
                [](const Replica* r) { return r->lost_shards.size() == r->devices->size(); });
  std::stable_sort(found.begin(), found.end(), [](const Replica* a, const Replica* b) {
    return a->iteration != b->iteration ? a->iteration > b->iteration : a->location < b->location;
  });
  std::vector<models::StateReplica> replicas;
  for (const Replica* one : found) {
    replicas.push_back({one->iteration, one->location, one->layout,
                        one->stored_on ? *one->stored_on : std::vector<DeviceId>{},
                        one->lost_shards});
  }
  return replicas;
}

}  // namespace orrery::sim
