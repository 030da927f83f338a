/// Iteration time of any plan in closed form, from the same prices of blocks and collectives that
/// the simulator uses: for ranking many plans before the evaluator judges a few.
#pragma once
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "models/base/units.h"
#include "models/cost/path_function.h"
#include "models/cost/pricer.h"
#include "models/ir/plan.h"
#include "models/schedule/schedule.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Slowest pipeline + slowest gradient synchronization (once for each round of the job's
/// gradient_synchronizations) + slowest optimizer step. A pipeline takes
/// sum of stages + (m - 1) longest stage (closed_form.h), a stage its blocks' compute (Pricer), the
/// ring all-reduces of its tensor-parallel groups and the hop to the next stage. Left out:
/// contention between flows, overlap of gradients with the backward pass, Ulysses and ring
/// attention, expert parallelism. Caches; not for concurrent use.
class PlanEstimator {
 public:
  /// Keeps references to cluster, topology, workload and job.
  explicit PlanEstimator(const PlannerInput& input);
  Seconds estimate(const ir::Plan& plan) const;

  /// One micro-batch on each stage of one of the plan's pipelines, with the hop to the next stage.
  std::vector<models::StageTime> stages(const ir::Plan& plan, const ir::Pipeline& chain) const;
  /// A pipeline of such stages under the plan's schedule.
  static Seconds pipeline(const ir::Plan& plan, std::span<const models::StageTime> stages,
                          int micro_batches);

 private:
  using SegmentKey = std::tuple<int, int, int, int, int, int>;
  /// Times of one micro-batch.
  struct Passes {
    Seconds forward;
    Seconds backward;
  };
  Passes compute(int gpu_type, const ir::Segment& segment, const ir::Group& group) const;
  Passes group_passes(const ir::Segment& segment, const ir::Group& group) const;
  Seconds hop(const ir::Plan& plan, const ir::Stage& from, const ir::Stage& to) const;
  Seconds synchronization(const ir::Plan& plan) const;
  Seconds optimizer(const ir::Plan& plan) const;
  Seconds all_reduce(const std::vector<const ir::Group*>& holders, Bytes gradient) const;

  const models::Cluster& cluster_;
  const models::Workload& workload_;
  const models::Job& job_;
  models::PathFunction path_;
  models::Pricer pricer_;
  mutable std::map<SegmentKey, Passes> compute_;
};

}  // namespace orrery::planners
