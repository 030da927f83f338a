/// Small things about text that several commands need.
#pragma once
#include <string>
#include <vector>

namespace orrery::tools {

/// Items of "a,b,c" without blanks around them; nothing of "".
std::vector<std::string> split(const std::string& text, char separator);

}  // namespace orrery::tools
