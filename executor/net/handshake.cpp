#include "executor/net/handshake.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <random>
#include <span>
#include <string_view>

#include "executor/net/transport.h"
#include "models/base/hash.h"

namespace orrery::executor {
namespace {

constexpr std::array<char, 8> kMagic = {'O', 'R', 'R', 'E', 'R', 'Y', '0', '1'};

using Nonce = std::array<char, 16>;
using Answer = std::array<char, 16>;  // content_hash() has 16 digits.

struct Hello {
  std::array<char, 8> magic = kMagic;
  Nonce nonce{};
  Answer answer{};
  std::uint32_t role = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint32_t generation = 0;
};

struct Verdict {
  std::array<char, 8> magic = kMagic;
  Answer answer{};
  std::uint32_t welcome = 0;
  std::array<char, 124> reason{};
};

Nonce random_nonce() {
  std::random_device device;
  Nonce nonce{};
  for (char& c : nonce) c = static_cast<char>(device());
  return nonce;
}

Answer answer_to(const std::string& token, const Nonce& nonce, const char* role) {
  // The token is on both sides of the nonce, so that no prefix can be extended.
  const std::string_view bytes(nonce.data(), nonce.size());
  const std::string hash =
      content_hash(fmt::format("{}:{}|{}|{}:{}", token.size(), token, role, bytes, token));
  Answer answer{};
  std::memcpy(answer.data(), hash.data(), answer.size());
  return answer;
}

Verdict refusal(const std::string& reason) {
  Verdict verdict;
  std::strncpy(verdict.reason.data(), reason.c_str(), verdict.reason.size() - 1);
  return verdict;
}

std::string mismatch(const Hello& hello, const Identity& expected) {
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
  return "";
}

}  // namespace

std::string make_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

void introduce(const Socket& socket, const std::string& token, const Identity& self,
               SteadyTime deadline, int peer) {
  Nonce challenge{};
  read_all(socket, bytes_of(challenge), deadline, peer);
  Hello hello;
  hello.nonce = random_nonce();
  hello.answer = answer_to(token, challenge, "connect");
  hello.role = static_cast<std::uint32_t>(self.role);
  hello.rank = self.rank;
  hello.size = self.size;
  hello.generation = self.generation;
  write_all(socket, bytes_of(hello), deadline, peer);
  Verdict verdict;
  read_all(socket, bytes_of(verdict), deadline, peer);
  using Kind = TransportError::Kind;
  if (verdict.magic != kMagic) {
    throw TransportError(Kind::corrupt, peer, "the other side is no rank of Orrery");
  }
  if (verdict.welcome == 0) {
    verdict.reason.back() = '\0';
    throw TransportError(Kind::refused, peer, fmt::format("refused: {}", verdict.reason.data()));
  }
  if (verdict.answer != answer_to(token, hello.nonce, "accept")) {
    throw TransportError(Kind::refused, peer, "the other side does not know the run's token");
  }
}

Identity admit(const Socket& socket, const std::string& token, const Identity& expected,
               SteadyTime deadline) {
  using Kind = TransportError::Kind;
  Nonce challenge = random_nonce();
  write_all(socket, bytes_of(challenge), deadline, -1);
  Hello hello;
  read_all(socket, bytes_of(hello), deadline, -1);
  std::string problem;
  if (hello.magic != kMagic) {
    problem = "another version or another program";
  } else if (hello.answer != answer_to(token, challenge, "connect")) {
    problem = "wrong token";
  } else {
    problem = mismatch(hello, expected);
  }
  if (!problem.empty()) {
    Verdict verdict = refusal(problem);
    write_all(socket, bytes_of(verdict), deadline, hello.rank);
    throw TransportError(Kind::refused, hello.rank, problem);
  }
  Verdict verdict;
  verdict.welcome = 1;
  verdict.answer = answer_to(token, hello.nonce, "accept");
  write_all(socket, bytes_of(verdict), deadline, hello.rank);
  return {expected.role, hello.rank, hello.size, hello.generation};
}

}  // namespace orrery::executor
