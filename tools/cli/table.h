/// Text tables for terminals: aligned columns, numbers to the right, no lines broken: columns that
/// a terminal is too narrow for come below the others. Widths count characters of UTF-8, not bytes.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/text.h"
#include "tools/cli/output.h"

namespace orrery::tools {

/// Columns that `text` takes on a terminal: East Asian wide characters count two, combining marks
/// and terminal colors none. Bytes that are no UTF-8 count one each.
std::size_t display_width(std::string_view text);

/// Seconds as a number for tables: four decimals, below 0.01 s as many as show three digits.
std::string seconds_cell(double seconds);

/// A duration for people: "3.20 s", "4 min 05 s", "2 h 03 min".
std::string duration(double seconds);

class Table {
 public:
  enum class Align { left, right };

  /// A column with its heading. Columns come before rows.
  Table& column(std::string heading, Align align = Align::left);
  /// A column of numbers: aligned to the right.
  Table& number(std::string heading) { return column(std::move(heading), Align::right); }
  /// One cell for each column. A row of fewer cells ends early.
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  /// Heading line and rows, each indented by `indent` blanks, columns two blanks apart, no blanks
  /// at the ends of lines; ends in a newline. With `bold`, the heading is printed bold. What
  /// `width` columns of a terminal (0: any number) do not hold follows after an empty line, with
  /// the first column again.
  std::string text(std::size_t indent = 0, bool bold = false,
                   std::size_t width = terminal_width()) const;

 private:
  struct Column {
    std::string heading;
    Align align;
  };
  std::string part(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& widths,
                   std::size_t indent, bool bold) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace orrery::tools
