/// JSON of described structs (models/config/visitor.h), for `--json` and for files of results.
#pragma once
#include <string>

#include "models/config/visitor.h"

namespace orrery::experiments {

namespace detail {
std::string to_json(config::Slot slot);
}

/// One indented document ending in a newline. Keys in the order of describe(); quantities in base
/// units (seconds, bytes, FLOP, dollars); absent optionals are null.
template <class T>
std::string to_json(T value) {
  return detail::to_json(config::detail::slot(value));
}

}  // namespace orrery::experiments
