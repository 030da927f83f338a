#include "sim/replay/copy_store.h"

#include <algorithm>

#include "models/base/check.h"

namespace orrery::sim {

PlanDevices::PlanDevices(const ir::Plan& plan)
    : all(std::make_shared<std::vector<DeviceId>>(ir::devices_of(plan))),
      working(std::make_shared<std::vector<DeviceId>>(ir::working_devices(plan))) {
  for (std::size_t i = 0; i < all->size(); ++i) {
    if (!std::binary_search(working->begin(), working->end(), (*all)[i])) {
      idle.push_back(static_cast<std::uint32_t>(i));
    }
  }
}

void CopyStore::set_gpu(std::int64_t iteration, models::PlanPointer plan,
                        const PlanDevices& devices) {
  gpu_ = Copy{iteration,       ir::Location::peer,
              std::move(plan), devices.all,
              devices.working, nullptr,
              devices.idle,    {}};
}

void CopyStore::set_gpu_iteration(std::int64_t iteration) {
  if (gpu_) gpu_->iteration = iteration;
}

std::int64_t CopyStore::counts_from(Slot slot, std::int64_t now) {
  return counts_from_.try_emplace(slot, now).first->second;
}

void CopyStore::persist(Slot slot, std::int64_t iteration, models::PlanPointer plan,
                        const PlanDevices& devices, DeviceList holders, Instant end) {
  Persisted& state = slots_[slot];
  ORRERY_CHECK(!state.pending, "a checkpoint starts before the one before it is persisted");
  counts_from_[slot] = iteration;
  state.pending = Copy{iteration,       slot.first,         std::move(plan), devices.all,
                       devices.working, std::move(holders), devices.idle,    end};
}

std::optional<Instant> CopyStore::pending(Slot slot) const {
  const auto at = slots_.find(slot);
  if (at == slots_.end() || !at->second.pending) return std::nullopt;
  return at->second.pending->end;
}

void CopyStore::shift(Slot slot, std::int64_t iterations, Nanoseconds time) {
  if (const auto last = counts_from_.find(slot); last != counts_from_.end()) {
    last->second += iterations;
  }
  const auto at = slots_.find(slot);
  if (at == slots_.end() || !at->second.pending) return;
  at->second.pending->iteration += iterations;
  at->second.pending->end = at->second.pending->end + time;
}

void CopyStore::settle(Instant now) {
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

void CopyStore::roll_back(std::int64_t iteration) {
  if (gpu_ && gpu_->iteration != iteration) gpu_.reset();
  for (auto& [slot, state] : slots_) {
    std::erase_if(state.kept, [&](const Copy& copy) { return copy.iteration > iteration; });
    if (state.pending && state.pending->iteration > iteration) state.pending.reset();
  }
  for (auto& [slot, from] : counts_from_) from = std::min(from, iteration);
}

void CopyStore::lose(Copy& copy, std::size_t position) {
  const auto share = static_cast<std::uint32_t>(position);
  const auto at = std::lower_bound(copy.gone.begin(), copy.gone.end(), share);
  if (at == copy.gone.end() || *at != share) copy.gone.insert(at, share);
}

bool CopyStore::touches(const Copy& copy, NodeId node) const {
  const std::vector<DeviceId>& where = copy.stored_on ? *copy.stored_on : *copy.devices;
  return std::any_of(where.begin(), where.end(),
                     [&](DeviceId d) { return cluster_.device(d).node == node; });
}

void CopyStore::lose_device(DeviceId device) {
  const auto find = [&](const DeviceList& list) {
    const auto at = std::lower_bound(list->begin(), list->end(), device);
    return at != list->end() && *at == device ? at - list->begin() : std::ptrdiff_t{-1};
  };
  if (gpu_) {
    if (const auto at = find(gpu_->devices); at >= 0) lose(*gpu_, static_cast<std::size_t>(at));
  }
  for (auto& [slot, state] : slots_) {
    if (state.pending && find(state.pending->sources) >= 0) state.pending.reset();
  }
}

void CopyStore::lose_node(NodeId node) {
  for (auto& [slot, state] : slots_) {
    if (slot.first == ir::Location::cloud) continue;
    if (state.pending && touches(*state.pending, node)) state.pending.reset();
    for (Copy& copy : state.kept) {
      const std::vector<DeviceId>& where = copy.stored_on ? *copy.stored_on : *copy.devices;
      for (std::size_t i = 0; i < where.size(); ++i) {
        if (cluster_.device(where[i]).node == node) lose(copy, i);
      }
    }
  }
}

void CopyStore::lose_job() {
  gpu_.reset();
  for (auto& [slot, state] : slots_) state.pending.reset();
}

std::vector<models::StateReplica> CopyStore::list() const {
  std::vector<const Copy*> found;
  if (gpu_) found.push_back(&*gpu_);
  for (const auto& [slot, state] : slots_) {
    for (const Copy& copy : state.kept) found.push_back(&copy);
  }
  std::erase_if(found, [](const Copy* c) { return c->gone.size() == c->devices->size(); });
  std::stable_sort(found.begin(), found.end(), [](const Copy* a, const Copy* b) {
    return a->iteration != b->iteration ? a->iteration > b->iteration : a->location < b->location;
  });
  std::vector<models::StateReplica> copies;
  for (const Copy* copy : found) {
    copies.push_back({copy->iteration, copy->location, copy->layout,
                      copy->stored_on ? *copy->stored_on : std::vector<DeviceId>{}, copy->gone});
  }
  return copies;
}

}  // namespace orrery::sim
