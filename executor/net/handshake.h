/// How two processes of a run find out that they belong together: both prove that they know the
/// run's token without sending it, and name generation and rank. Keeps strangers and mixed-up runs
/// out; it does not encrypt.
///
/// Acceptor: 16 random bytes. Connector: Hello, with an answer to them. Acceptor: Verdict, with an
/// answer to the Hello's own random bytes. Each answer is content_hash(token, random bytes, role).
#pragma once
#include <cstdint>
#include <string>

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

/// A token that nobody guesses, in hexadecimal digits.
std::string make_token();

/// The connecting side. Throws TransportError: refused with the acceptor's reason, or the acceptor
/// does not know the token.
void introduce(const Socket& socket, const std::string& token, const Identity& self,
               SteadyTime deadline, int peer);

/// The accepting side: who wants in. `expected` gives role, size and generation. Answers a wrong
/// token, version, role, size or generation with the reason and throws TransportError::refused.
Identity admit(const Socket& socket, const std::string& token, const Identity& expected,
               SteadyTime deadline);

}  // namespace orrery::executor
