/// A training run that a trace recorded, rank by rank, as a Program that the simulator replays and
/// a RunLog of what was measured. Importers of traces (chakra.h, kineto.h) say what each rank did
/// and what waited for what; what ranks did together is found here.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/base/time.h"
#include "models/base/units.h"
#include "models/config/diagnostics.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::calibration {

struct RecordedOp {
  ir::OpKind kind = ir::OpKind::kernel;  ///< kernel, host, collective, send or recv.
  std::string name;                      ///< For messages.
  /// Kernels and communication of one stream run one after the other, in the order of their starts;
  /// -1: in no stream.
  std::int64_t stream = -1;
  Instant start;  ///< On the rank's own clock; of untimed runs nothing.
  Nanoseconds duration;
  std::vector<std::uint32_t> after;  ///< Ops of the rank that must have ended.
  ir::CollectiveKind collective = ir::CollectiveKind::all_reduce;
  std::string group;  ///< Of a collective: a name in RecordedRun::groups.
  /// What this rank puts into the collective; what a send or recv moves.
  Bytes bytes;
  std::int64_t peer = -1;  ///< Of a send or recv: the other rank.
  std::int64_t tag = 0;    ///< The same; the k-th send to a rank with a tag meets its k-th recv.
};

struct RecordedRank {
  std::string file;
  std::optional<std::int64_t> device;  ///< Of the cluster; none: that of the rank's number.
  std::vector<RecordedOp> ops;
};

struct RecordedRun {
  std::string source;  ///< "chakra" or "kineto".
  /// When ops started is known. If not, ops of a stream run in the order in which they can start,
  /// and there is no time to compare a replay with.
  bool timed = false;
  std::int64_t steps = 1;           ///< Training steps in the trace.
  std::vector<RecordedRank> ranks;  ///< Rank i is the i-th.
  /// Ranks of process groups, in their order. A group that is not here is missing in the trace.
  std::map<std::string, std::vector<std::int64_t>> groups;
  std::vector<std::string> notes;  ///< What was left out or guessed, in words.
};

struct RecordedProgram {
  ir::Program program;
  /// Spans of all ops as recorded, on one clock; an iteration only if the run is timed.
  ir::RunLog log;
};

/// The k-th collective of a process group on one member meets the k-th on every other. Clocks of
/// ranks are set to that of rank 0 by the ends of what they did together (the median of the
/// differences). What an op of a timed run waited beyond all that it had to wait for becomes a host
/// op before it. Collectives that do not fit together, messages that nobody takes and ranks that
/// wait for each other in a circle are problems, at the rank's file. `devices`: how many the
/// cluster has.
RecordedProgram to_program(const RecordedRun& run, std::int32_t devices,
                           config::Diagnostics& diagnostics);

/// The time of a replay in which everything takes as long as it did: ops their recorded time,
/// collectives and messages the shortest of their members' times, since the others waited. Differs
/// from the recorded time by what the program does not know of waiting.
Seconds replayed_as_recorded(const ir::Program& program, const ir::RunLog& log);

/// By op its place in one order of all that ranks do, in which nothing comes before what it waits
/// for and, but for that, what met earlier comes first; ops that meet have one place.
std::vector<std::size_t> common_order(const ir::Program& program, const ir::RunLog& log);

/// Seconds by op of the program, the recorded time of kernels and host ops, 0 for communication.
std::vector<Seconds> recorded_times(const ir::Program& program, const ir::RunLog& log);

}  // namespace orrery::calibration
