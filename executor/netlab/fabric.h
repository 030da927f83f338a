/// How frames pass an emulated network, in virtual time: no clock and no sockets, so that it is
/// the same in tests as in the switch.
///
/// A frame from a to b passes a's port up, after the latency of the pair the uplinks of both leaves
/// and the pair's own limit (those that exist), and b's port down. Each of them is a server that
/// carries one frame after the other at its rate; there are no bursts. Frames that wait for one
/// take turns by the pair of nodes that they go between, byte by byte as far as whole frames allow,
/// so that pairs share a server evenly and acknowledgements do not wait for the data of other ways
/// (deficit round robin [Shreedhar, Varghese 1995]). Between servers a frame flows on while it is
/// still coming in (cut-through): an idle path takes size / least rate + latency. Queues are
/// bounded; what finds a full one is dropped.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <vector>

#include "executor/netlab/spec.h"
#include "models/base/ids.h"

namespace orrery::executor {

struct NetlabFrame {
  int from = 0;
  int to = 0;
  std::int64_t wire_bytes = 0;  ///< What the servers carry.
  std::vector<char> data;
};

class NetlabFabric {
 public:
  /// Bytes of one pair of nodes that wait for one server. More than the largest window that TCP
  /// opens by default on Linux (tcp_rmem, 6 MiB), so that one connection alone never loses a frame.
  static constexpr std::int64_t kQueueBytes = std::int64_t{8} << 20;

  explicit NetlabFabric(const NetlabSpec& spec, std::int64_t queue_bytes = kQueueBytes);

  /// A frame comes whole from its node at `now` (ns), up to which advance() has been called, and is
  /// `held` back (ns) behind its port. False: it was dropped.
  bool offer(NetlabFrame frame, std::int64_t now, std::int64_t held = 0);
  /// When advance() has something to do; none: nothing is under way.
  std::optional<std::int64_t> next_event() const;
  /// Calls deliver(frame, due) for each frame whose last byte reaches its node until `now`, in the
  /// order of the times `due`.
  using Deliver = std::function<void(NetlabFrame&, std::int64_t due)>;
  void advance(std::int64_t now, const Deliver& deliver);

  /// Frames dropped so far that came from the node.
  std::int64_t drops(int node) const { return drops_[node]; }

 private:
  /// Frames of one pair of nodes that wait for a server.
  struct Queue {
    struct Waiting {
      std::size_t slot = 0;
      std::int64_t last = 0;  ///< Its last byte came.
    };
    std::deque<Waiting> frames;
    std::int64_t bytes = 0;
    std::int64_t credit = 0;  ///< Bytes that it may send in this turn.
  };
  struct Server {
    double ns_per_byte = 0;
    std::int64_t free = 0;                ///< When its last frame has left.
    std::map<std::size_t, Queue> queues;  ///< By from x nodes + to; only those that hold frames.
    std::deque<std::size_t> turns;        ///< Keys of all queues, the next first.
  };
  struct Path {
    std::vector<std::size_t> servers;
    std::int64_t latency = 0;  ///< ns, behind the first server.
  };
  struct Transit {
    NetlabFrame frame;
    std::int64_t first = 0;  ///< Its first byte is at the next server.
    std::size_t passed = 0;  ///< Servers behind it.
    std::int64_t held = 0;   ///< ns, on top of the path's latency.
  };
  enum class What { arrival, ready };
  struct Event {
    std::int64_t time = 0;
    std::uint64_t sequence = 0;
    What what = What::arrival;
    std::size_t index = 0;  ///< Slot of a frame whose last byte is at the next server or the node;
                            ///< server that may take the next frame.
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  std::size_t key(const NetlabFrame& frame) const {
    return as_size(frame.from) * nodes_ + frame.to;
  }
  std::size_t add_server(BytesPerSecond rate);
  void post(std::int64_t time, What what, std::size_t index);
  bool arrive(std::size_t slot, std::int64_t last);
  void carry(Server& server, std::size_t slot, std::int64_t last);
  void take_next(std::size_t index);
  void drop(std::size_t slot);
  void release(std::size_t slot);

  std::size_t nodes_;
  std::int64_t queue_bytes_;
  std::vector<Server> servers_;
  std::vector<Path> paths_;  ///< By from x nodes + to.
  std::vector<std::int64_t> drops_;
  std::vector<Transit> transits_;
  std::vector<std::size_t> unused_;  ///< Slots of transits_.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
};

}  // namespace orrery::executor
