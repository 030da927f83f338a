/// The description of a config type as a tree: what the JSON Schema and the reference page are
/// written from, and the flags of the command line (tools/cli/flags.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/config/document.h"

namespace orrery::config {

/// One type: of the file, of a field, of a list's items.
struct TypeNode {
  enum class Kind {
    boolean,
    integer,
    number,
    string,
    quantity,
    enumeration,
    any,
    maybe,
    list,
    dictionary,
    structure
  };
  struct Field;

  Kind kind = Kind::any;
  std::int64_t low = 0, high = 0;  ///< Of an integer.
  UnitTable units;                 ///< Of a quantity.
  std::vector<std::string> names;  ///< Of an enumeration.
  std::vector<TypeNode> element;   ///< Of maybe, list, dictionary: exactly one.
  std::string type_name;           ///< Of a struct: its title(), else its C++ name.
  std::string doc;                 ///< Of a struct.
  std::string schema;              ///< Of a struct: what its key `schema` must read, or "".
  std::vector<Field> fields;       ///< Of a struct, in order; empty below itself.
  bool recursive = false;          ///< A struct within itself: its fields are not repeated.
  bool shorthand = false;          ///< A struct that may be one string.
};

struct TypeNode::Field {
  std::string key;
  std::string doc;
  bool required;
  Value fallback;  ///< The default, of a field that is not required.
  TypeNode type;
};

TypeNode type_of(Slot prototype);

}  // namespace orrery::config
