// A replay at the size of Llama 3, against the target of the design: 54 days on 16,384 GPUs with
// 419 failures, each of one GPU that is back after five minutes. Without an argument: a policy that
// waits for it and returns to the same plan, all devices reading their share from the object
// storage. With the name of a policy of the catalog: that policy on experiments/llama3, where spare
// nodes take the place of broken ones. Prints CPU seconds of this process and of the forked
// simulations, and what they went into. Run by hand on a release build, in the repository's root:
// replay_bench [POLICY [DAYS]]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/rng.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"
#include "sim/replay/replay.h"
#include "sim/replay/simulated_timers.h"
#include "tests/bench/timed_policy.h"

namespace {

using namespace orrery;

constexpr double kTarget = 10;  // seconds
constexpr int kFailures = 419, kDays = 54;
constexpr int kPipelines = 128, kStages = 16, kTensor = 8, kMicroBatches = 16;

ir::Plan grid(int blocks) {
  ir::Plan plan;
  int device = 0;
  for (int p = 0; p < kPipelines; ++p) {
    ir::Pipeline& pipeline = plan.pipelines.emplace_back();
    pipeline.micro_batches = kMicroBatches;
    for (int s = 0; s < kStages; ++s) {
      ir::Segment segment;
      segment.first_block = {s * blocks / kStages};
      segment.last_block = {(s + 1) * blocks / kStages - 1};
      ir::Group group;
      group.tensor_parallel = kTensor;
      for (int t = 0; t < kTensor; ++t) group.devices.push_back({device++});
      segment.groups.push_back(std::move(group));
      pipeline.stages.push_back({{std::move(segment)}});
    }
  }
  return plan;
}

class SamePlan final : public models::RecoveryPolicy {
 public:
  SamePlan(models::PlanPointer plan, Bytes share)
      : plan_(std::move(plan)), devices_(ir::devices_of(*plan_)) {
    for (const DeviceId device : devices_) {
      reads_.push_back({ir::Location::cloud, ir::Location::peer, {}, device, share});
    }
  }
  std::string name() const override { return "same_plan"; }
  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>&) const override {
    return plan_;
  }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan&, Seconds time) const override {
    models::CheckpointLevel level;
    level.every = std::max<std::int64_t>(1, std::llround(600 / time.value));
    level.stall = to_nanoseconds(Seconds{10});
    level.persist = to_nanoseconds(Seconds{60});
    return {level};
  }
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent>) const override {
    using Kind = models::RecoveryPhase::Kind;
    using Action = models::RecoveryDecision::Action;
    models::RecoveryDecision decision;
    const bool whole =
        std::includes(state.live.begin(), state.live.end(), devices_.begin(), devices_.end());
    decision.action = whole ? (state.training ? Action::proceed : Action::resume) : Action::wait;
    if (decision.action != Action::resume) return decision;
    decision.plan = plan_;
    for (const models::StateReplica& replica : state.replicas) {
      if (replica.location != ir::Location::cloud) continue;
      decision.resume_iteration = replica.iteration;
      break;
    }
    decision.phases = {{Kind::detect, to_nanoseconds(Seconds{30}), ""},
                       {Kind::move_state, {}, ""},
                       {Kind::reinitialize, to_nanoseconds(Seconds{120}), ""}};
    decision.transfers = reads_;
    return decision;
  }

 private:
  models::PlanPointer plan_;
  std::vector<DeviceId> devices_;
  std::vector<models::StateTransfer> reads_;
};

/// As many a day as there are in the 54 days.
traces::Trace failures(const models::Cluster& cluster, int days) {
  traces::Trace trace;
  trace.horizon = {std::int64_t{days} * 86400 * 1'000'000'000};
  for (const models::Node& node : cluster.nodes) {
    trace.nodes.push_back({node.name, "", static_cast<int>(node.gpu_types.size())});
  }
  Rng rng(1);
  for (int i = 0; i < kFailures * days / kDays; ++i) {
    ir::ClusterEvent event;
    event.time = {rng.integer(0, trace.horizon.count - 1)};
    event.scope.devices = {{static_cast<int>(rng.integer(0, cluster.size() - 1))}};
    trace.events.push_back(event);
    event.time = event.time + Nanoseconds{std::int64_t{300} * 1'000'000'000};
    event.kind = ir::EventKind::repair;
    trace.events.push_back(event);
  }
  std::sort(trace.events.begin(), trace.events.end(),
            [](const auto& a, const auto& b) { return a.time < b.time; });
  return trace;
}

int measure(const models::Cluster& cluster, const models::Workload& workload,
            const models::Job& job, const std::string& name, models::PlanPointer plan, int days) {
  const double start = bench::cpu_seconds();
  const models::Topology topology(cluster);
  const ir::Profile profile;
  const sim::CacheOptions remember{!name.empty()};
  sim::SimulatedTimers timers(cluster, topology, workload, job, profile, {}, remember);
  const double built = bench::cpu_seconds();
  std::int64_t searches = 0;
  // 14 bytes for each of 405 billion parameters, over the 128 devices of a pipeline.
  std::unique_ptr<models::RecoveryPolicy> policy =
      std::make_unique<SamePlan>(plan, Bytes{405e9 * 14 / (kStages * kTensor)});
  if (!name.empty()) {
    policy = bench::policy_of(name, {cluster, topology, workload, job, profile, timers.evaluator(),
                                     kFailures / (kDays * 86400.0), *plan, 1, &searches});
  }
  const double made = bench::cpu_seconds();
  const bench::TimedPolicy timed(*policy);
  const traces::Trace trace = failures(cluster, days);
  const sim::ReplayInput input{cluster, job, trace, timed, timers.iterations(), timers.transfers()};
  const sim::ReplayResult result = sim::replay(input, {});
  const double end = bench::cpu_seconds();
  fmt::print("{}: {} GPUs, {} days\n", timed.name(), cluster.size(), days);
  fmt::print("platform                {:8.3f} CPU s, before the replay\n", built - start);
  fmt::print("policy                  {:8.3f} CPU s, before the replay\n", made - built);
  bench::print_costs(result, timers, end - made, "CPU s", kTarget);
  fmt::print("  decisions             {:8.3f} CPU s, {} searches\n", timed.deciding(), searches);
  fmt::print("  costs of checkpoints  {:8.3f} CPU s\n", timed.checkpoint_costs());
  return end - made <= kTarget ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  const std::string name = count > 1 ? words[1] : "";
  const int days = count > 2 ? std::max(1, std::atoi(words[2])) : kDays;
  config::Diagnostics diagnostics;
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  models::Job job;
  job.sequence_length = 8192;
  job.global_batch = kPipelines * kMicroBatches;
  if (!name.empty()) job.allowed.recompute = {ir::Recompute::full};
  const models::Cluster cluster = models::load_cluster(
      name.empty() ? "llama3_16384" : "experiments/llama3/cluster.yaml", library, {}, diagnostics);
  const models::Workload workload =
      models::load_workload("llama3_405b", job, library, {}, diagnostics);
  const ir::Plan plan = name.empty()
                            ? grid(workload.size())
                            : models::load_plan("experiments/llama3/plan.yaml", diagnostics);
  diagnostics.raise();
  return measure(cluster, workload, job, name, std::make_shared<const ir::Plan>(plan), days);
}
