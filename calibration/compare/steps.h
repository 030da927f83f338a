/// The steps of a run log, op by op, as the simulator counts them: of ops that meet (a send and its
/// recv, members of a collective) all start when the last one may start and end together, so that
/// waiting for the other side is not part of a transfer.
///
/// A measured step lasts from the end of the step before it to its own end (the latest over ranks),
/// so that steps add up to the run; ranks that finish early begin the next step inside this one.
/// Checkpoints between two steps belong to neither: the later one then starts when the last rank
/// that was held by one goes on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/base/time.h"
#include "models/ir/breakdown.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::calibration {

struct LoggedStep {
  std::int64_t number = 0;
  Instant start;
  Instant end;
  Nanoseconds held;  ///< By checkpoints between the end of the step before it and `start`.
  bool after_checkpoint = false;  ///< Ranks wrote one between the step before it and this one.
  std::vector<ir::Span> spans;    ///< By op of the program; joined as said above.
};

/// The steps of which every op was logged, in their order; or in words why there is none, or what
/// in the log contradicts itself or the program.
std::variant<std::vector<LoggedStep>, std::string> logged_steps(const ir::Program& program,
                                                                const ir::RunLog& log);

/// Which of the `steps` >= 1 of a simulated log is compared: the only one, or the middle one of the
/// three of a staggered program, since ranks are in the other two while it runs.
std::size_t simulated_step(std::size_t steps);

/// Length of that step. The log has a mark for each step.
Nanoseconds simulated_iteration(const ir::RunLog& log);

/// Parts of one rank's step. forward + backward == all.compute.
struct RankParts {
  Nanoseconds forward;
  Nanoseconds backward;
  ir::RankBreakdown all;
};

/// By rank: where step `k` of `steps` went, with what its neighbors did between its start and its
/// end. The parts of a rank add up to end - start.
std::vector<RankParts> step_parts(const ir::Program& program, const std::vector<LoggedStep>& steps,
                                  std::size_t k);

}  // namespace orrery::calibration
