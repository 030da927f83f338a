/// How summary.json and the cells of runs.csv are written.
#pragma once
#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace orrery::experiments {

using Json = nlohmann::ordered_json;

/// Ten significant digits: what the models are good for, and equal across compilers.
inline double rounded(double value) {
  return std::strtod(fmt::format("{:.10g}", value).c_str(), nullptr);
}

/// A value of a summary as a cell of runs.csv.
inline std::string cell(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace orrery::experiments
