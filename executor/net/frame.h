/// The unit on the wire: a header of fixed size and a payload. Private to executor/net.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "executor/net/transport.h"

namespace orrery::executor {

enum class FrameKind : std::uint16_t { data = 1, heartbeat = 2, goodbye = 3 };

/// Little-endian, as all machines that this runs on.
struct FrameHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  FrameKind kind = FrameKind::data;
  std::uint32_t generation = 0;
  std::uint32_t sequence = 0;  ///< Counts the frames of a connection and direction.
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  std::uint64_t payload_checksum = 0;
  std::uint64_t checksum = 0;  ///< Of all above.
};
static_assert(sizeof(FrameHeader) == 48);

/// A fast checksum: finds flipped bits and torn frames, not malice.
std::uint64_t checksum(std::span<const std::byte> data);

FrameHeader make_header(FrameKind kind, std::uint32_t generation, std::uint32_t sequence, Tag tag,
                        std::span<const std::byte> payload);
/// What is wrong with a header that came where (generation, sequence) was due; empty: nothing.
std::string find_defect(const FrameHeader& header, std::uint32_t generation,
                        std::uint32_t sequence);

}  // namespace orrery::executor
