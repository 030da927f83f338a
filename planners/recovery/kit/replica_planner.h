/// Plans whose replicas hold their whole state, from a planner of the catalog: for policies that
/// continue with the pipelines that are left.
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
  /// `planner` is a name of the catalog, which takes `options`. It sees a job that allows neither
  /// ZeRO nor virtual stages, and only the recomputation `recompute` if that is given. Keeps
  /// references to what `input` refers to, and remembers the planner's answers.
  ReplicaPlanner(const PolicyInput& input, const std::string& planner,
                 std::optional<ir::Recompute> recompute = std::nullopt,
                 const Options& options = {});

  FoundPlan plan_for(const std::vector<DeviceId>& devices) const;

  /// Why there are no such plans for the job; none: there may be.
  static std::optional<models::Infeasible> job_problem(const models::Job& job);

 private:
  struct Asked;
  std::shared_ptr<const Asked> asked_;
};

}  // namespace orrery::planners
