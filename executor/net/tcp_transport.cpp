#include "executor/net/tcp_transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "executor/net/frame.h"
#include "executor/net/handshake.h"
#include "executor/net/request.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A frame on its way out.
struct Outgoing {
  FrameHeader header;
  std::span<const std::byte> payload;
  PendingPointer request;  ///< None for control frames.
  std::size_t sent = 0;    ///< Of header and payload together.
};

/// One connection. Its halves have locks of their own; a dead half touches no buffer any more.
struct Connection {
  Socket socket;
  LinkTraffic traffic;

  std::mutex send_mutex;
  bool send_dead = false;
  std::deque<Outgoing> outgoing;
  std::uint32_t send_sequence = 0;
  Clock::time_point last_sent = Clock::now();

  std::mutex receive_mutex;
  bool receive_dead = false;
  std::uint32_t receive_sequence = 0;
  FrameHeader header;
  std::size_t received = 0;  ///< Of the header, then of the payload.
  bool in_payload = false;
  Inbox::Arrival arrival;
  Clock::time_point last_received = Clock::now();
  std::atomic<bool> left = false;  ///< Said goodbye.
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, std::vector<Socket> sockets, const TcpOptions& options)
      : rank_(rank),
        options_(options),
        patience_(std::make_shared<std::atomic<std::int64_t>>(options.deadline.count())),
        on_timeout_([this](const TransportError& error) { fail(error); }),
        inbox_(patience_, on_timeout_),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
      connections_.push_back(std::make_unique<Connection>());
      connections_.back()->traffic.peer = static_cast<int>(peer);
      if (!sockets[peer].open()) continue;
      prepare(sockets[peer], options.silence);
      connections_.back()->socket = std::move(sockets[peer]);
    }
    thread_ = std::thread([this] { run(); });
  }

  ~TcpTransport() override {
    if (!failed_) say_goodbye();
    stop_ = true;
    wake();
    thread_.join();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(connections_.size()); }
  std::string name() const override { return "tcp"; }

  RequestPointer send(int peer, Tag tag, std::span<const std::byte> data) override {
    auto request = std::make_shared<PendingRequest>(peer, tag, patience_, &on_timeout_);
    post(peer, FrameKind::data, tag, data, request);
    return request;
  }

  RequestPointer receive(int peer, Tag tag, std::span<std::byte> into) override {
    return inbox_.post(peer, tag, into);
  }

  void set_deadline(milliseconds timeout) override { patience_->store(timeout.count()); }

  void abort(const std::string& reason) override {
    fail({Kind::peer_lost, rank_, fmt::format("this rank gave up: {}", reason)});
  }

  std::vector<LinkTraffic> traffic() const override {
    std::vector<LinkTraffic> out;
    for (const auto& connection : connections_) {
      const std::scoped_lock lock(connection->send_mutex, connection->receive_mutex);
      out.push_back(connection->traffic);
    }
    return out;
  }

 private:
  Connection& connection(int peer) { return *connections_[static_cast<std::size_t>(peer)]; }

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof one);
  }

  /// Sends at once what the socket takes; the thread does the rest.
  void post(int peer, FrameKind kind, Tag tag, std::span<const std::byte> data,
            PendingPointer request) {
    Connection& to = connection(peer);
    bool rest = false;
    bool dead = false;
    std::optional<TransportError> error;
    std::vector<PendingPointer> sent;
    {
      const std::lock_guard lock(to.send_mutex);
      dead = to.send_dead;
      if (!dead) {
        to.outgoing.push_back(
            {make_header(kind, options_.generation, to.send_sequence++, tag, data), data, request,
             0});
        if (to.outgoing.size() == 1) error = flush(to, peer, sent);
        rest = !to.outgoing.empty();
      }
    }
    for (const PendingPointer& one : sent) one->finish();
    if (dead && request) request->fail(failure());
    if (error) return fail(*error);
    if (rest) wake();
  }

  /// Under the send lock. `sent` are to be told when it is released.
  std::optional<TransportError> flush(Connection& to, int peer, std::vector<PendingPointer>& sent) {
    while (!to.outgoing.empty()) {
      Outgoing& frame = to.outgoing.front();
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
      const ssize_t count = ::sendmsg(to.socket.fd(), &message, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return std::nullopt;
      if (count < 0) return lost_sending(to, peer, std::strerror(errno));
      frame.sent += static_cast<std::size_t>(count);
      to.last_sent = Clock::now();
      if (frame.sent < header.size() + frame.payload.size()) continue;
      if (frame.request) {
        to.traffic.sent_bytes += static_cast<std::int64_t>(frame.payload.size());
        ++to.traffic.messages_sent;
        sent.push_back(std::move(frame.request));
      }
      to.outgoing.pop_front();
    }
    return std::nullopt;
  }

  /// A peer that has left closes its end before its goodbye has been read here. Control frames
  /// alone are then dropped: the receiving half finds out whether the peer left or died.
  std::optional<TransportError> lost_sending(Connection& to, int peer, const std::string& how) {
    for (const Outgoing& frame : to.outgoing) {
      if (frame.request) return lost(peer, how);
    }
    to.outgoing.clear();
    return std::nullopt;
  }

  static TransportError lost(int peer, const std::string& how) {
    return {Kind::peer_lost, peer, fmt::format("lost rank {}: {}", peer, how)};
  }

  /// Reads what is there. Under the receive lock; `arrived` are to be told when it is released.
  void drain(Connection& from, int peer, std::vector<Settlement>& arrived) {
    for (;;) {
      auto header = std::as_writable_bytes(std::span(&from.header, 1));
      const std::span<std::byte> rest =
          (from.in_payload ? from.arrival.data : header).subspan(from.received);
      if (!rest.empty()) {
        const ssize_t count = ::recv(from.socket.fd(), rest.data(), rest.size(), 0);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) return;
        if (count < 0) throw lost(peer, std::strerror(errno));
        if (count == 0) throw lost(peer, "the connection ended without goodbye");
        from.last_received = Clock::now();
        from.received += static_cast<std::size_t>(count);
        if (static_cast<std::size_t>(count) < rest.size()) continue;
      }
      from.received = 0;
      if (from.in_payload) {
        arrived.push_back(finish_payload(from, peer));
      } else if (!begin_payload(from, peer)) {
        return;
      }
    }
  }

  /// False after goodbye.
  bool begin_payload(Connection& from, int peer) {
    const std::string defect =
        find_defect(from.header, options_.generation, from.receive_sequence++);
    if (!defect.empty()) {
      throw TransportError(Kind::corrupt, peer, fmt::format("from rank {}: {}", peer, defect));
    }
    if (from.header.kind == FrameKind::goodbye) {
      from.left = true;
      return false;
    }
    if (from.header.kind == FrameKind::heartbeat) return true;
    from.arrival = inbox_.begin(peer, {from.header.tag}, from.header.bytes);
    from.in_payload = true;
    return true;
  }

  Settlement finish_payload(Connection& from, int peer) {
    if (checksum(from.arrival.data) != from.header.payload_checksum) {
      throw TransportError(
          Kind::corrupt, peer,
          fmt::format("from rank {}: {} bytes with a wrong checksum", peer, from.header.bytes));
    }
    from.traffic.received_bytes += static_cast<std::int64_t>(from.header.bytes);
    from.in_payload = false;
    const Settlement settlement = inbox_.deliver(std::move(from.arrival));
    from.arrival = {};
    return settlement;
  }

  /// Ends all: no half of any connection touches a buffer when this returns.
  void fail(const TransportError& error) {
    {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) failure_ = error;
    }
    failed_ = true;
    const TransportError first = failure();
    std::vector<PendingPointer> ended;
    for (const auto& connection : connections_) {
      {
        const std::lock_guard lock(connection->send_mutex);
        connection->send_dead = true;
        for (Outgoing& frame : connection->outgoing) {
          if (frame.request) ended.push_back(std::move(frame.request));
        }
        connection->outgoing.clear();
      }
      const std::lock_guard lock(connection->receive_mutex);
      connection->receive_dead = true;
      if (connection->arrival.request) ended.push_back(connection->arrival.request);
      // The others notice at once that this rank is out.
      if (connection->socket.open()) ::shutdown(connection->socket.fd(), SHUT_RDWR);
    }
    for (const PendingPointer& request : ended) request->fail(first);
    inbox_.fail_all(first);
  }

  TransportError failure() {
    const std::lock_guard lock(failure_mutex_);
    return *failure_;
  }

  /// Sends goodbye and all that is queued before it, for the silence limit at most.
  void say_goodbye() {
    closing_ = true;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank_ && !connection(peer).left) post(peer, FrameKind::goodbye, {}, {}, nullptr);
    }
    const auto deadline = Clock::now() + options_.silence;
    for (const auto& connection : connections_) {
      while (!failed_ && Clock::now() < deadline) {
        {
          const std::lock_guard lock(connection->send_mutex);
          if (connection->outgoing.empty()) break;
        }
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
  }

  void run() {
    while (!stop_) {
      try {
        round();
      } catch (const TransportError& error) {
        // Whoever ends after this rank has all that it needs from it.
        if (closing_ && error.peer() >= 0) {
          connection(error.peer()).left = true;
        } else {
          fail(error);
        }
      }
      if (failed_) return;
    }
  }

  void round() {
    std::vector<pollfd> entries = {{wake_.fd(), POLLIN, 0}};
    std::vector<int> peers = {-1};
    for (int peer = 0; peer < size(); ++peer) {
      Connection& c = connection(peer);
      if (peer == rank_ || c.left) continue;
      const std::lock_guard lock(c.send_mutex);
      entries.push_back(
          {c.socket.fd(), static_cast<short>(POLLIN | (c.outgoing.empty() ? 0 : POLLOUT)), 0});
      peers.push_back(peer);
    }
    const int beat = static_cast<int>(options_.heartbeat.count());
    if (::poll(entries.data(), entries.size(), beat) < 0 && errno != EINTR) {
      throw TransportError(Kind::local, -1, std::string("poll: ") + std::strerror(errno));
    }
    if ((entries[0].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t read = ::read(wake_.fd(), &count, sizeof count);
    }
    for (std::size_t i = 1; i < entries.size(); ++i) serve(peers[i], entries[i].revents);
  }

  void serve(int peer, short events) {
    Connection& c = connection(peer);
    if ((events & POLLOUT) != 0) {
      std::vector<PendingPointer> sent;
      std::optional<TransportError> error;
      {
        const std::lock_guard lock(c.send_mutex);
        if (!c.send_dead) error = flush(c, peer, sent);
      }
      for (const PendingPointer& request : sent) request->finish();
      if (error) throw TransportError(*error);
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive_from(c, peer);
    const auto now = Clock::now();
    if (now - c.last_received > options_.silence && !c.left) {
      throw lost(peer, fmt::format("silent for {} ms", options_.silence.count()));
    }
    bool quiet = false;
    {
      const std::lock_guard lock(c.send_mutex);
      quiet = c.outgoing.empty() && now - c.last_sent >= options_.heartbeat;
    }
    if (quiet && !c.left && !stop_) post(peer, FrameKind::heartbeat, {}, {}, nullptr);
  }

  void receive_from(Connection& c, int peer) {
    std::vector<Settlement> arrived;
    std::optional<TransportError> error;
    {
      const std::lock_guard lock(c.receive_mutex);
      try {
        if (!c.receive_dead) drain(c, peer, arrived);
      } catch (const TransportError& problem) {
        error = problem;
      }
    }
    for (const Settlement& settlement : arrived) settlement.tell();
    if (error) throw TransportError(*error);
    if (c.left) inbox_.close(peer);
  }

  int rank_;
  TcpOptions options_;
  Patience patience_;
  PendingRequest::OnTimeout on_timeout_;
  Inbox inbox_;
  Socket wake_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::mutex failure_mutex_;
  std::optional<TransportError> failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> closing_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// Admits the higher ranks, each once.
void admit_higher(int rank, Listener& listener, const TcpOptions& options, SteadyTime deadline,
                  std::vector<Socket>& sockets) {
  const int size = static_cast<int>(sockets.size());
  const Identity expected{Role::rank, rank, size, options.generation};
  std::string strangers;
  for (int missing = size - 1 - rank; missing > 0;) {
    Socket socket = listener.accept(deadline);
    if (!socket.open()) {
      throw TransportError(
          Kind::timeout, -1,
          fmt::format("{} of {} higher ranks did not come{}", missing, size - 1 - rank, strangers));
    }
    try {
      // A stranger that says nothing must not keep the others waiting for long.
      const SteadyTime patience = std::min(deadline, Clock::now() + milliseconds(2'000));
      const Identity who = admit(socket, options.token, expected, patience);
      Socket& place = sockets[static_cast<std::size_t>(who.rank)];
      if (who.rank <= rank || place.open()) continue;
      place = std::move(socket);
      --missing;
    } catch (const TransportError& error) {
      strangers = fmt::format("; refused one: {}", error.what());
    }
  }
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(int rank, Listener listener,
                                              const std::vector<Endpoint>& endpoints,
                                              const TcpOptions& options) {
  const SteadyTime deadline = Clock::now() + options.connect;
  const int size = static_cast<int>(endpoints.size());
  std::vector<Socket> sockets(endpoints.size());
  for (int peer = 0; peer < rank; ++peer) {
    Socket socket = connect_to(endpoints[static_cast<std::size_t>(peer)], deadline, peer);
    introduce(socket, options.token, {Role::rank, rank, size, options.generation}, deadline, peer);
    sockets[static_cast<std::size_t>(peer)] = std::move(socket);
  }
  admit_higher(rank, listener, options, deadline, sockets);
  return std::make_unique<TcpTransport>(rank, std::move(sockets), options);
}

}  // namespace orrery::executor
