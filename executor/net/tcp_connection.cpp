#include "executor/net/tcp_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "models/base/ids.h"

namespace orrery::executor {

using Kind = TransportError::Kind;

std::optional<TransportError> TcpConnection::flush(std::vector<PendingPointer>& sent) {
  while (!outgoing.empty()) {
    Outgoing& frame = outgoing.front();
    const auto header = std::as_bytes(std::span(&frame.header, 1));
    std::array<iovec, 2> parts{};
    const std::size_t in_header = std::min(frame.sent, header.size());
    const std::size_t in_payload = frame.sent - in_header;
    parts[0] = {const_cast<std::byte*>(header.data()) + in_header, header.size() - in_header};
    parts[1] = {const_cast<std::byte*>(frame.payload.data()) + in_payload,
                frame.payload.size() - in_payload};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count = ::sendmsg(socket.fd(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return std::nullopt;
    if (count < 0) return lost_sending(std::strerror(errno));
    frame.sent += count;
    last_sent = Clock::now();
    if (frame.sent < header.size() + frame.payload.size()) continue;
    if (frame.request) {
      traffic.sent_bytes += static_cast<std::int64_t>(frame.payload.size());
      ++traffic.messages_sent;
      sent.push_back(std::move(frame.request));
    }
    outgoing.pop_front();
  }
  return std::nullopt;
}

/// A peer that has left closes its end before its goodbye has been read here. Control frames alone
/// are then dropped: the receiving half finds out whether the peer left or died.
std::optional<TransportError> TcpConnection::lost_sending(const std::string& how) {
  for (const Outgoing& frame : outgoing) {
    if (frame.request) return lost(how);
  }
  outgoing.clear();
  return std::nullopt;
}

TransportError TcpConnection::lost(const std::string& how) const {
  return {Kind::peer_lost, peer, fmt::format("lost rank {}: {}", peer, how)};
}

void TcpConnection::drain(Inbox& inbox, std::vector<Settlement>& arrived) {
  for (;;) {
    auto header = std::as_writable_bytes(std::span(&header_, 1));
    const std::span<std::byte> rest = (in_payload_ ? arrival.data : header).subspan(received_);
    if (!rest.empty()) {
      const ssize_t count = ::recv(socket.fd(), rest.data(), rest.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) throw lost(std::strerror(errno));
      if (count == 0) throw lost("the connection ended without goodbye");
      last_received = Clock::now();
      received_ += count;
      if (as_size(count) < rest.size()) continue;
    }
    // What nobody asked for yet gets memory as it comes, not as its header claims.
    if (in_payload_ && arrival.grow(header_.bytes)) continue;
    received_ = 0;
    if (in_payload_) {
      arrived.push_back(finish_payload(inbox));
    } else if (!begin_payload(inbox)) {
      return;
    }
  }
}

bool TcpConnection::begin_payload(Inbox& inbox) {
  const std::string defect = find_defect(receive_key_, header_, receive_sequence_++);
  if (!defect.empty()) {
    throw TransportError(Kind::corrupt, peer, fmt::format("from rank {}: {}", peer, defect));
  }
  if (header_.kind == FrameKind::goodbye) {
    left = true;
    return false;
  }
  if (header_.kind == FrameKind::heartbeat) return true;
  arrival = inbox.begin(peer, {header_.tag}, header_.bytes);
  in_payload_ = true;
  return true;
}

Settlement TcpConnection::finish_payload(Inbox& inbox) {
  if (!belongs(receive_key_, header_, arrival.data)) {
    throw TransportError(
        Kind::corrupt, peer,
        fmt::format("from rank {}: {} bytes that were changed on their way", peer, header_.bytes));
  }
  traffic.received_bytes += static_cast<std::int64_t>(header_.bytes);
  in_payload_ = false;
  Settlement settlement = inbox.deliver(std::move(arrival));
  arrival = {};
  return settlement;
}

}  // namespace orrery::executor
