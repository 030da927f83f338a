/// Iteration times from the simulator, remembered: plans that differ only by a renaming of
/// interchangeable devices, or by which of equal pipelines lost a stage, with the same health, are
/// lowered and simulated once.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/cost/pricer.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/profile.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"
#include "sim/iteration/iteration.h"
#include "sim/iteration/options.h"
#include "sim/replay/replay.h"
#include "sim/replay/transfer_paths.h"

namespace orrery::sim {

struct RememberOptions {
  /// Nodes of different leaves count as interchangeable: a plan is simulated as if it lay on the
  /// first nodes of their kind. An approximation where leaves are oversubscribed; for large
  /// clusters in which every spare would make a plan of its own.
  bool ignore_leaves = false;
};

/// Work done so far. Seconds are wall-clock times, for tables of timings only.
struct RememberCounts {
  std::int64_t asked = 0;
  std::int64_t simulated = 0;  ///< What was not remembered.
  Seconds simulating;          ///< Lowering included.
  Seconds naming;              ///< Renaming and looking up.
};

Seconds wall_time_since(std::chrono::steady_clock::time_point start);

/// What is simulated is the plan under the names that all equal ones get, not the one that was
/// asked for first: the answer does not depend on what was asked before. Which nodes, leaves and
/// positions are interchangeable: sim/replay/device_renaming.h; the order of pipelines:
/// sim/replay/pipeline_order.h. Slow devices are stragglers
/// (slowdown 1 / factor), degraded links have 1 / factor as slowdown. Each simulation runs in a
/// forked copy of the process (SimulatorEvaluator). Not for concurrent use.
class SimulatedIterationTimer final : public IterationTimer {
 public:
  /// Keeps references. `paths`: for time_beside().
  SimulatedIterationTimer(IterationSimulator& simulator, const TransferPaths& paths,
                          const models::Workload& workload, const models::Job& job,
                          const ir::Profile& profile, IterationOptions options = {},
                          RememberOptions remember = {});
  ~SimulatedIterationTimer() override;

  Seconds time(const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
               const std::vector<std::pair<std::string, double>>& degraded_links) const override;
  /// A transfer takes its rate from each link of the cluster's network on its way; where that is
  /// more than half of the link, or several together are, half is left to training, as a fair share
  /// of two would be. Links of storage carry nothing of training.
  Seconds time_beside(const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
                      const models::DegradedLinks& degraded_links,
                      const std::vector<models::StateTransfer>& per_second) const override;
  /// Starts the simulation, if it is a new one. Two may be under way: the plan that comes and the
  /// one after it; that of the one expected longest ago is given up for a third.
  void prefetch(const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
                const std::vector<std::pair<std::string, double>>& degraded_links) const override;
  models::Evaluation evaluate(const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
                              const models::DegradedLinks& degraded_links,
                              const std::vector<models::StateTransfer>& per_second = {}) const;
  RememberCounts counts() const;
  /// Of everything that was simulated: knows which entries of the profile it used.
  const models::Pricer& pricer() const;

 private:
  struct Memory;
  struct Named;
  Named name(const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
             const models::DegradedLinks& degraded_links,
             const std::vector<models::StateTransfer>& per_second) const;
  std::unique_ptr<Memory> memory_;
};

/// The judge of plans on healthy devices, for policies (PolicyInput): shares the timer's memory.
class RememberingEvaluator final : public models::Evaluator {
 public:
  /// Keeps a reference.
  explicit RememberingEvaluator(const SimulatedIterationTimer& timer) : timer_(timer) {}
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    return timer_.evaluate(plan, {}, {});
  }
  std::string name() const override { return "simulator"; }

 private:
  const SimulatedIterationTimer& timer_;
};

}  // namespace orrery::sim
