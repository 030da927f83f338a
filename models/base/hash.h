/// Content hashes: names of run folders, and the check that a plan belongs to a cluster file.
#pragma once
#include <string>
#include <string_view>

namespace orrery {

/// The first 16 hexadecimal digits of the SHA-1 of `text`. Not for security.
std::string content_hash(std::string_view text);

}  // namespace orrery
