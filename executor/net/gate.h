/// Lets in those who prove that they belong to the run. Strangers, silent or talkative, few or
/// many, keep nobody waiting: all handshakes run side by side, each has a time limit, and when too
/// many are open the oldest is dropped. Private to executor/net.
#pragma once
#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>

#include "executor/net/handshake.h"
#include "executor/net/socket.h"

namespace orrery::executor {

struct Admitted {
  Socket socket;
  Identity identity;
  SessionKeys keys;
};

class Gate {
 public:
  /// `expected` as for judge(): its rank is this process's own.
  Gate(Listener listener, std::string token, const Identity& expected);
  /// The next one who is let in; none when the deadline came first. Throws TransportError::local
  /// when this process cannot listen any more.
  std::optional<Admitted> next(SteadyTime deadline);
  /// Why the last one was turned away; empty: nobody was.
  const std::string& last_refusal() const { return last_refusal_; }
  int port() const { return listener_.port(); }

  static constexpr std::chrono::milliseconds kPatience{2'000};  ///< For one handshake.
  static constexpr std::size_t kMostPending = 64;

 private:
  /// Somebody who has been sent a challenge.
  struct Pending {
    Socket socket;
    wire::Challenge challenge;
    wire::Hello hello;
    std::size_t received = 0;
    SteadyTime until;
  };

  void accept_waiting();
  void challenge(Socket socket);
  /// False when the connection is of no use any more.
  bool read_hello(Pending& pending);
  std::optional<Admitted> answer(Pending& pending);

  Listener listener_;
  std::string token_;
  Identity expected_;
  std::list<Pending> pending_;  ///< Oldest first.
  std::string last_refusal_;
};

}  // namespace orrery::executor
