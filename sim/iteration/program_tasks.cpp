#include "sim/iteration/program_tasks.h"

#include <algorithm>
#include <cmath>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/ir/op_traits.h"

namespace orrery::sim {
namespace {

constexpr std::int32_t kUnset = INT32_MIN;  ///< Neither a task nor ~ of an index.

template <class T>
const T& at(const std::vector<T>& table, std::int32_t index) {
  return table[index];
}

// Streams of noise that are no device's.
constexpr std::uint64_t kStepStream = 0x73746570;
constexpr std::uint64_t kLinkStream = 0x6c696e6b;

std::uint64_t of(DeviceId device) { return static_cast<std::uint64_t>(device.value); }

/// Log-normal with mean 1 and the given relative standard deviation.
double log_normal(double deviation, Rng rng) {
  const double variance = std::log1p(deviation * deviation);
  return std::exp(std::sqrt(variance) * rng.normal() - 0.5 * variance);
}

}  // namespace

ProgramTasks::ProgramTasks(const Input& input, FlowEngine& engine)
    : program_(input.program),
      prices_(input.prices),
      cluster_(input.cluster),
      path_(input.network.path),
      options_(input.options),
      calibrated_(input.network.topology.calibrated()),
      folding_(input.folding),
      first_route_(input.first_route),
      engine_(engine),
      inner_(program_, prices_, input.network),
      mode_(effective_mode(program_.header.collapsed, options_.inner)),
      rng_(static_cast<std::uint64_t>(options_.seed)),
      slowdown_(cluster_.devices.size(), 1.0),
      shape_flows_(program_.collective_shapes.size()),
      local_time_(program_.collective_shapes.size()),
      shape_uses_(program_.collective_shapes.size(), 0),
      backgrounds_(input.backgrounds) {
  for (const Straggler& straggler : options_.stragglers) {
    slowdown_[straggler.device] *= straggler.slowdown;
  }
  if (options_.step_jitter > 0) {
    for (const DeviceId device : slowdown_.ids()) {
      slowdown_[device] *=
          log_normal(options_.step_jitter, rng_.fork(kStepStream).fork(of(device)));
    }
  }
  if (folding_ != nullptr) class_ends_.resize(folding_->collective_flows.size());
}

void ProgramTasks::build() {
  const std::size_t ops = program_.ops.size();
  tasks_.assign(ops, kUnset);
  engine_.reserve(ops, ops + program_.dependencies.size());
  for (std::size_t i = 0; i < ops; ++i) add_op({static_cast<std::int32_t>(i)});
  add_dependencies();
}

TaskId ProgramTasks::delay(Seconds duration) {
  ++work_.timers;
  return engine_.add_delay(duration);
}

TaskId ProgramTasks::flow(DeviceId source, DeviceId destination, Bytes bytes, Seconds extra) {
  extra = std::max(extra, Seconds{});
  if (folding_ != nullptr && source != destination) {
    return folded_flow(folding_->route_of_pair.at(Folding::key(source, destination)), bytes, extra);
  }
  ++work_.flows;
  if (options_.link_jitter > 0 && source != destination) {
    bytes *= log_normal(options_.link_jitter,
                        rng_.fork(kLinkStream).fork(of(source)).fork(of(destination)));
  }
  return engine_.add_flow(source.value, destination.value, bytes, extra);
}

bool ProgramTasks::is_simulated(DeviceId source, DeviceId destination) const {
  return folding_ == nullptr || source == destination ||
         folding_->route_of_pair.at(Folding::key(source, destination)) >= 0;
}

std::span<const ir::Transfer> ProgramTasks::simulated_transfers(const ir::Op& op) {
  if (folding_ == nullptr) return program_.transfers_of(op);
  if (set_transfers_.empty()) set_transfers_.resize(program_.transfer_sets.size());
  std::vector<ir::Transfer>& known = set_transfers_[op.transfers];
  if (known.empty()) {
    for (const ir::Transfer& transfer : program_.transfers_of(op)) {
      if (is_simulated(transfer.source, transfer.destination)) known.push_back(transfer);
    }
  }
  return known;
}

TaskId ProgramTasks::folded_flow(std::int32_t route, Bytes bytes, Seconds extra) {
  ++work_.flows;
  const TaskId task = engine_.add_flow({first_route_.value + route}, bytes, extra);
  folded_flows_.push_back({task, route, bytes, extra + at(folding_->routes, route).latency});
  return task;
}

void ProgramTasks::append_intervals(int iteration, std::vector<FlowInterval>& intervals) const {
  for (const FoldedFlow& flow : folded_flows_) {
    intervals.push_back({flow.route, iteration, engine_.start_time(flow.task),
                         engine_.end_time(flow.task) - flow.tail});
  }
}

std::vector<Bytes> ProgramTasks::bytes_by_route() const {
  std::vector<Bytes> all(folding_->routes.size());
  for (const FoldedFlow& flow : folded_flows_) {
    all[flow.route] += Bytes{std::round(flow.bytes.value)};
  }
  return all;
}

TaskId ProgramTasks::message(DeviceId source, DeviceId destination, Bytes bytes) {
  if (!calibrated_ || source == destination) return flow(source, destination, bytes);
  const models::FlowEdge edge = models::point_to_point_flow(source, destination, bytes, path_);
  return flow(source, destination, edge.bytes, edge.extra_latency);
}

TaskId ProgramTasks::barrier() {
  ++work_.barriers;
  return engine_.add_barrier();
}

void ProgramTasks::set(OpId op, TaskId first, TaskId last) {
  if (program_.op(op).stream == ir::Stream::collective) {
    const BackgroundId background = background_of(program_.op(op).rank);
    if (background.valid()) engine_.run_beside(background, first, last);
  }
  if (first == last) {
    tasks_[op] = first.value;
    return;
  }
  if (ends_.empty() || ends_.back().first != first || ends_.back().last != last) {
    ends_.push_back({first, last});
  }
  tasks_[op] = ~static_cast<std::int32_t>(ends_.size() - 1);
}

ProgramTasks::Ends ProgramTasks::ends(OpId op) const {
  const std::int32_t task = tasks_[op];
  if (task >= 0) return {{task}, {task}};
  return ends_[~task];
}

void ProgramTasks::add_op(OpId id) {
  if (tasks_[id] != kUnset) return;  // added with its op group, match or collective
  const ir::Op& op = program_.op(id);
  switch (ir::traits(op.kind).timing) {
    case ir::OpTiming::compute:
      return add_compute(id);
    case ir::OpTiming::transfer:
      return add_transfer(id);
    case ir::OpTiming::collective:
      return add_collective(program_.collective_of(op));
    case ir::OpTiming::storage:
      return add_state(id);
  }
}

double ProgramTasks::noise(DeviceId device, std::uint32_t position) const {
  return log_normal(options_.jitter, rng_.fork(of(device)).fork(position));
}

double ProgramTasks::factor(const ir::Op& op, std::uint32_t position) const {
  double largest = 0;
  for (const DeviceId device : program_.rank_of(op).devices) {
    double factor = slowdown_[device];
    if (options_.jitter > 0) factor *= noise(device, position);
    largest = std::max(largest, factor);
  }
  return largest;
}

Seconds ProgramTasks::compute(OpId id) const {
  const ir::Op& op = program_.op(id);
  if (!ir::is_compute(op.kind)) return {};
  if (op.kind == ir::OpKind::host) return prices_.compute(id);  // no device is at work
  const std::size_t slot = op.rank.index() * ir::kStreams;      // compute is the first stream
  const auto position = static_cast<std::uint32_t>(id.index()) - program_.stream_begin[slot];
  return factor(op, position) * prices_.compute(id);
}

Seconds ProgramTasks::uncovered(OpId id) {
  const ir::Op& op = program_.op(id);
  if (op.inner == ir::kNone || !inner_.hides(op.inner)) return {};
  return std::max(Seconds{}, inner_.closed_form(op.inner).hidden.all - compute(id));
}

TaskId ProgramTasks::computing(OpId id, Seconds rest, int parts) {
  const ir::Op& op = program_.op(id);
  const Seconds computes = compute(id) / parts;
  const Seconds time = computes + uncovered(id) / parts + rest;
  const TaskId task = delay(time);
  const BackgroundId background = background_of(op.rank);
  if (!background.valid() || op.kind == ir::OpKind::host || computes.value <= 0) return task;
  engine_.slow_down(task, background, prices_.overlap_loss(op.rank) * (computes / time));
  return task;
}

Seconds ProgramTasks::computed(OpId id) {
  const ir::Op& op = program_.op(id);
  if (op.inner == ir::kNone) return compute(id);
  Seconds time = -uncovered(id);
  if (mode_ == InnerMode::per_block) {
    const auto slowed = parts_.find(id.value);
    if (slowed == parts_.end()) return compute(id);
    for (const TaskId part : slowed->second) time += duration(part);
    return time;
  }
  time += duration(first(id));
  const bool alone = op.match == ir::kNone || at(program_.op_groups, op.match).member_count == 1;
  const bool closed = mode_ == InnerMode::closed_form && alone;
  return closed ? time - inner_.closed_form(op.inner).exposed.all : time;
}

Seconds ProgramTasks::duration(TaskId task) const {
  return engine_.end_time(task) - engine_.start_time(task);
}

Seconds ProgramTasks::gathered(OpId id) {
  const ir::Op& op = program_.op(id);
  if (op.inner == ir::kNone || !inner_.gathers(op.inner)) return {};
  Seconds time;
  if (inner_.hides(op.inner)) {
    const InnerTimes::Part& hidden = inner_.closed_form(op.inner).hidden;
    if (hidden.all.value > 0) time += (hidden.gathers / hidden.all) * uncovered(id);
  }
  if (mode_ == InnerMode::closed_form) {
    return time + inner_.closed_form(op.inner).exposed.gathers;
  }
  const OpId first =
      op.match == ir::kNone ? id : program_.members_of(at(program_.op_groups, op.match)).front();
  const auto found = gathers_.find(first.value);
  if (found == gathers_.end()) return time;
  for (const Gather& gather : found->second) {
    time += gather.share * (engine_.end_time(gather.last) - engine_.end_time(gather.before));
  }
  return time;
}

Bytes ProgramTasks::payload(OpId id) {
  const ir::Op& op = program_.op(id);
  if (!ir::is_compute(op.kind)) return op.bytes;
  if (op.inner == ir::kNone) return {};
  return inner_.payload(op.inner, op.rank);
}

std::span<const RankId> ProgramTasks::ranks_of(std::span<const OpId> op_group) {
  group_ranks_.clear();
  for (const OpId member : op_group) group_ranks_.push_back(program_.op(member).rank);
  return group_ranks_;
}

void ProgramTasks::add_compute(OpId id) {
  const ir::Op& op = program_.op(id);
  const std::span<const OpId> op_group =
      op.match == ir::kNone ? std::span<const OpId>(&id, 1)
                            : program_.members_of(at(program_.op_groups, op.match));
  if (op.inner == ir::kNone) {
    const TaskId task = computing(id);
    return set(id, task, task);
  }
  switch (mode_) {
    case InnerMode::automatic:
    case InnerMode::closed_form:
      return add_closed_form(op_group, op.inner);
    case InnerMode::aggregated:
      return add_merged(op_group, op.inner);
    case InnerMode::per_block:
      return add_per_block(op_group, op.inner);
  }
}

/// Of inner collectives that move bytes without flows.
void ProgramTasks::count_use(std::span<const OpId> op_group, std::int32_t inner) {
  InnerUse& use = inner_uses_[{inner, program_.op(op_group.front()).rank.value}];
  if (use.count++ > 0) return;
  const std::span<const RankId> ranks = ranks_of(op_group);
  use.ranks.assign(ranks.begin(), ranks.end());
}

void ProgramTasks::add_closed_form(std::span<const OpId> op_group, std::int32_t inner) {
  const Seconds communication = inner_.closed_form(inner).exposed.all;
  count_use(op_group, inner);
  if (op_group.size() == 1) {
    const TaskId task = computing(op_group.front(), communication);
    return set(op_group.front(), task, task);
  }
  const TaskId together = delay(communication);
  for (const OpId member : op_group) {
    const TaskId own = computing(member);
    engine_.add_dependency(own, together);
    set(member, own, together);
  }
}

TaskId ProgramTasks::add_phase(const InnerPhase& phase, TaskId start) {
  if (phase.flows.empty()) return start;
  TaskId end;
  if (phase.flows.size() > 1) end = barrier();
  for (const InnerFlow& edge : phase.flows) {
    const TaskId task = flow(edge.source, edge.destination, edge.bytes, edge.tail);
    engine_.add_dependency(start, task);
    if (!end.valid()) return task;
    engine_.add_dependency(task, end);
  }
  return end;
}

TaskId ProgramTasks::add_phase(const InnerPhase& phase, TaskId start,
                               std::span<const OpId> op_group) {
  const TaskId last = add_phase(phase, start);
  if (phase.gathers > 0 && last != start) {
    gathers_[op_group.front().value].push_back({start, last, phase.gathers});
  }
  return last;
}

void ProgramTasks::add_merged(std::span<const OpId> op_group, std::int32_t inner) {
  if (inner_.hides(inner)) count_use(op_group, inner);
  const TaskId met = op_group.size() > 1 ? barrier() : TaskId{};
  TaskId after = met;
  group_tasks_.clear();
  for (const OpId member : op_group) {
    const TaskId own = computing(member);
    group_tasks_.push_back(own);
    if (met.valid()) engine_.add_dependency(own, met);
    if (!met.valid()) after = own;
  }
  for (const InnerPhase& phase : inner_.merged(inner, ranks_of(op_group))) {
    after = add_phase(phase, after, op_group);
  }
  for (std::size_t i = 0; i < op_group.size(); ++i) set(op_group[i], group_tasks_[i], after);
}

void ProgramTasks::add_per_block(std::span<const OpId> op_group, std::int32_t inner) {
  if (inner_.hides(inner)) count_use(op_group, inner);
  const std::vector<InnerPhase>& phases = inner_.phases(inner, ranks_of(op_group));
  std::int32_t repetitions = 1;
  for (const InnerPhase& phase : phases) repetitions = std::max(repetitions, phase.count);
  TaskId after;
  group_tasks_.clear();
  for (std::int32_t i = 0; i < repetitions; ++i) {
    const TaskId met = barrier();
    for (const OpId member : op_group) {
      const TaskId own = computing(member, {}, repetitions);
      if (background_of(program_.op(member).rank).valid()) parts_[member.value].push_back(own);
      if (after.valid()) engine_.add_dependency(after, own);
      engine_.add_dependency(own, met);
      if (i == 0) group_tasks_.push_back(own);
    }
    after = met;
    for (const InnerPhase& phase : phases) {
      // Rarer collectives are spread evenly over the repetitions.
      const std::int64_t before = std::int64_t{i} * phase.count / repetitions;
      const std::int64_t until = (std::int64_t{i} + 1) * phase.count / repetitions;
      for (std::int64_t j = before; j < until; ++j) after = add_phase(phase, after, op_group);
    }
  }
  for (std::size_t i = 0; i < op_group.size(); ++i) set(op_group[i], group_tasks_[i], after);
}

void ProgramTasks::add_transfer(OpId id) {
  const ir::Op& op = program_.op(id);
  const OpId other{op.match};
  const std::span<const ir::Transfer> transfers = simulated_transfers(op);
  TaskId start, end;
  if (transfers.size() == 1) {
    const ir::Transfer& only = transfers.front();
    start = end = message(only.source, only.destination, only.bytes);
  } else {
    start = barrier();
    end = barrier();
    for (const ir::Transfer& transfer : transfers) {
      const TaskId task = message(transfer.source, transfer.destination, transfer.bytes);
      engine_.add_dependency(start, task);
      engine_.add_dependency(task, end);
    }
  }
  set(id, start, end);
  set(other, start, end);
}

Seconds ProgramTasks::storage_time(const ir::Op& op) const {
  const models::Node& node = cluster_.node(cluster_.device(program_.rank_of(op).device).node);
  const bool load = op.kind == ir::OpKind::load_state;
  BytesPerSecond bandwidth;
  Seconds latency;
  switch (op.location) {
    case ir::Location::host_memory:
      bandwidth = node.host_memory_bandwidth;
      break;
    case ir::Location::nvme:
      bandwidth = load ? node.nvme_read : node.nvme_write;
      break;
    case ir::Location::cloud:
      if (cluster_.storage) {
        bandwidth = cluster_.storage->bandwidth;
        latency = cluster_.storage->latency;
      }
      break;
    case ir::Location::none:
    case ir::Location::peer:
      break;
  }
  ORRERY_CHECK(bandwidth.value > 0, "state op of rank {} at location {} without bandwidth",
               op.rank.value, static_cast<int>(op.location));
  return op.bytes / bandwidth + latency;
}

/// To and from peers as flows; to and from storage alone at its full bandwidth.
void ProgramTasks::add_state(OpId id) {
  const ir::Op& op = program_.op(id);
  if (op.location != ir::Location::peer) {
    const std::optional<Seconds> measured = prices_.storage(id);
    const TaskId task = delay(measured ? *measured : storage_time(op));
    return set(id, task, task);
  }
  const TaskId start = barrier();
  const TaskId end = barrier();
  engine_.add_dependency(start, end);
  for (const ir::Transfer& transfer : program_.transfers_of(op)) {
    const TaskId task = message(transfer.source, transfer.destination, transfer.bytes);
    engine_.add_dependency(start, task);
    engine_.add_dependency(task, end);
  }
  set(id, start, end);
}

void ProgramTasks::add_dependencies() {
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const OpId id{static_cast<std::int32_t>(i)};
    const ir::Op& op = program_.ops[i];
    const TaskId start = first(id);
    const std::size_t slot = op.rank.index() * ir::kStreams + index_of(op.stream);
    if (op.stream != ir::Stream::p2p && i > program_.stream_begin[slot]) {
      engine_.add_dependency(last({id.value - 1}), start);
    }
    for (const OpId before : program_.dependencies_of(id)) {
      engine_.add_dependency(last(before), start);
    }
  }
}

std::vector<models::FlowEdge> ProgramTasks::edges_of(std::int32_t shape) const {
  std::vector<models::FlowEdge> all;
  const ir::CollectiveShape& of = program_.collective_shapes[shape];
  for (const ir::CollectiveShape::Part& part : of.parts) {
    const auto edges =
        models::collective_flows(of.kind, program_.group(part.group).devices, part.bytes, path_);
    all.insert(all.end(), edges.begin(), edges.end());
  }
  return all;
}

const std::vector<models::FlowEdge>& ProgramTasks::shape_flows(std::int32_t shape) {
  std::vector<models::FlowEdge>& flows = shape_flows_[shape];
  if (!flows.empty()) return flows;
  flows = edges_of(shape);
  std::erase_if(flows, [&](const models::FlowEdge& edge) {
    return !is_simulated(edge.source, edge.destination);
  });
  return flows;
}

/// Ring time of a collective inside one collapsed rank that needs no flows.
std::optional<Seconds> ProgramTasks::local_time(const ir::Collective& collective) {
  if (mode_ != InnerMode::closed_form || collective.members.member_count != 1) return std::nullopt;
  auto& known = local_time_[collective.shape];
  if (known) return *known;
  const ir::CollectiveShape& shape = program_.shape_of(collective);
  const bool local = takes_closed_form(program_, shape, path_);
  std::optional<Seconds> time;
  if (local) {
    const ir::CollectiveShape::Part& part = shape.parts.front();
    time = models::collective_time(shape.kind, models::CollectiveAlgorithm::ring,
                                   program_.group(part.group).devices, part.bytes, path_);
  }
  known = time;
  return time;
}

void ProgramTasks::add_collective(const ir::Collective& collective) {
  const std::span<const OpId> members = program_.members_of(collective.members);
  if (folding_ != nullptr) {
    const std::int32_t of =
        folding_->class_of_collective[&collective - program_.collectives.data()];
    if (of >= 0) return add_folded_collective(of, members);
  }
  if (const std::optional<Seconds> time = local_time(collective)) {
    ++shape_uses_[collective.shape];
    const TaskId task = delay(*time);
    return set(members.front(), task, task);
  }
  const TaskId start = barrier();
  const TaskId end = barrier();
  engine_.add_dependency(start, end);
  for (const OpId member : members) set(member, start, end);

  const ir::CollectiveShape& shape = program_.shape_of(collective);
  const bool reduces = shape.kind == ir::CollectiveKind::all_reduce ||
                       shape.kind == ir::CollectiveKind::reduce_scatter ||
                       shape.kind == ir::CollectiveKind::all_gather;
  const auto takes_rings = [&](const ir::CollectiveShape::Part& part) {
    return models::takes_rings(shape.kind, program_.group(part.group).devices, part.bytes, path_);
  };
  if (options_.ring == RingMode::stepwise && reduces &&
      std::all_of(shape.parts.begin(), shape.parts.end(), takes_rings)) {
    for (const ir::CollectiveShape::Part& part : shape.parts) {
      const auto rings = models::nic_rings(program_.group(part.group).devices, path_);
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

/// All collectives of a class start and end together: those that have members here are one.
void ProgramTasks::add_folded_collective(std::int32_t of, std::span<const OpId> members) {
  std::optional<Ends>& ends = class_ends_[of];
  if (!ends) {
    ends = Ends{barrier(), barrier()};
    engine_.add_dependency(ends->first, ends->last);
    for (const Folding::Flow& flow : at(folding_->collective_flows, of)) {
      const TaskId task = folded_flow(flow.route, flow.bytes, flow.tail);
      engine_.add_dependency(ends->first, task);
      engine_.add_dependency(task, ends->last);
    }
  }
  for (const OpId member : members) set(member, ends->first, ends->last);
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
    const auto uses = static_cast<double>(use.count);
    const auto take_all = [&](const std::vector<InnerFlow>& flows) {
      for (const InnerFlow& edge : flows) take(edge.source, edge.destination, uses * edge.bytes);
    };
    take_all(inner_.hidden(key.first, use.ranks));
    if (mode_ != InnerMode::closed_form) continue;
    for (const InnerPhase& phase : inner_.merged(key.first, use.ranks)) take_all(phase.flows);
  }
  for (std::size_t shape = 0; shape < shape_uses_.size(); ++shape) {
    if (shape_uses_[shape] == 0) continue;
    for (const models::FlowEdge& edge : edges_of(static_cast<std::int32_t>(shape))) {
      take(edge.source, edge.destination, static_cast<double>(shape_uses_[shape]) * edge.bytes);
    }
  }
}

}  // namespace orrery::sim
