/// How config structs are described: once, by a free function found by argument-dependent lookup,
///     void describe(orrery::config::Visitor& v, LinkSpec& link) {
///       v.title("One link");
///       v.required("bandwidth", link.bandwidth, "per direction");
///       v.optional("latency", link.latency, "one way");
///       v.positive("bandwidth", link.bandwidth);
///     }
/// declared in the struct's header and defined in its .cpp. Reading, unknown-key checks, the
/// effective-config dump, the JSON Schema and the reference page are visitors (see document.h).
///
/// Field types: bool, integers up to 64 bits signed, double, std::string, Id<>, Quantity<> with a
/// unit table, enums with `std::vector<std::pair<E, const char*>> enum_names(E)` next to them,
/// std::optional, std::vector, std::map<std::string, T>, Located, Value, and described structs.
/// A struct that can also be written as one string (`gpu: A100-80GB`) has next to it
///     bool from_scalar(const std::string& text, T& out, std::string& error);
/// describe() does not run for such a string: from_scalar() checks what it reads itself. A type
/// that is always one string (`interval: young`) has from_scalar() and, in place of describe(),
///     std::string to_scalar(const T& value);
#pragma once
#include <cstdint>
#include <string>
#include <typeinfo>
#include <vector>

#include "models/config/slots.h"
#include "models/config/units.h"
#include "models/config/value.h"

namespace orrery::config {

/// How a field shows itself where that does not follow from its key and type: on the command line
/// (tools/cli/flags.h) and as a column of a table (tools/cli/described_table.h).
struct Face {
  char letter = 0;          ///< `-c VALUE` too.
  bool positional = false;  ///< An argument without a name.
  bool commas = false;      ///< A list is one value, `a,b,c`; other lists repeat the flag.
  bool toggle = false;      ///< Given without a value, as every bool is.

  const char* column = nullptr;  ///< Heading; fields without one are no column.
  double unit = 1;               ///< Numbers are shown over this: 1e9 under "GB/s".
  int decimals = 0;
  const char* yes = "yes";  ///< How a bool is shown.
  const char* no = "no";
};

/// What a describe() function talks to. Only the reading visitor changes fields.
class Visitor {
 public:
  virtual ~Visitor() = default;

  /// A key that must be there.
  template <class T>
  void required(const char* key, T& value, const char* doc, Face face = {}) {
    show(face);
    field(key, doc, true, detail::slot(value));
  }
  /// A key that may be absent: the field then keeps its member initializer.
  template <class T>
  void optional(const char* key, T& value, const char* doc, Face face = {}) {
    show(face);
    field(key, doc, false, detail::slot(value));
  }
  /// Heading of the fields that follow, for help texts.
  virtual void section(const char* /*title*/) {}
  /// First line of a file's describe(): the required key `schema` must read "<kind>/<version>",
  /// as in schema("orrery/cluster", 1). After a wrong kind or version no other problem of the map
  /// is reported.
  virtual void schema(const char* kind, int version) = 0;
  /// Name and explanation of the struct, for the schema and the reference page.
  virtual void title(const char*) {}
  virtual void doc(const char*) {}

  /// True while a file is read: the time for semantic checks.
  virtual bool reading() const { return false; }
  /// True while values are dumped: a key that is then left out reads back as its default.
  virtual bool dumping() const { return false; }
  /// True if the file gives this key (only while reading).
  virtual bool given(const char* /*key*/) const { return false; }
  /// True if nothing is wrong so far in this map and below (only while reading).
  virtual bool good() const { return false; }
  /// The position of the value of `key`; that of the map when the key is "" or absent.
  virtual Position at(const char* /*key*/) const { return {}; }
  /// Reports a semantic problem at at(key). Nothing is reported for a key that already has a
  /// problem, nor for key "" when anything in the map has one: follow-up errors mislead.
  virtual void problem(const char* /*key*/, const std::string& /*what*/,
                       const std::string& /*hint*/ = "") {}

  /// Range checks of a number or quantity, reported at its key; only while reading.
  template <class T>
  void positive(const char* key, const T& value) {
    if (reading() && !(detail::raw(value) > 0)) problem(key, must_be("positive", value));
  }
  template <class T>
  void not_negative(const char* key, const T& value) {
    if (reading() && !(detail::raw(value) >= 0)) problem(key, must_be("zero or more", value));
  }
  template <class T>
  void at_least(const char* key, const T& value, const T& low) {
    if (reading() && value < low) problem(key, must_be("at least " + detail::show(low), value));
  }
  /// Both ends belong to the range.
  template <class T>
  void between(const char* key, const T& value, const T& low, const T& high) {
    if (reading() && (value < low || high < value))
      problem(key, must_be("from " + detail::show(low) + " to " + detail::show(high), value));
  }

  /// A list that is given must have an item.
  template <class List>
  void not_empty(const char* key, const List& list, const char* what = "the list is empty") {
    if (reading() && given(key) && list.empty()) problem(key, what);
  }

  /// The events below are called by the template layer in slots.h, not by describe() functions.
  virtual void show(const Face&) {}  ///< Of the field that follows.
  virtual void field(const char* key, const char* doc, bool required, Slot value) = 0;
  virtual void boolean(bool& value) = 0;
  virtual void integer(std::int64_t& value, std::int64_t low, std::int64_t high) = 0;
  virtual void number(double& value) = 0;
  virtual void string(std::string& value) = 0;
  virtual void quantity(double& value, UnitTable units) = 0;
  /// `index` points into `names`.
  virtual void enumeration(std::size_t& index, const std::vector<std::string>& names) = 0;
  virtual void any(Value& value) = 0;
  /// `text` is the value in short; `shorthand` reads another one.
  virtual void scalar(std::string text, const Shorthand& /*shorthand*/) { string(text); }
  /// Position of the value that follows.
  virtual void locate(Position& at) = 0;
  virtual void maybe(MaybeSlot& value) = 0;
  virtual void list(ListSlot& value) = 0;
  virtual void dictionary(DictionarySlot& value) = 0;
  /// `body` runs describe(); `shorthand` reads the struct from one string, or is null.
  virtual void structure(const std::type_info& type, Slot body, const Shorthand* shorthand) = 0;

 private:
  template <class T>
  static std::string must_be(const std::string& range, const T& value) {
    return "must be " + range + ", is " + detail::show(value);
  }
};

}  // namespace orrery::config

#include "models/config/slots_impl.h"
