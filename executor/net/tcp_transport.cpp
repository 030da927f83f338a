#include "executor/net/tcp_transport.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
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
#include "executor/net/gate.h"
#include "executor/net/handshake.h"
#include "executor/net/request.h"
#include "executor/net/tcp_connection.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Whether the peer's kernel has all that was sent. A socket that is closed before, and that finds
/// something unread or is sent something, resets the connection and forgets the rest.
bool has_arrived(const Socket& socket) {
  int bytes = 0;
  return ::ioctl(socket.fd(), SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

/// Says at once what has come: a rank that leaves waits for it.
void confirm(const Socket& socket) {
  const int yes = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes);
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, std::vector<Joined> peers, const TcpOptions& options)
      : rank_(rank),
        options_(options),
        patience_(std::make_shared<std::atomic<std::int64_t>>(options.deadline.count())),
        on_timeout_([this](const TransportError& error) { fail(error); }),
        inbox_(patience_, on_timeout_),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (Joined& peer : peers) {
      connections_.push_back(
          std::make_unique<TcpConnection>(static_cast<int>(connections_.size()), peer.keys));
      if (!peer.socket.open()) continue;
      prepare(peer.socket, options.silence);
      connections_.back()->socket = std::move(peer.socket);
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
  TcpConnection& connection(int peer) { return *connections_[peer]; }

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof one);
  }

  /// Sends at once what the socket takes; the thread does the rest.
  void post(int peer, FrameKind kind, Tag tag, std::span<const std::byte> data,
            const PendingPointer& request) {
    TcpConnection& to = connection(peer);
    bool rest = false;
    bool dead = false;
    std::optional<TransportError> error;
    std::vector<PendingPointer> sent;
    {
      const std::lock_guard lock(to.send_mutex);
      dead = to.send_dead;
      if (!dead) {
        to.outgoing.push_back(
            {make_header(to.send_key, kind, to.send_sequence++, tag, data), data, request, 0});
        if (to.outgoing.size() == 1) error = to.flush(sent);
        rest = !to.outgoing.empty();
      }
    }
    for (const PendingPointer& one : sent) one->finish();
    if (dead && request) request->fail(failure());
    if (error) return fail(*error);
    if (rest) wake();
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
        for (TcpConnection::Outgoing& frame : connection->outgoing) {
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

  /// Sends goodbye and all that is queued before it, until it has arrived, for the silence limit at
  /// most.
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
          // A peer that has left needs nothing more.
          const bool arrived = connection->left || has_arrived(connection->socket);
          if (connection->outgoing.empty() && arrived) break;
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
      TcpConnection& c = connection(peer);
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
    TcpConnection& c = connection(peer);
    if ((events & POLLOUT) != 0) {
      std::vector<PendingPointer> sent;
      std::optional<TransportError> error;
      {
        const std::lock_guard lock(c.send_mutex);
        if (!c.send_dead) error = c.flush(sent);
      }
      for (const PendingPointer& request : sent) request->finish();
      if (error) throw TransportError(*error);
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive_from(c, peer);
    const auto now = Clock::now();
    if (now - c.last_received > options_.silence && !c.left) {
      throw c.lost(fmt::format("silent for {} ms", options_.silence.count()));
    }
    bool quiet = false;
    {
      const std::lock_guard lock(c.send_mutex);
      quiet = c.outgoing.empty() && now - c.last_sent >= options_.heartbeat;
    }
    if (quiet && !c.left && !stop_) post(peer, FrameKind::heartbeat, {}, {}, nullptr);
  }

  void receive_from(TcpConnection& c, int peer) {
    std::vector<Settlement> arrived;
    std::optional<TransportError> error;
    {
      const std::lock_guard lock(c.receive_mutex);
      try {
        if (!c.receive_dead) c.drain(inbox_, arrived);
      } catch (const TransportError& problem) {
        error = problem;
      }
    }
    for (const Settlement& settlement : arrived) settlement.tell();
    if (error) throw TransportError(*error);
    if (!c.left) return;
    confirm(c.socket);
    inbox_.close(peer);
  }

  int rank_;
  TcpOptions options_;
  Patience patience_;
  PendingRequest::OnTimeout on_timeout_;
  Inbox inbox_;
  Socket wake_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;
  std::mutex failure_mutex_;
  std::optional<TransportError> failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> closing_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// Admits the higher ranks, each once. There is no connection to oneself.
void admit_higher(int rank, Listener listener, const TcpOptions& options, SteadyTime deadline,
                  std::vector<Joined>& peers) {
  const int size = static_cast<int>(peers.size());
  Gate gate(std::move(listener), options.token, {Role::rank, rank, size, options.generation});
  for (int missing = size - 1 - rank; missing > 0;) {
    std::optional<Admitted> who = gate.next(deadline);
    if (!who) {
      const std::string refused =
          gate.last_refusal().empty() ? "" : "; refused one: " + gate.last_refusal();
      throw TransportError(
          Kind::timeout, -1,
          fmt::format("{} of {} higher ranks did not come{}", missing, size - 1 - rank, refused));
    }
    Joined& place = peers[who->identity.rank];
    if (who->identity.rank <= rank || place.socket.open()) continue;
    place = {std::move(who->socket), who->keys};
    --missing;
  }
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(int rank, Listener listener,
                                              const std::vector<Endpoint>& endpoints,
                                              const TcpOptions& options) {
  const SteadyTime deadline = Clock::now() + options.connect;
  const int size = static_cast<int>(endpoints.size());
  std::vector<Joined> peers(endpoints.size());
  for (int peer = 0; peer < rank; ++peer) {
    peers[peer] = join(endpoints[peer], options.token, {Role::rank, rank, size, options.generation},
                       deadline, peer);
  }
  admit_higher(rank, std::move(listener), options, deadline, peers);
  return std::make_unique<TcpTransport>(rank, std::move(peers), options);
}

}  // namespace orrery::executor
