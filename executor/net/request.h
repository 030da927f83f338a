/// Requests that one thread waits for and another finishes, and the matching of messages with
/// receives. Private to executor/net.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "executor/net/transport.h"

namespace orrery::executor {

/// Milliseconds that every wait of a transport may take; changed while waits run.
using Patience = std::shared_ptr<std::atomic<std::int64_t>>;

class PendingRequest final : public Request {
 public:
  /// `on_timeout` runs before wait() throws because of its deadline: it must see to it that nobody
  /// touches the buffer any more. It outlives the request.
  using OnTimeout = std::function<void(const TransportError&)>;
  PendingRequest(int peer, Tag tag, Patience patience, const OnTimeout* on_timeout);
  void wait() override;
  bool done() const override;
  void then(Callback callback) override;
  void finish();
  /// The first error counts; after finish() none does.
  void fail(const TransportError& error);

 private:
  int peer_;
  Tag tag_;
  Patience patience_;
  const OnTimeout* on_timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::optional<TransportError> error_;
  Callback callback_;
};
using PendingPointer = std::shared_ptr<PendingRequest>;

/// The end of a request that is yet to be told: callbacks run outside of all locks.
struct Settlement {
  PendingPointer request;
  std::optional<TransportError> error;
  void tell() const;
};

/// Receives that are posted and messages that came before them.
class Inbox {
 public:
  Inbox(Patience patience, PendingRequest::OnTimeout on_timeout)
      : patience_(std::move(patience)), on_timeout_(std::move(on_timeout)) {}

  /// Takes a message that is there, or waits for it.
  RequestPointer post(int peer, Tag tag, std::span<std::byte> into);

  /// Where a message that is arriving goes: into a posted receive, or into memory of its own. The
  /// caller fills `data`, calls deliver() and tells its result, or lets fail_all() end it.
  struct Arrival {
    int peer = -1;
    Tag tag;
    std::span<std::byte> data;
    PendingPointer request;  ///< None: `own` keeps the data until a receive is posted.
    std::vector<std::byte> own;
    /// Enlarges `own` towards `bytes`, by what has come already; false when it has that size.
    bool grow(std::size_t bytes);
  };
  /// Throws TransportError::corrupt when a receive of another size is posted; fail_all() then ends
  /// that as well.
  Arrival begin(int peer, Tag tag, std::size_t bytes);
  Settlement deliver(Arrival&& arrival);
  /// Both at once: no one else sees the buffer half filled.
  Settlement put(int peer, Tag tag, std::span<const std::byte> data);

  /// Fails what is posted, and all that will be.
  void fail_all(const TransportError& error);
  /// Fails what is posted for this peer and has not come, and what will be: it said goodbye.
  void close(int peer);

 private:
  struct Wanted {
    std::span<std::byte> into;
    PendingPointer request;
  };
  using Key = std::pair<int, Tag>;

  /// The first receive that waits for it, taken out.
  std::optional<Wanted> take(const Key& key);

  Patience patience_;
  PendingRequest::OnTimeout on_timeout_;
  std::mutex mutex_;
  std::map<Key, std::deque<Wanted>> wanted_;
  std::map<Key, std::deque<std::vector<std::byte>>> early_;
  std::map<int, bool> closed_;
  std::optional<TransportError> failure_;
};

}  // namespace orrery::executor
