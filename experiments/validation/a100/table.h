/// Reading of published tables: CSV files with a header, cells by column name. What is wrong in
/// them becomes problems with file, line and column.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"

namespace orrery::experiments {

/// A CSV file without quoted cells. Cells that cannot be read add a problem and read as 0 or "".
class PublishedTable {
 public:
  /// A file that cannot be read, or that lacks one of `columns`, is a problem.
  PublishedTable(const std::string& path, const std::vector<std::string>& columns,
                 config::Diagnostics& diagnostics);

  std::size_t size() const { return lines_.size(); }
  bool has(const std::string& column) const;
  std::string text(std::size_t row, const std::string& column) const;
  /// Positive.
  std::int64_t count(std::size_t row, const std::string& column) const;
  /// Positive; absent where the cell or the column is.
  std::optional<double> number(std::size_t row, const std::string& column) const;
  config::Position at(std::size_t row, const std::string& column) const;
  void problem(std::size_t row, const std::string& column, const std::string& what) const;

 private:
  struct Line {
    int number = 0;
    std::vector<std::string> cells;
    std::vector<int> columns;  ///< Where each cell begins, from 1.
  };
  std::optional<std::size_t> place(const std::string& column) const;

  std::string path_;
  std::vector<std::string> header_;
  std::vector<Line> lines_;
  config::Diagnostics& diagnostics_;
};

}  // namespace orrery::experiments
