#include "models/ir/wire_frames.h"

#include <fmt/format.h>

#include <boost/crc.hpp>
#include <cstring>
#include <optional>

#include "models/ir/delimited.h"
#include "models/ir/wire.pb.h"

namespace orrery::ir {
namespace {

constexpr char kMagic[] = "orrery";
constexpr char kMark[] = "end";

std::uint32_t checksum(std::string_view bytes) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return static_cast<std::uint32_t>(crc.checksum());
}

std::string header_frame(FileKind kind) {
  wire::FileHeader header;
  header.set_magic(kMagic);
  header.set_kind(kind.name);
  header.set_schema(kind.schema);
  std::string bytes;
  append_message(bytes, header);
  return bytes;
}

std::string end_frame(std::uint32_t crc) {
  wire::End end;
  end.set_mark(kMark);
  end.set_crc32(crc);
  std::string bytes;
  append_message(bytes, end);
  return bytes;
}

/// The checksum that the end of the file states, if it has one.
std::optional<std::uint32_t> stated_checksum(std::string_view bytes, std::size_t end_size) {
  if (bytes.size() < end_size) return std::nullopt;
  std::string_view tail = bytes.substr(bytes.size() - end_size);
  const auto payload = take_message(tail);
  wire::End end;
  if (!payload || !tail.empty() || !parse_message(*payload, end)) {
    return std::nullopt;
  }
  if (end.mark() != kMark || !end.has_crc32()) return std::nullopt;
  return end.crc32();
}

}  // namespace

FrameWriter::FrameWriter(FileKind kind) : bytes_(header_frame(kind)) {}

void FrameWriter::add(const google::protobuf::MessageLite& message) {
  append_message(bytes_, message);
}

std::string FrameWriter::finish() {
  bytes_ += end_frame(checksum(bytes_));
  return std::move(bytes_);
}

std::variant<std::vector<std::string_view>, std::string> split_frames(std::string_view bytes,
                                                                      FileKind kind) {
  if (bytes.empty()) return "is empty";
  std::string_view rest = bytes;
  const auto first = take_message(rest);
  wire::FileHeader header;
  if (!first || !parse_message(*first, header) || header.magic() != kMagic) {
    const bool begun = header_frame(kind).compare(0, bytes.size(), bytes) == 0;
    if (begun) return fmt::format("truncated after {} bytes", bytes.size());
    return fmt::format("is not a {} written by Orrery", kind.name);
  }
  const std::size_t end_size = end_frame(0).size();
  const auto stated = stated_checksum(rest, end_size);
  if (!stated) return fmt::format("truncated after {} bytes, or its end is damaged", bytes.size());
  rest.remove_suffix(end_size);
  const std::uint32_t found = checksum(bytes.substr(0, bytes.size() - end_size));
  if (found != *stated) {
    return fmt::format("corrupted: its checksum is {:08x}, should be {:08x}", found, *stated);
  }
  if (header.kind() != kind.name) {
    return fmt::format("is a {}, not a {}", header.kind(), kind.name);
  }
  if (header.schema() > kind.schema) {
    return fmt::format("written by a newer version (schema {}, this is {})", header.schema(),
                       kind.schema);
  }
  std::vector<std::string_view> chunks;
  while (!rest.empty()) {
    const auto payload = take_message(rest);
    if (!payload) return fmt::format("corrupted: chunk {} has no end", chunks.size());
    chunks.push_back(*payload);
  }
  return chunks;
}

}  // namespace orrery::ir
