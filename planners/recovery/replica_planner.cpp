#include "planners/recovery/replica_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "planners/catalog.h"
#include "planners/plan_parts.h"
#include "planners/recovery/stage_cut.h"

namespace orrery::planners {
namespace {

models::Job restricted(models::Job job, std::optional<ir::Recompute> recompute) {
  if (recompute) job.allowed.recompute = {*recompute};
  job.allowed.zero_stages = {0};
  job.allowed.schedules = plain_schedules(job);
  return job;
}

PolicyInput with_job(const PolicyInput& input, const models::Job& job) {
  return {input.cluster,
          input.topology,
          input.workload,
          job,
          input.profile,
          input.evaluator,
          input.interruptions_per_second,
          std::nullopt,
          input.seed,
          input.searches};
}

/// What decides how fast a pipeline is, in so far as devices of one type are equal.
using PipelineKind = std::vector<std::array<int, 5>>;

PipelineKind kind_of(const ir::Pipeline& pipeline, const models::Cluster& cluster) {
  PipelineKind kind;
  int number = 0;
  for (const ir::Stage& stage : pipeline.stages) {
    for (const ir::Segment& segment : stage.segments) {
      for (const ir::Group& group : segment.groups) {
        kind.push_back({number, segment.first_block.value, segment.last_block.value,
                        static_cast<int>(group.devices.size()),
                        cluster.device(group.devices.front()).gpu_type});
      }
    }
    ++number;
  }
  return kind;
}

/// As though all pipelines had ended together with the micro-batches that they have; pipelines of
/// one kind are equal, whichever of them has one more.
std::vector<PipelineRate> rates_of(const std::vector<ir::Pipeline>& pipelines,
                                   const models::Cluster& cluster) {
  struct Sum {
    double slots = 0;
    int count = 0;
  };
  std::map<PipelineKind, Sum> kinds;
  for (const ir::Pipeline& pipeline : pipelines) {
    Sum& sum = kinds[kind_of(pipeline, cluster)];
    sum.slots += pipeline.micro_batches + static_cast<double>(pipeline.stages.size()) - 1;
    ++sum.count;
  }
  std::vector<PipelineRate> rates;
  for (const ir::Pipeline& pipeline : pipelines) {
    const Sum& sum = kinds[kind_of(pipeline, cluster)];
    const double slots = sum.slots / sum.count;
    rates.push_back({static_cast<double>(pipeline.stages.size()) / slots, 1 / slots});
  }
  return rates;
}

/// Devices for a group like `like`; empty: no node has so many of the type.
std::vector<DeviceId> devices_like(const ir::Group& like, const models::Cluster& cluster,
                                   const std::set<DeviceId>& unused) {
  const int type = cluster.device(like.devices.front()).gpu_type;
  std::vector<DeviceId> found;
  for (const DeviceId device : unused) {
    if (cluster.device(device).gpu_type != type) continue;
    if (!found.empty() && cluster.device(found.back()).node != cluster.device(device).node) {
      found.clear();
    }
    found.push_back(device);
    if (found.size() == like.devices.size()) return found;
  }
  return {};
}

std::optional<ir::Pipeline> copy_on(const ir::Pipeline& like, const models::Cluster& cluster,
                                    std::set<DeviceId>& unused) {
  ir::Pipeline result = like;
  std::set<DeviceId> left = unused;
  for (ir::Stage& stage : result.stages) {
    std::vector<std::pair<DeviceId, DeviceId>> renamed;
    for (const ir::Group& group : stage.segments.front().groups) {
      const std::vector<DeviceId> devices = devices_like(group, cluster, left);
      if (devices.empty()) return std::nullopt;
      for (std::size_t i = 0; i < devices.size(); ++i) {
        renamed.emplace_back(group.devices[i], devices[i]);
        left.erase(devices[i]);
      }
    }
    for (ir::Segment& segment : stage.segments) {
      for (ir::Group& group : segment.groups) {
        for (DeviceId& device : group.devices) {
          const auto to = std::find_if(renamed.begin(), renamed.end(),
                                       [&](const auto& pair) { return pair.first == device; });
          device = to->second;
        }
      }
    }
  }
  unused = std::move(left);
  return result;
}

}  // namespace

struct ReplicaPlanner::Kept {
  Kept(const PolicyInput& original, const std::string& planner,
       std::optional<ir::Recompute> recompute)
      : job(restricted(original.job, recompute)),
        input(with_job(original, job)),
        replanner(input, planner) {}
  models::Job job;
  PolicyInput input;
  Replanner replanner;
};

ReplicaPlanner::ReplicaPlanner(const PolicyInput& input, const std::string& planner,
                               std::optional<ir::Recompute> recompute)
    : kept_(std::make_shared<const Kept>(input, planner, recompute)) {}

std::variant<models::PlanPointer, models::Infeasible> ReplicaPlanner::plan_for(
    const std::vector<DeviceId>& devices) const {
  if (devices.empty()) return models::Infeasible{"number of devices", "none lives"};
  return kept_->replanner.plan_for(devices);
}

std::optional<models::Infeasible> ReplicaPlanner::job_problem(const models::Job& job) {
  const auto& zero = job.allowed.zero_stages;
  if (std::count(zero.begin(), zero.end(), 0) == 0) {
    return models::Infeasible{"ZeRO", "the job does not allow stage 0, but replicas must be whole"};
  }
  if (plain_schedules(job).empty()) {
    return models::Infeasible{"schedule", "the job allows no schedule without virtual stages"};
  }
  return std::nullopt;
}

std::string ReplicaPlanner::planner_problem(const std::string& planner) {
  if (find_planner(planner) != nullptr) return "";
  return fmt::format("no planner of the name '{}'", planner);
}

bool interchangeable(const ir::Stage& a, const ir::Stage& b) {
  return std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    [](const ir::Segment& x, const ir::Segment& y) {
                      return x.first_block == y.first_block && x.last_block == y.last_block &&
                             x.virtual_stage == y.virtual_stage;
                    });
}

std::variant<ir::Plan, models::Infeasible> surviving_pipelines(const ir::Plan& plan,
                                                               const models::Cluster& cluster,
                                                               const std::vector<DeviceId>& live) {
  ir::Plan result = plan;
  result.predicted.reset();
  std::erase_if(result.pipelines, [&](const ir::Pipeline& pipeline) {
    return std::any_of(pipeline.stages.begin(), pipeline.stages.end(), [&](const ir::Stage& stage) {
      const std::vector<DeviceId> devices = ir::devices_of(stage);
      return std::any_of(devices.begin(), devices.end(), [&](DeviceId d) {
        return !std::binary_search(live.begin(), live.end(), d);
      });
    });
  });
  if (result.pipelines.empty()) return models::Infeasible{"replicas", "no whole pipeline lives"};
  for (ir::Pipeline& pipeline : result.pipelines) pipeline.reroutes.clear();
  const int size = result.pipelines.front().micro_batch_size;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    if (pipeline.micro_batch_size == size) continue;
    return models::Infeasible{"micro-batch size", "pipelines have micro-batches of several sizes"};
  }
  const std::vector<int> shares = split_batch(rates_of(result.pipelines, cluster),
                                              static_cast<int>(ir::global_batch(plan) / size));
  for (std::size_t p = 0; p < shares.size(); ++p) {
    result.pipelines[p].micro_batches = shares[p];
  }
  return result;
}

int add_pipelines(ir::Plan& plan, const models::Cluster& cluster,
                  const std::vector<DeviceId>& live) {
  const std::vector<DeviceId> used = ir::devices_of(plan);
  std::set<DeviceId> unused;
  std::set_difference(live.begin(), live.end(), used.begin(), used.end(),
                      std::inserter(unused, unused.end()));
  const int size = plan.pipelines.front().micro_batch_size;
  const auto batch = static_cast<int>(ir::global_batch(plan) / size);
  const ir::Pipeline like = plan.pipelines.front();
  int added = 0;
  while (static_cast<int>(plan.pipelines.size()) < batch) {
    std::optional<ir::Pipeline> copy = copy_on(like, cluster, unused);
    if (!copy) break;
    plan.pipelines.push_back(std::move(*copy));
    ++added;
  }
  if (added == 0) return 0;
  plan.predicted.reset();
  const std::vector<int> shares = split_batch(rates_of(plan.pipelines, cluster), batch);
  for (std::size_t p = 0; p < shares.size(); ++p) plan.pipelines[p].micro_batches = shares[p];
  return added;
}

}  // namespace orrery::planners
