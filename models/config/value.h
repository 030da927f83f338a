/// A YAML document as a plain tree with positions. The reader works on it, and manifests keep
/// parts of themselves in it (sweep axes, overrides) until it is known what they describe.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/diagnostics.h"

namespace orrery::config {

/// One node of the tree. Scalars stay text: their type is decided by the field that reads them.
struct Value {
  enum class Kind { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  std::string text;            ///< Of a scalar.
  bool quoted = false;         ///< The scalar stood in quotes (or in a block): it is a string.
  std::vector<Value> items;    ///< Of a list.
  std::vector<Entry> entries;  ///< Of a map, in file order; keys are unique.
  Position at;                 ///< Where it starts.

  static Value scalar(std::string text, Position at = {});
  static Value list(std::vector<Value> items, Position at = {});
  static Value map(std::vector<Entry> entries, Position at = {});

  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_list() const { return kind == Kind::list; }
  bool is_map() const { return kind == Kind::map; }
  /// The value of a key of a map; null when the key is absent or this is no map.
  const Value* find(std::string_view key) const;
  /// Adds an entry without a position to a map.
  void append(std::string key, Value value);
};

struct Value::Entry {
  std::string key;
  Position at;  ///< Of the key.
  Value value;
};

/// "nothing", "'text'", "a list" or "a map": for messages.
std::string kind_text(const Value& value);

/// `base` with the value at a dotted path replaced: merge(doc, "job.global_batch", value, d).
/// Segments name map keys or count list items from 0 ("nodes.0.count"); missing maps on the way
/// are created. A path through a scalar or past the end of a list is a problem at value.at, and
/// then `base` comes back unchanged.
Value merge(Value base, std::string_view path, const Value& value, Diagnostics& problems);

/// Block YAML that load_value_text() reads as the same tree (positions and needless quotes
/// aside); ends in a newline.
std::string to_yaml(const Value& value);

/// The same on one line, in flow style, without a newline: for tables and messages.
std::string to_flow(const Value& value);

}  // namespace orrery::config
