#include "calibration/importers/lines.h"

#include <cctype>
#include <sstream>

#include "calibration/read_text.h"

namespace orrery::calibration {
namespace {

/// Without sequences like "\x1b[4m", which nvidia-smi underlines its header with.
std::string without_escapes(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\r') continue;
    if (line[i] != '\x1b') {
      out += line[i];
      continue;
    }
    while (i + 1 < line.size() && std::isalpha(static_cast<unsigned char>(line[i])) == 0) ++i;
  }
  return out;
}

}  // namespace

std::vector<TextLine> read_lines(const std::string& path, config::Diagnostics& diagnostics) {
  std::vector<TextLine> lines;
  std::string bytes;
  if (!read_text(path, bytes, diagnostics)) return lines;
  std::istringstream stream(bytes);
  std::string raw;
  for (int number = 1; std::getline(stream, raw); ++number) {
    TextLine line{{}, without_escapes(raw), {path, number, 1}};
    const auto blank = [&](std::size_t i) { return line.text[i] == ' ' || line.text[i] == '\t'; };
    for (std::size_t i = 0; i < line.text.size();) {
      if (blank(i)) {
        ++i;
        continue;
      }
      const std::size_t begin = i;
      while (i < line.text.size() && !blank(i)) ++i;
      line.words.push_back(
          {line.text.substr(begin, i - begin), {path, number, static_cast<int>(begin) + 1}});
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace orrery::calibration
