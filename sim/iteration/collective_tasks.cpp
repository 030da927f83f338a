// Collectives among ranks as tasks.
#include <algorithm>
#include <cmath>

#include "models/base/check.h"
#include "sim/iteration/program_tasks.h"

namespace orrery::sim {

const std::vector<models::FlowEdge>& ProgramTasks::shape_flows(std::int32_t shape) {
  std::vector<models::FlowEdge>& flows = shape_flows_[static_cast<std::size_t>(shape)];
  if (!flows.empty()) return flows;
  const ir::CollectiveShape& all = program_.collective_shapes[static_cast<std::size_t>(shape)];
  for (const ir::CollectiveShape::Part& part : all.parts) {
    const auto edges = models::collective_flows(
        all.kind, program_.groups[static_cast<std::size_t>(part.group)].devices, part.bytes, path_);
    flows.insert(flows.end(), edges.begin(), edges.end());
  }
  return flows;
}

/// Ring time of a collective inside one collapsed rank whose edges are all NVLink: nobody else uses
/// those links but inner collectives, which have closed forms then too.
std::optional<Seconds> ProgramTasks::local_time(const ir::Collective& collective) {
  if (mode_ != InnerMode::closed_form || collective.members.member_count != 1) return std::nullopt;
  auto& known = local_time_[static_cast<std::size_t>(collective.shape)];
  if (known) return *known;
  const ir::CollectiveShape& shape =
      program_.collective_shapes[static_cast<std::size_t>(collective.shape)];
  const auto& edges = shape_flows(collective.shape);
  const bool local =
      shape.parts.size() == 1 &&
      std::all_of(edges.begin(), edges.end(), [&](const models::FlowEdge& edge) {
        return path_(edge.source, edge.destination).kind == models::PathClass::nvlink;
      });
  std::optional<Seconds> time;
  if (local) {
    const ir::CollectiveShape::Part& part = shape.parts.front();
    time = models::collective_time(shape.kind, models::CollectiveAlgorithm::ring,
                                   program_.groups[static_cast<std::size_t>(part.group)].devices,
                                   part.bytes, path_);
  }
  known = time;
  return time;
}

void ProgramTasks::add_collective(const ir::Collective& collective) {
  const std::span<const OpId> members = program_.members_of(collective.members);
  if (const std::optional<Seconds> time = local_time(collective)) {
    ++shape_uses_[static_cast<std::size_t>(collective.shape)];
    const TaskId task = delay(*time);
    return set(members.front(), task, task);
  }
  const TaskId start = barrier();
  const TaskId end = barrier();
  engine_.add_dependency(start, end);
  for (const OpId member : members) set(member, start, end);

  const ir::CollectiveShape& shape =
      program_.collective_shapes[static_cast<std::size_t>(collective.shape)];
  const bool ring = shape.kind == ir::CollectiveKind::all_reduce ||
                    shape.kind == ir::CollectiveKind::reduce_scatter ||
                    shape.kind == ir::CollectiveKind::all_gather;
  if (options_.ring == RingMode::stepwise && ring) {
    for (const ir::CollectiveShape::Part& part : shape.parts) {
      const auto rings =
          models::nic_rings(program_.groups[static_cast<std::size_t>(part.group)].devices, path_);
      for (const std::vector<DeviceId>& one : rings) {
        add_ring_steps(shape.kind, one, part.bytes / static_cast<double>(rings.size()), start, end);
      }
    }
    return;
  }
  for (const models::FlowEdge& edge : shape_flows(collective.shape)) {
    const TaskId task = flow(edge.source, edge.destination, edge.bytes, edge.extra_latency);
    engine_.add_dependency(start, task);
    engine_.add_dependency(task, end);
  }
}

/// In each step every member sends a p-th of the tensor to the next one: what it got in the step
/// before. A message does not wait for the one before it on its edge to arrive: both share the
/// edge. [Thakur et al. 2005; models/cost/ring_steps.h]
void ProgramTasks::add_ring_steps(ir::CollectiveKind kind, std::span<const DeviceId> group,
                                  Bytes bytes, TaskId start, TaskId end) {
  const std::size_t members = group.size();
  if (members < 2) return;
  const std::size_t steps = (kind == ir::CollectiveKind::all_reduce ? 2 : 1) * (members - 1);
  const auto edges = models::ring_step_flows(kind, group, bytes, path_);
  std::vector<TaskId> before(members, start);
  std::vector<TaskId> current(members);
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < members; ++i) {
      const models::FlowEdge& edge = edges[i];
      current[i] = flow(edge.source, edge.destination, edge.bytes, edge.extra_latency);
      engine_.add_dependency(before[(i + members - 1) % members], current[i]);
    }
    before.swap(current);
  }
  for (const TaskId task : before) engine_.add_dependency(task, end);
}

void ProgramTasks::for_each_closed_form(
    const std::function<void(DeviceId source, DeviceId destination, Bytes bytes)>& take) {
  for (const auto& [key, use] : inner_uses_) {
    for (const InnerPhase& phase : inner_.merged(key.first, use.ranks)) {
      for (const InnerFlow& edge : phase.flows) {
        take(edge.source, edge.destination, static_cast<double>(use.count) * edge.bytes);
      }
    }
  }
  for (std::size_t shape = 0; shape < shape_uses_.size(); ++shape) {
    if (shape_uses_[shape] == 0) continue;
    for (const models::FlowEdge& edge : shape_flows(static_cast<std::int32_t>(shape))) {
      take(edge.source, edge.destination, static_cast<double>(shape_uses_[shape]) * edge.bytes);
    }
  }
}

}  // namespace orrery::sim
