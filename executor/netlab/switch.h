/// The process that carries frames between the TAP devices of a lab. Frames are stamped when they
/// are read and leave at the time that the fabric says; a switch that the machine does not let run
/// in time delivers late and counts it.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/net/socket.h"
#include "executor/netlab/spec.h"

namespace orrery::executor {

/// What the switch counts and what it is told, in memory that it shares with whoever asks (a mapped
/// file).
struct NetlabCounters {
  struct Port {
    std::atomic<std::int64_t> sent_frames;  ///< As the node hands them over: up to 64 KiB each.
    std::atomic<std::int64_t> sent_bytes;   ///< On the wire.
    std::atomic<std::int64_t> received_frames;
    std::atomic<std::int64_t> received_bytes;
    std::atomic<std::int64_t> dropped;   ///< Sent by the node, found a full queue.
    std::atomic<std::int64_t> lost;      ///< Sent by the node, lost or cut off as told.
    std::atomic<std::int64_t> stranded;  ///< Sent by the node to no node (broadcast, IPv6).
    std::atomic<std::int64_t> refused;   ///< The node's kernel did not take them.
  };
  Port ports[kMostNetlabNodes];
  std::atomic<std::int64_t> late_frames;    ///< Delivered more than kLateNs after they were due.
  std::atomic<std::int64_t> worst_late_ns;  ///< The most that a frame was late.
  std::atomic<std::int64_t> real_time;      ///< 1: the switch runs before all ordinary processes.

  /// NetlabDisturbance; may change at any time.
  struct Told {
    std::atomic<std::int64_t> lost, late;              ///< Of a million frames.
    std::atomic<std::int64_t> late_ns;                 ///< For how long late ones are held back.
    std::atomic<std::uint64_t> cut[kMostNetlabNodes];  ///< By sender; bit n: not to node n.
  } told;
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// Late enough to be seen in a measurement.
inline constexpr std::int64_t kLateNs = 1'000'000;

/// Lets this process run before all ordinary ones where it may, and says in the counters whether.
void take_real_time(NetlabCounters& counters);

/// Carries frames until SIGTERM or SIGINT comes or `keep_going`, asked each second, says no. `taps`
/// by node. Throws NetlabError.
void run_netlab_switch(const NetlabSpec& spec, const std::vector<Socket>& taps,
                       NetlabCounters& counters, const std::function<bool()>& keep_going);

}  // namespace orrery::executor
