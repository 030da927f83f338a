#include "executor/net/store_channel.h"

#include <algorithm>
#include <span>
#include <utility>

#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;

/// Values are endpoints, plans and states in words; larger ones are a broken client.
constexpr std::uint64_t kMostText = std::uint64_t{256} << 20;

struct MessageHeader {
  std::uint32_t code = 0;
  std::uint32_t key_bytes = 0;
  std::int64_t number = 0;
  std::uint64_t value_bytes = 0;
  Mac texts_mac{};  ///< Of key and value.
  Mac mac{};        ///< Of all above.
};
static_assert(sizeof(MessageHeader) == 56);

std::span<std::byte> text_bytes(std::string& text) {
  return std::as_writable_bytes(std::span<char>(text));
}

Mac header_mac(const Authenticator& key, std::uint64_t number, const MessageHeader& header) {
  return key.mac(Authenticator::Part::header, number,
                 {std::as_bytes(std::span(&header, 1)).first(offsetof(MessageHeader, mac))});
}

Mac texts_mac(const Authenticator& key, std::uint64_t number, const StoreMessage& message) {
  return key.mac(Authenticator::Part::body, number,
                 {std::as_bytes(std::span<const char>(message.key)),
                  std::as_bytes(std::span<const char>(message.value))});
}

}  // namespace

StoreChannel::StoreChannel(Joined joined)
    : socket_(std::move(joined.socket)),
      send_key_(joined.keys.send),
      receive_key_(joined.keys.receive) {}

void StoreChannel::write(const StoreMessage& message, SteadyTime deadline) {
  MessageHeader header;
  header.code = message.code;
  header.key_bytes = static_cast<std::uint32_t>(message.key.size());
  header.number = message.number;
  header.value_bytes = message.value.size();
  header.texts_mac = texts_mac(send_key_, sent_, message);
  header.mac = header_mac(send_key_, sent_, header);
  ++sent_;
  // One call and, for what is short, one packet.
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.reserve(bytes.size() + message.key.size() + message.value.size());
  bytes += message.key;
  bytes += message.value;
  write_all(socket_, text_bytes(bytes), deadline, -1);
}

StoreMessage StoreChannel::read(SteadyTime deadline) {
  MessageHeader header;
  read_all(socket_, bytes_of(header), deadline, -1);
  if (!equal_secrets(header.mac, header_mac(receive_key_, received_, header)) ||
      header.key_bytes > kMostText || header.value_bytes > kMostText) {
    throw TransportError(Kind::corrupt, -1, "a message of the store that makes no sense");
  }
  StoreMessage message;
  message.code = header.code;
  message.number = header.number;
  message.key = read_text(header.key_bytes, deadline);
  message.value = read_text(header.value_bytes, deadline);
  if (!equal_secrets(header.texts_mac, texts_mac(receive_key_, received_, message))) {
    throw TransportError(Kind::corrupt, -1, "a message of the store that was changed on its way");
  }
  ++received_;
  return message;
}

/// Takes memory as the text comes, not as the header claims.
std::string StoreChannel::read_text(std::size_t bytes, SteadyTime deadline) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::string text;
  while (text.size() < bytes) {
    const std::size_t have = text.size();
    text.resize(std::min(bytes, have + std::max(have, kPiece)));
    read_all(socket_, text_bytes(text).subspan(have), deadline, -1);
  }
  return text;
}

}  // namespace orrery::executor
