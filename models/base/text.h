/// Small things about text.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Items of "a,b,c" without blanks around them; nothing of "".
std::vector<std::string> split(const std::string& text, char separator);

inline constexpr const char* kBlanks = " \t\r";
/// Without blanks, tabs and carriage returns at its ends.
std::string_view trimmed(std::string_view text);

/// "1 run", "2 runs": a count with its noun; the plural takes an s.
std::string counted(std::size_t count, std::string_view noun);

/// A number with `digits` decimals and thousands separators: 12,345.7; "-" when not finite.
std::string grouped(double value, int digits);

}  // namespace orrery
