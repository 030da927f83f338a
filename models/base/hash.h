/// Hashes of contents (names of run folders, the check that a plan belongs to a cluster file) and
/// of names.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery {

/// The first 16 hexadecimal digits of the SHA-1 of `text`. Not for security.
std::string content_hash(std::string_view text);
/// All 20 bytes of the SHA-1 of `bytes`: a key in place of a long one. Not for security.
std::string content_digest(std::string_view bytes);

/// FNV-1a: a number for a name, the same on every machine; for example the key of a stream of
/// random numbers that depends on its name alone (Rng::fork).
constexpr std::uint64_t name_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace orrery
