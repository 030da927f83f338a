/// The simulator as a judge of plans.
#pragma once
#include <string>
#include <vector>

#include "models/cost/pricer.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"
#include "sim/iteration/iteration.h"
#include "sim/iteration/options.h"

namespace orrery::sim {

/// Lowers a plan (collapsed, folded where that is exact), simulates one iteration without recording
/// and rates it. All of an evaluation is done in forked copies of the process, with the clock at
/// its start, so that it does not depend on what was evaluated before. Throws std::runtime_error if
/// a copy fails.
class SimulatorEvaluator final : public models::Evaluator {
 public:
  /// Keeps references to all but `options`. The cluster is that of the simulator.
  SimulatorEvaluator(IterationSimulator& simulator, const models::Workload& workload,
                     const models::Job& job, const ir::Profile& profile,
                     IterationOptions options = {});

  models::Evaluation evaluate(const ir::Plan& plan) const override;
  /// With these devices and links slow on top of the options' own.
  models::Evaluation evaluate(const ir::Plan& plan, const std::vector<Straggler>& stragglers,
                              const std::vector<SlowLink>& slow_links) const;
  std::string name() const override { return "simulator"; }
  bool is_undisturbed() const override { return !options_.noisy(); }

  /// Also tells what priced the plan: Pricer::take_recent_entries().
  struct Priced {
    models::Evaluation evaluation;
    std::vector<std::string> prices;
  };
  Priced evaluate_priced(const ir::Plan& plan, const std::vector<Straggler>& stragglers,
                         const std::vector<SlowLink>& slow_links) const;
  /// Prices as the evaluations do; what they have used it does not know.
  const models::Pricer& pricer() const { return pricer_; }

 private:
  IterationSimulator& simulator_;
  const models::Workload& workload_;
  const models::Job& job_;
  const ir::Profile& profile_;
  IterationOptions options_;
  models::Pricer pricer_;
};

/// The closed form's verdict (models::check_memory), raised where the replay of the program's
/// buffers peaks higher. `peaks` are by rank, per device; the profile's fragmentation and context
/// are added.
ir::MemoryVerdict memory_verdict(const ir::Plan& plan, const ir::Program& program,
                                 const std::vector<Bytes>& peaks, const models::Cluster& cluster,
                                 const models::Workload& workload, const models::Job& job,
                                 const ir::Profile& profile);

}  // namespace orrery::sim
