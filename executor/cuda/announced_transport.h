/// A Transport whose payloads take another way than its control messages, for libraries that move
/// bytes between two ranks but know neither tags nor sizes nor the loss of a peer. Each message is
/// announced on a control transport (tag and size); in the order of the announcements, both sides
/// then pass the payload through a channel of that pair and direction. Nobody waits in a channel
/// for a message that was not announced, each direction goes on by itself, and peers are lost when
/// the control transport loses them.
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

/// What ends the waits of a channel: looked at again and again while it waits.
struct ChannelLimits {
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> patience_ms = 60'000;
};

/// Payloads from one rank to another; both call in the same order. Waits end with a TransportError
/// when the limits say so.
class PayloadChannel {
 public:
  virtual ~PayloadChannel() = default;  ///< At once, whatever the other side does.
  virtual void send(std::span<const std::byte> data) = 0;  ///< Not empty.
  virtual void receive(std::span<std::byte> into) = 0;
  /// Called by both sides at about the same time, when nothing is on its way.
  virtual void close() = 0;
};

/// Names a channel; the sending side draws it.
using ChannelId = std::array<std::byte, 128>;

class ChannelMaker {
 public:
  virtual ~ChannelMaker() = default;
  virtual ChannelId draw_id() = 0;
  /// Called by both sides at about the same time. Thread-safe.
  virtual std::unique_ptr<PayloadChannel> open(const ChannelId& id, int peer, bool sends,
                                               const ChannelLimits& limits) = 0;
};

/// Owns `control`, which carries nothing else from now on. `name` is that of the new transport.
std::unique_ptr<Transport> make_announced_transport(std::unique_ptr<Transport> control,
                                                    std::unique_ptr<ChannelMaker> maker,
                                                    std::string name);

}  // namespace orrery::executor
