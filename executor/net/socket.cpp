#include "executor/net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;
using std::chrono::milliseconds;

std::string reason() { return std::strerror(errno); }

int remaining(SteadyTime deadline) {
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  return left.count() < 0 ? 0 : static_cast<int>(std::min<std::int64_t>(left.count() + 1, 1 << 30));
}

/// True when the socket is ready for `events` (or broken) before the deadline.
bool ready(int fd, short events, SteadyTime deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, remaining(deadline));
    if (count > 0) return true;
    if (count == 0) return false;
    if (errno != EINTR) throw TransportError(Kind::local, -1, "poll: " + reason());
  }
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, int port, bool passive, int peer) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    throw TransportError(Kind::local, peer,
                         fmt::format("cannot resolve {}: {}", host, gai_strerror(status)));
  }
  return {found, freeaddrinfo};
}

/// 0, or why the address was not reached before the limit.
int connect_once(const addrinfo& address, SteadyTime limit, int peer, Socket& socket) {
  socket = Socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open() && errno == EAFNOSUPPORT) return errno;  // Another address may do.
  if (!socket.open()) throw TransportError(Kind::local, peer, "socket: " + reason());
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!ready(socket.fd(), POLLOUT, limit)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

void set(int fd, int level, int option, int value) {
  if (setsockopt(fd, level, option, &value, sizeof value) != 0) {
    throw TransportError(Kind::local, -1, "setsockopt: " + reason());
  }
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Socket::~Socket() { close(); }

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Listener::Listener(const std::string& address, int port) {
  const std::string host = address.empty() ? "127.0.0.1" : address;
  const Addresses found = resolve(host, port, true, -1);
  socket_ = Socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.open()) throw TransportError(Kind::local, -1, "socket: " + reason());
  set(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket_.fd(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket_.fd(), 1024) != 0) {
    throw TransportError(Kind::local, -1,
                         fmt::format("cannot listen on {}:{}: {}", host, port, reason()));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    throw TransportError(Kind::local, -1, "getsockname: " + reason());
  }
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                            : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

Socket Listener::accept(SteadyTime deadline) {
  while (ready(socket_.fd(), POLLIN, deadline)) {
    const int fd = ::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return Socket(fd);
    const bool gone = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!gone) throw TransportError(Kind::local, -1, "accept: " + reason());
  }
  return {};
}

Socket connect_to(const Endpoint& endpoint, SteadyTime deadline, int peer) {
  std::string problem = "no time left";
  const Addresses found = resolve(endpoint.host, endpoint.port, false, peer);
  int addresses = 0;
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) ++addresses;
  while (std::chrono::steady_clock::now() < deadline) {
    int left = addresses;
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next, --left) {
      // One that never answers leaves time for the others.
      const SteadyTime now = std::chrono::steady_clock::now();
      Socket socket;
      const int error = connect_once(*one, now + (deadline - now) / left, peer, socket);
      if (error == 0) return socket;
      problem = std::strerror(error);
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  throw TransportError(
      Kind::timeout, peer,
      fmt::format("cannot reach {}:{}: {}", endpoint.host, endpoint.port, problem));
}

void prepare(const Socket& socket, milliseconds silence) {
  const int flags = fcntl(socket.fd(), F_GETFL);
  if (flags < 0 || fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK) < 0) {
    throw TransportError(Kind::local, -1, "fcntl: " + reason());
  }
  set(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
}

void write_all(const Socket& socket, std::span<const std::byte> data, SteadyTime deadline,
               int peer) {
  while (!data.empty()) {
    const ssize_t count = ::send(socket.fd(), data.data(), data.size(), MSG_NOSIGNAL);
    if (count > 0) {
      data = data.subspan(count);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!ready(socket.fd(), POLLOUT, deadline)) {
        throw TransportError(Kind::timeout, peer, "the other side does not read");
      }
    } else {
      throw TransportError(Kind::peer_lost, peer, "connection broke: " + reason());
    }
  }
}

void read_all(const Socket& socket, std::span<std::byte> into, SteadyTime deadline, int peer) {
  while (!into.empty()) {
    const ssize_t count = ::recv(socket.fd(), into.data(), into.size(), 0);
    if (count > 0) {
      into = into.subspan(count);
    } else if (count == 0) {
      throw TransportError(Kind::peer_lost, peer, "the other side closed the connection");
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!ready(socket.fd(), POLLIN, deadline)) {
        throw TransportError(Kind::timeout, peer, "the other side says nothing");
      }
    } else {
      throw TransportError(Kind::peer_lost, peer, "connection broke: " + reason());
    }
  }
}

}  // namespace orrery::executor
