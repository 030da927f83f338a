/// Values of C++ as objects of Python, and back: one template a type, used inside records
/// (record.h) and for arguments and results of functions (caster.h).
///
///   C++                                Python
///   bool, integers, double, string     the same
///   Id<>                               int; -1: none
///   Quantity<>                         float in base units: s, B, B/s, FLOP, FLOP/s, $, $/s, W
///   Nanoseconds, Instant               int, nanoseconds
///   enum with enum_names()             str
///   std::optional                      the value or None
///   std::vector, IdVector, std::array  list
///   std::map                           dict
///   std::pair                          tuple
///   std::variant                       the value (back: the first alternative that takes it)
///   std::shared_ptr<const T>           the record or None, shared
///   config::Value                      str, list or dict
///   an aggregate                       a record
///
/// What does not fit raises TypeError with the path to it: "pipelines[0].micro_batches: expected an
/// integer, got 'x'".
#pragma once
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/base/time.h"
#include "models/base/units.h"
#include "models/config/slots_impl.h"

namespace orrery::python {

namespace py = pybind11;

/// A value of Python that a type does not take; becomes TypeError.
struct Mismatch {
  std::string path;  ///< "[0].devices", from the outside in.
  std::string what;  ///< "expected an integer, got 'x'".
};
/// Mismatch "expected `wanted`, got ...".
[[noreturn]] void expected(const std::string& wanted, py::handle got);
/// As TypeError.
[[noreturn]] void raise(const Mismatch& mismatch);
/// Calls `convert`; a mismatch inside gets `step` in front of its path.
template <class F>
void at_step(const std::string& step, F&& convert) {
  try {
    convert();
  } catch (Mismatch& mismatch) {
    mismatch.path.insert(0, step);
    throw;
  }
}

/// What keeps a value alive that a record shows: the value that it is part of.
using Owner = std::shared_ptr<const void>;

template <class T>
struct Convert;

/// A type without its C++ name.
struct TypeOps {
  py::object (*to_python)(const void* value, const Owner& owner);
  void (*from_python)(py::handle object, void* value);
  std::string (*name)();  ///< As an annotation of Python: "list[Pipeline]".
  /// The objects change in place (lists, records), so that what was given out must be read back.
  bool (*is_mutable)();
  void (*write)(const void* value, std::string& out);  ///< For wire.h.
  void (*read)(std::string_view& bytes, void* value);
};
template <class T>
inline constexpr TypeOps kOps = {
    [](const void* value, const Owner& owner) {
      return Convert<T>::to(*static_cast<const T*>(value), owner);
    },
    [](py::handle object, void* value) { Convert<T>::from(object, *static_cast<T*>(value)); },
    [] { return Convert<T>::name(); },
    [] { return Convert<T>::kMutable; },
    [](const void* value, std::string& out) {
      Convert<T>::write(*static_cast<const T*>(value), out);
    },
    [](std::string_view& bytes, void* value) { Convert<T>::read(bytes, *static_cast<T*>(value)); }};

/// A value that the result need not outlive: copied where records refer to it.
template <class T>
py::object to_python(T value) {
  const auto kept = std::make_shared<const T>(std::move(value));
  return Convert<T>::to(*kept, kept);
}
template <class T>
T from_python(py::handle object) {
  T value{};
  Convert<T>::from(object, value);
  return value;
}

/// Bytes of values whose bytes are all that matters, between processes of one program.
struct PlainBytes {
  template <class T>
  static void write(const T& value, std::string& out) {
    static_assert(std::is_trivially_copyable_v<T>);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  static void read(std::string_view& bytes, T& value) {
    std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
  }
};

namespace detail {
bool read_bool(py::handle object);
std::int64_t read_integer(py::handle object, std::int64_t low, std::int64_t high);
double read_number(py::handle object);
std::string read_string(py::handle object);
/// The position in `names`.
std::size_t read_name(py::handle object, const std::vector<std::string>& names);
/// The items of a list, a tuple or any other sequence but a string.
py::object read_sequence(py::handle object);
py::dict read_mapping(py::handle object);
py::object value_to_python(const config::Value& value);
config::Value value_from_python(py::handle object);
}  // namespace detail

template <>
struct Convert<bool> : PlainBytes {
  static constexpr bool kMutable = false;
  static py::object to(bool value, const Owner&) { return py::bool_(value); }
  static void from(py::handle object, bool& value) { value = detail::read_bool(object); }
  static std::string name() { return "bool"; }
};

template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) struct Convert<T> : PlainBytes {
  static constexpr bool kMutable = false;
  static py::object to(T value, const Owner&) { return py::int_(value); }
  static void from(py::handle object, T& value) {
    if constexpr (std::same_as<T, std::uint64_t>) {
      value =
          static_cast<T>(detail::read_integer(object, 0, std::numeric_limits<std::int64_t>::max()));
    } else {
      value = static_cast<T>(detail::read_integer(object, std::numeric_limits<T>::min(),
                                                  std::numeric_limits<T>::max()));
    }
  }
  static std::string name() { return "int"; }
};

template <>
struct Convert<double> : PlainBytes {
  static constexpr bool kMutable = false;
  static py::object to(double value, const Owner&) { return py::float_(value); }
  static void from(py::handle object, double& value) { value = detail::read_number(object); }
  static std::string name() { return "float"; }
};

template <>
struct Convert<std::string> {
  static constexpr bool kMutable = false;
  static py::object to(const std::string& value, const Owner&) { return py::str(value); }
  static void from(py::handle object, std::string& value) { value = detail::read_string(object); }
  static std::string name() { return "str"; }
  static void write(const std::string& value, std::string& out) {
    PlainBytes::write(value.size(), out);
    out += value;
  }
  static void read(std::string_view& bytes, std::string& value) {
    std::size_t size = 0;
    PlainBytes::read(bytes, size);
    value = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
};

template <class Tag>
struct Convert<Id<Tag>> : PlainBytes {
  static constexpr bool kMutable = false;
  static py::object to(Id<Tag> id, const Owner&) { return py::int_(id.value); }
  static void from(py::handle object, Id<Tag>& id) {
    id.value = static_cast<std::int32_t>(
        detail::read_integer(object, -1, std::numeric_limits<std::int32_t>::max()));
  }
  static std::string name() { return "int"; }
};

template <int S, int B, int F, int D, int J>
struct Convert<Quantity<S, B, F, D, J>> : PlainBytes {
  static constexpr bool kMutable = false;
  static py::object to(Quantity<S, B, F, D, J> value, const Owner&) {
    return py::float_(value.value);
  }
  static void from(py::handle object, Quantity<S, B, F, D, J>& value) {
    value.value = detail::read_number(object);
  }
  static std::string name() { return "float"; }
};

template <>
struct Convert<Nanoseconds> : PlainBytes {
  static constexpr bool kMutable = false;
  static py::object to(Nanoseconds value, const Owner&) { return py::int_(value.count); }
  static void from(py::handle object, Nanoseconds& value) {
    Convert<std::int64_t>::from(object, value.count);
  }
  static std::string name() { return "int"; }
};
template <>
struct Convert<Instant> : PlainBytes {
  static constexpr bool kMutable = false;
  static py::object to(Instant value, const Owner&) { return py::int_(value.nanoseconds); }
  static void from(py::handle object, Instant& value) {
    Convert<std::int64_t>::from(object, value.nanoseconds);
  }
  static std::string name() { return "int"; }
};

template <config::detail::NamedEnum T>
struct Convert<T> : PlainBytes {
  static constexpr bool kMutable = false;
  static const std::vector<std::pair<T, const char*>>& table() {
    static const auto kTable = enum_names(T{});
    return kTable;
  }
  static py::object to(T value, const Owner&) {
    for (const auto& [each, text] : table()) {
      if (each == value) return py::str(text);
    }
    return py::str("?");
  }
  static void from(py::handle object, T& value) {
    std::vector<std::string> names;
    for (const auto& entry : table()) names.emplace_back(entry.second);
    value = table()[detail::read_name(object, names)].first;
  }
  static std::string name() {
    std::string text;
    for (const auto& entry : table()) {
      text += (text.empty() ? "" : ", ") + std::string("\"") + entry.second + "\"";
    }
    return "Literal[" + text + "]";
  }
};

template <class T>
struct Convert<std::optional<T>> {
  static constexpr bool kMutable = Convert<T>::kMutable;
  static py::object to(const std::optional<T>& value, const Owner& owner) {
    return value ? Convert<T>::to(*value, owner) : py::none();
  }
  static void from(py::handle object, std::optional<T>& value) {
    value.reset();
    if (!object.is_none()) Convert<T>::from(object, value.emplace());
  }
  static std::string name() { return Convert<T>::name() + " | None"; }
  static void write(const std::optional<T>& value, std::string& out) {
    PlainBytes::write(value.has_value(), out);
    if (value) Convert<T>::write(*value, out);
  }
  static void read(std::string_view& bytes, std::optional<T>& value) {
    bool engaged = false;
    PlainBytes::read(bytes, engaged);
    value.reset();
    if (engaged) Convert<T>::read(bytes, value.emplace());
  }
};

/// Anything with size(), an index and, unless its size is fixed, resize().
template <class List, class T>
struct ConvertList {
  static constexpr bool kMutable = true;
  static py::object to(const List& values, const Owner& owner) {
    py::list list(values.size());
    std::size_t i = 0;
    for (const auto& value : values) {
      PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i++),
                      Convert<T>::to(value, owner).release().ptr());
    }
    return list;
  }
  static void from(py::handle object, List& values) {
    const py::object items = detail::read_sequence(object);
    const std::size_t count = py::len(items);
    if constexpr (requires { values.resize(count); }) {
      values.clear();
      values.resize(count);
    } else if (count != values.size()) {
      expected("a list of " + std::to_string(values.size()), object);
    }
    auto place = values.begin();
    for (std::size_t i = 0; i < count; ++i, ++place) {
      const py::handle item = PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i));
      at_step("[" + std::to_string(i) + "]", [&] { Convert<T>::from(item, *place); });
    }
  }
  static std::string name() { return "list[" + Convert<T>::name() + "]"; }
  static void write(const List& values, std::string& out) {
    PlainBytes::write(values.size(), out);
    for (const auto& value : values) Convert<T>::write(value, out);
  }
  static void read(std::string_view& bytes, List& values) {
    std::size_t count = 0;
    PlainBytes::read(bytes, count);
    if constexpr (requires { values.resize(count); }) values.resize(count);
    for (auto& value : values) Convert<T>::read(bytes, value);
  }
};
template <class T>
struct Convert<std::vector<T>> : ConvertList<std::vector<T>, T> {};
template <class Id, class T>
struct Convert<IdVector<Id, T>> : ConvertList<IdVector<Id, T>, T> {};
template <class T, std::size_t N>
struct Convert<std::array<T, N>> : ConvertList<std::array<T, N>, T> {};

template <class K, class T>
struct Convert<std::map<K, T>> {
  static constexpr bool kMutable = true;
  static py::object to(const std::map<K, T>& values, const Owner& owner) {
    py::dict dictionary;
    for (const auto& [key, value] : values) {
      dictionary[Convert<K>::to(key, owner)] = Convert<T>::to(value, owner);
    }
    return dictionary;
  }
  static void from(py::handle object, std::map<K, T>& values) {
    values.clear();
    for (const auto& [key, value] : detail::read_mapping(object)) {
      at_step("[" + std::string(py::repr(key)) + "]", [&, key = key, value = value] {
        Convert<T>::from(value, values[from_python<K>(key)]);
      });
    }
  }
  static std::string name() {
    return "dict[" + Convert<K>::name() + ", " + Convert<T>::name() + "]";
  }
  static void write(const std::map<K, T>& values, std::string& out) {
    PlainBytes::write(values.size(), out);
    for (const auto& [key, value] : values) {
      Convert<K>::write(key, out);
      Convert<T>::write(value, out);
    }
  }
  static void read(std::string_view& bytes, std::map<K, T>& values) {
    std::size_t count = 0;
    PlainBytes::read(bytes, count);
    values.clear();
    for (std::size_t i = 0; i < count; ++i) {
      K key{};
      Convert<K>::read(bytes, key);
      Convert<T>::read(bytes, values[key]);
    }
  }
};

template <class A, class B>
struct Convert<std::pair<A, B>> {
  static constexpr bool kMutable = Convert<A>::kMutable || Convert<B>::kMutable;
  static py::object to(const std::pair<A, B>& value, const Owner& owner) {
    return py::make_tuple(Convert<A>::to(value.first, owner), Convert<B>::to(value.second, owner));
  }
  static void from(py::handle object, std::pair<A, B>& value) {
    const py::object items = detail::read_sequence(object);
    if (py::len(items) != 2) expected("a pair", object);
    at_step("[0]", [&] { Convert<A>::from(items[py::int_(0)], value.first); });
    at_step("[1]", [&] { Convert<B>::from(items[py::int_(1)], value.second); });
  }
  static std::string name() {
    return "tuple[" + Convert<A>::name() + ", " + Convert<B>::name() + "]";
  }
  static void write(const std::pair<A, B>& value, std::string& out) {
    Convert<A>::write(value.first, out);
    Convert<B>::write(value.second, out);
  }
  static void read(std::string_view& bytes, std::pair<A, B>& value) {
    Convert<A>::read(bytes, value.first);
    Convert<B>::read(bytes, value.second);
  }
};

template <class... T>
struct Convert<std::variant<T...>> {
  static constexpr bool kMutable = (Convert<T>::kMutable || ...);
  static py::object to(const std::variant<T...>& value, const Owner& owner) {
    return std::visit([&]<class A>(const A& chosen) { return Convert<A>::to(chosen, owner); },
                      value);
  }
  static void from(py::handle object, std::variant<T...>& value) {
    if (!(take<T>(object, value) || ...)) expected(name(), object);
  }
  static std::string name() {
    std::string text;
    ((text += (text.empty() ? "" : " | ") + Convert<T>::name()), ...);
    return text;
  }
  static void write(const std::variant<T...>& value, std::string& out) {
    PlainBytes::write(value.index(), out);
    std::visit([&]<class A>(const A& chosen) { Convert<A>::write(chosen, out); }, value);
  }
  static void read(std::string_view& bytes, std::variant<T...>& value) {
    std::size_t index = 0;
    PlainBytes::read(bytes, index);
    std::size_t i = 0;
    ((i++ == index ? Convert<T>::read(bytes, value.template emplace<T>()) : void()), ...);
  }

 private:
  template <class A>
  static bool take(py::handle object, std::variant<T...>& value) {
    try {
      Convert<A>::from(object, value.template emplace<A>());
      return true;
    } catch (const Mismatch&) {
      return false;
    }
  }
};

template <>
struct Convert<config::Value> {
  static constexpr bool kMutable = true;
  static py::object to(const config::Value& value, const Owner&) {
    return detail::value_to_python(value);
  }
  static void from(py::handle object, config::Value& value) {
    value = detail::value_from_python(object);
  }
  static std::string name() { return "Any"; }
  static void write(const config::Value& value, std::string& out);
  static void read(std::string_view& bytes, config::Value& value);
};
template <>
struct Convert<config::Position> {
  static constexpr bool kMutable = false;
  static py::object to(const config::Position& at, const Owner&) {
    return py::str(config::to_string(at));
  }
  static void from(py::handle object, config::Position& at) {
    at = {detail::read_string(object), 0, 0};
  }
  static std::string name() { return "str"; }
  static void write(const config::Position& at, std::string& out);
  static void read(std::string_view& bytes, config::Position& at);
};
template <class T>
struct Convert<config::Located<T>> {
  static constexpr bool kMutable = Convert<T>::kMutable;
  static py::object to(const config::Located<T>& value, const Owner& owner) {
    return Convert<T>::to(value.value, owner);
  }
  static void from(py::handle object, config::Located<T>& value) {
    value.at = {};
    Convert<T>::from(object, value.value);
  }
  static std::string name() { return Convert<T>::name(); }
  static void write(const config::Located<T>& value, std::string& out) {
    Convert<config::Position>::write(value.at, out);
    Convert<T>::write(value.value, out);
  }
  static void read(std::string_view& bytes, config::Located<T>& value) {
    Convert<config::Position>::read(bytes, value.at);
    Convert<T>::read(bytes, value.value);
  }
};

}  // namespace orrery::python
