#include "executor/net/handshake.h"

#include <fmt/format.h>

#include <cctype>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;

template <class T>
std::span<const std::byte> view(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
std::span<const std::byte> view(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
/// All but the proof at its end.
template <class T>
std::span<const std::byte> unproven(const T& value) {
  return view(value).first(offsetof(T, proof));
}

Bytes32 hello_proof(const std::string& token, const wire::Challenge& challenge,
                    const wire::Hello& hello) {
  return hmac(token, {view("orrery connect"), view(challenge), unproven(hello)});
}
Bytes32 verdict_proof(const std::string& token, const wire::Challenge& challenge,
                      const wire::Hello& hello, const wire::Verdict& verdict) {
  return hmac(token, {view("orrery accept"), view(challenge), view(hello), unproven(verdict)});
}
Bytes32 derived_key(const std::string& token, const wire::Challenge& challenge,
                    const wire::Hello& hello, std::string_view direction) {
  return hmac(token, {view(direction), view(challenge), view(hello)});
}
constexpr std::string_view kToAcceptor = "orrery key to acceptor";
constexpr std::string_view kToConnector = "orrery key to connector";

std::string mismatch(const wire::Hello& hello, const Identity& expected) {
  if (hello.role != static_cast<std::uint32_t>(expected.role)) return "another kind of connection";
  if (hello.generation != expected.generation) {
    return fmt::format("generation {} where {} runs", hello.generation, expected.generation);
  }
  if (expected.size > 0 && hello.size != expected.size) {
    return fmt::format("a run of {} ranks where {} run", hello.size, expected.size);
  }
  if (expected.size > 0 && (hello.rank < 0 || hello.rank >= expected.size)) {
    return fmt::format("rank {} of {}", hello.rank, expected.size);
  }
  // Somebody on the path may have led the connection to another rank than it was made for.
  if (hello.peer != expected.rank) {
    return fmt::format("a connection for rank {} at rank {}", hello.peer, expected.rank);
  }
  return "";
}

/// A refusal may come from anyone: what could steer a terminal is left out.
std::string printable(const std::array<char, 124>& reason) {
  std::string out;
  for (const char c : reason) {
    if (c == '\0') break;
    out += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  }
  return out;
}

}  // namespace

std::string make_token() {
  std::array<std::byte, 16> secret{};
  fill_random(secret);
  std::string token;
  for (const std::byte b : secret) token += fmt::format("{:02x}", std::to_integer<int>(b));
  return token;
}

wire::Challenge make_challenge() {
  wire::Challenge challenge;
  fill_random(challenge.nonce);
  return challenge;
}

SessionKeys introduce(const Socket& socket, const std::string& token, const Identity& self,
                      SteadyTime deadline, int peer) {
  wire::Challenge challenge;
  read_all(socket, bytes_of(challenge), deadline, peer);
  if (challenge.magic != wire::kMagic) {
    throw TransportError(Kind::corrupt, peer,
                         "the other side is no process of Orrery, or of another version");
  }
  wire::Hello hello;
  fill_random(hello.nonce);
  hello.role = static_cast<std::uint32_t>(self.role);
  hello.rank = self.rank;
  hello.peer = peer;
  hello.size = self.size;
  hello.generation = self.generation;
  hello.proof = hello_proof(token, challenge, hello);
  write_all(socket, bytes_of(hello), deadline, peer);
  wire::Verdict verdict;
  read_all(socket, bytes_of(verdict), deadline, peer);
  if (verdict.magic != wire::kMagic) {
    throw TransportError(Kind::corrupt, peer, "the other side answers nonsense");
  }
  if (verdict.welcome == 0) {
    throw TransportError(Kind::refused, peer,
                         fmt::format("refused: {}", printable(verdict.reason)));
  }
  if (!equal_secrets(verdict.proof, verdict_proof(token, challenge, hello, verdict))) {
    throw TransportError(Kind::refused, peer, "the other side does not know the run's token");
  }
  return {derived_key(token, challenge, hello, kToAcceptor),
          derived_key(token, challenge, hello, kToConnector)};
}

Joined join(const Endpoint& endpoint, const std::string& token, const Identity& self,
            SteadyTime deadline, int peer) {
  for (;;) {
    Socket socket = connect_to(endpoint, deadline, peer);
    try {
      const SessionKeys keys = introduce(socket, token, self, deadline, peer);
      return {std::move(socket), keys};
    } catch (const TransportError& error) {
      // A gate under siege drops who has waited longest, which may be us.
      const auto retry = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      if (error.kind() != Kind::peer_lost || retry > deadline) throw;
      std::this_thread::sleep_until(retry);
    }
  }
}

Judgment judge(const wire::Challenge& challenge, const wire::Hello& hello, const std::string& token,
               const Identity& expected) {
  Judgment out;
  if (hello.magic != wire::kMagic) {
    out.problem = "another version or another program";
  } else if (!equal_secrets(hello.proof, hello_proof(token, challenge, hello))) {
    out.problem = "wrong token";
  } else {
    out.problem = mismatch(hello, expected);
  }
  out.identity = {expected.role, hello.rank, hello.size, hello.generation};
  if (!out.problem.empty()) {
    out.problem.copy(out.verdict.reason.data(), out.verdict.reason.size() - 1);
    return out;
  }
  out.verdict.welcome = 1;
  out.verdict.proof = verdict_proof(token, challenge, hello, out.verdict);
  out.keys = {derived_key(token, challenge, hello, kToConnector),
              derived_key(token, challenge, hello, kToAcceptor)};
  return out;
}

}  // namespace orrery::executor
