/// TCP sockets as values, with deadlines. Errors are TransportErrors.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace orrery::executor {

struct Endpoint {
  std::string host;  ///< Address or name.
  int port = 0;
  auto operator<=>(const Endpoint&) const = default;
};

using SteadyTime = std::chrono::steady_clock::time_point;

/// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

/// Listens from construction on; connections wait in the kernel until they are accepted.
class Listener {
 public:
  /// `address` empty: 127.0.0.1. `port` 0: any free one. Throws TransportError::local, with the
  /// port and the reason, for example when another launcher has it.
  explicit Listener(const std::string& address = "", int port = 0);
  int port() const { return port_; }
  int fd() const { return socket_.fd(); }
  /// A closed Socket when none came before the deadline.
  Socket accept(SteadyTime deadline);

 private:
  Socket socket_;
  int port_ = 0;
};

/// Tries all addresses of the host until the deadline: the other side may not listen yet. Throws
/// TransportError (`peer` is for its text and value).
Socket connect_to(const Endpoint& endpoint, SteadyTime deadline, int peer);

/// No delay, keep-alive, a limit for unacknowledged data; not blocking.
void prepare(const Socket& socket, std::chrono::milliseconds silence);

/// All of it before the deadline, on blocking or non-blocking sockets. Throw TransportError.
void write_all(const Socket& socket, std::span<const std::byte> data, SteadyTime deadline,
               int peer);
void read_all(const Socket& socket, std::span<std::byte> into, SteadyTime deadline, int peer);

}  // namespace orrery::executor
