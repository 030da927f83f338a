#include "models/base/hash.h"

#include <fmt/format.h>

#include <array>
#include <boost/uuid/detail/sha1.hpp>

namespace orrery {

namespace {

std::array<unsigned int, 5> sha1(std::string_view bytes) {
  boost::uuids::detail::sha1 sha;
  sha.process_bytes(bytes.data(), bytes.size());
  unsigned int digest[5];
  sha.get_digest(digest);
  return {digest[0], digest[1], digest[2], digest[3], digest[4]};
}

}  // namespace

std::string content_hash(std::string_view text) {
  const auto digest = sha1(text);
  return fmt::format("{:08x}{:08x}", digest[0], digest[1]);
}

std::string content_digest(std::string_view bytes) {
  const auto digest = sha1(bytes);
  return std::string(reinterpret_cast<const char*>(digest.data()), sizeof digest);
}

}  // namespace orrery
