/// All that a replay asks the simulator, on the one engine of a process.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "sim/replay/flow_transfer_timer.h"
#include "sim/replay/question.h"
#include "sim/replay/simulated_iteration_timer.h"
#include "sim/replay/transfer_paths.h"

namespace orrery::sim {

/// What all jobs of a cluster ask. Keeps references. One per process.
struct ClusterTimers {
  ClusterTimers(const models::Cluster& cluster, const models::Topology& topology,
                const ir::Profile& profile, CacheOptions cache = {}, bool count_links = false)
      : paths(cluster, topology),
        simulator(cluster, topology, count_links, paths.extension()),
        context(cache.answers == nullptr
                    ? ""
                    : transfer_context(cluster, profile, simulator.effective_config())),
        transfers(cluster, topology, paths, simulator.engine(), cache, context) {}

  TransferPaths paths;
  IterationSimulator simulator;
  std::string context;  ///< All that transfer times depend on; empty without a store of answers.
  FlowTransferTimer transfers;
};

/// What one job asks. Keeps references to all but the options. Where plans may be renamed, slices
/// are folded too: neither keeps the last bit of a time.
class SimulatedTimers {
 public:
  SimulatedTimers(const models::Cluster& cluster, const models::Topology& topology,
                  const models::Workload& workload, const models::Job& job,
                  const ir::Profile& profile, const IterationOptions& options = {},
                  CacheOptions cache = {})
      : SimulatedTimers(std::make_shared<ClusterTimers>(cluster, topology, profile, cache),
                        workload, job, profile, options, cache) {}
  SimulatedTimers(std::shared_ptr<ClusterTimers> cluster, const models::Workload& workload,
                  const models::Job& job, const ir::Profile& profile,
                  const IterationOptions& options = {}, CacheOptions cache = {})
      : cluster_(std::move(cluster)),
        options_(with_slices(options, cache.rename)),
        context_(cluster_->context.empty()
                     ? ""
                     : iteration_context(cluster_->context, workload, job, options_)),
        iterations_(cluster_->simulator, cluster_->paths, workload, job, profile, options_, cache,
                    context_),
        evaluator_(iterations_) {}

  IterationSimulator& simulator() { return cluster_->simulator; }
  const SimulatedIterationTimer& iterations() const { return iterations_; }
  const FlowTransferTimer& transfers() const { return cluster_->transfers; }
  /// All that iteration times depend on besides plans and conditions, as bytes; empty without a
  /// store of answers.
  const std::string& context() const { return context_; }
  /// For PolicyInput: shares the cache of iterations().
  const CachedEvaluator& evaluator() const { return evaluator_; }

 private:
  static IterationOptions with_slices(IterationOptions options, bool renames) {
    if (renames && options.fold == FoldMode::automatic) options.fold = FoldMode::slices;
    return options;
  }

  std::shared_ptr<ClusterTimers> cluster_;
  IterationOptions options_;
  std::string context_;
  SimulatedIterationTimer iterations_;
  CachedEvaluator evaluator_;
};

}  // namespace orrery::sim
