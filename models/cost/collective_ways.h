/// Which of a communication library's ways a collective takes, and how long: inside of a domain
/// start + steps x step, then what leaves each member over the bandwidth that the way reaches;
/// between nodes pipelines of chunks, whose sizes NCCL derives from that of the message.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "models/base/units.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/spec/topology.h"

namespace orrery::models {

/// A collective inside of a domain by the fastest way.
struct FastestWay {
  Seconds latency;       ///< Of a call and its steps.
  Seconds transmission;  ///< Of what leaves each member.
  Bytes carried;         ///< What takes as long at the bandwidth of the path.
};

/// The fastest way over the ring's edges, if they are links of one class inside a domain of which
/// the profile knows ways. A member's port carries what leaves it, whatever the algorithm.
std::optional<FastestWay> fastest_way(ir::CollectiveKind kind, std::size_t members,
                                      std::span<const Path> paths, Bytes bytes);

/// A collective between nodes as a pipeline of chunks.
struct Pipeline {
  Seconds time;
  Bytes between;  ///< What leaves each node.
  Bytes inside;   ///< What leaves each member for others of its node.
};

/// The fastest pipeline over a ring of nodes with equally many members each, if its edges between
/// nodes are links of one class of which the profile knows pipelines. A node has `adapters` such
/// links, one for each of its rings.
///
/// A message of s bytes goes in n = ceil(s / loop) chunks of a loop, on all channels at once (and
/// all members, `nvls_tree`). A chunk of N nodes with m members each passes h stages, and the
/// pipeline moves on with the slower of the network and the members' ports:
///   (n - 1 + h) max(start + 2 log2(N) step + v s / n / between, w s / n / port)
/// with v = 1 between two nodes and 2 between more: a node inside of one of the two trees has two
/// children there and is a leaf of the other. `tree` is a chain in each node: h = 2 (m - 1 +
/// log2(N)), w = 2. `nvls_tree` sums in the switch: h = 3 + 2 log2(N), w = (m + 1) / m.
/// [NVIDIA/nccl, src/device/all_reduce.h; pipeline derived]
std::optional<Pipeline> fastest_pipeline(ir::CollectiveKind kind, std::span<const Path> paths,
                                         std::size_t adapters, Bytes bytes);

/// Size of a channel's chunks, halved from `way.chunk` until the message fills the pipeline.
/// `inside`: members of a node. [NVIDIA/nccl, src/enqueue.cc]
Bytes chunk_size(const ir::CollectiveWay& way, Bytes message, std::size_t inside,
                 std::size_t nodes);

}  // namespace orrery::models
