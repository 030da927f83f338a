#include "tools/cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "models/base/check.h"

namespace orrery::tools {
namespace {

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

/// East Asian wide and full-width characters, and emoji. [Unicode 15, EastAsianWidth.txt, blocks]
constexpr Range kWide[] = {
    {0x1100, 0x115f}, {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},  {0x4e00, 0x9fff},
    {0xa000, 0xa4cf}, {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},  {0xff00, 0xff60},
    {0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
/// Combining marks, joiners and variation selectors.
constexpr Range kNarrowest[] = {
    {0x0300, 0x036f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};

template <std::size_t N>
bool within(const Range (&ranges)[N], std::uint32_t character) {
  return std::any_of(std::begin(ranges), std::end(ranges), [&](const Range& range) {
    return range.first <= character && character <= range.last;
  });
}

/// Reads the character at `at` and moves behind it; a byte that is no UTF-8 is taken as it is.
std::uint32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(at);
  const std::size_t length = lead < 0xc2   ? 1
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 1;
  if (length == 1 || at + length > text.size()) return byte(at++);
  std::uint32_t character = lead & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0U) != 0x80U) return byte(at++);
    character = (character << 6U) | (byte(at + i) & 0x3fU);
  }
  at += length;
  return character;
}

/// Moves behind a color sequence (ESC [ ... letter) that starts at `at`; false if there is none.
bool skip_escape(std::string_view text, std::size_t& at) {
  if (text.substr(at, 2) != "\033[") return false;
  std::size_t end = at + 2;
  while (end < text.size() && (text[end] == ';' || (text[end] >= '0' && text[end] <= '9'))) ++end;
  if (end == text.size()) return false;
  at = end + 1;
  return true;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (skip_escape(text, at)) continue;
    const std::uint32_t character = next_character(text, at);
    if (within(kNarrowest, character)) continue;
    width += within(kWide, character) ? 2 : 1;
  }
  return width;
}

std::string seconds_cell(double seconds) {
  constexpr int kDecimals = 4;
  constexpr int kMostDecimals = 9;
  int digits = kDecimals;
  for (double least = 0.01; seconds > 0 && seconds < least && digits < kMostDecimals; least /= 10) {
    ++digits;
  }
  return grouped(seconds, digits);
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 59.5) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

Table& Table::column(std::string heading, Align align) {
  columns_.push_back({std::move(heading), align});
  return *this;
}

void Table::row(std::vector<std::string> cells) {
  ORRERY_CHECK(cells.size() <= columns_.size(), "{} cells in a table of {} columns", cells.size(),
               columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::part(const std::vector<std::size_t>& columns,
                        const std::vector<std::size_t>& widths, std::size_t indent,
                        bool bold) const {
  const auto line = [&](const auto& cell_of) {
    std::string out(indent, ' ');
    for (const std::size_t c : columns) {
      const std::string cell = cell_of(c);
      const std::string padding(widths[c] - display_width(cell), ' ');
      if (c != columns.front()) out += "  ";
      if (columns_[c].align == Align::right) out += padding;
      out += cell;
      if (columns_[c].align == Align::left) out += padding;
    }
    const std::size_t end = out.find_last_not_of(' ');
    out.erase(end == std::string::npos ? 0 : end + 1);
    return out;
  };
  const std::string heading = line([&](std::size_t c) { return columns_[c].heading; });
  std::string out = fmt::format("{}{}{}\n", bold ? "\033[1m" : "", heading, bold ? "\033[0m" : "");
  for (const auto& row : rows_) {
    out += line([&](std::size_t c) { return c < row.size() ? row[c] : ""; }) + "\n";
  }
  return out;
}

std::string Table::text(std::size_t indent, bool bold, std::size_t width) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(display_width(columns_[c].heading));
    for (const auto& row : rows_) {
      if (c < row.size()) widths[c] = std::max(widths[c], display_width(row[c]));
    }
  }
  std::string out;
  std::vector<std::size_t> columns;
  std::size_t used = indent;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (width > 0 && columns.size() > 1 && used + 2 + widths[c] > width) {
      out += part(columns, widths, indent, bold) + "\n";
      columns = {0};
      used = indent + widths[0];
    }
    used += widths[c] + (columns.empty() ? 0 : 2);
    columns.push_back(c);
  }
  return out + part(columns, widths, indent, bold);
}

}  // namespace orrery::tools
