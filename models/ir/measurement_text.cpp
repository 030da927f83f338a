#include "models/ir/measurement_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <type_traits>

#include "models/base/check.h"

namespace orrery::ir {
namespace {

/// Fields by name. `visit(name, field, lowest)`: numbers are at least `lowest`.
template <class M, class Visit>
void visit_measurement(M& m, Visit visit) {
  visit("kind", m.kind, 0);
  visit("device_type", m.device_type, 0);
  visit("block", m.block, 0);
  visit("pass", m.pass, 0);
  visit("layers", m.layers, 0);
  visit("tensor_parallel", m.tensor_parallel, 1);
  visit("micro_batch_size", m.micro_batch_size, 0);
  visit("sequence_length", m.sequence_length, 0);
  visit("recompute", m.recompute, 0);
  visit("dtype", m.dtype, 0);
  visit("m", m.m, 0);
  visit("n", m.n, 0);
  visit("k", m.k, 0);
  visit("flops", m.flops.value, 0);
  visit("source", m.source.value, -1);
  visit("destination", m.destination.value, -1);
  visit("both_ways", m.both_ways, 0);
  visit("link_class", m.link_class, 0);
  visit("collective", m.collective, 0);
  visit("ranks", m.ranks, 0);
  visit("location", m.location, 0);
  visit("bytes", m.bytes.value, 0);
  visit("parameters", m.parameters, 0);
  visit("repetition", m.repetition, 0);
  visit("wall_seconds", m.wall.value, 0);
  visit("cpu_seconds", m.cpu.value, 0);
  visit("disturbed", m.disturbed, 0);
}

template <class T>
std::string cell_of(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return std::to_string(value ? 1 : 0);
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [candidate, name] : enum_names(value)) {
      if (candidate == value) return name;
    }
    return std::to_string(static_cast<int>(value));
  } else {
    return fmt::format("{}", value);
  }
}

/// What is wrong, or "".
template <class T>
std::string read_cell(const std::string& text, T& value, int lowest) {
  if constexpr (std::is_same_v<T, std::string>) {
    value = text;
    return "";
  } else if constexpr (std::is_same_v<T, bool>) {
    value = text == "1";
    return text == "0" || text == "1" ? "" : fmt::format("'{}' is neither 0 nor 1", text);
  } else if constexpr (std::is_enum_v<T>) {
    std::string known;
    for (const auto& [candidate, name] : enum_names(T{})) {
      if (text == name) {
        value = candidate;
        return "";
      }
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
    }
    return fmt::format("unknown value '{}' (known: {})", text, known);
  } else {
    T read{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (error != std::errc() || end != text.data() + text.size()) {
      return fmt::format("'{}' is no number", text);
    }
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(read)) return fmt::format("'{}' is not finite", text);
    }
    if (read < static_cast<T>(lowest)) {
      return fmt::format("{} is less than {}", text, lowest);
    }
    value = read;
    return "";
  }
}

}  // namespace

EnumNames<MeasurementKind> enum_names(MeasurementKind) {
  using enum MeasurementKind;
  return {{block, "block"},
          {gemm, "gemm"},
          {memory_bandwidth, "memory_bandwidth"},
          {point_to_point, "point_to_point"},
          {collective, "collective"},
          {optimizer, "optimizer"},
          {checkpoint_write, "checkpoint_write"},
          {checkpoint_read, "checkpoint_read"},
          {memory, "memory"},
          {op_overhead, "op_overhead"}};
}

const std::vector<std::string>& measurement_columns() {
  static const std::vector<std::string> kColumns = [] {
    std::vector<std::string> names;
    Measurement none;
    visit_measurement(none, [&](const char* name, const auto&, int) { names.emplace_back(name); });
    return names;
  }();
  return kColumns;
}

std::vector<std::string> to_cells(const Measurement& measurement) {
  std::vector<std::string> cells;
  visit_measurement(measurement,
                    [&](const char*, const auto& field, int) { cells.push_back(cell_of(field)); });
  return cells;
}

std::optional<CellProblem> from_cells(const std::vector<std::string>& cells, Measurement& out) {
  ORRERY_CHECK(cells.size() == measurement_columns().size(), "{} cells for {} columns",
               cells.size(), measurement_columns().size());
  std::optional<CellProblem> problem;
  std::size_t column = 0;
  visit_measurement(out, [&](const char*, auto& field, int lowest) {
    std::string what = read_cell(cells[column], field, lowest);
    if (!what.empty() && !problem) problem = CellProblem{column, std::move(what)};
    ++column;
  });
  return problem;
}

std::string measurement_key(const Measurement& measurement) {
  Measurement key = measurement;
  key.repetition = 0;
  key.wall = {};
  key.cpu = {};
  key.disturbed = false;
  key.flops = {};
  if (key.kind == MeasurementKind::memory) key.bytes = {};
  std::string text;
  for (const std::string& cell : to_cells(key)) text += fmt::format("{},", cell);
  return text;
}

}  // namespace orrery::ir
