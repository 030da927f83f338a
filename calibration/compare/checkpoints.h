/// Checkpoints of a run: what the executor's log says about them, and how long they should have
/// delayed training.
///
/// A rank that writes a checkpoint after a step copies its state to memory, which delays it, and
/// writes the copy during the next steps; it waits again if the previous write has not ended.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"
#include "models/spec/cluster.h"

namespace orrery::calibration {

/// One rank's part of one checkpoint.
struct LoggedCheckpoint {
  RankId rank;
  std::int64_t iteration = 0;  ///< The state after this step.
  Bytes bytes;                 ///< That the rank wrote.
  Seconds held;                ///< Wall time that the rank's training waited for it.
  auto operator<=>(const LoggedCheckpoint&) const = default;
};

/// `rank=R iteration=I bytes=B seconds=S`, the detail of an event of kind `checkpoint`: R, I and B
/// whole numbers, S a number up to 1e8, none negative. Else what is wrong with it, in words.
std::variant<LoggedCheckpoint, std::string> parse_checkpoint(const std::string& detail);

struct LoggedCheckpoints {
  std::vector<LoggedCheckpoint> written;  ///< By iteration, then rank; one for each pair.
  /// Events of the kind that say nothing usable, in words: another text, a rank that the program
  /// does not have.
  std::vector<std::string> problems;
};

/// All of a log. Several events of a rank about one iteration (two places) are one, with the sums.
LoggedCheckpoints logged_checkpoints(const ir::Program& program, const ir::RunLog& log);

/// What one rank's checkpoint costs alone.
struct CheckpointPrice {
  Seconds copy;   ///< Copying the state to host memory.
  Seconds write;  ///< Writing it from there to all places, one after another.
  /// Where both come from, one line for each; what has no price and counts as 0 is named.
  std::vector<std::string> sources;
};

/// `bytes` are those of all `places` (nvme, cloud) together, an equal share each, in `files` files
/// at each place.
///   copy   latency + share / bandwidth of writing to host memory
///   write  sum over places of files x latency + share / bandwidth
/// by the profile's StorageTime, else by what the cluster says about the location, as the simulator
/// prices state ops. Host memory of which neither says anything counts as 0; another place is
/// returned as a problem.
/// Deviation: ranks of one node are priced as if each had the storage alone, as in the simulator;
/// of two places the log has the sum of the bytes only.
std::variant<CheckpointPrice, std::string> price_checkpoint(Bytes bytes, std::int64_t files,
                                                            const std::vector<ir::Location>& places,
                                                            DeviceId device,
                                                            const models::Cluster& cluster,
                                                            const ir::Profile& profile);

/// Checkpoints of a run, apart from its iterations: means over ranks and checkpoints.
struct CheckpointComparison {
  std::int64_t checkpoints = 0;  ///< Iterations after which there is one.
  std::int64_t parts = 0;        ///< Parts that ranks wrote, in all checkpoints together.
  Bytes bytes;                   ///< Size of a part.
  double measured = 0;           ///< Seconds that a part held its rank.
  double longest = 0;
  double between_steps = 0;          ///< Seconds, of Comparison::held: the caller's.
  std::optional<double> predicted;   ///< None: `problem` says why.
  std::vector<std::string> sources;  ///< Where the price comes from.
  std::string problem;               ///< Also of events that could not be read.
};
void describe(config::Visitor& v, CheckpointComparison& comparison);

/// The k-th checkpoint of a rank, n steps of `iteration` after the one before it, should hold it
/// for copy + max(0, write - n x iteration); the first one for copy. A rank writes a file for each
/// of its blocks. `places`: where the run wrote to; empty: not known, nothing is predicted.
/// Deviation: of replicas only one writes a block, and which one the log does not say; a rank of
/// which another wrote some blocks is priced with too many files.
CheckpointComparison compare_checkpoints(const ir::Program& program, const ir::RunLog& measured,
                                         const std::vector<ir::Location>& places,
                                         const models::Cluster& cluster, const ir::Profile& profile,
                                         Seconds iteration);

}  // namespace orrery::calibration
