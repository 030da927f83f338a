/// One connection of the TCP transport: frames out, frames in. Its halves have locks of their own;
/// a dead half touches no buffer any more. Private to executor/net.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/net/frame.h"
#include "executor/net/handshake.h"
#include "executor/net/request.h"
#include "executor/net/socket.h"
#include "executor/net/transport.h"

namespace orrery::executor {

struct TcpConnection {
  using Clock = std::chrono::steady_clock;

  TcpConnection(int peer, const SessionKeys& keys)
      : peer(peer), send_key(keys.send), receive_key_(keys.receive) {
    traffic.peer = peer;
  }

  /// A frame on its way out.
  struct Outgoing {
    FrameHeader header;
    std::span<const std::byte> payload;
    PendingPointer request;  ///< None for control frames.
    std::size_t sent = 0;    ///< Of header and payload together.
  };

  const int peer;
  Socket socket;
  LinkTraffic traffic;  ///< Its halves are under the locks of the halves.

  std::mutex send_mutex;
  const Authenticator send_key;
  bool send_dead = false;
  std::deque<Outgoing> outgoing;
  std::uint64_t send_sequence = 0;
  Clock::time_point last_sent = Clock::now();

  std::mutex receive_mutex;
  bool receive_dead = false;
  Inbox::Arrival arrival;
  Clock::time_point last_received = Clock::now();
  std::atomic<bool> left = false;  ///< Said goodbye.

  /// Sends what the socket takes. Under the send lock; `sent` are to be told when it is released.
  std::optional<TransportError> flush(std::vector<PendingPointer>& sent);
  /// Reads what is there. Under the receive lock; `arrived` are to be told when it is released.
  /// Throws TransportError: peer_lost, corrupt.
  void drain(Inbox& inbox, std::vector<Settlement>& arrived);
  /// The peer is gone, in words.
  TransportError lost(const std::string& how) const;

 private:
  std::optional<TransportError> lost_sending(const std::string& how);
  /// False after goodbye.
  bool begin_payload(Inbox& inbox);
  Settlement finish_payload(Inbox& inbox);

  const Authenticator receive_key_;
  FrameHeader header_;  ///< Of what is being received.
  std::uint64_t receive_sequence_ = 0;
  std::size_t received_ = 0;  ///< Of the header, then of the payload.
  bool in_payload_ = false;
};

}  // namespace orrery::executor
