#include "calibration/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "calibration/read_text.h"
#include "models/config/csv.h"
#include "models/ir/measurement_text.h"

namespace orrery::calibration {
namespace {

using config::Diagnostics;
using config::Position;

constexpr const char* kSchema = "orrery/samples/1";
/// Only there where it says something.
constexpr const char* kSampling = "sampling";

/// Header lines but the schema's.
template <class Set, class Visit>
void visit_header(Set& set, Visit visit) {
  visit("machine", set.machine);
  visit("libraries", set.libraries);
  visit("date", set.date);
  visit("model", set.model);
  visit("backend", set.backend);
}

/// Columns that concern every kind.
constexpr const char* kCommon = " kind repetition wall_seconds cpu_seconds disturbed ";

/// The other columns that concern a kind, each between blanks.
const char* columns_of(ir::MeasurementKind kind) {
  using enum ir::MeasurementKind;
  switch (kind) {
    case block:
      return " device_type block pass layers tensor_parallel micro_batch_size sequence_length "
             "recompute dtype flops ";
    case gemm:
      return " device_type dtype m n k flops ";
    case memory_bandwidth:
      return " device_type dtype bytes ";
    case point_to_point:
      return " source destination both_ways link_class bytes ";
    case collective:
      return " link_class collective ranks bytes ";
    case optimizer:
      return " device_type dtype parameters ";
    case checkpoint_write:
    case checkpoint_read:
      return " device_type location bytes ";
    case memory:
      return " device_type block pass layers tensor_parallel micro_batch_size sequence_length "
             "recompute dtype bytes ";
    case op_overhead:
      return " device_type dtype ";
  }
  return kCommon;
}

bool concerns(ir::MeasurementKind kind, const std::string& column) {
  const std::string word = " " + column + " ";
  return std::string(kCommon).find(word) != std::string::npos ||
         std::string(columns_of(kind)).find(word) != std::string::npos;
}

/// Cells of a measurement that nothing was said about.
const std::vector<std::string>& default_cells() {
  static const std::vector<std::string> kCells = ir::to_cells({});
  return kCells;
}

/// Empties what does not concern the kind: its fields are as they are by default. Others stay, so
/// that a row reads back equal.
void empty_others(ir::MeasurementKind kind, std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i] != default_cells()[i]) continue;
    if (!concerns(kind, ir::measurement_columns()[i])) cells[i].clear();
  }
}

/// Fills empty cells that do not concern the row's kind. A kind that is unknown leaves them.
void fill_others(std::vector<std::string>& cells) {
  for (const auto& [kind, name] : ir::enum_names(ir::MeasurementKind{})) {
    if (cells.front() != name) continue;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].empty() && !concerns(kind, ir::measurement_columns()[i])) {
        cells[i] = default_cells()[i];
      }
    }
  }
}

/// Reads a file line by line.
class SampleReader {
 public:
  SampleReader(const std::string& name, Diagnostics& diagnostics)
      : name_(name), diagnostics_(diagnostics) {}

  SampleFile read(std::string_view text) {
    SampleFile out;
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t end = text.find('\n', at);
      if (end == std::string_view::npos) {
        out.torn = true;
        break;
      }
      ++line_;
      std::string_view line = text.substr(at, end - at);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      take(line, out.set);
      at = end + 1;
    }
    finish();
    return out;
  }

 private:
  Position at(int column) const { return {name_, line_, column}; }

  void take(std::string_view line, ir::MeasurementSet& set) {
    if (!columns_read_ && line.substr(0, 1) == "#") return take_header(line, set);
    if (!columns_read_) return take_columns(line);
    if (line.empty()) return;
    take_row(line, set);
  }

  void take_header(std::string_view line, ir::MeasurementSet& set) {
    const std::size_t colon = line.find(": ");
    if (line.substr(0, 2) != "# " || colon == std::string_view::npos) {
      diagnostics_.add(at(1), fmt::format("'{}' is not '# key: value'", line));
      return;
    }
    const std::string key(line.substr(2, colon - 2));
    const std::string value(line.substr(colon + 2));
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) {
      diagnostics_.add(at(3), fmt::format("'{}' is there twice", key));
    }
    seen_.push_back(key);
    bool known = key == "schema" || key == kSampling;
    std::vector<std::string> keys = {"schema", kSampling};
    if (key == kSampling) set.sampling = value;
    visit_header(set, [&](const char* name, std::string& field) {
      keys.emplace_back(name);
      if (key != name) return;
      known = true;
      field = value;
    });
    if (!known) {
      diagnostics_.add(at(3), fmt::format("unknown key '{}'", key),
                       config::suggest(key, keys, "keys"));
    } else if (key == "schema" && value != kSchema) {
      diagnostics_.add(at(static_cast<int>(colon) + 3), fmt::format("schema '{}'", value),
                       fmt::format("this program reads {}", kSchema));
    } else if (key == kSampling && value != ir::kQuickSampling) {
      diagnostics_.add(at(static_cast<int>(colon) + 3), fmt::format("sampling '{}'", value),
                       fmt::format("'{}', or no such line", ir::kQuickSampling));
    }
  }

  void take_columns(std::string_view line) {
    columns_read_ = true;
    std::string expected;
    for (const std::string& name : ir::measurement_columns()) {
      expected += fmt::format("{}{}", expected.empty() ? "" : ",", name);
    }
    if (line == expected) return;
    diagnostics_.add(at(1), "not the columns of samples", fmt::format("they are {}", expected));
    wrong_columns_ = true;
  }

  void take_row(std::string_view line, ir::MeasurementSet& set) {
    if (wrong_columns_) return;
    std::vector<config::CsvCell> cells;
    if (const auto problem = config::split_csv(line, cells)) {
      diagnostics_.add(at(problem->column), problem->what, config::kCsvHint);
      return;
    }
    const std::size_t wanted = ir::measurement_columns().size();
    if (cells.size() != wanted) {
      diagnostics_.add(at(1), fmt::format("{} cells instead of {}", cells.size(), wanted));
      return;
    }
    std::vector<std::string> texts;
    for (const config::CsvCell& cell : cells) texts.push_back(cell.text);
    fill_others(texts);
    ir::Measurement sample;
    if (const auto problem = ir::from_cells(texts, sample)) {
      diagnostics_.add(
          at(cells[problem->column].column),
          fmt::format("{}: {}", ir::measurement_columns()[problem->column], problem->what));
      return;
    }
    set.measurements.push_back(std::move(sample));
  }

  void finish() {
    const Position end{name_, 0, 0};
    if (!columns_read_) {
      diagnostics_.add(end, "no samples: the row of column names is missing");
      return;
    }
    ir::MeasurementSet none;
    std::vector<std::string> missing;
    const auto need = [&](const std::string& key) {
      if (std::find(seen_.begin(), seen_.end(), key) == seen_.end()) missing.push_back(key);
    };
    need("schema");
    visit_header(none, [&](const char* key, const std::string&) { need(key); });
    for (const std::string& key : missing) {
      diagnostics_.add(end, fmt::format("no line '# {}: ...'", key));
    }
  }

  const std::string& name_;
  Diagnostics& diagnostics_;
  int line_ = 0;
  bool columns_read_ = false;
  bool wrong_columns_ = false;
  std::vector<std::string> seen_;
};

}  // namespace

std::string samples_header(const ir::MeasurementSet& set) {
  std::string text = fmt::format("# schema: {}\n", kSchema);
  visit_header(set, [&](const char* key, const std::string& value) {
    text += fmt::format("# {}: {}\n", key, config::one_line(value));
  });
  if (!set.sampling.empty()) text += fmt::format("# {}: {}\n", kSampling, set.sampling);
  std::string names;
  for (const std::string& name : ir::measurement_columns()) {
    names += fmt::format("{}{}", names.empty() ? "" : ",", name);
  }
  return text + names + '\n';
}

std::string sample_row(const ir::Measurement& sample) {
  std::vector<std::string> cells = ir::to_cells(sample);
  empty_others(sample.kind, cells);
  for (std::string& cell : cells) cell = config::one_line(std::move(cell));
  return config::csv_line(cells);
}

std::string samples_csv(const ir::MeasurementSet& set) {
  std::string text = samples_header(set);
  for (const ir::Measurement& sample : set.measurements) text += sample_row(sample);
  return text;
}

SampleFile parse_samples(std::string_view text, const std::string& name, Diagnostics& diagnostics) {
  return SampleReader(name, diagnostics).read(text);
}

SampleFile read_samples(const std::string& path, Diagnostics& diagnostics) {
  std::string text;
  if (!read_text(path, text, diagnostics)) return {};
  return parse_samples(text, path, diagnostics);
}

}  // namespace orrery::calibration
