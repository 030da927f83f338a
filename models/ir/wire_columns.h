/// Rows to columns and back (wire.proto says how columns are coded). One description of a table's
/// columns, a function columns(visitor, rows, message), serves both directions: with a ColumnWriter
/// it fills the message, with a ColumnReader it fills the rows. Private to models/ir.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/ir/names.h"
#include "models/ir/wire_frames.h"

namespace orrery::ir {

/// The number inside an id, a quantity or a time; the value itself for all else.
template <class T>
auto& raw(T& x) {
  if constexpr (requires { x.value; }) {
    return x.value;
  } else if constexpr (requires { x.nanoseconds; }) {
    return x.nanoseconds;
  } else if constexpr (std::is_class_v<T>) {
    return x.count;
  } else {
    return x;
  }
}

class ColumnWriter {
 public:
  template <class Row, class Field, class Get>
  void integers(std::span<const Row> rows, Field* field, Get get) {
    field->Reserve(static_cast<int>(rows.size()));
    std::uint64_t before = 0;
    for (const Row& row : rows) {
      const auto value =
          static_cast<std::uint64_t>(static_cast<std::int64_t>(raw(std::invoke(get, row))));
      field->AddAlreadyReserved(static_cast<std::int64_t>(value - before));
      before = value;
    }
  }

  /// Left out where all are 0 or false.
  template <class Row, class Field, class Get>
  void sparse(std::span<const Row> rows, Field* field, Get get) {
    const auto set = [&](const Row& row) { return static_cast<bool>(raw(std::invoke(get, row))); };
    if (std::any_of(rows.begin(), rows.end(), set)) integers(rows, field, get);
  }

  template <class Row, class Message, class Get>
  void doubles(std::span<const Row> rows, Message* message, Get get) {
    std::unordered_map<std::uint64_t, std::int64_t> positions;
    std::vector<std::int64_t> index;
    index.reserve(rows.size());
    for (const Row& row : rows) {
      const double value = raw(std::invoke(get, row));
      const auto [at, fresh] = positions.try_emplace(std::bit_cast<std::uint64_t>(value),
                                                     static_cast<std::int64_t>(positions.size()));
      if (fresh) message->add_values(value);
      index.push_back(at->second);
    }
    integers(std::span<const std::int64_t>(index), message->mutable_index(), std::identity());
  }

  template <class Row, class Field, class Get>
  void strings(std::span<const Row> rows, Field* field, Get get) {
    for (const Row& row : rows) *field->Add() = std::invoke(get, row);
  }

  /// `get` gives a row's list; `columns` describes the rows of all lists together.
  template <class Row, class Field, class Get, class Columns>
  void lists(std::span<const Row> rows, Field* lengths, int /*elements*/, Get get,
             Columns columns) {
    using List = std::remove_cvref_t<std::invoke_result_t<Get, const Row&>>;
    List all;
    std::vector<std::int64_t> sizes;
    for (const Row& row : rows) {
      const List& list = std::invoke(get, row);
      sizes.push_back(static_cast<std::int64_t>(list.size()));
      all.insert(all.end(), list.begin(), list.end());
    }
    integers(std::span<const std::int64_t>(sizes), lengths, std::identity());
    columns(std::span<const typename List::value_type>(all));
  }
};

/// Stops at the first problem; the rows are then of no use.
class ColumnReader {
 public:
  const std::string& problem() const { return problem_; }

  template <class Row, class Field, class Get>
  void integers(std::span<Row> rows, Field* field, Get get) {
    using Value = std::remove_reference_t<decltype(raw(std::invoke(get, rows.front())))>;
    if (!expect_size(rows.size(), field->size())) return;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      value += static_cast<std::uint64_t>(field->Get(static_cast<int>(i)));
      const auto number = static_cast<std::int64_t>(value);
      if (!represents<Value>(number)) {
        fail(fmt::format("value {} is out of range", number));
        return;
      }
      raw(std::invoke(get, rows[i])) = static_cast<Value>(number);
    }
  }

  template <class Row, class Field, class Get>
  void sparse(std::span<Row> rows, Field* field, Get get) {
    if (field->size() > 0) integers(rows, field, get);
  }

  template <class Row, class Message, class Get>
  void doubles(std::span<Row> rows, Message* message, Get get) {
    if (!expect_size(rows.size(), message->index_size())) return;
    std::vector<std::int64_t> index(rows.size());
    integers(std::span<std::int64_t>(index), message->mutable_index(), std::identity());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (index[i] < 0 || index[i] >= message->values_size()) {
        fail(fmt::format("no value has index {}", index[i]));
        return;
      }
      raw(std::invoke(get, rows[i])) = message->values(static_cast<int>(index[i]));
    }
  }

  template <class Row, class Field, class Get>
  void strings(std::span<Row> rows, Field* field, Get get) {
    if (!expect_size(rows.size(), field->size())) return;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::invoke(get, rows[i]) = field->Get(static_cast<int>(i));
    }
  }

  /// `elements` is the number of rows of all lists together, as the message has them.
  template <class Row, class Field, class Get, class Columns>
  void lists(std::span<Row> rows, Field* lengths, int elements, Get get, Columns columns) {
    using List = std::remove_cvref_t<std::invoke_result_t<Get, Row&>>;
    if (!expect_size(rows.size(), lengths->size())) return;
    std::vector<std::uint32_t> sizes(rows.size());
    integers(std::span<std::uint32_t>(sizes), lengths, std::identity());
    std::uint64_t total = 0;
    for (const std::uint32_t size : sizes) total += size;
    if (!problem_.empty() || !expect_size(total, elements)) return;
    List all(total);
    columns(std::span<typename List::value_type>(all));
    auto next = all.begin();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto end = next + sizes[i];
      std::invoke(get, rows[i]).assign(std::make_move_iterator(next), std::make_move_iterator(end));
      next = end;
    }
  }

 private:
  template <class Value>
  static bool represents(std::int64_t number) {
    if constexpr (std::is_enum_v<Value>) {
      static const auto kLimit = static_cast<std::int64_t>(enum_names(Value{}).size());
      return number >= 0 && number < kLimit;
    } else if constexpr (std::is_same_v<Value, bool>) {
      return number == 0 || number == 1;
    } else {
      return std::in_range<Value>(number);
    }
  }

  bool expect_size(std::uint64_t rows, int column) {
    if (problem_.empty() && rows != static_cast<std::uint64_t>(column)) {
      fail(fmt::format("a column has {} values for {} rows", column, rows));
    }
    return problem_.empty();
  }

  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  std::string problem_;
};

/// Counts the rows of a message: as many as its first column has entries.
class ColumnCounter {
 public:
  std::size_t rows() const { return std::max(rows_, 0); }

  template <class Row, class Field, class Get>
  void integers(std::span<Row>, Field* field, Get) {
    found(field->size());
  }
  template <class Row, class Field, class Get>
  void sparse(std::span<Row>, Field*, Get) {}
  template <class Row, class Message, class Get>
  void doubles(std::span<Row>, Message* message, Get) {
    found(message->index_size());
  }
  template <class Row, class Field, class Get>
  void strings(std::span<Row>, Field* field, Get) {
    found(field->size());
  }
  template <class Row, class Field, class Get, class Columns>
  void lists(std::span<Row>, Field* lengths, int, Get, Columns) {
    found(lengths->size());
  }

 private:
  void found(int rows) {
    if (rows_ < 0) rows_ = rows;
  }
  int rows_ = -1;
};

/// How many numbers a row brings into its chunk, roughly; rows without lists count as one.
template <class Row>
std::size_t weight(const Row&) {
  return 1;
}
inline std::size_t weight(const Rank& rank) { return 1 + rank.devices.size(); }
inline std::size_t weight(const CommunicationGroup& group) { return 1 + group.devices.size(); }
inline std::size_t weight(const InnerCollective& inner) {
  return 1 + inner.groups.size() + inner.bytes_per_peer.size();
}
template <class T>
std::size_t weight(const std::vector<T>& list) {
  std::size_t total = 1;
  for (const T& element : list) total += weight(element);
  return total;
}
inline std::size_t weight(const CollectiveShape& shape) {
  std::size_t total = 1;
  for (const CollectiveShape::Part& part : shape.parts) total += 1 + weight(part.member_regions);
  return total;
}

/// A table of a file: its number in the chunk's oneof, where the value has its rows, and where the
/// chunk has its columns.
template <class Number, class Rows, class Message>
struct Table {
  Number number;
  Rows rows;
  Message message;
};
template <class Number, class Rows, class Message>
Table(Number, Rows, Message) -> Table<Number, Rows, Message>;  // clang 14 needs it said.

/// Appends the chunk's table to that of `value`. Returns the problem, if any.
template <class Chunk, class Tables, class Value>
std::string read_table(Chunk& chunk, const Tables& tables, Value& value) {
  std::string problem = "it holds no table that this version knows";
  const auto read = [&](const auto& table) {
    if (chunk.table_case() != table.number) return;
    auto& rows = value.*table.rows;
    auto& message = *(chunk.*table.message)();
    const std::size_t before = rows.size();
    ColumnCounter counter;
    columns(counter, std::span(rows), message);
    rows.resize(before + counter.rows());
    ColumnReader reader;
    columns(reader, std::span(rows).subspan(before), message);
    problem = reader.problem();
  };
  std::apply([&](const auto&... table) { (read(table), ...); }, tables);
  return problem;
}

/// Writes all tables of `value`, long ones in several chunks of limited size.
template <class Chunk, class Value, class Tables>
void write_tables(const Value& value, const Tables& tables, FrameWriter& out) {
  constexpr std::size_t kChunkRows = 1 << 16;
  Chunk chunk;
  const auto write = [&](const auto& table) {
    const auto all = std::span(value.*table.rows);
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = begin;
      for (std::size_t size = 0; end < all.size() && size < kChunkRows; ++end) {
        size += weight(all[end]);
      }
      chunk.Clear();
      ColumnWriter writer;
      columns(writer, all.subspan(begin, end - begin), *(chunk.*table.message)());
      out.add(chunk);
      begin = end;
    }
  };
  std::apply([&](const auto&... table) { (write(table), ...); }, tables);
}

}  // namespace orrery::ir
