#include "models/config/csv.h"

#include <algorithm>
#include <utility>

#include "models/base/text.h"

namespace orrery::config {
std::optional<CsvProblem> split_csv(std::string_view row, std::vector<CsvCell>& cells) {
  std::optional<CsvProblem> problem;
  std::size_t count = 0;
  for (std::size_t at = 0; at <= row.size(); ++at) {
    if (count == cells.size()) cells.emplace_back();
    CsvCell& cell = cells[count++];
    cell.text.clear();
    at = std::min(row.find_first_not_of(kBlanks, at), row.size());
    cell.column = static_cast<int>(at) + 1;
    const bool quoted = at < row.size() && row[at] == '"';
    if (quoted) {
      for (++at; at < row.size(); ++at) {
        if (row[at] == '"' && !(at + 1 < row.size() && row[at + 1] == '"')) break;
        if (row[at] == '"') ++at;
        cell.text += row[at];
      }
      if (at == row.size()) problem = CsvProblem{cell.column, "a quote that does not end"};
    }
    const std::size_t end = std::min(row.find(',', at), row.size());
    if (!quoted) {
      cell.text = trimmed(row.substr(at, end - at));
    } else if (at < end && !trimmed(row.substr(at + 1, end - at - 1)).empty()) {
      problem = CsvProblem{static_cast<int>(at) + 2, "text behind the closing quote"};
    }
    at = end;
  }
  cells.resize(count);
  return problem;
}

std::vector<std::vector<std::string>> parse_csv(std::string_view text) {
  std::vector<std::vector<std::string>> rows;
  std::vector<CsvCell> cells;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted || text[at] != '\n') continue;
    split_csv(text.substr(begin, at - begin), cells);
    std::vector<std::string>& row = rows.emplace_back();
    for (CsvCell& cell : cells) row.push_back(std::move(cell.text));
    begin = at + 1;
  }
  return rows;
}

std::string csv_cell(const std::string& text) {
  const bool plain = text.find_first_of(",\"\n\r") == std::string::npos;
  if (plain && trimmed(text).size() == text.size()) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    line += csv_cell(cells[i]);
  }
  return line + '\n';
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace orrery::config
