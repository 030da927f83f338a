/// Cells of CSV files.
#pragma once
#include <algorithm>
#include <string>

namespace orrery::config {

/// A cell of CSV, in quotes where RFC 4180 asks for them.
inline std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

/// The text with its line breaks turned into blanks, for formats of one line an entry.
inline std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace orrery::config
