/// What the timeline exports (perfetto.h, chrome_trace.h) have in common: which spans share a
/// track, what spans and tracks are called, which spans an arrow joins.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::ir {

/// How the reader of a timeline knows devices and nodes. `device` must be there; without `node_of`
/// and `node` devices are shown directly under the cluster.
struct TimelineNames {
  std::function<std::string(DeviceId)> device;
  std::function<NodeId(DeviceId)> node_of;
  std::function<std::string(NodeId)> node;
};

/// Empty if every span, memory sample and clock of `log` belongs to an op and a rank of `program`
/// and no span ends before it starts; else what does not. The exports need it empty. Does not
/// compare program_hash, which costs a serialization.
std::string find_mismatch(const Program& program, const RunLog& log);

/// Spans of one stream of one rank that do not overlap. Streams that run ops side by side (p2p)
/// have several lanes.
struct Lane {
  RankId rank;
  Stream stream = Stream::compute;
  int number = 0;                    ///< Among the lanes of the stream.
  std::vector<std::uint32_t> spans;  ///< Indices into RunLog::spans, in the order of time.
};

/// The layout of a log's timeline.
class Timeline {
 public:
  /// find_mismatch(program, log) must be empty. Keeps references to all three.
  Timeline(const Program& program, const RunLog& log, const TimelineNames& names);

  struct Node {
    std::string name;  ///< Empty: there is no level of nodes.
    std::vector<RankId> ranks;
  };
  const std::vector<Node>& nodes() const { return nodes_; }  ///< In the order of their ids.
  /// All lanes, by rank, stream and number.
  const std::vector<Lane>& lanes() const { return lanes_; }
  /// Nanoseconds to add to all times so that none is negative.
  std::int64_t shift() const { return shift_; }

  /// "A100-3 (pipeline 0, stage 2)", with "x4" if it represents four devices.
  std::string rank_name(RankId rank) const;
  /// "compute", "p2p", "p2p 2".
  static std::string lane_name(const Lane& lane);
  /// "F mb3 blocks 0-9", "redundant F mb3 blocks 10-19", "send activations mb3 to A100-4",
  /// "all-reduce gradients".
  std::string span_name(const Span& span) const;
  /// Purpose of communication, kind of computation.
  const char* category(const Span& span) const;
  /// Number of the arrow from a send to its recv, on both spans; 0: no arrow. Unique in the log.
  std::uint64_t flow(std::uint32_t span) const;
  bool is_send(std::uint32_t span) const;

 private:
  void place_ranks();
  void place_spans();

  const Program& program_;
  const RunLog& log_;
  const TimelineNames& names_;
  std::vector<Node> nodes_;
  std::vector<Lane> lanes_;
  std::int64_t shift_ = 0;
  std::vector<std::uint32_t> occurrence_;      ///< By span: how many spans of its op came before.
  IdVector<OpId, std::uint32_t> occurrences_;  ///< How many spans the op has.
};

}  // namespace orrery::ir
