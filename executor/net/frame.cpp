#include "executor/net/frame.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace orrery::executor {
namespace {

constexpr std::uint32_t kFrameMagic = 0x5952524f;  // "ORRY"
constexpr std::uint16_t kFrameVersion = 1;
/// No tensor of a micro-batch or shard is larger: a larger size is a broken header.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;
constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;

std::uint64_t header_checksum(const FrameHeader& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, checksum)));
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> data) {
  std::array<std::uint64_t, 4> lanes = {1, 2, 3, 4};
  std::size_t at = 0;
  for (; at + 32 <= data.size(); at += 32) {
    for (std::size_t lane = 0; lane < 4; ++lane) {
      std::uint64_t word = 0;
      std::memcpy(&word, data.data() + at + 8 * lane, 8);
      lanes[lane] = std::rotl((lanes[lane] ^ word) * kMultiplier, 29);
    }
  }
  std::uint64_t sum = data.size();
  for (; at < data.size(); ++at) {
    sum = std::rotl((sum ^ std::to_integer<std::uint64_t>(data[at])) * kMultiplier, 29);
  }
  for (const std::uint64_t lane : lanes) sum = std::rotl((sum ^ lane) * kMultiplier, 29);
  return sum;
}

FrameHeader make_header(FrameKind kind, std::uint32_t generation, std::uint32_t sequence, Tag tag,
                        std::span<const std::byte> payload) {
  FrameHeader header;
  header.magic = kFrameMagic;
  header.version = kFrameVersion;
  header.kind = kind;
  header.generation = generation;
  header.sequence = sequence;
  header.tag = tag.value;
  header.bytes = payload.size();
  header.payload_checksum = checksum(payload);
  header.checksum = header_checksum(header);
  return header;
}

std::string find_defect(const FrameHeader& header, std::uint32_t generation,
                        std::uint32_t sequence) {
  if (header.magic != kFrameMagic) return "no frame where one was due";
  if (header.checksum != header_checksum(header)) return "frame header with a wrong checksum";
  if (header.version != kFrameVersion) return fmt::format("frames of version {}", header.version);
  if (header.generation != generation) {
    return fmt::format("frame of generation {} in generation {}", header.generation, generation);
  }
  if (header.sequence != sequence) {
    return fmt::format("frame {} where frame {} was due", header.sequence, sequence);
  }
  if (header.bytes > kMostBytes) return fmt::format("frame of {} bytes", header.bytes);
  const bool known = header.kind == FrameKind::data || header.kind == FrameKind::heartbeat ||
                     header.kind == FrameKind::goodbye;
  if (!known) return fmt::format("frame of kind {}", static_cast<int>(header.kind));
  if (header.kind != FrameKind::data && header.bytes != 0) return "control frame with a payload";
  return "";
}

}  // namespace orrery::executor
