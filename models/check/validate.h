/// Structural validity of plans: what no consumer should ever have to ask again. Runs after every
/// planner and before every consumer. Memory is not judged here (cost/memory.h).
#pragma once
#include <string>
#include <vector>

#include "models/ir/plan.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// One thing that is wrong, and where: path is like "pipelines[1].stages[2].segments[0].groups[0]",
/// the keys of the plan's YAML.
struct PlanDefect {
  std::string path;
  std::string what;
  std::string hint;
};

/// Empty when the plan may be used. Refuses: a device twice or unknown; blocks missing, doubled or
/// out of order; samples that do not add up; a group whose devices do not number tensor_parallel x
/// sequence_degree; tensor-parallel degree that the model's dimensions forbid; a tensor-parallel
/// group across a boundary that the cluster forbids (vendors without a common library); segments of
/// a stage on different devices; batches that do not add up to the job's; virtual stages that do
/// not match the schedule; ZeRO, recompute or schedules outside of what the job allows; hashes of
/// another cluster or workload.
std::vector<PlanDefect> validate(const ir::Plan& plan, const Cluster& cluster,
                                 const Workload& workload, const Job& job);

}  // namespace orrery::models
