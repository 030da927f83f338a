#include "models/base/hash.h"

#include <fmt/format.h>

#include <boost/uuid/detail/sha1.hpp>

namespace orrery {

std::string content_hash(std::string_view text) {
  boost::uuids::detail::sha1 sha;
  sha.process_bytes(text.data(), text.size());
  unsigned int digest[5];
  sha.get_digest(digest);
  return fmt::format("{:08x}{:08x}", digest[0], digest[1]);
}

}  // namespace orrery
