#include "tests/planners/recovery/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "models/base/check.h"
#include "models/reshard/reshard_plan.h"
#include "planners/kit/plan_parts.h"
#include "planners/recovery/bamboo/shadows.h"
#include "planners/recovery/kit/replan.h"
#include "planners/recovery/kit/restore.h"

namespace orrery::planners {
namespace {

using Action = models::RecoveryDecision::Action;

bool contains(const std::vector<DeviceId>& devices, DeviceId device) {
  return std::binary_search(devices.begin(), devices.end(), device);
}

bool is_loss(ir::EventKind kind) {
  return kind == ir::EventKind::fail || kind == ir::EventKind::leave;
}

std::vector<DeviceId> hit_devices(const models::Cluster& cluster, const ir::ClusterEvent& event) {
  if (event.scope.kind == ir::EventScope::Kind::node) return cluster.devices_of(event.scope.node);
  return event.scope.devices;
}

std::string phase_faults(const models::RecoveryDecision& decision) {
  std::string out;
  int moves = 0;
  for (const models::RecoveryPhase& phase : decision.phases) {
    if (phase.duration.count < 0) out += "a negative phase\n";
    if (phase.kind == models::RecoveryPhase::Kind::move_state) ++moves;
    if (phase.duration.count > 0 && phase.source.empty()) out += "a phase without a source\n";
  }
  if (moves > 1) out += "two move_state phases\n";
  if (moves == 0 && !decision.transfers.empty()) out += "transfers without move_state\n";
  if (decision.reason.empty()) out += "no reason\n";
  return out;
}

std::string transfer_faults(const models::Cluster& cluster, const models::JobState& told,
                            const models::RecoveryDecision& decision) {
  std::string out;
  const std::vector<DeviceId> devices = ir::devices_of(*decision.plan);
  for (const models::StateTransfer& t : decision.transfers) {
    if (t.bytes.value <= 0) out += "an empty transfer\n";
    if ((t.from == ir::Location::cloud) == t.source.valid()) out += "a wrong source\n";
    if (t.from == ir::Location::none || t.to == ir::Location::none) out += "from nowhere\n";
    if (t.to == ir::Location::peer && !contains(told.live, t.destination)) {
      out += fmt::format("to device {}, which is gone\n", t.destination.value);
    }
    if (t.from == ir::Location::peer && !contains(told.live, t.source)) {
      out += fmt::format("from device {}, which is gone\n", t.source.value);
    }
    if (t.from == ir::Location::host_memory || t.from == ir::Location::nvme) {
      const auto mates = cluster.devices_of(cluster.device(t.source).node);
      if (std::none_of(mates.begin(), mates.end(),
                       [&](DeviceId d) { return contains(told.live, d); })) {
        out += fmt::format("from the dead node of device {}\n", t.source.value);
      }
    }
  }
  return out;
}

/// Each device of the plan holds or receives at least its weights of the iteration, from copies
/// that exist. (That every slice arrives once is restore_test's.)
std::string state_faults(const PolicyInput& input, const models::JobState& told,
                         const models::RecoveryDecision& decision) {
  const bool from_gpus = decision.run_on.count >= 0;
  const std::int64_t iteration = from_gpus ? told.iteration : decision.resume_iteration;
  if (iteration == 0) return {};
  const bool exists =
      std::any_of(told.replicas.begin(), told.replicas.end(),
                  [&](const models::StateReplica& copy) { return copy.iteration == iteration; });
  if (!exists) return fmt::format("no copy of iteration {}\n", iteration);
  const models::ReshardBytes weights{input.job.state_bytes.weight, 0, 0};
  std::map<DeviceId, double> has;
  const auto count = [&](const models::StateReplica& copy) {
    ir::Plan layout = *copy.layout;
    layout.redundancy = ir::Redundancy::none;
    const auto devices = ir::devices_of(layout);
    const auto shares = state_shares(input, layout, weights);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const bool gone = std::binary_search(copy.lost_shards.begin(), copy.lost_shards.end(),
                                           static_cast<std::uint32_t>(i));
      if (!gone) has[copy.stored_on.empty() ? devices[i] : copy.stored_on[i]] += shares[i].value;
    }
  };
  for (const models::StateReplica& copy : told.replicas) {
    if (copy.iteration != iteration || copy.location != ir::Location::peer) continue;
    count(copy);
    if (copy.layout->redundancy == ir::Redundancy::next_stage) {
      count(shadow_copy(copy, common_cut(*copy.layout)));
    }
  }
  for (const models::StateTransfer& t : decision.transfers) {
    if (t.to == ir::Location::peer) has[t.destination] += t.bytes.value;
  }
  std::string out;
  const auto devices = ir::devices_of(*decision.plan);
  const auto working = ir::working_devices(*decision.plan);
  ir::Plan plan = *decision.plan;
  plan.redundancy = ir::Redundancy::none;  // Shadows copy their part while training.
  const auto shares = state_shares(input, plan, weights);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!contains(working, devices[i])) continue;
    if (has[devices[i]] < shares[i].value * (1 - 1e-9)) {
      out += fmt::format("device {} gets {:.0f} of {:.0f} bytes of weights\n", devices[i].value,
                         has[devices[i]], shares[i].value);
    }
  }
  return out;
}

bool equal(const models::RecoveryDecision& a, const models::RecoveryDecision& b) {
  const auto plans = [](const models::PlanPointer& x, const models::PlanPointer& y) {
    return (x == nullptr) == (y == nullptr) && (x == nullptr || *x == *y);
  };
  const auto phases =
      std::equal(a.phases.begin(), a.phases.end(), b.phases.begin(), b.phases.end(),
                 [](const auto& x, const auto& y) {
                   return x.kind == y.kind && x.duration == y.duration && x.source == y.source;
                 });
  return a.action == b.action && plans(a.plan, b.plan) &&
         a.resume_iteration == b.resume_iteration && a.run_on == b.run_on && phases &&
         a.transfers == b.transfers && a.reason == b.reason;
}

}  // namespace

models::Cluster with_storage(models::Cluster cluster) {
  for (models::Node& node : cluster.nodes) {
    node.nvme_read = BytesPerSecond{3.5e9};
    node.nvme_write = BytesPerSecond{2e9};
    node.nvme_capacity = Bytes{4e12};
    node.host_memory = Bytes{1e12};
    node.host_memory_bandwidth = BytesPerSecond{100e9};
  }
  cluster.storage =
      models::ObjectStorage{BytesPerSecond{1.2e9}, models::BandwidthScope::shared, Seconds{0.01}};
  cluster.devices.clear();
  models::seal(cluster);
  return cluster;
}

std::unique_ptr<World> recovery_world(bool half) {
  std::vector<Machines> machines = {{"A", 100, 24, 2, 100, half ? 2 : 4}, {"B", 60, 16, 2, 50, 2}};
  ir::ModelShape shape = small_model(4);
  shape.vocabulary = 8000;
  return std::make_unique<World>(with_storage(make_cluster(machines, 5)), shape, 8, 512);
}

std::unique_ptr<World> equal_nodes(const EqualNodes& equal) {
  ir::ModelShape shape = small_model(equal.layers);
  shape.vocabulary = 8000;
  models::Cluster cluster =
      make_cluster({{"A", 100, equal.memory_gib, equal.gpus, 100, equal.nodes}}, 5);
  return std::make_unique<World>(with_storage(std::move(cluster)), shape, equal.batch, 512);
}

PolicyInput policy_input(const World& world) {
  constexpr double kDay = 86'400;
  return {world.cluster,           world.topology, world.workload, world.job, world.profile,
          world.input().evaluator, 1 / kDay,       std::nullopt,   1};
}

std::unique_ptr<models::RecoveryPolicy> make_policy(const std::string& name,
                                                    const PolicyInput& input,
                                                    const Options& options) {
  const RecoveryEntry* entry = find_policy(name);
  ORRERY_CHECK(entry != nullptr, "no policy {}", name);
  auto made = entry->make(input, options);
  if (std::holds_alternative<models::Infeasible>(made)) return nullptr;
  return std::get<std::unique_ptr<models::RecoveryPolicy>>(std::move(made));
}

std::vector<DeviceId> all_devices(const models::Cluster& cluster) {
  std::vector<DeviceId> out;
  for (const models::Device& device : cluster.devices) out.push_back(device.id);
  return out;
}

std::vector<DeviceId> all_but(const World& world, const std::vector<int>& lost) {
  std::vector<DeviceId> live = all_devices(world.cluster);
  for (const int device : lost) std::erase(live, DeviceId{device});
  return live;
}

ir::Plan uniform_plan(const World& world, int replicas, int stages, int tensor) {
  ir::Plan plan;
  const int layers = count_layers(world.workload);
  ORRERY_CHECK(layers % stages == 0 && world.job.global_batch % replicas == 0, "uneven");
  std::int32_t next = 0;
  for (int r = 0; r < replicas; ++r) {
    ir::Pipeline pipeline;
    pipeline.micro_batch_size = 1;
    pipeline.micro_batches = static_cast<int>(world.job.global_batch / replicas);
    for (int s = 0; s < stages; ++s) {
      ir::Segment segment =
          segment_of_layers(world.workload, s * (layers / stages), layers / stages);
      ir::Group group;
      for (int t = 0; t < tensor; ++t) group.devices.push_back({next++});
      group.tensor_parallel = tensor;
      segment.groups = {group};
      pipeline.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  plan.cluster_hash = world.cluster.hash;
  plan.workload_hash = world.workload.hash;
  return plan;
}

std::string plan_faults(const World& world, const ir::Plan& plan,
                        const std::vector<DeviceId>& live) {
  std::string out = world.defects(plan);
  if (!out.empty()) return out;
  const ir::MemoryVerdict memory = world.verdict(plan);
  if (!memory.fits()) out += memory.explain() + "\n";
  for (const DeviceId device : ir::working_devices(plan)) {
    if (!contains(live, device)) out += fmt::format("device {} is not live\n", device.value);
  }
  return out;
}

std::string decision_faults(const models::Cluster& cluster, const models::JobState& told,
                            const models::RecoveryDecision& decision) {
  return phase_faults(decision) + transfer_faults(cluster, told, decision);
}

std::string level_faults(const World& world, const ir::Plan& plan,
                         const std::vector<models::CheckpointLevel>& levels) {
  std::string out;
  const std::size_t devices = ir::devices_of(plan).size();
  for (const models::CheckpointLevel& level : levels) {
    if (level.every < 1) out += "every 0 iterations\n";
    if (level.stall.count < 0 || level.persist < level.stall) out += "times out of order\n";
    if (!level.stored_on.empty() && level.stored_on.size() != devices) out += "holders\n";
    if (level.location == ir::Location::none || level.location == ir::Location::peer) {
      out += "no storage\n";
    }
    if (level.location == ir::Location::cloud && !world.cluster.storage) out += "no cloud\n";
    if (level.source.empty()) out += "a level without a source\n";
  }
  return out;
}

ir::ClusterEvent node_event(ir::EventKind kind, int node) {
  ir::ClusterEvent event;
  event.kind = kind;
  event.scope.kind = ir::EventScope::Kind::node;
  event.scope.node = {node};
  event.cause = "test";
  return event;
}

ir::ClusterEvent device_event(ir::EventKind kind, int device) {
  ir::ClusterEvent event;
  event.kind = kind;
  event.scope.devices = {{device}};
  event.cause = "test";
  return event;
}

JobLife::JobLife(const World& world, const PolicyInput& input, const models::RecoveryPolicy& policy)
    : world_(world), input_(input), policy_(policy) {
  state_.live = all_devices(world.cluster);
  auto first = policy.first_plan(state_.live);
  if (auto* plan = std::get_if<models::PlanPointer>(&first)) {
    state_.plan = *plan;
    state_.first = *plan;
    state_.training = true;
    state_.iteration_time = input.evaluator.evaluate(**plan).iteration_time;
    set_gpu_copy(0);
  }
}

void JobLife::sort_copies() {
  std::stable_sort(
      state_.replicas.begin(), state_.replicas.end(), [](const auto& a, const auto& b) {
        return a.iteration != b.iteration ? a.iteration > b.iteration : a.location < b.location;
      });
}

void JobLife::set_gpu_copy(std::int64_t iteration) {
  std::erase_if(state_.replicas,
                [](const auto& copy) { return copy.location == ir::Location::peer; });
  models::StateReplica copy;
  copy.iteration = iteration;
  copy.layout = state_.plan;
  const auto devices = ir::devices_of(*state_.plan);
  const auto working = ir::working_devices(*state_.plan);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!contains(working, devices[i])) copy.lost_shards.push_back(static_cast<std::uint32_t>(i));
  }
  state_.replicas.push_back(std::move(copy));
  sort_copies();
}

void JobLife::train(std::int64_t iterations) {
  if (!state_.training) return;
  const auto levels = policy_.checkpoints(*state_.plan, state_.iteration_time);
  const std::int64_t before = state_.iteration;
  state_.iteration += iterations;
  state_.now = state_.now + to_nanoseconds(static_cast<double>(iterations) * state_.iteration_time);
  const auto idle = [&] {
    std::vector<std::uint32_t> gone;
    const auto devices = ir::devices_of(*state_.plan);
    const auto working = ir::working_devices(*state_.plan);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (!contains(working, devices[i])) gone.push_back(static_cast<std::uint32_t>(i));
    }
    return gone;
  }();
  for (const models::CheckpointLevel& level : levels) {
    // Large intervals come early here, so that short lives see them.
    const std::int64_t every = std::min<std::int64_t>(level.every, 40);
    for (std::int64_t back : {1, 0}) {
      const std::int64_t at = (state_.iteration / every - back) * every;
      if (at <= before) continue;
      models::StateReplica copy;
      copy.iteration = at;
      copy.location = level.location;
      copy.layout = state_.plan;
      copy.stored_on = level.stored_on;
      if (level.location != ir::Location::cloud) copy.lost_shards = idle;
      state_.replicas.push_back(std::move(copy));
    }
  }
  set_gpu_copy(state_.iteration);
}

void JobLife::lose_device(DeviceId device, bool node) {
  std::erase(state_.live, device);
  std::erase_if(state_.leaving, [&](const auto& l) { return l.device == device; });
  std::erase_if(state_.slow, [&](const auto& s) { return s.device == device; });
  for (models::StateReplica& copy : state_.replicas) {
    const bool memory = copy.location == ir::Location::peer;
    const bool local =
        copy.location == ir::Location::host_memory || copy.location == ir::Location::nvme;
    if (!memory && !(local && node)) continue;
    const auto devices = ir::devices_of(*copy.layout);
    std::set<std::uint32_t> gone(copy.lost_shards.begin(), copy.lost_shards.end());
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const DeviceId holder = copy.stored_on.empty() ? devices[i] : copy.stored_on[i];
      const bool hit =
          memory ? holder == device
                 : world_.cluster.device(holder).node == world_.cluster.device(device).node;
      if (hit) gone.insert(static_cast<std::uint32_t>(i));
    }
    copy.lost_shards.assign(gone.begin(), gone.end());
  }
}

void JobLife::hit(const ir::ClusterEvent& event) {
  const bool node = event.scope.kind == ir::EventScope::Kind::node;
  if (is_loss(event.kind) && event.scope.kind == ir::EventScope::Kind::job) {
    std::erase_if(state_.replicas,
                  [](const auto& copy) { return copy.location == ir::Location::peer; });
    return;
  }
  for (const DeviceId device : hit_devices(world_.cluster, event)) {
    const bool lives = contains(state_.live, device);
    switch (event.kind) {
      case ir::EventKind::fail:
      case ir::EventKind::leave:
        if (lives) lose_device(device, node);
        break;
      case ir::EventKind::repair:
      case ir::EventKind::join:
        if (!lives) {
          state_.live.insert(std::lower_bound(state_.live.begin(), state_.live.end(), device),
                             device);
        }
        break;
      case ir::EventKind::notice:
        if (lives) state_.leaving.push_back({device, state_.now + event.notice});
        break;
      case ir::EventKind::slow:
        if (lives) state_.slow.push_back({device, event.factor});
        break;
      case ir::EventKind::restore:
        std::erase_if(state_.slow, [&](const auto& s) { return s.device == device; });
        break;
      case ir::EventKind::degrade:
        break;
    }
  }
  const auto by_device = [](const auto& a, const auto& b) { return a.device < b.device; };
  std::sort(state_.leaving.begin(), state_.leaving.end(), by_device);
  std::sort(state_.slow.begin(), state_.slow.end(), by_device);
}

std::string JobLife::laws(const models::JobState& told, const ir::ClusterEvent& event) const {
  const auto& d = decision_;
  std::string out;
  if (!equal(d, policy_.on_events(told, {&event, 1}))) out += "another answer when asked again\n";
  if (d.action == Action::proceed) {
    const bool job = is_loss(event.kind) && event.scope.kind == ir::EventScope::Kind::job;
    if (told.plan == nullptr || job) return out + "proceeds with nothing\n";
    // A recovery goes on unless it, or what it reads from, was hit.
    if (!told.training && (!recovering_ || is_loss(event.kind))) {
      return out + "proceeds without training\n";
    }
    for (const DeviceId device : ir::working_devices(*told.plan)) {
      if (!contains(told.live, device)) out += "proceeds without a device of its plan\n";
    }
    return out;
  }
  if (d.action == Action::wait) {
    const auto again = policy_.first_plan(usable(told, 0));  // What leaves may be left alone.
    if (std::holds_alternative<models::PlanPointer>(again)) {
      out += fmt::format("waits ({}), but there is a first plan\n", d.reason);
    }
    return out;
  }
  if (d.plan == nullptr) return out + "resumes without a plan\n";
  out += plan_faults(world_, *d.plan, told.live);
  if (!out.empty()) return out;
  if (d.resume_iteration < 0 || d.resume_iteration > told.iteration) {
    out += fmt::format("resumes from iteration {} of {}\n", d.resume_iteration, told.iteration);
  }
  if (d.run_on.count >= 0 && !told.training) out += "runs on without training\n";
  if (d.run_on.count >= 0 && told.plan != nullptr)
    out += plan_faults(world_, *told.plan, told.live);
  out += decision_faults(world_.cluster, told, d);
  out += state_faults(input_, told, d);
  return out;
}

void JobLife::carry_out(bool interrupted) {
  if (decision_.action == Action::proceed) {
    if (!recovering_ || interrupted) return;
    recovering_ = false;
    state_.training = true;
    set_gpu_copy(state_.iteration);
    return;
  }
  state_.training = false;
  recovering_ = interrupted && decision_.action == Action::resume;
  if (decision_.action == Action::wait) return;
  if (decision_.run_on.count < 0 || interrupted) {
    state_.iteration = decision_.resume_iteration;
    std::erase_if(state_.replicas,
                  [&](const auto& copy) { return copy.iteration > state_.iteration; });
  }
  state_.plan = decision_.plan;
  state_.iteration_time = input_.evaluator.evaluate(*decision_.plan).iteration_time;
  if (interrupted) return;
  state_.training = true;
  set_gpu_copy(state_.iteration);
}

std::string JobLife::fire(const ir::ClusterEvent& event, bool interrupted) {
  state_.now = state_.now + Nanoseconds{1'000'000'000};
  hit(event);
  const models::JobState told = state_;
  decision_ = policy_.on_events(told, {&event, 1});
  std::string out = laws(told, event);
  if (out.empty()) carry_out(interrupted);
  return out;
}

ir::ClusterEvent RandomEvents::next(const models::JobState& state) {
  const auto pick = [&](std::size_t size) {
    return rng_.integer(0, static_cast<std::int64_t>(size) - 1);
  };
  const auto nodes = static_cast<std::int64_t>(cluster_.nodes.size());
  while (true) {
    const auto node = static_cast<int>(rng_.integer(0, nodes - 1));
    const auto mates = cluster_.devices_of({node});
    const DeviceId device = mates[pick(mates.size())];
    const bool lives = contains(state.live, device);
    const bool whole = std::all_of(mates.begin(), mates.end(),
                                   [&](DeviceId d) { return contains(state.live, d); });
    const auto leaves = std::find_if(state.leaving.begin(), state.leaving.end(),
                                     [&](const auto& l) { return l.device == device; });
    switch (rng_.integer(0, 9)) {
      case 0:
        if (lives) return device_event(ir::EventKind::fail, device.value);
        break;
      case 1:
        if (whole) return node_event(ir::EventKind::fail, node);
        break;
      case 2:
        if (leaves != state.leaving.end()) return node_event(ir::EventKind::leave, node);
        break;
      case 3: {
        if (!whole || leaves != state.leaving.end()) break;
        ir::ClusterEvent event = node_event(ir::EventKind::notice, node);
        event.notice = {rng_.integer(1, 2000) * 1'000'000'000};
        return event;
      }
      case 4:
      case 5:
      case 6:
        if (!lives) return node_event(ir::EventKind::join, node);
        break;
      case 7: {
        if (!lives || !state.slow.empty()) break;
        ir::ClusterEvent event = device_event(ir::EventKind::slow, device.value);
        event.factor = 0.5;
        return event;
      }
      case 8:
        if (!state.slow.empty()) {
          return device_event(ir::EventKind::restore, state.slow.front().device.value);
        }
        break;
      default: {
        ir::ClusterEvent event;
        event.scope.kind = ir::EventScope::Kind::job;
        event.cause = "software";
        return event;
      }
    }
  }
}

}  // namespace orrery::planners
