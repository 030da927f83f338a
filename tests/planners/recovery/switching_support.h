/// A cluster of the library, a model, plans written as lists of devices, and a judge that likes
/// devices: for tests of policies that switch plans.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/check.h"
#include "models/check/validate.h"
#include "models/spec/library.h"
#include "planners/kit/plan_parts.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/replan.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/recovery.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners {

/// 100 s of compute over all devices of a plan.
class EvenSplit final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    models::Evaluation out;
    out.iteration_time = Seconds{100.0 / static_cast<double>(ir::devices_of(plan).size())};
    return out;
  }
  std::string name() const override { return "even_split"; }
};

inline std::vector<DeviceId> range(int first, int last) {
  std::vector<DeviceId> out;
  for (int d = first; d <= last; ++d) out.push_back({d});
  return out;
}

inline std::vector<DeviceId> join(std::vector<DeviceId> a, const std::vector<DeviceId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  return a;
}

struct SwitchingWorld {
  SwitchingWorld(const std::string& cluster_name, const std::string& model,
                 std::int64_t global_batch, std::int64_t sequence_length,
                 std::vector<int> zero_stages = {0})
      : SwitchingWorld(
            load(cluster_name, model, global_batch, sequence_length, std::move(zero_stages))) {}

  /// Stages of a pipeline: devices (one tensor-parallel group) and layers.
  using Stages = std::vector<std::pair<std::vector<DeviceId>, int>>;
  ir::Plan plan(const std::vector<Stages>& pipelines) const {
    ir::Plan out;
    for (const Stages& stages : pipelines) {
      ir::Pipeline pipeline;
      pipeline.micro_batches =
          static_cast<int>(job.global_batch) / static_cast<int>(pipelines.size());
      int first = 0;
      for (const auto& [devices, layers] : stages) {
        ir::Segment segment = segment_of_layers(workload, first, layers);
        ir::Group group;
        group.devices = devices;
        group.tensor_parallel = static_cast<int>(devices.size());
        segment.groups = {group};
        pipeline.stages.push_back({{segment}});
        first += layers;
      }
      out.pipelines.push_back(pipeline);
    }
    const auto defects = models::validate(out, cluster, workload, job);
    ORRERY_CHECK(defects.empty(), "{}: {}", defects.front().path, defects.front().what);
    return out;
  }

  /// What the policy of the catalog, with the constants of its paper, answers to the event; it
  /// keeps the contract of RecoveryDecision.
  models::RecoveryDecision decide(const char* policy, const models::JobState& state,
                                  const ir::ClusterEvent& event, const Options& options = {}) const;

  PolicyInput input() const {
    return {cluster, topology, workload, job, profile, evaluator, 0, std::nullopt, 0};
  }

  models::Cluster cluster;
  models::Topology topology;
  models::Job job;
  models::Workload workload;
  ir::Profile profile;
  EvenSplit evaluator;

 private:
  struct Files {
    models::Cluster cluster;
    models::Job job;
    models::Workload workload;
  };
  explicit SwitchingWorld(Files files)
      : cluster(std::move(files.cluster)),
        topology(cluster),
        job(std::move(files.job)),
        workload(std::move(files.workload)) {}
  static Files load(const std::string& cluster_name, const std::string& model,
                    std::int64_t global_batch, std::int64_t sequence_length,
                    std::vector<int> zero_stages) {
    config::Diagnostics diagnostics;
    const models::Library library =
        models::load_library(models::default_library_root(), diagnostics);
    Files files;
    files.job.global_batch = global_batch;
    files.job.sequence_length = sequence_length;
    files.job.allowed.zero_stages = std::move(zero_stages);
    files.job.allowed.sequence_parallel = true;
    files.cluster = models::load_cluster(cluster_name, library, {}, diagnostics);
    files.workload = models::load_workload(model, files.job, library, {}, diagnostics);
    diagnostics.raise();
    return files;
  }
};

inline models::PlanPointer shared(ir::Plan plan) {
  return std::make_shared<const ir::Plan>(std::move(plan));
}

inline ir::ClusterEvent event(ir::EventKind kind, std::vector<DeviceId> devices) {
  ir::ClusterEvent out;
  out.kind = kind;
  out.scope.devices = std::move(devices);
  return out;
}

/// A copy of the plan's state; what lies on `lost` devices is gone.
inline models::StateReplica copy_of(const models::PlanPointer& plan, ir::Location location,
                                    std::int64_t iteration,
                                    const std::vector<DeviceId>& lost = {}) {
  models::StateReplica copy;
  copy.iteration = iteration;
  copy.location = location;
  copy.layout = plan;
  const std::vector<DeviceId> devices = ir::devices_of(*plan);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (std::find(lost.begin(), lost.end(), devices[i]) != lost.end()) {
      copy.lost_shards.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return copy;
}

inline Nanoseconds duration_of(const models::RecoveryDecision& decision,
                               models::RecoveryPhase::Kind kind) {
  Nanoseconds sum;
  for (const models::RecoveryPhase& phase : decision.phases) {
    if (phase.kind == kind) sum += phase.duration;
  }
  return sum;
}

/// What a decision breaks of the contract of RecoveryDecision; empty: nothing.
inline std::string broken(const models::RecoveryDecision& decision, const models::JobState& state,
                          const SwitchingWorld& world) {
  using Action = models::RecoveryDecision::Action;
  if (decision.reason.empty()) return "no reason";
  if (decision.action != Action::resume) {
    return decision.phases.empty() && decision.plan == nullptr ? "" : "phases without resuming";
  }
  if (decision.plan == nullptr) return "no plan";
  if (decision.resume_iteration > state.iteration) return "an iteration that never was";
  if (!models::validate(*decision.plan, world.cluster, world.workload, world.job).empty()) {
    return "an invalid plan";
  }
  if (!runs_on(*decision.plan, state.live)) return "a dead device";
  return decision_faults(world.cluster, state, decision);
}

inline models::RecoveryDecision SwitchingWorld::decide(const char* policy,
                                                       const models::JobState& state,
                                                       const ir::ClusterEvent& event,
                                                       const Options& options) const {
  Options all = {{"constants", "as_published"}};
  all.insert(all.end(), options.begin(), options.end());
  auto decision = make_policy(policy, input(), all)->on_events(state, std::span(&event, 1));
  EXPECT_EQ(broken(decision, state, *this), "") << decision.reason;
  return decision;
}

}  // namespace orrery::planners
