/// Messages between ranks. A transport moves bytes between two ranks of a run; it knows nothing of
/// tensors. Collectives are built on it (ring.h), so that every transport runs the very algorithm
/// that the simulator prices.
///
/// Messages are matched by (peer, tag). Tags are unique within a generation (see Tag), so that
/// order does not matter: a message may come before its receive is posted. Every wait has a
/// deadline.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace orrery::executor {

/// What a message belongs to: (step, op of the Program or collective, part of it).
struct Tag {
  std::uint64_t value = 0;
  auto operator<=>(const Tag&) const = default;
};
/// `op` is below 2^24, `part` below 2^20, `step` counts modulo 2^20.
constexpr Tag make_tag(std::uint64_t step, std::uint64_t op, std::uint64_t part) {
  return {(step & 0xfffff) << 44 | (op & 0xffffff) << 20 | (part & 0xfffff)};
}

/// The memory of a plain value, to be sent or received.
template <class T>
std::span<std::byte> bytes_of(T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Why a run cannot go on. Thrown by waits; the worker ends its generation with it.
class TransportError : public std::runtime_error {
 public:
  enum class Kind {
    peer_lost,  ///< Connection closed without goodbye, reset, or keep-alive missed.
    timeout,    ///< The deadline passed.
    corrupt,    ///< A frame whose checksum, size or tag makes no sense.
    refused,    ///< Wrong token, wrong version, wrong rank.
    local,      ///< Own system call failed.
  };
  TransportError(Kind kind, int peer, const std::string& what)
      : std::runtime_error(what), kind_(kind), peer_(peer) {}
  Kind kind() const { return kind_; }
  int peer() const { return peer_; }  ///< -1: none in particular.

 private:
  Kind kind_;
  int peer_;
};

/// A send or receive on its way. Shared by the one who posted it and the transport.
class Request {
 public:
  virtual ~Request() = default;
  /// Returns when the buffer is the caller's again; throws TransportError.
  virtual void wait() = 0;
  /// True when wait() would not block.
  virtual bool done() const = 0;
  /// Calls back once: null when it went well, else why not. At once if it has ended, else from the
  /// thread that ends it, which must not be kept waiting. For one callback, and without a deadline.
  using Callback = std::function<void(const TransportError*)>;
  virtual void then(Callback callback) = 0;
};
using RequestPointer = std::shared_ptr<Request>;

struct LinkTraffic {
  int peer = 0;
  std::int64_t sent_bytes = 0;  ///< Payload.
  std::int64_t received_bytes = 0;
  std::int64_t messages_sent = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The buffer must live until the request is done. Thread-safe.
  virtual RequestPointer send(int peer, Tag tag, std::span<const std::byte> data) = 0;
  /// The message's size must be that of `into`, else TransportError::corrupt.
  virtual RequestPointer receive(int peer, Tag tag, std::span<std::byte> into) = 0;
  /// Deadline of every wait from now on.
  virtual void set_deadline(std::chrono::milliseconds timeout) = 0;
  /// All waits, now and later, throw peer_lost: another thread of this rank has failed.
  virtual void abort(const std::string& reason) = 0;
  /// By peer, ascending.
  virtual std::vector<LinkTraffic> traffic() const = 0;
  /// "tcp", "threads", "nccl".
  virtual std::string name() const = 0;
};

}  // namespace orrery::executor
