/// What goes between the store and a client: messages, authenticated by the keys of the connection
/// and by their order on it. Private to executor/net.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "executor/net/crypto.h"
#include "executor/net/handshake.h"
#include "executor/net/socket.h"

namespace orrery::executor {

/// Both directions: a status or command, a number, two texts.
struct StoreMessage {
  std::uint32_t code = 0;  ///< Command; of answers 1: there, 0: not there.
  std::int64_t number = 0;
  std::string key;
  std::string value;
};

/// One side of a connection. Not thread-safe.
class StoreChannel {
 public:
  /// The socket is as it shall be (prepare(), socket.h).
  explicit StoreChannel(Joined joined);
  int fd() const { return socket_.fd(); }
  /// Both throw TransportError.
  void write(const StoreMessage& message, SteadyTime deadline);
  StoreMessage read(SteadyTime deadline);

 private:
  std::string read_text(std::size_t bytes, SteadyTime deadline);

  Socket socket_;
  Authenticator send_key_;
  Authenticator receive_key_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace orrery::executor
