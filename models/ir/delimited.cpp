#include "models/ir/delimited.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>

#include <cstdint>

#include "models/base/check.h"

namespace orrery::ir {

void append_message(std::string& bytes, const google::protobuf::MessageLite& message) {
  const std::size_t size = message.ByteSizeLong();
  ORRERY_CHECK(size <= INT32_MAX, "one message of {} bytes", size);
  std::uint8_t length[5];
  const auto* end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
      static_cast<std::uint32_t>(size), static_cast<std::uint8_t*>(length));
  bytes.append(reinterpret_cast<const char*>(length), end - length);
  ORRERY_CHECK(message.AppendToString(&bytes), "cannot serialize {}", message.GetTypeName());
}

std::optional<std::string_view> take_message(std::string_view& rest) {
  std::uint32_t length = 0;
  std::size_t used = 0;
  while (true) {
    if (used == rest.size() || used == 5) return std::nullopt;
    const auto byte = static_cast<std::uint8_t>(rest[used]);
    length |= static_cast<std::uint32_t>(byte & 0x7f) << (7 * used);
    ++used;
    if ((byte & 0x80) == 0) break;
  }
  if (length > rest.size() - used) return std::nullopt;
  const std::string_view message = rest.substr(used, length);
  rest.remove_prefix(used + length);
  return message;
}

bool parse_message(std::string_view bytes, google::protobuf::MessageLite& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace orrery::ir
