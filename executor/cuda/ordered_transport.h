/// A Transport whose payloads pass through an exchange that may do one thing at a time, and that
/// waits there for the other side: a GPU's stream with NCCL. Two ranks that enter such exchanges in
/// different orders wait for each other for ever, so that all enter them in one order.
///
/// Rank 0 draws up that order. A rank that has a message asks it, over a control transport, for a
/// place for each piece of it; rank 0 tells the two ranks of the piece (from, to, tag, size), each
/// in the same order, and each passes its pieces one after the other. Of all pieces that have not
/// been passed, both sides of the first have nothing before it: it passes, and so do all. A piece
/// is ordered only when its data is there, and whoever it goes to takes it, posted for or not: no
/// wait of the callers holds the order up. A piece out and a piece in that follow each other in a
/// rank's order share one exchange, as in rings, except where one is the first from that rank to
/// this one: opening a connection waits as well, and must not hold up the other piece.
///
/// Tags, sizes, the order, and the loss of ranks are matters of the control transport.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "executor/net/transport.h"

namespace orrery::executor {

/// What ends the waits of an exchange: looked at again and again while it waits.
struct ExchangeLimits {
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> patience_ms = 60'000;
};

/// Passes bytes between this rank and others. One thread calls at a time. Waits end with a
/// TransportError when the limits say so.
class PayloadExchange {
 public:
  struct Out {
    int to = -1;  ///< -1: nothing goes out.
    std::span<const std::byte> data;
  };
  struct In {
    int from = -1;  ///< -1: nothing comes in.
    std::span<std::byte> into;
  };

  virtual ~PayloadExchange() = default;  ///< At once, whatever other ranks do.
  /// Both at the same time, neither waiting for the other, unless it is the first from that rank to
  /// this one or the other way round. Pieces of two ranks are matched in their order.
  virtual void pass(const Out& out, const In& in) = 0;
  /// All ranks call it at the same place of their order, when nothing is on its way.
  virtual void close() = 0;
};

/// Names an exchange; rank 0 draws it.
using ExchangeId = std::array<std::byte, 128>;

class ExchangeMaker {
 public:
  virtual ~ExchangeMaker() = default;
  virtual ExchangeId draw_id() = 0;
  /// Largest piece, the same on all ranks.
  virtual std::size_t piece_bytes() const = 0;
  /// Called by all ranks at about the same time, in the thread that then calls the exchange.
  virtual std::unique_ptr<PayloadExchange> open(const ExchangeId& id, int rank, int size,
                                                const ExchangeLimits& limits) = 0;
};

/// Owns `control`, which carries nothing else from now on. `name` is that of the new transport.
/// Called by all ranks; returns when all have opened the exchange, so that nothing is allocated
/// once messages pass. Throws TransportError. Its destructor waits for the sends of this rank and,
/// for `farewell` at most, for the others to leave as well, since an exchange is closed by all at
/// once or by none; that of rank 0 waits, for the deadline of waits at most, until all others have
/// gone, whom it serves till then.
std::unique_ptr<Transport> make_ordered_transport(
    std::unique_ptr<Transport> control, std::unique_ptr<ExchangeMaker> maker, std::string name,
    std::chrono::milliseconds farewell = std::chrono::milliseconds(5'000));

}  // namespace orrery::executor
