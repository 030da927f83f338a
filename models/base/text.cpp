#include "models/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::size_t first = text.find_first_not_of(' ', begin);
    const std::size_t last = text.find_last_not_of(' ', end == 0 ? 0 : end - 1);
    if (first < end) items.push_back(text.substr(first, last + 1 - first));
    begin = end + 1;
  }
  return items;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return text.substr(0, 0);
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string grouped(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  std::string text = fmt::format("{:.{}f}", value, digits);
  const std::size_t first = text[0] == '-' ? 1 : 0;
  std::size_t at = std::min(text.find('.'), text.size());
  while (at > first + 3) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

}  // namespace orrery
