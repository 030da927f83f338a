/// The unit on the wire between ranks: a header of fixed size and a payload, both authenticated by
/// the connection's keys and their place in its order, so that nobody can change, repeat, drop or
/// insert a frame unseen. Private to executor/net.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "executor/net/crypto.h"
#include "executor/net/transport.h"

namespace orrery::executor {

enum class FrameKind : std::uint16_t { data = 1, heartbeat = 2, goodbye = 3 };

/// Little-endian, as all machines that this runs on.
struct FrameHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  FrameKind kind = FrameKind::data;
  std::uint64_t sequence = 0;  ///< Counts the frames of a connection and direction.
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  Mac payload_mac{};
  Mac mac{};  ///< Of all above.
};
static_assert(sizeof(FrameHeader) == 64);

FrameHeader make_header(const Authenticator& key, FrameKind kind, std::uint64_t sequence, Tag tag,
                        std::span<const std::byte> payload);
/// What is wrong with a header that came where `sequence` was due; empty: nothing.
std::string find_defect(const Authenticator& key, const FrameHeader& header,
                        std::uint64_t sequence);
/// Whether the payload is the one that the header was made for.
bool belongs(const Authenticator& key, const FrameHeader& header,
             std::span<const std::byte> payload);

}  // namespace orrery::executor
