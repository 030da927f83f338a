/// Why a lab cannot be set up, seen or removed, in words that a user can act on.
#pragma once
#include <stdexcept>
#include <string>

namespace orrery::executor {

struct NetlabError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "cannot <what>: <text of errno>" as NetlabError.
[[noreturn]] void throw_netlab(const std::string& what, int error);

}  // namespace orrery::executor
