/// Tables from described structs (models/config/visitor.h): a row a struct, a column each field
/// whose Face has a heading. Numbers are aligned to the right; an absent optional is "-".
#pragma once
#include <vector>

#include "models/config/visitor.h"
#include "tools/cli/table.h"

namespace orrery::tools {

namespace detail {
/// Adds a row, and before the first one the columns.
void add_described_row(Table& table, config::Slot row);
}  // namespace detail

template <class T>
Table described_table(std::vector<T> rows) {
  Table table;
  for (T& row : rows) detail::add_described_row(table, config::detail::slot(row));
  return table;
}

}  // namespace orrery::tools
