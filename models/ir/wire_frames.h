/// The framing that all binary files share: header, length-delimited messages, end with a checksum
/// (wire.proto). Private to models/ir.
#pragma once
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

}  // namespace orrery::ir
