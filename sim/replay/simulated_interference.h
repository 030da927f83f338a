/// Slow-downs of jobs by each other from the simulator (sim/iteration/together.h), remembered by
/// the plans that run.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/cost/pricer.h"
#include "models/interfaces/answer_store.h"
#include "models/ir/profile.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"
#include "sim/iteration/iteration.h"
#include "sim/replay/replay_together.h"

namespace orrery::sim {

/// Healthy GPUs and links, all jobs beginning an iteration at the same time. Simulates in forked
/// copies of the process.
class SimulatedInterference final : public InterferenceTimer {
 public:
  struct Job {
    const models::Workload& workload;
    const models::Job& job;
    std::string context;  ///< iteration_context(); empty without a store of answers.
  };
  /// Keeps references. The simulator counts link use.
  SimulatedInterference(IterationSimulator& simulator, const ir::Profile& profile,
                        std::vector<Job> jobs, IterationOptions options,
                        const models::AnswerStore* answers);

  std::vector<double> slowdowns(std::span<const RunningJob> running) const override;
  /// Sets of plans that were simulated.
  std::int64_t simulated() const { return simulated_; }

 private:
  std::string simulate(std::span<const RunningJob> running) const;

  IterationSimulator& simulator_;
  const ir::Profile& profile_;
  std::vector<Job> jobs_;
  IterationOptions options_;
  const models::AnswerStore* answers_;
  mutable std::map<std::string, std::vector<double>> known_;
  mutable std::int64_t simulated_ = 0;
};

}  // namespace orrery::sim
