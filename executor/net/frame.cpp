#include "executor/net/frame.h"

#include <fmt/format.h>

#include <cstddef>

namespace orrery::executor {
namespace {

constexpr std::uint32_t kFrameMagic = 0x5952524f;  // "ORRY"
constexpr std::uint16_t kFrameVersion = 2;
/// No tensor of a micro-batch or shard is larger: a larger size is a broken header.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;

Mac header_mac(const Authenticator& key, const FrameHeader& header) {
  return key.mac(Authenticator::Part::header, header.sequence,
                 {std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, mac))});
}

}  // namespace

FrameHeader make_header(const Authenticator& key, FrameKind kind, std::uint64_t sequence, Tag tag,
                        std::span<const std::byte> payload) {
  FrameHeader header;
  header.magic = kFrameMagic;
  header.version = kFrameVersion;
  header.kind = kind;
  header.sequence = sequence;
  header.tag = tag.value;
  header.bytes = payload.size();
  header.payload_mac = key.mac(Authenticator::Part::body, sequence, {payload});
  header.mac = header_mac(key, header);
  return header;
}

std::string find_defect(const Authenticator& key, const FrameHeader& header,
                        std::uint64_t sequence) {
  if (header.magic != kFrameMagic) return "no frame where one was due";
  if (!equal_secrets(header.mac, header_mac(key, header))) {
    return "frame header that was changed on its way or comes from elsewhere";
  }
  if (header.version != kFrameVersion) return fmt::format("frames of version {}", header.version);
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

bool belongs(const Authenticator& key, const FrameHeader& header,
             std::span<const std::byte> payload) {
  return equal_secrets(header.payload_mac,
                       key.mac(Authenticator::Part::body, header.sequence, {payload}));
}

}  // namespace orrery::executor
