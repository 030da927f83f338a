#include "tools/cli/text.h"

#include <algorithm>

namespace orrery::tools {

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

}  // namespace orrery::tools
