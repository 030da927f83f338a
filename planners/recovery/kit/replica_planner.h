/// Plans whose replicas hold their whole state, from a planner of the catalog: for policies that
/// keep on with the pipelines that are left. Remembers what it asked.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "planners/recovery/kit/replan.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

class ReplicaPlanner {
 public:
  /// `planner` exists (planner_problem()). The planner sees a job that allows neither ZeRO nor
  /// virtual stages. Keeps references to what `input` refers to.
  /// `recompute`: the only one that the planner may use; none: all that the job allows.
  ReplicaPlanner(const PolicyInput& input, const std::string& planner,
                 std::optional<ir::Recompute> recompute = std::nullopt);

  std::variant<models::PlanPointer, models::Infeasible> plan_for(
      const std::vector<DeviceId>& devices) const;

  /// Why there are no such plans for the job; none: there may be.
  static std::optional<models::Infeasible> job_problem(const models::Job& job);
  /// What is wrong with a value of the option `planner`; empty if nothing.
  static std::string planner_problem(const std::string& planner);

 private:
  struct Kept;
  std::shared_ptr<const Kept> kept_;
};

/// True when two stages hold the same blocks in the same way, so that each can compute for the
/// other.
bool interchangeable(const ir::Stage& a, const ir::Stage& b);

/// The pipelines that have all their devices in `live`, with micro-batches for the whole batch:
/// split as though all pipelines of `plan` had ended together. None: no pipeline is left, or their
/// micro-batches differ in size. Reroutes are dropped.
std::variant<ir::Plan, models::Infeasible> surviving_pipelines(const ir::Plan& plan,
                                                               const models::Cluster& cluster,
                                                               const std::vector<DeviceId>& live);

/// Adds pipelines on devices of `live` that the plan does not use, as many as fit: first those of
/// `home` (may be null) whose own devices these are, then copies of each kind of pipeline that the
/// plan and `home` have, in their order, each group on devices of the same type in one node, lowest
/// ids first. `home` counts only if it shares a kind of pipeline with the plan, so that speeds can
/// be compared, and has micro-batches of the same size. The batch is split as though all ended
/// together, or as in `home` once the pipelines are just those of `home`. Returns how many it
/// added.
int add_pipelines(ir::Plan& plan, const ir::Plan* home, const models::Cluster& cluster,
                  const std::vector<DeviceId>& live);

}  // namespace orrery::planners
