/// Planners and recovery policies that are written in Python, as those of C++ (orrery/plugins.py).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "planners/planner.h"
#include "planners/recovery/recovery.h"
#include "tools/python/context.h"

namespace orrery::python {

/// An object of Python with plan(input). It makes a plan that validate() accepts (else ConfigError)
/// and that fits in memory (else Infeasible); name and hashes are filled in where it leaves them.
class PythonPlanner final : public planners::Planner {
 public:
  /// `context`: what the input refers to, if that is known; else it is copied.
  explicit PythonPlanner(py::object planner, std::shared_ptr<Context> context = nullptr);
  ~PythonPlanner() override;
  PythonPlanner(const PythonPlanner&) = delete;
  PythonPlanner& operator=(const PythonPlanner&) = delete;
  planners::PlannerResult plan(const planners::PlannerInput& input) const override;

 private:
  py::object planner_;
  std::shared_ptr<Context> context_;
};

/// An object of Python with the methods of orrery.RecoveryPolicy. What it answers is checked before
/// replay sees it, which would abort: ConfigError says what is wrong.
class PythonPolicy final : public models::RecoveryPolicy {
 public:
  /// `asked`: kept as long as the policy, whose questions end with it.
  PythonPolicy(py::object policy, std::shared_ptr<Context> context, std::shared_ptr<void> asked);
  ~PythonPolicy() override;
  PythonPolicy(const PythonPolicy&) = delete;
  PythonPolicy& operator=(const PythonPolicy&) = delete;
  std::string name() const override { return name_; }
  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const override;
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override;
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const override;

 private:
  void check(const models::PlanPointer& plan, const std::vector<DeviceId>& live,
             const char* where) const;

  py::object policy_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<void> asked_;
  std::string name_;
  mutable models::PlanPointer checked_;  ///< The last plan that was found valid.
};

/// What `class_`, a class derived from orrery.RecoveryPolicy, makes of the input. The evaluator
/// must outlive it.
std::unique_ptr<PythonPolicy> make_python_policy(py::handle class_, const py::dict& settings,
                                                 const planners::PolicyInput& input,
                                                 std::shared_ptr<Context> context = nullptr);

}  // namespace orrery::python
