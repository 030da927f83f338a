/// What kind of file a YAML file says it is, found without reading all of it.
#pragma once
#include <string>

namespace orrery::config {

/// The value of the key `schema`; empty: none, or not a file with a map.
std::string schema_of(const std::string& path);

}  // namespace orrery::config
