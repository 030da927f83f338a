/// Runs an iteration of a Program on the flow engine and says when everything happened; for a
/// staggered program, as many consecutive iterations as it takes to know their pace.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/time.h"
#include "models/base/units.h"
#include "models/cost/pricer.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/breakdown.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"
#include "models/ir/verdict.h"
#include "models/spec/cluster.h"
#include "models/spec/topology.h"
#include "sim/flow/engine.h"
#include "sim/iteration/folding.h"
#include "sim/iteration/options.h"
#include "sim/platform/platform.h"

namespace orrery::sim {

/// Counted work of a simulation: equal on every machine, unlike time.
struct SimulatedWork {
  std::int64_t timers = 0;  ///< Delays: compute and closed forms.
  std::int64_t flows = 0;
  std::int64_t barriers = 0;
};

struct IterationResult {
  /// Spans, memory samples and link use as far as they are recorded; instants count from the start
  /// of the iteration. Of a staggered program the last three iterations, from when the first rank
  /// began the first of them: as in the executor's logs each mark lasts from the first rank's start
  /// to the last one's end, and marks overlap; link use is that of one iteration. `program_hash` is
  /// the caller's to fill.
  ir::RunLog log;
  /// End of the last op; of a staggered program the time from one iteration to the next
  /// (find_pace). Not rounded, the log has it in nanoseconds.
  Seconds iteration_time;
  int iterations = 1;   ///< Simulated one after the other.
  bool settled = true;  ///< Pace::settled; if not, an event of the log says so.
  /// By rank: from the end of its own ops of one iteration to that of the next, averaged over
  /// Pace::window iterations: the sum is its period, which once settled is the iteration time.
  std::vector<ir::RankBreakdown> ranks;
  models::Breakdown breakdown;  ///< Mean of `ranks` over devices.
  /// By pipeline: end of its last backward op, counted from when the rank began the iteration.
  std::vector<Seconds> pipeline_times;
  std::vector<Bytes> peak_memory;  ///< By rank, per device, without the GPU's context.
  SimulatedWork work;
  /// Pipelines that ran; each of the others did the same as one of them (sim/iteration/folding.h).
  int simulated_pipelines = 0;
};

/// One per process, as the engine below it; fork (sim/flow/fork.h) to run from a clean clock.
/// Repeated runs in one process follow each other on one clock, so that their times may differ in
/// the last bits; in forks of one process they are equal.
class IterationSimulator {
 public:
  /// Keeps references. Link use is counted only if `count_links`. `extension` serves other users of
  /// the one engine of this process; iterations do not use it.
  IterationSimulator(const models::Cluster& cluster, const models::Topology& topology,
                     bool count_links = true, const PlatformExtension& extension = {});
  ~IterationSimulator();

  /// Runs a well-formed program (ir::find_defect) to its end:
  /// - An op starts when its dependencies have ended and, on compute and collective streams, also
  ///   the op before it. A send and its recv, and the members of a collective, start and end
  ///   together.
  /// - A transfer is a flow for each pair of devices. A collective is the flows of
  ///   models::collective_flows for each of its parts, all at once; inside one collapsed rank on
  ///   NVLink it takes its closed form when inner collectives do.
  /// - A compute op takes its price (x jitter x slowdown), then its inner collectives (InnerMode).
  ///   The ops of an op group wait for each other after their compute and end together. An op group
  ///   drives only the flows that leave its own devices.
  /// - State ops to storage run alone at its full bandwidth.
  /// - A staggered program runs for two iterations, in which each rank begins an iteration once it
  ///   has finished all its own ops of the one before. If its pace has not settled then, it runs
  ///   again for 4, 8, 16, 32 iterations (fewer for programs of millions of ops), and once more if
  ///   the log needs more than two iterations.
  /// Options must have no problems (find_problems). Deterministic in its arguments.
  IterationResult run(const ir::Program& program, const models::ProgramPrices& prices,
                      const IterationOptions& options);
  IterationResult run(const ir::Program& program, const models::Pricer& pricer,
                      const IterationOptions& options);
  /// The same for a program that may be folded: results are those of the whole program, up to
  /// rounding, and speak of all ranks. `iteration` was made with the same options and this cluster.
  /// `prices` are those of its program; `pricer` serves if it changes (fold_again). What needs a
  /// check runs in forked copies: throws std::runtime_error if one fails.
  IterationResult run(FoldedIteration& iteration, const models::ProgramPrices& prices,
                      const models::Pricer& pricer, const IterationOptions& options);
  /// Runs it once, as it is and here, not in a copy. A guess may prove wrong: then what its flows
  /// met (FoldedIteration::find_meetings).
  std::variant<IterationResult, std::string> try_run(FoldedIteration& iteration,
                                                     const models::ProgramPrices& prices,
                                                     const IterationOptions& options);

  const models::Cluster& cluster() const;
  const models::Topology& topology() const;
  /// The engine of this process. Tasks of others must be removed (rewind) before run().
  FlowEngine& engine();
  /// SimGrid's version and options, for the effective configuration.
  std::vector<std::pair<std::string, std::string>> effective_config() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// What planners are told: models::evaluation_of the plan that the program was lowered from.
models::Evaluation evaluation_from(const IterationResult& result, const ir::Plan& plan,
                                   const models::Cluster& cluster, const models::Workload& workload,
                                   ir::MemoryVerdict memory);

}  // namespace orrery::sim
