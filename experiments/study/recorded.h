/// Runs that traces recorded, in a folder of their own: `orrery import chakra` and `kineto` write
/// it, `orrery simulate FOLDER` replays it on the cluster it ran on, or on another.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibration/importers/recorded_run.h"
#include "experiments/study/call.h"
#include "experiments/study/exports.h"
#include "experiments/study/inputs.h"
#include "models/base/units.h"

namespace orrery::experiments {

/// recorded.yaml of the folder (`schema: orrery/recorded_run/1`), next to the files it names.
struct RecordedFolder {
  std::string source;  ///< chakra or kineto.
  std::string cluster = "cluster.yaml";
  std::string program = "program.pb";
  std::string log = "run.log";
  std::int64_t steps = 1;
  std::vector<std::string> notes;
};
void describe(config::Visitor& v, RecordedFolder& folder);

/// Writes the folder; `cluster` is a name of the library or a file. Throws std::runtime_error.
void write_recorded(const std::string& folder, const calibration::RecordedRun& run,
                    const calibration::RecordedProgram& program, const std::string& cluster,
                    const models::Library& library);

/// The path is a folder with a recorded.yaml.
bool is_recorded_run(const std::string& path);

enum class Overlap {
  recorded,  ///< Communication runs beside kernels where it did.
  none,      ///< A rank's kernels and communication run one at a time, in the recorded order.
};
std::vector<std::pair<Overlap, const char*>> enum_names(Overlap);

struct ReplayedParts {
  Seconds compute;
  Seconds messages;     ///< Exposed sends and receives.
  Seconds collectives;  ///< Exposed collectives.
  Seconds idle;         ///< The host was not ready, or another rank was not.
};
void describe(config::Visitor& v, ReplayedParts& parts);

struct ReplayOnce {
  Seconds time;
  ReplayedParts parts;  ///< Mean over ranks.
  std::vector<std::string> busiest_links;
};
void describe(config::Visitor& v, ReplayOnce& once);

struct RecordedReplay {
  std::string source;
  std::string cluster;  ///< That it ran on.
  std::int64_t ranks = 0;
  std::int64_t ops = 0;
  std::int64_t steps = 1;           ///< In all times below.
  std::optional<Seconds> recorded;  ///< None where the trace has no start times.
  /// Everything as long as it was: what the program misses of how ranks waited.
  Seconds as_recorded;
  std::optional<double> as_recorded_error;  ///< Share of the recorded time.
  ReplayOnce simulated;                     ///< With the network of its cluster.
  std::optional<double> simulated_error;
  std::optional<ReplayOnce> what_if;  ///< With what the settings change.
  std::string what_if_cluster;
  std::optional<double> change;     ///< what_if against simulated, as a share.
  std::optional<Seconds> expected;  ///< The recorded time, changed by that.
  std::vector<std::string> notes;   ///< Of the import.
};
void describe(config::Visitor& v, RecordedReplay& replay);

/// Settings that speak of a model, a job or a plan have no meaning for a recorded run; a cluster is
/// one to replay on. Kernels take their recorded time x declared speed of the GPU they ran on /
/// that of the GPU they are replayed on (peak in bf16, or what the GPU computes instead, x
/// efficiency); the host's time stays.
RecordedReplay replay_recorded(const std::string& folder, const JobSettings& job,
                               const JudgeSettings& judge, Overlap overlap, const Exports& exports,
                               const Call& call, config::Diagnostics problems);

}  // namespace orrery::experiments
