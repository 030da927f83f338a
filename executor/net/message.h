/// Described structs (models/config/visitor.h) as one line of text: the form of what processes of a
/// run tell each other.
#pragma once
#include <bit>
#include <chrono>
#include <cstdint>
#include <string>

#include "models/config/document.h"

namespace orrery::executor {

template <class T>
std::string to_message(const T& value) {
  return config::to_flow(config::to_value(value));
}

/// `what` names the message in problems. Throws config::ConfigError, a std::runtime_error.
template <class T>
T from_message(const std::string& text, const std::string& what) {
  config::Diagnostics problems;
  T out = config::load_text<T>(text, what, problems);
  problems.raise();
  return out;
}

/// Fields of types that files do not have.
inline void describe_field(config::Visitor& v, const char* key, std::chrono::milliseconds& value,
                           const char* doc) {
  std::int64_t count = value.count();
  v.required(key, count, doc);
  value = std::chrono::milliseconds(count);
}
inline void describe_field(config::Visitor& v, const char* key, std::uint64_t& value,
                           const char* doc) {
  auto bits = std::bit_cast<std::int64_t>(value);
  v.required(key, bits, doc);
  value = std::bit_cast<std::uint64_t>(bits);
}

}  // namespace orrery::executor
