#include "planners/recovery/kit/replica_planner.h"

#include "models/schedule/schedule.h"
#include "planners/recovery/kit/elastic.h"

namespace orrery::planners {
namespace {

models::Job replica_job(models::Job job, std::optional<ir::Recompute> recompute) {
  if (recompute) job.allowed.recompute = {*recompute};
  job.allowed.zero_stages = {0};
  job.allowed.schedules = models::plain_schedules(job.allowed.schedules);
  return job;
}

PolicyInput with_job(const PolicyInput& input, const models::Job& job) {
  return {.cluster = input.cluster,
          .topology = input.topology,
          .workload = input.workload,
          .job = job,
          .profile = input.profile,
          .evaluator = input.evaluator,
          .interruptions_per_second = input.interruptions_per_second,
          .plan = std::nullopt,
          .seed = input.seed,
          .searches = input.searches,
          .known_searches = input.known_searches};
}

}  // namespace

struct ReplicaPlanner::Asked {
  Asked(const PolicyInput& original, const std::string& planner,
        std::optional<ir::Recompute> recompute, const Options& options)
      : job(replica_job(original.job, recompute)),
        input(with_job(original, job)),
        replanner(input, planner, options) {}
  models::Job job;
  PolicyInput input;
  Replanner replanner;
};

ReplicaPlanner::ReplicaPlanner(const PolicyInput& input, const std::string& planner,
                               std::optional<ir::Recompute> recompute, const Options& options)
    : asked_(std::make_shared<const Asked>(input, planner, recompute, options)) {}

FoundPlan ReplicaPlanner::plan_for(const std::vector<DeviceId>& devices) const {
  if (devices.empty()) return models::Infeasible{"number of devices", "none lives"};
  return asked_->replanner.plan_for(devices);
}

std::optional<models::Infeasible> ReplicaPlanner::job_problem(const models::Job& job) {
  if (auto problem = zero_off_problem(job, "replicas")) return problem;
  if (!models::plain_schedules(job.allowed.schedules).empty()) return std::nullopt;
  return models::Infeasible{"schedule", "the job allows no schedule without virtual stages"};
}

}  // namespace orrery::planners
