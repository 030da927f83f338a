/// JSON that others wrote, read strictly, with the place of what is wrong. nlohmann-json has places
/// for syntax errors only, and stops at a number beyond double with an exception of another kind.
#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "models/config/diagnostics.h"

namespace orrery::config {

/// Why a text is no JSON that can be read, and at which byte (from 0).
struct JsonFault {
  std::size_t byte = 0;
  std::string what;  ///< "no JSON: unexpected '}'; expected string literal"
};

/// Reads `text` into `out`, or says what is wrong with it; `out` is then null. Never throws for
/// what a text holds.
std::optional<JsonFault> parse_json(const std::string& text, nlohmann::json& out);

/// The position of a byte (from 0) of a file's text; beyond its end, that of its end.
Position position_of_byte(const std::string& file, const std::string& text, std::size_t byte);

}  // namespace orrery::config
