/// Several jobs on disjoint devices of one cluster at once: how fast each is while the others use
/// the links that they share. Start with run_together().
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/cost/pricer.h"
#include "models/ir/program.h"
#include "sim/iteration/iteration.h"
#include "sim/iteration/options.h"

namespace orrery::sim {

/// One of the jobs. The program is whole: pipelines that do the same alone need not do so beside
/// another job.
struct JobProgram {
  const ir::Program& program;
  const models::ProgramPrices& prices;
  Seconds start;  ///< When its first iteration begins.
};

/// What one iteration of a program brings over each link of the topology, in bytes.
struct LinkTraffic {
  IdVector<LinkId, Bytes> flows;
  /// Of collectives that take a closed form (InnerMode): they slow nobody on the link, and nobody
  /// slows them.
  IdVector<LinkId, Bytes> closed_forms;
};

/// Runs one iteration of the job alone.
LinkTraffic traffic_of(IterationSimulator& simulator, const JobProgram& job,
                       const IterationOptions& options);

/// Jobs that share links, directly or through a third one, ascending; in the order of their first
/// jobs. A job whose flows share no link with those of another is alone: beside the others it takes
/// as long as without them, because only flows on one link change each other's rates.
std::vector<std::vector<std::size_t>> sharing_jobs(std::span<const LinkTraffic> traffic);

/// How a job's iterations follow each other beside the other jobs.
struct JobPace {
  Seconds period;       ///< Mean time from one iteration to the next, over the second half of them.
  int iterations = 0;   ///< That it finished while all jobs ran.
  double change = 0;    ///< |1 - mean over the quarter before / period|.
  bool steady = false;  ///< `change` is at most kSteady.
};
inline constexpr double kSteady = 1e-3;

/// Runs the jobs side by side, each beginning an iteration when it has finished the one before (a
/// staggered one rank by rank), until each has finished 8 iterations since the last job began and
/// the means of all are steady; if they are not, until each has finished 16, 32 or 64 (fewer
/// for programs of millions of ops). Jobs whose iterations differ in length meet in ever other
/// phases, and the mean is over those; jobs of one length stay in the phase in which they start.
/// Deterministic. `options` are those of all jobs, and have no problems (find_problems).
std::vector<JobPace> run_together(IterationSimulator& simulator, std::span<const JobProgram> jobs,
                                  const IterationOptions& options);

}  // namespace orrery::sim
