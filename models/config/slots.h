/// Fields without their C++ types: what the template layer hands to a Visitor. Described structs
/// need nothing from this file but Located.
#pragma once
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/config/units.h"

namespace orrery::config {

class Visitor;

/// A value with its position in the file, for problems that are found later ("no such GPU").
template <class T>
struct Located {
  T value{};
  Position at;
};

/// Any supported value; visit() tells the visitor what it is.
struct Slot {
  void* object;
  void (*function)(Visitor&, void*);
  void visit(Visitor& v) const { function(v, object); }
};

/// std::optional<T>.
struct MaybeSlot {
  virtual ~MaybeSlot() = default;
  virtual bool engaged() const = 0;
  virtual void reset() = 0;
  virtual void emplace() = 0;
  virtual void visit(Visitor& v) = 0;            ///< The value; engaged() must hold.
  virtual void visit_prototype(Visitor& v) = 0;  ///< A default T: its type is what matters.
};

/// std::vector<T>.
struct ListSlot {
  virtual ~ListSlot() = default;
  virtual std::size_t size() const = 0;
  virtual void assign_default(std::size_t count) = 0;
  virtual void visit(Visitor& v, std::size_t index) = 0;
  virtual void visit_prototype(Visitor& v) = 0;
};

/// std::map<std::string, T>.
struct DictionarySlot {
  virtual ~DictionarySlot() = default;
  virtual std::vector<std::string> keys() const = 0;
  virtual void clear() = 0;
  virtual void visit(Visitor& v, const std::string& key) = 0;  ///< Inserts an absent key.
  virtual void visit_prototype(Visitor& v) = 0;
};

/// Reads a struct from one string.
struct Shorthand {
  void* object;
  bool (*function)(void*, const std::string& text, std::string& error);
  bool read(const std::string& text, std::string& error) const {
    return function(object, text, error);
  }
};

namespace detail {

template <class T>
Slot slot(T& value);

template <class T>
double raw(const T& value) {
  return static_cast<double>(value);
}
template <int S, int B, int F, int D, int J>
double raw(const Quantity<S, B, F, D, J>& value) {
  return value.value;
}
template <class T>
std::string show(const T& value) {
  if constexpr (std::is_integral_v<T>) return std::to_string(value);
  return format_number(static_cast<double>(value));
}
template <int S, int B, int F, int D, int J>
std::string show(const Quantity<S, B, F, D, J>& value) {
  return to_text(value);
}

}  // namespace detail
}  // namespace orrery::config
