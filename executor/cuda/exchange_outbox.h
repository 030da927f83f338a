/// The messages that a rank sends through the order of exchange_order.h, cut into pieces: asks for
/// places for some pieces at a time, and keeps count of what has passed. Private to executor/cuda.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "executor/cuda/exchange_order.h"
#include "executor/net/request.h"

namespace orrery::executor {

/// Not thread-safe: its owner locks, so that wishes go out in their order.
class Outbox {
 public:
  /// `wish` asks rank 0 for a place.
  using Wish = std::function<void(const Place&)>;
  Outbox(int rank, std::size_t piece_bytes, Wish wish)
      : rank_(rank), piece_bytes_(piece_bytes), wish_(std::move(wish)) {}

  bool empty() const { return messages_.empty(); }
  void add(int to, Tag tag, std::span<const std::byte> data, PendingPointer request);
  /// The bytes of a piece; none where its message was taken back.
  std::optional<std::span<const std::byte>> bytes(const Place& place) const;
  /// A piece has passed; the message's request where it was the last one.
  PendingPointer pass(const Place& place);
  /// Messages to a rank that has left, or all, are no longer sent; their requests. Pieces of the
  /// rank that were asked for and have not passed never will.
  std::vector<PendingPointer> drop(int to);
  std::vector<PendingPointer> drop_all();

 private:
  struct Message {
    int to = -1;
    Tag tag;
    std::span<const std::byte> data;
    PendingPointer request;
    std::size_t asked = 0;   ///< Bytes that places were asked for.
    std::size_t passed = 0;  ///< Bytes.
    int waiting = 0;         ///< Pieces asked for and not passed.
  };
  void ask();

  int rank_;
  std::size_t piece_bytes_;
  Wish wish_;
  std::map<std::uint64_t, Message> messages_;  ///< By number.
  std::deque<std::uint64_t> unasked_;          ///< Those with pieces that have no place yet.
  std::uint64_t next_ = 0;
  int waiting_ = 0;  ///< Pieces asked for and not passed.
};

}  // namespace orrery::executor
