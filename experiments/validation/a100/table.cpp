#include "experiments/validation/a100/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "models/base/file.h"

namespace orrery::experiments {
namespace {

template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number number{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

PublishedTable::PublishedTable(const std::string& path, const std::vector<std::string>& columns,
                               config::Diagnostics& diagnostics)
    : path_(path), diagnostics_(diagnostics) {
  std::string bytes;
  if (const auto failed = read_file(path, bytes)) {
    diagnostics.add({path, 0, 0}, *failed);
    return;
  }
  std::istringstream stream(bytes);
  std::string text;
  for (int number = 1; std::getline(stream, text); ++number) {
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (text.empty()) continue;
    Line line{number, {""}, {1}};
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ',') {
        line.cells.emplace_back();
        line.columns.push_back(static_cast<int>(i) + 2);
      } else {
        line.cells.back() += text[i];
      }
    }
    if (header_.empty()) {
      header_ = line.cells;
    } else if (line.cells.size() != header_.size()) {
      diagnostics.add({path, number, 1},
                      fmt::format("{} cells, {} columns", line.cells.size(), header_.size()));
    } else {
      lines_.push_back(std::move(line));
    }
  }
  for (const std::string& column : columns) {
    if (has(column)) continue;
    diagnostics.add({path, 1, 1}, fmt::format("no column '{}'", column),
                    config::suggest(column, header_, "columns"));
  }
}

std::optional<std::size_t> PublishedTable::place(const std::string& column) const {
  const auto found = std::find(header_.begin(), header_.end(), column);
  if (found == header_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - header_.begin());
}

bool PublishedTable::has(const std::string& column) const { return place(column).has_value(); }

std::string PublishedTable::text(std::size_t row, const std::string& column) const {
  const auto cell = place(column);
  return cell ? lines_[row].cells[*cell] : std::string();
}

std::int64_t PublishedTable::count(std::size_t row, const std::string& column) const {
  const auto value = parse<std::int64_t>(text(row, column));
  if (value && *value > 0) return *value;
  problem(row, column, fmt::format("'{}' is no positive whole number", text(row, column)));
  return 0;
}

std::optional<double> PublishedTable::number(std::size_t row, const std::string& column) const {
  const std::string cell = text(row, column);
  if (cell.empty()) return std::nullopt;
  const auto value = parse<double>(cell);
  if (value && *value > 0) return value;
  problem(row, column, fmt::format("'{}' is no positive number", cell));
  return std::nullopt;
}

config::Position PublishedTable::at(std::size_t row, const std::string& column) const {
  const auto cell = place(column);
  return {path_, lines_[row].number, cell ? lines_[row].columns[*cell] : 1};
}

void PublishedTable::problem(std::size_t row, const std::string& column,
                             const std::string& what) const {
  diagnostics_.add(at(row, column), fmt::format("{}: {}", column, what));
}

}  // namespace orrery::experiments
