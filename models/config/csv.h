/// CSV as all files of ours have it (RFC 4180), one rule for readers and writers: cells with
/// commas, quotes, line breaks or blanks at an end are in quotes, a quote inside is doubled;
/// readers drop blanks around cells.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::config {

struct CsvCell {
  std::string text;  ///< Without blanks around it, quotes taken off.
  int column = 1;    ///< Where it begins, in bytes from 1.
};

struct CsvProblem {
  int column = 1;
  const char* what;
};
inline constexpr const char* kCsvHint = "a quote inside is doubled";

/// Splits one row; the last problem where a quote does not end or text follows it. Reuses `cells`.
std::optional<CsvProblem> split_csv(std::string_view row, std::vector<CsvCell>& cells);

/// Rows of a text, whose cells may have line breaks. A last line without a newline is left out: it
/// was cut off. For files of ours: wrong quotes pass.
std::vector<std::vector<std::string>> parse_csv(std::string_view text);

std::string csv_cell(const std::string& text);
/// One line with its newline.
std::string csv_line(const std::vector<std::string>& cells);

/// The text with its line breaks turned into blanks, for formats of one line an entry.
std::string one_line(std::string text);

}  // namespace orrery::config
