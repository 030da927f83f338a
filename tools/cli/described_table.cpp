#include "tools/cli/described_table.h"

#include <string>
#include <utility>

#include "models/config/partial_visitor.h"

namespace orrery::tools {
namespace {

/// The text of one field, and how its column is aligned.
class Cell final : public config::PartialVisitor {
 public:
  explicit Cell(const config::Face& face) : face_(face) {}
  std::string text = "-";
  Table::Align align = Table::Align::left;

  void boolean(bool& value) override { text = value ? face_.yes : face_.no; }
  void integer(std::int64_t& value, std::int64_t, std::int64_t) override {
    double wide = static_cast<double>(value);
    number(wide);
  }
  void number(double& value) override {
    align = Table::Align::right;
    text = grouped(value / face_.unit, face_.decimals);
  }
  void quantity(double& value, config::UnitTable) override { number(value); }
  void string(std::string& value) override { text = value; }
  void enumeration(std::size_t& index, const std::vector<std::string>& names) override {
    text = names[index];
  }
  void maybe(config::MaybeSlot& slot) override {
    slot.visit_prototype(*this);
    if (slot.engaged()) {
      slot.visit(*this);
    } else {
      text = "-";
    }
  }

 private:
  const config::Face& face_;
};

class Row final : public config::PartialVisitor {
 public:
  explicit Row(Table& table) : table_(table), first_(table.empty()) {}
  std::vector<std::string> cells;

  void show(const config::Face& face) override { face_ = face; }
  void field(const char*, const char*, bool, config::Slot value) override {
    const config::Face face = std::exchange(face_, {});
    if (face.column == nullptr) return;
    Cell cell(face);
    value.visit(cell);
    if (first_) table_.column(face.column, cell.align);
    cells.push_back(std::move(cell.text));
  }

 private:
  Table& table_;
  bool first_;
  config::Face face_;
};

}  // namespace

void detail::add_described_row(Table& table, config::Slot row) {
  Row visitor(table);
  row.visit(visitor);
  table.row(std::move(visitor.cells));
}

}  // namespace orrery::tools
