/// Iteration times from the simulator, remembered: plans that differ only by a renaming of
/// interchangeable devices, or by which of several equal pipelines lost a stage, are lowered and
/// simulated once if the conditions are the same.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/profile.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"
#include "sim/iteration/iteration.h"
#include "sim/iteration/options.h"
#include "sim/replay/iteration_timer.h"
#include "sim/replay/remembered.h"
#include "sim/replay/transfer_paths.h"

namespace orrery::sim {

/// What somebody asked a timer, and which prices the answers rest on, as bytes.
using AskedIterations = std::string;

/// The simulated plan has the names that all equal plans get, not those of the plan that was asked
/// for first: the answer does not depend on earlier questions. Which nodes, leaves and positions
/// are interchangeable: sim/replay/device_renaming.h; the order of pipelines:
/// sim/replay/pipeline_order.h. Slow devices are stragglers (slowdown 1 / factor), degraded links
/// have 1 / factor as slowdown. A background transfer takes its rate from each link of the
/// cluster's network on its path; at most half of a link, as a fair share of two would be, goes to
/// all of them together. Links of storage carry nothing of training. Each simulation runs in a
/// forked copy of the process (SimulatorEvaluator). Not for concurrent use.
class SimulatedIterationTimer final : public IterationTimer {
 public:
  /// Keeps references. `paths`: those of background transfers. `context`: what a store of answers
  /// must know besides plan and conditions (iteration_context()); may be empty without one.
  SimulatedIterationTimer(IterationSimulator& simulator, const TransferPaths& paths,
                          const models::Workload& workload, const models::Job& job,
                          const ir::Profile& profile, IterationOptions options = {},
                          CacheOptions cache = {}, std::string context = {});
  ~SimulatedIterationTimer() override;

  Seconds time(const ir::Plan& plan, const IterationConditions& conditions = {}) const override {
    return evaluate(plan, conditions).iteration_time;
  }
  models::Evaluation evaluate(const ir::Plan& plan,
                              const IterationConditions& conditions = {}) const;
  /// As evaluate() on healthy devices, to be joined while the timer lives.
  std::unique_ptr<models::Evaluator::Pending> start(const ir::Plan& plan) const;
  bool is_undisturbed() const;
  CacheCounts counts() const;
  /// What the calls in `ask` asked.
  AskedIterations record(const std::function<void()>& ask) const;
  /// Counts and prices as if that had been asked here: for somebody whose own answer is remembered.
  /// False: these are no bytes of record().
  bool count_asked(const AskedIterations& asked) const;
  /// Pricer::used_entries() of all plans that were asked for, remembered ones included.
  std::vector<std::string> used_entries() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The judge of plans on healthy devices, for policies (PolicyInput): shares the timer's cache.
class CachedEvaluator final : public models::Evaluator {
 public:
  /// Keeps a reference.
  explicit CachedEvaluator(const SimulatedIterationTimer& timer) : timer_(timer) {}
  models::Evaluation evaluate(const ir::Plan& plan) const override;
  std::unique_ptr<Pending> start(const ir::Plan& plan) const override;
  std::string name() const override { return "simulator"; }
  bool is_undisturbed() const override { return timer_.is_undisturbed(); }

 private:
  const SimulatedIterationTimer& timer_;
};

}  // namespace orrery::sim
