/// A planning problem with an evaluator for tests of planners, so that no simulator is needed.
#pragma once
#include <string>
#include <vector>

#include "models/cost/memory.h"
#include "models/spec/topology.h"
#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/planner.h"
#include "tests/worlds/clusters.h"
#include "tests/worlds/models.h"

namespace orrery::planners {

using worlds::case_study_cluster;
using worlds::llama2_13b;
using worlds::llama_30b;
using worlds::Machines;
using worlds::make_cluster;
using worlds::mixed_cluster;
using worlds::small_model;

/// All that a planner needs, owned. The evaluator is the closed form of planners/kit/estimate.h
/// with the verdict of check_memory.
class World {
 public:
  World(models::Cluster cluster, const ir::ModelShape& shape, std::int64_t global_batch,
        std::int64_t sequence_length = 4096);
  World(const World&) = delete;

  models::Cluster cluster;
  models::Topology topology;
  models::Job job;
  models::Workload workload;
  ir::Profile profile;

  PlannerInput input(std::uint64_t seed = 1) const;
  ir::MemoryVerdict verdict(const ir::Plan& plan) const;
  /// HexiScale's Eq. 10 with the paper's factors.
  Seconds paper_estimate(const ir::Plan& plan) const;
  /// What validate() has against the plan, one line each.
  std::string defects(const ir::Plan& plan) const;

 private:
  class ClosedForm;
  std::shared_ptr<models::Evaluator> evaluator_;
};

/// Runs the planner of that name; aborts on bad options.
PlannerResult run_planner(const char* name, const PlannerInput& input, const Options& options = {});

/// The plan of a result, or null.
const ir::Plan* plan_of(const PlannerResult& result);
/// Seconds of the planner's own estimate; kNever without a plan.
double estimate_of(const PlannerResult& result);

/// What a brute force found.
struct Best {
  double time = kNever;       ///< Of the best plan that fits.
  double forbidden = kNever;  ///< Of the best that does not.
  int examined = 0;
  int rejected = 0;
  void offer(double seconds, bool fits);
};
/// What is wrong with an answer, or "": a plan must be valid, fit in memory, be signed and use only
/// the devices of the input; an infeasible answer must name a constraint and a witness.
std::string complaint(const World& world, const PlannerInput& input, const PlannerResult& result);

}  // namespace orrery::planners
