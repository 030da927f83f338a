/// What keeps strangers out: HMAC-SHA-256 for proofs and keys, and GMAC (AES-256-GCM over data that
/// is not encrypted) for everything that is said on a connection. From libcrypto. Private to
/// executor/net.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

namespace orrery::executor {

using Bytes32 = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 16>;

/// From the system's generator for secrets.
void fill_random(std::span<std::byte> out);

/// HMAC-SHA-256 of the parts, one after the other [RFC 2104].
Bytes32 hmac(std::string_view key, std::initializer_list<std::span<const std::byte>> parts);

/// Takes the same time wherever the two differ.
bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b);

/// Authenticates what goes one way on one connection. Not thread-safe.
class Authenticator {
 public:
  explicit Authenticator(const Bytes32& key);
  ~Authenticator();
  Authenticator(Authenticator&&) noexcept;
  Authenticator& operator=(Authenticator&&) noexcept;

  enum class Part : std::uint32_t { header, body };
  /// GMAC of the parts, one after the other, as part `part` of message `number`. A pair of (part,
  /// number) must be used for one content only [NIST SP 800-38D, 8.3].
  Mac mac(Part part, std::uint64_t number,
          std::initializer_list<std::span<const std::byte>> parts) const;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace orrery::executor
