/// What is known about each kind of op, in one table: whoever treats kinds differently asks it, so
/// that a new kind is a row here.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "models/base/ids.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"

namespace orrery::ir {

/// How an op gets its duration.
enum class OpTiming : std::uint8_t {
  compute,     ///< A price of models/cost; inner collectives come on top.
  transfer,    ///< Flows that a send and its recv drive together.
  collective,  ///< Flows that all members drive together.
  storage,     ///< A measured time, or the bandwidth of its location; flows from a peer.
};

/// Direction of a pass. On the compute stream breakdowns count passes as compute (their inner
/// collectives as tensor_parallel or zero), all other ops as optimizer. Of recorded runs kernels of
/// any stream are compute, and host time is no work of the device.
enum class Direction : std::uint8_t { none, forward, backward };

struct OpTraits {
  const char* name;         ///< In files, tables and logs.
  const char* label;        ///< In timelines.
  const char* preposition;  ///< In timelines, before the peer or location of a transfer.
  OpTiming timing = OpTiming::compute;
  Direction direction = Direction::none;
  std::optional<Pass> priced_as = std::nullopt;  ///< The profile's pass; of compute ops.
  bool input_gradients = false;                  ///< Computes the gradient of its input.
  bool weight_gradients = false;                 ///< Adds to the gradients of its weights.

  /// Half of a backward pass.
  constexpr bool is_half() const { return input_gradients != weight_gradients; }
};

/// By OpKind.
inline constexpr std::array<OpTraits, 12> kOpTraits = {{
    {"forward", "F", "", OpTiming::compute, Direction::forward, Pass::forward},
    {"backward", "B", "", OpTiming::compute, Direction::backward, Pass::backward, true, true},
    {"backward_input", "Bi", "", OpTiming::compute, Direction::backward, Pass::backward_input, true,
     false},
    {"backward_weight", "Bw", "", OpTiming::compute, Direction::backward, Pass::backward_weight,
     false, true},
    {"send", "send", "to", OpTiming::transfer},
    {"recv", "recv", "from", OpTiming::transfer},
    {"collective", "", "", OpTiming::collective},
    {"optimizer_step", "optimizer step", "", OpTiming::compute, Direction::none, Pass::optimizer},
    {"load_state", "load", "from", OpTiming::storage},
    {"save_state", "save", "to", OpTiming::storage},
    {"kernel", "kernel", "", OpTiming::compute},
    {"host", "host", "", OpTiming::compute},
}};
static_assert(kOpTraits.size() == index_of(OpKind::host) + 1);

constexpr const OpTraits& traits(OpKind kind) { return kOpTraits[index_of(kind)]; }
/// Those of the compute op that is priced as `pass`.
constexpr const OpTraits& traits(Pass pass) {
  std::size_t i = 0;
  while (kOpTraits.at(i).priced_as != pass) ++i;
  return kOpTraits[i];
}

/// A forward or backward pass, half of one, the optimizer step, or what a recorded run did instead.
constexpr bool is_compute(OpKind kind) { return traits(kind).timing == OpTiming::compute; }
/// A forward or backward pass, or half of one.
constexpr bool is_pass(OpKind kind) { return traits(kind).direction != Direction::none; }
constexpr bool is_backward(OpKind kind) { return traits(kind).direction == Direction::backward; }
/// A pass that takes activations, or their gradients, from a neighboring block and hands them on:
/// all but those that only add to the gradients of weights.
constexpr bool crosses_blocks(OpKind kind) {
  return traits(kind).direction == Direction::forward || traits(kind).input_gradients;
}
/// One side of a point-to-point transfer.
constexpr bool is_transfer(OpKind kind) { return traits(kind).timing == OpTiming::transfer; }

}  // namespace orrery::ir
