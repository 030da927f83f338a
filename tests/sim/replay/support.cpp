#include "tests/sim/replay/support.h"

#include <algorithm>
#include <memory>

#include "models/base/ids.h"
#include "tests/worlds/clusters.h"

namespace orrery::sim {

models::Cluster replay_cluster(int nodes, int gpus) {
  worlds::ClusterShape shape;
  shape.nodes = nodes;
  shape.gpus = gpus;
  shape.nic_per_gpu = false;
  models::Cluster cluster = worlds::make_cluster(shape);
  cluster.gpu_types.front().price = DollarsPerSecond{3.6};
  cluster.gpu_types.front().spot_price = DollarsPerSecond{1.2};
  models::seal(cluster);
  return cluster;
}

models::PlanPointer plan_on(const std::vector<DeviceId>& devices) {
  auto plan = std::make_shared<ir::Plan>();
  for (const DeviceId device : devices) {
    ir::Segment segment;
    segment.first_block = {0};
    segment.last_block = {0};
    ir::Group group;
    group.devices = {device};
    segment.groups = {group};
    ir::Pipeline pipeline;
    pipeline.micro_batches = 2;
    pipeline.stages = {{{segment}}};
    plan->pipelines.push_back(pipeline);
  }
  return plan;
}

models::PlanPointer plan_on(const std::vector<int>& devices) {
  std::vector<DeviceId> ids;
  for (const int device : devices) ids.push_back({device});
  return plan_on(ids);
}

models::Job replay_job() {
  models::Job job;
  job.global_batch = 8;
  job.sequence_length = 100;
  return job;
}

EventList::EventList(const models::Cluster& cluster, double horizon_seconds) {
  trace.horizon = seconds(horizon_seconds);
  for (const models::Node& node : cluster.nodes) {
    trace.nodes.push_back({node.name, "gpu", static_cast<int>(node.gpu_types.size())});
  }
}

ir::ClusterEvent& EventList::add(double second, ir::EventKind kind) {
  ir::ClusterEvent event;
  event.time = at_second(second);
  event.kind = kind;
  event.sequence = static_cast<std::int64_t>(trace.events.size());
  trace.events.push_back(event);
  return trace.events.back();
}

EventList& EventList::devices(double second, ir::EventKind kind, std::vector<int> ids,
                              double factor) {
  ir::ClusterEvent& event = add(second, kind);
  event.scope.kind = ir::EventScope::Kind::devices;
  for (const int id : ids) event.scope.devices.push_back({id});
  event.factor = factor;
  return *this;
}

EventList& EventList::node(double second, ir::EventKind kind, int node, double notice) {
  ir::ClusterEvent& event = add(second, kind);
  event.scope.kind = ir::EventScope::Kind::node;
  event.scope.node = {node};
  event.notice = seconds(notice);
  return *this;
}

EventList& EventList::job(double second, ir::EventKind kind, double factor) {
  ir::ClusterEvent& event = add(second, kind);
  event.scope.kind = ir::EventScope::Kind::job;
  event.factor = factor;
  return *this;
}

EventList& EventList::link(double second, ir::EventKind kind, const std::string& name,
                           double factor) {
  ir::ClusterEvent& event = add(second, kind);
  event.scope.kind = ir::EventScope::Kind::link;
  event.scope.link = name;
  event.factor = factor;
  return *this;
}

std::variant<models::PlanPointer, models::Infeasible> TestPolicy::first_plan(
    const std::vector<DeviceId>& live) const {
  if (static_cast<int>(live.size()) < needs) return models::Infeasible{"devices", "too few"};
  return plan_on(live);
}

std::vector<models::CheckpointLevel> TestPolicy::checkpoints(const ir::Plan& plan, Seconds) const {
  std::vector<models::CheckpointLevel> out = levels;
  for (models::CheckpointLevel& level : out) level.every = every ? every(plan) : level.every;
  return out;
}

models::RecoveryDecision TestPolicy::on_events(const models::JobState& state, Events events) const {
  asked.push_back(state);
  if (answer) return answer(state, events);
  if (state.training && state.plan != nullptr) {
    const std::vector<DeviceId> devices = ir::devices_of(*state.plan);
    if (std::includes(state.live.begin(), state.live.end(), devices.begin(), devices.end())) {
      return proceed();
    }
  }
  if (static_cast<int>(state.live.size()) < needs) return wait();
  return resume(plan_on(state.live), state.iteration);
}

models::RecoveryDecision proceed() { return {}; }

models::RecoveryDecision wait() {
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::wait;
  return decision;
}

models::RecoveryDecision resume(models::PlanPointer plan, std::int64_t iteration,
                                std::vector<models::RecoveryPhase> phases) {
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::resume;
  decision.plan = std::move(plan);
  decision.resume_iteration = iteration;
  decision.phases = std::move(phases);
  return decision;
}

models::RecoveryPhase phase(models::RecoveryPhase::Kind kind, double duration) {
  return {kind, seconds(duration), "test"};
}

models::CheckpointLevel level(ir::Location location, std::int64_t every, double stall,
                              double persist) {
  models::CheckpointLevel result;
  result.location = location;
  result.every = every;
  result.stall = seconds(stall);
  result.persist = seconds(persist);
  return result;
}

Seconds SlowedTimer::time(const ir::Plan& plan, const IterationConditions& conditions) const {
  Seconds seconds = FixedIterationTimer(Seconds{10}).time(plan, conditions);
  for (const models::StateTransfer& transfer : conditions.background) {
    seconds += Seconds{transfer.bytes.value / 1e9};
  }
  return seconds;
}

ReplayResult run(const models::Cluster& cluster, const traces::Trace& trace,
                 const models::RecoveryPolicy& policy, ReplayOptions options) {
  const models::Job job = replay_job();
  const SlowedTimer iterations;
  const FixedTransferTimer transfers(seconds(7));
  options.record_spans = true;
  return replay({cluster, job, trace, policy, iterations, transfers}, options);
}

double wall(const ReplayResult& result, Bucket bucket) {
  return static_cast<double>(result.wall[index_of(bucket)].count) / 1e9;
}

}  // namespace orrery::sim
