/// The one order in which ranks pass pieces (ordered_transport.h): what ranks ask rank 0 for, and
/// what it tells them. Private to executor/cuda.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "executor/net/transport.h"

namespace orrery::executor {

/// A place in the order: what is asked for and, unchanged, what is told. Goes over the wire as it
/// lies in memory: ranks are the same program.
struct Place {
  enum class What : std::int64_t {
    piece,  ///< Bytes [offset, offset + length) of a message.
    leave,  ///< `from` sends nothing more, and nobody may send to it.
    gone,   ///< `from` hears nothing more after this.
  };
  What what = What::piece;
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::uint64_t message = 0;  ///< Number of the message among those of `from`.
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  ///< Of the message.
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// What places travel by: numbered messages of a control transport. Sends end by themselves.
void send_place(Transport& control, int to, std::uint64_t number, const Place& place);
/// Waits without a deadline, since places come when they come; throws TransportError when the
/// control transport has failed or the rank has left it.
Place receive_place(Transport& control, int from, std::uint64_t number);

/// Rank 0's side. Thread-safe.
class OrderKeeper {
 public:
  /// Takes what is told to rank 0 itself, in order; must not call back.
  using Local = std::function<void(const Place&)>;
  OrderKeeper(Transport& control, Local local);

  /// Gives the next place of the order and tells whom it concerns: the two ranks of a piece, all
  /// ranks that are not gone otherwise. Pieces to or from ranks that have left have no place:
  /// their senders hear of the leave.
  void give(const Place& place);

 private:
  void tell(std::int64_t rank, const Place& place);

  Transport& control_;
  Local local_;
  std::mutex mutex_;
  std::vector<bool> left_;
  std::vector<bool> gone_;
  std::vector<std::uint64_t> told_;  ///< How many, by rank.
};

}  // namespace orrery::executor
