/// Standard output of the commands: whole strings, checked, with colors only for people.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace orrery::tools {

/// Standard output could not be written (full disk, closed pipe).
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Writes to standard output; throws OutputError.
void print(std::string_view text);
/// Hands what was printed to the system; throws OutputError.
void flush();

/// True where standard output is a terminal and NO_COLOR is not set.
bool colors();

/// Columns of the terminal that standard output is; 0: it is none.
std::size_t terminal_width();

/// The text in a color, or as it is where there are no colors.
std::string bold(std::string_view text);
std::string good(std::string_view text);
std::string bad(std::string_view text);

/// A bold title line and what comes below it.
std::string section(std::string_view title, std::string_view body);

}  // namespace orrery::tools
