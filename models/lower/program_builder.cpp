#include "models/lower/program_builder.h"

#include <algorithm>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/ir/op_traits.h"

namespace orrery::models {
namespace {

/// Index of `value` in `table`, appending it if it is new.
template <class Index, class Table, class Value>
std::int32_t intern(Index& index, Table& table, Value value) {
  const auto [at, fresh] = index.try_emplace(value, static_cast<std::int32_t>(table.size()));
  if (fresh) table.push_back({std::move(value)});
  return at->second;
}

std::size_t slot_of(const ir::Op& op) {
  return op.rank.index() * ir::kStreams + index_of(op.stream);
}

}  // namespace

ir::CollectiveKind collective_kind(StepKind kind) {
  switch (kind) {
    case StepKind::all_reduce:
      return ir::CollectiveKind::all_reduce;
    case StepKind::reduce_scatter:
      return ir::CollectiveKind::reduce_scatter;
    case StepKind::all_gather:
      return ir::CollectiveKind::all_gather;
    case StepKind::broadcast:
    case StepKind::send_receive:
      break;
  }
  return ir::CollectiveKind::broadcast;
}

PendingOp ProgramBuilder::add(const ir::Op& op) {
  ORRERY_CHECK(ops_.size() < INT32_MAX, "too many ops: {}", ops_.size());
  ops_.push_back(op);
  return static_cast<PendingOp>(ops_.size() - 1);
}

void ProgramBuilder::depends(PendingOp op, PendingOp before) {
  if (before != kNoOp) dependencies_.emplace_back(op, before);
}

void ProgramBuilder::match(PendingOp send, PendingOp recv) {
  ops_[send].match = static_cast<std::int32_t>(recv);
  ops_[recv].match = static_cast<std::int32_t>(send);
}

ir::Rendezvous ProgramBuilder::rendezvous(const std::vector<PendingOp>& ops) {
  const ir::Rendezvous result = {static_cast<std::uint32_t>(program.members.size()),
                                 static_cast<std::uint32_t>(ops.size())};
  for (const PendingOp id : ops) program.members.push_back({static_cast<std::int32_t>(id)});
  return result;
}

void ProgramBuilder::add_collective(std::int32_t shape, const std::vector<PendingOp>& ops) {
  for (const PendingOp id : ops) {
    ops_[id].match = static_cast<std::int32_t>(program.collectives.size());
  }
  program.collectives.push_back({shape, rendezvous(ops)});
}

void ProgramBuilder::add_op_group(const std::vector<PendingOp>& ops) {
  for (const PendingOp id : ops)
    ops_[id].match = static_cast<std::int32_t>(program.op_groups.size());
  program.op_groups.push_back(rendezvous(ops));
}

std::int32_t ProgramBuilder::group(std::vector<DeviceId> devices) {
  return intern(groups_, program.groups, std::move(devices));
}

const std::vector<DeviceId>& ProgramBuilder::devices(std::int32_t group) const {
  return program.groups[group].devices;
}

std::int32_t ProgramBuilder::inner_set(std::vector<ir::InnerCollective> set) {
  if (set.empty()) return ir::kNone;
  return intern(inner_sets_, program.inner_sets, std::move(set));
}

std::int32_t ProgramBuilder::buffer_set(std::vector<ir::BufferEffect> set) {
  if (set.empty()) return ir::kNone;
  return intern(buffer_sets_, program.buffer_sets, std::move(set));
}

std::int32_t ProgramBuilder::region_set(std::vector<ir::Region> set) {
  if (set.empty()) return ir::kNone;
  return intern(region_sets_, program.region_sets, std::move(set));
}

std::int32_t ProgramBuilder::transfer_set(std::vector<ir::Transfer> set) {
  return intern(transfer_sets_, program.transfer_sets, std::move(set));
}

std::int32_t ProgramBuilder::collective_shape(ir::CollectiveShape shape) {
  return intern(shapes_, program.collective_shapes, std::move(shape));
}

ir::Program ProgramBuilder::finish() {
  // Stable counting sort by (rank, stream).
  std::vector<std::uint32_t>& begin = program.stream_begin;
  begin.assign(program.ranks.size() * ir::kStreams + 1, 0);
  for (const ir::Op& op : ops_) ++begin[slot_of(op) + 1];
  for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<std::uint32_t> next(begin.begin(), begin.end() - 1);
  std::vector<std::uint32_t> place(ops_.size());
  program.ops.resize(ops_.size());
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    place[i] = next[slot_of(ops_[i])]++;
    program.ops[place[i]] = ops_[i];
  }
  ops_ = {};

  for (ir::Op& op : program.ops) {
    if (ir::is_transfer(op.kind)) {
      op.match = static_cast<std::int32_t>(place[op.match]);
    }
  }
  for (OpId& member : program.members) {
    member = {static_cast<std::int32_t>(place[member.index()])};
  }
  program.dependency_begin.assign(program.ops.size() + 1, 0);
  for (const auto& [op, before] : dependencies_) ++program.dependency_begin[place[op] + 1];
  for (std::size_t i = 1; i < program.dependency_begin.size(); ++i) {
    program.dependency_begin[i] += program.dependency_begin[i - 1];
  }
  program.dependencies.resize(dependencies_.size());
  std::vector<std::uint32_t> fill(program.dependency_begin.begin(),
                                  program.dependency_begin.end() - 1);
  for (const auto& [op, before] : dependencies_) {
    program.dependencies[fill[place[op]]++] = {static_cast<std::int32_t>(place[before])};
  }
  return std::move(program);
}

}  // namespace orrery::models
