/// All that a replay asks the simulator, on the one engine of a process.
#pragma once
#include <string>

#include "sim/replay/flow_transfer_timer.h"
#include "sim/replay/question.h"
#include "sim/replay/simulated_iteration_timer.h"
#include "sim/replay/transfer_paths.h"

namespace orrery::sim {

/// Keeps references to all but the options. One per process. Where plans may be renamed, slices are
/// folded too: neither keeps the last bit of a time.
class SimulatedTimers {
 public:
  SimulatedTimers(const models::Cluster& cluster, const models::Topology& topology,
                  const models::Workload& workload, const models::Job& job,
                  const ir::Profile& profile, const IterationOptions& options = {},
                  CacheOptions cache = {})
      : paths_(cluster, topology),
        simulator_(cluster, topology, false, paths_.extension()),
        context_(cache.answers == nullptr
                     ? ""
                     : transfer_context(cluster, profile, simulator_.effective_config())),
        transfers_(cluster, topology, paths_, simulator_.engine(), cache, context_),
        options_(with_slices(options, cache.rename)),
        iteration_context_(context_.empty() ? ""
                                            : iteration_context(context_, workload, job, options_)),
        iterations_(simulator_, paths_, workload, job, profile, options_, cache,
                    iteration_context_),
        evaluator_(iterations_) {}

  IterationSimulator& simulator() { return simulator_; }
  const SimulatedIterationTimer& iterations() const { return iterations_; }
  const FlowTransferTimer& transfers() const { return transfers_; }
  /// All that iteration times depend on besides plans and conditions, as bytes; empty without a
  /// store of answers.
  const std::string& context() const { return iteration_context_; }
  /// For PolicyInput: shares the cache of iterations().
  const CachedEvaluator& evaluator() const { return evaluator_; }

 private:
  static IterationOptions with_slices(IterationOptions options, bool renames) {
    if (renames && options.fold == FoldMode::automatic) options.fold = FoldMode::slices;
    return options;
  }

  TransferPaths paths_;
  IterationSimulator simulator_;
  std::string context_;
  FlowTransferTimer transfers_;
  IterationOptions options_;
  std::string iteration_context_;
  SimulatedIterationTimer iterations_;
  CachedEvaluator evaluator_;
};

}  // namespace orrery::sim
