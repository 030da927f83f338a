/// Messages one after the other, each behind its length as a varint: the framing of our own binary
/// files (wire_frames.h) and of Chakra's traces.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace google::protobuf {
class MessageLite;
}

namespace orrery::ir {

/// Appends the message behind its length.
void append_message(std::string& bytes, const google::protobuf::MessageLite& message);

/// Takes one message off the front of `rest`; none if its length is wrong or reaches too far.
std::optional<std::string_view> take_message(std::string_view& rest);

/// False: the bytes are no such message.
bool parse_message(std::string_view bytes, google::protobuf::MessageLite& message);

}  // namespace orrery::ir
