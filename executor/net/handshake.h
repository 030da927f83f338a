/// How two processes of a run find out that they belong together: both prove that they know the
/// run's token without sending it, and name generation, own rank and the rank that is meant. Out of
/// it come the keys that authenticate all that follows. Keeps strangers and mixed-up runs out; it
/// does not encrypt (docs/security.md).
///
/// Acceptor: Challenge, with 32 random bytes. Connector: Hello, with its own 32 and a proof.
/// Acceptor: Verdict, with a proof. A proof is the HMAC-SHA-256, keyed by the token, of a word for
/// its side and of all that was said before it; keys are derived likewise, one for each direction.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "executor/net/crypto.h"
#include "executor/net/socket.h"

namespace orrery::executor {

/// What a connection is for.
enum class Role : std::uint32_t { rank = 1, store = 2 };

struct Identity {
  Role role = Role::rank;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::uint32_t generation = 0;
};

/// Keys of one connection, as one side of it sees them.
struct SessionKeys {
  Bytes32 send{};
  Bytes32 receive{};
};

/// A token that nobody guesses: 32 hexadecimal digits.
std::string make_token();

/// The connecting side. `peer`: the rank that is to accept, -1: the store; an acceptor of another
/// rank refuses. Throws TransportError: refused with the acceptor's reason, or the acceptor does
/// not know the token.
SessionKeys introduce(const Socket& socket, const std::string& token, const Identity& self,
                      SteadyTime deadline, int peer);

/// A connection on which both sides know each other.
struct Joined {
  Socket socket;
  SessionKeys keys;
};
/// Connects and introduces itself, again when the acceptor had no time for it, until the deadline.
/// Throws TransportError.
Joined join(const Endpoint& endpoint, const std::string& token, const Identity& self,
            SteadyTime deadline, int peer);

/// What goes over the wire; plain bytes, little-endian.
namespace wire {
inline constexpr std::array<char, 8> kMagic = {'O', 'R', 'R', 'E', 'R', 'Y', '0', '3'};
struct Challenge {
  std::array<char, 8> magic = kMagic;
  Bytes32 nonce{};
};
struct Hello {
  std::array<char, 8> magic = kMagic;
  Bytes32 nonce{};
  std::uint32_t role = 0;
  std::int32_t rank = 0;
  std::int32_t peer = -1;  ///< The rank that is to accept; -1: the store.
  std::int32_t size = 0;
  std::uint32_t generation = 0;
  Bytes32 proof{};
};
struct Verdict {
  std::array<char, 8> magic = kMagic;
  std::uint32_t welcome = 0;
  std::array<char, 124> reason{};
  Bytes32 proof{};
};
}  // namespace wire

/// The accepting side's answer to a Hello (gate.h does the talking).
struct Judgment {
  wire::Verdict verdict;
  std::string problem;  ///< Empty: welcome.
  Identity identity;
  SessionKeys keys;
};
/// `expected` gives role, the acceptor's own rank (-1: the store), size and generation.
Judgment judge(const wire::Challenge& challenge, const wire::Hello& hello, const std::string& token,
               const Identity& expected);

wire::Challenge make_challenge();

}  // namespace orrery::executor
