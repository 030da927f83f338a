/// Problems of the user's input as exceptions, and the library of specifications.
#pragma once
#include <type_traits>

#include "models/config/diagnostics.h"
#include "models/spec/library.h"
#include "tools/python/caster.h"

namespace orrery::python {

/// Calls `read` with Diagnostics; throws ConfigError (orrery.ConfigError) if it found problems.
template <class Read>
auto checked(Read&& read) {
  config::Diagnostics problems;
  auto result = read(problems);
  problems.raise();
  return result;
}

/// The specifications that ship with the project, loaded once.
const models::Library& library();

}  // namespace orrery::python
