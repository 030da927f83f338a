/// The framing that all binary files share: header, length-delimited messages, end with a checksum
/// (wire.proto). Private to models/ir.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace google::protobuf {
class MessageLite;
}

namespace orrery::ir {

/// What a file holds.
struct FileKind {
  const char* name;  ///< "program", "run log".
  std::uint32_t schema;
};

class FrameWriter {
 public:
  explicit FrameWriter(FileKind kind);
  void add(const google::protobuf::MessageLite& message);
  /// Appends the end and gives the bytes away.
  std::string finish();

 private:
  std::string bytes_;
};

/// The payloads of all chunks between header and end, as views into `bytes`; or the problem.
std::variant<std::vector<std::string_view>, std::string> split_frames(std::string_view bytes,
                                                                      FileKind kind);

/// A value that lies in a file as a header chunk and more chunks, each of which `read_chunk` adds
/// to it (returning a problem or nothing); or the problem.
template <class Value, class Chunk, class ReadChunk>
std::variant<Value, std::string> parse_chunks(std::string_view bytes, FileKind kind,
                                              const ReadChunk& read_chunk) {
  const auto frames = split_frames(bytes, kind);
  if (const auto* problem = std::get_if<std::string>(&frames)) return *problem;
  const auto& chunks = std::get<std::vector<std::string_view>>(frames);
  Value value;
  Chunk chunk;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!chunk.ParseFromArray(chunks[i].data(), static_cast<int>(chunks[i].size()))) {
      return fmt::format("corrupted: chunk {} cannot be read", i);
    }
    if (chunk.has_header() != (i == 0)) return "corrupted: its header is not where it should be";
    const std::string problem = read_chunk(chunk, value);
    if (!problem.empty()) return fmt::format("corrupted: chunk {}: {}", i, problem);
  }
  if (chunks.empty()) return "corrupted: it has no header";
  return value;
}

}  // namespace orrery::ir
