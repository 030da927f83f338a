#include "executor/launcher/state.h"

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

/// Master weights and, where these units have moments here, both of them.
std::vector<Tensor> parts_of(const HeldParameter& held, std::int64_t begin, std::int64_t end,
                             std::size_t parts) {
  std::vector<Tensor> out = {held.master_units(begin, end)};
  if (parts > 1 && held.first_moment.elements > 0) {
    out.push_back(held.own_units(held.first_moment, begin, end));
    out.push_back(held.own_units(held.second_moment, begin, end));
  }
  return out;
}

}  // namespace

std::size_t StateBank::bytes() const {
  std::size_t sum = 0;
  for (const Entry& entry : entries_) {
    for (const auto& one : entry.parts) sum += one.size();
  }
  return sum;
}

const StateBank::Entry* StateBank::find(const StateSlice& slice) const {
  for (const Entry& entry : entries_) {
    const StateSlice& has = entry.slice;
    if (has.block == slice.block && has.parameter == slice.parameter && has.begin <= slice.begin &&
        slice.end <= has.end) {
      return &entry;
    }
  }
  return nullptr;
}

bool StateBank::covers(const StateSlice& slice) const { return find(slice) != nullptr; }

std::vector<std::byte> StateBank::read(const StateSlice& slice, std::size_t parts) const {
  const Entry* entry = find(slice);
  ORRERY_CHECK(entry != nullptr && parts <= entry->parts.size(),
               "units {}-{} of parameter {} of block {} are not here", slice.begin, slice.end,
               slice.parameter, slice.block);
  std::vector<std::byte> out;
  const std::size_t begin = as_size(slice.begin - entry->slice.begin) * entry->unit_bytes;
  const std::size_t size = as_size(slice.end - slice.begin) * entry->unit_bytes;
  out.reserve(parts * size);
  for (std::size_t p = 0; p < parts; ++p) {
    const auto* first = entry->parts[p].data() + begin;
    out.insert(out.end(), first, first + size);
  }
  return out;
}

StateBank take_state(Worker& worker, StateVersion version) {
  Backend& backend = worker.shard().backend();
  StateBank bank;
  bank.version = version;
  for (const BlockId block : worker.blocks()) {
    const std::vector<HeldParameter>& all = worker.shard().parameters(block);
    for (const Worker::Owned& owned : worker.owned(block)) {
      const HeldParameter& held = all[owned.parameter];
      StateBank::Entry entry;
      entry.slice = {block.value, owned.parameter, owned.begin, owned.end};
      entry.unit_bytes = as_size(held.info.unit) * backend.element_bytes(true);
      for (const Tensor& slice : parts_of(held, owned.begin, owned.end, kMostParts)) {
        std::vector<std::byte> bytes(slice.elements * backend.element_bytes(true));
        backend.download(slice, bytes);
        entry.parts.push_back(std::move(bytes));
      }
      bank.add(std::move(entry));
    }
  }
  return bank;
}

std::size_t state_parts(const ir::Program& program) {
  return program.header.optimizer == ir::Optimizer::sgd ? 1 : kMostParts;
}

void put_state(ModelShard& shard, const StateSlice& slice, std::size_t parts,
               std::span<const std::byte> bytes) {
  Backend& backend = shard.backend();
  const HeldParameter& held = shard.parameters({slice.block})[slice.parameter];
  const std::vector<Tensor> tensors = parts_of(held, slice.begin, slice.end, parts);
  ORRERY_CHECK(parts <= tensors.size(), "{} parts of {}", parts, tensors.size());
  const std::size_t size = bytes.size() / parts;
  for (std::size_t p = 0; p < parts; ++p) {
    backend.upload(bytes.subspan(p * size, size), tensors[p]);
  }
  const Tensor& narrow = held.sharded ? held.shard : held.weight;
  if (narrow.memory == held.master.memory && narrow.offset == held.master.offset) return;
  backend.copy(held.master_units(slice.begin, slice.end),
               held.weight_units(slice.begin, slice.end));
}

}  // namespace orrery::executor
