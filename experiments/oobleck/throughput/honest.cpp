#include "experiments/oobleck/throughput/honest.h"

#include <algorithm>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "models/base/check.h"
#include "sim/replay/fixed_timer.h"
#include "sim/replay/replay.h"

namespace orrery::experiments {
namespace {

using models::PlanPointer;
using models::RecoveryDecision;
using models::RecoveryPhase;

/// The number of devices and of samples is all that the timer reads.
PlanPointer plan_on(const std::vector<DeviceId>& devices, int samples) {
  auto plan = std::make_shared<ir::Plan>();
  ir::Pipeline pipeline;
  pipeline.micro_batches = samples;
  for (const DeviceId device : devices) {
    ir::Segment segment;
    segment.first_block = segment.last_block = {static_cast<int>(pipeline.stages.size())};
    ir::Group group;
    group.devices = {device};
    segment.groups = {group};
    pipeline.stages.push_back({{segment}});
  }
  plan->pipelines = {pipeline};
  return plan;
}

class NodePolicy final : public models::RecoveryPolicy {
 public:
  NodePolicy(const OobleckModel& model, OobleckSystem system, std::size_t least)
      : model_(model), system_(system), least_(least) {}

  std::string name() const override { return name_of(system_); }

  std::variant<PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const override {
    if (live.size() < least_) return models::Infeasible{"nodes", "too few nodes"};
    return plan_on(live, static_cast<int>(model_.samples));
  }

  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan&, Seconds) const override {
    if (system_ != OobleckSystem::varuna) return {};
    models::CheckpointLevel level;
    level.location = ir::Location::cloud;
    level.every = kCheckpointEvery;
    level.stall = level.persist = to_nanoseconds(model_.varuna_checkpoint);
    level.source = "Oobleck's artifact";
    return {level};
  }

  RecoveryDecision on_events(const models::JobState& state,
                             std::span<const ir::ClusterEvent> events) const override {
    RecoveryDecision decision;
    const std::size_t nodes = state.plan == nullptr ? 0 : ir::devices_of(*state.plan).size();
    if (goes_on(state, events)) return decision;
    if (state.live.size() < least_) {
      decision.action = RecoveryDecision::Action::wait;
      decision.reason = "too few nodes";
      return decision;
    }
    decision.action = RecoveryDecision::Action::resume;
    decision.plan = plan_on(state.live, static_cast<int>(model_.samples));
    decision.resume_iteration = state.iteration;
    decision.reason = "loss of a node";
    if (system_ == OobleckSystem::varuna) decision.resume_iteration = checkpointed(state);
    if (nodes > 0) {
      decision.phases = {{RecoveryPhase::Kind::reinitialize,
                          to_nanoseconds(stall(static_cast<int>(nodes))), "Oobleck's artifact"}};
    }
    return decision;
  }

 private:
  /// The plan, or the recovery that brings it up, has all its nodes.
  bool goes_on(const models::JobState& state, std::span<const ir::ClusterEvent> events) const {
    if (state.plan == nullptr) return false;
    const std::vector<DeviceId> needed = ir::devices_of(*state.plan);
    if (!std::includes(state.live.begin(), state.live.end(), needed.begin(), needed.end())) {
      return false;
    }
    const auto came = std::count_if(
        events.begin(), events.end(),
        [](const ir::ClusterEvent& event) { return event.kind == ir::EventKind::join; });
    const bool waited = state.live.size() - static_cast<std::size_t>(came) < least_;
    return state.training || !waited;
  }

  static std::int64_t checkpointed(const models::JobState& state) {
    for (const models::StateReplica& copy : state.replicas) {
      if (copy.location == ir::Location::cloud) return copy.iteration;
    }
    return 0;
  }

  Seconds stall(int nodes) const {
    if (system_ == OobleckSystem::oobleck) return model_.oobleck_stall;
    if (system_ == OobleckSystem::bamboo) return model_.bamboo_rebuild;
    const auto& table = model_.varuna_restart_by_nodes;
    const Seconds restart =
        table.empty() ? model_.varuna_restart
                      : table.at(std::clamp(nodes, table.begin()->first, table.rbegin()->first));
    return restart - model_.varuna_checkpoint;
  }

  const OobleckModel& model_;
  OobleckSystem system_;
  std::size_t least_;
};

/// What replay needs to know of the nodes; nothing of it enters the times.
models::Cluster cluster_of(const traces::Trace& trace) {
  models::Cluster cluster;
  cluster.name = "oobleck";
  models::GpuType gpu;
  gpu.name = "gpu";
  gpu.vendor = "any";
  gpu.peak = {{ir::Dtype::fp16, FlopsPerSecond{1e14}}};
  gpu.memory = 16_GiB;
  gpu.memory_bandwidth = BytesPerSecond{1e12};
  cluster.gpu_types = {gpu};
  cluster.links["slot"] = {"slot", BytesPerSecond{50e9}, Seconds{4e-6}, 1, false, "any"};
  cluster.links["nic"] = {"nic", BytesPerSecond{25e9}, Seconds{4e-6}, 1, false, "any"};
  for (const traces::TraceNode& given : trace.nodes) {
    models::Node node;
    node.name = given.name;
    node.gpu_types = {0};
    node.domains = {{{0}, "slot"}};
    node.pcie = {{{0}, "slot", ""}};
    node.nics = {{"nic", {}}};
    cluster.nodes.push_back(node);
  }
  models::seal(cluster);
  return cluster;
}

}  // namespace

traces::Trace delay_joins(const traces::Trace& trace) {
  traces::Trace delayed = trace;
  delayed.events.clear();
  std::map<NodeId, ir::ClusterEvent> booting;
  const Nanoseconds wait = to_nanoseconds(kNodeReady);
  for (ir::ClusterEvent event : trace.events) {
    const NodeId node = event.scope.node;
    if (event.kind == ir::EventKind::join && event.time > Instant{}) {
      event.time = event.time + wait;
      booting[node] = event;
      continue;
    }
    if (const auto found = booting.find(node); found != booting.end()) {
      const bool arrived = found->second.time <= event.time;
      if (arrived) delayed.events.push_back(found->second);
      booting.erase(found);
      if (!arrived) continue;
    }
    delayed.events.push_back(event);
  }
  for (const auto& [node, event] : booting) delayed.events.push_back(event);
  traces::sort_events(delayed);
  return delayed;
}

HonestResult count_honest(const OobleckModel& model, OobleckSystem system,
                          const NodeThroughput& throughput, const traces::Trace& trace) {
  std::map<int, double> table;
  for (int nodes = kLeastNodes; nodes <= throughput.rbegin()->first; ++nodes) {
    if (const double rate = throughput_at(throughput, nodes); rate > 0) table[nodes] = rate;
  }
  ORRERY_CHECK(!table.empty(), "no throughput of {} on {}", model.name, name_of(system));
  const traces::Trace delayed = delay_joins(trace);
  const models::Cluster cluster = cluster_of(delayed);
  models::Job job;
  job.global_batch = static_cast<int>(model.samples);
  job.sequence_length = 1;
  const NodePolicy policy(model, system, static_cast<std::size_t>(table.begin()->first));
  const sim::FixedIterationTimer iterations(table);
  const sim::FixedTransferTimer transfers(Nanoseconds{});
  const sim::ReplayResult replayed =
      sim::replay({cluster, job, delayed, policy, iterations, transfers}, {});

  const auto begun =
      std::find_if(replayed.points.begin(), replayed.points.end(),
                   [](const sim::ReplayPoint& point) { return point.samples_per_second > 0; });
  HonestResult result;
  if (begun == replayed.points.end()) return result;
  const double before = to_seconds(begun->at - Instant{}).value;
  const double time = to_seconds(replayed.horizon).value - before;
  const auto share = [&](sim::Bucket bucket) {
    return to_seconds(replayed.wall[static_cast<std::size_t>(bucket)]).value / time;
  };
  result.samples_per_second = static_cast<double>(replayed.samples) / time;
  result.effective = share(sim::Bucket::productive) + share(sim::Bucket::degraded);
  result.checkpoint = share(sim::Bucket::checkpoint);
  result.restart = share(sim::Bucket::reinitialize);
  result.fallback = share(sim::Bucket::rolled_back);
  result.idle = share(sim::Bucket::idle) - before / time;
  return result;
}

}  // namespace orrery::experiments
