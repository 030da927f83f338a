/// TAP devices: the switch's end of a node's port. Frames come and go with a header that says what
/// the kernel left to the device (checksum, segmentation), so that a frame may hold up to 64 KiB
/// of one TCP stream.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "executor/net/socket.h"
#include "executor/netlab/spec.h"

namespace orrery::executor {

inline constexpr const char* kTunDevice = "/dev/net/tun";
/// The most that one read from a TAP device gives.
inline constexpr std::size_t kMostTapBytes = (std::size_t{64} << 10) + 512;

/// Makes an open kTunDevice the TAP device of this name in the calling thread's namespace; errno,
/// 0: done.
int attach_tap(int device, const char* name);

/// The TAP of a node, not blocking: in the calling thread's namespace, which must be the node's,
/// sets up the device with its address, MTU and the addresses of all other nodes, and loopback.
/// Throws NetlabError.
Socket open_tap(const NetlabSpec& spec, int node);

/// The node that the destination address of a frame from a TAP names; -1: none (broadcast,
/// strangers).
int tap_destination(std::span<const char> data, int nodes);
/// Bytes that a frame from a TAP takes as Ethernet frames on the wire, after segmentation.
std::int64_t tap_wire_bytes(std::span<const char> data);

}  // namespace orrery::executor
