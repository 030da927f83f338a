/// Records: aggregates of C++ as classes of Python with the same fields, named once:
///
///     ORRERY_RECORD(module, ir::Reroute, "A micro-batch that another pipeline computes.",
///                   stage, micro_batch, to_pipeline);
///
/// The class has the C++ name, one attribute a field, keyword arguments, ==, repr(), copies,
/// pickling and to_dict() (orrery/record.py). A field is converted when it is first read, and only
/// what was read or set is converted back, so that a program of a million ops that passes through
/// Python costs a pointer.
#pragma once
#include <cstddef>

#include "models/base/ids.h"
#include "tools/python/convert.h"

namespace orrery::python {

/// What becomes a record: an aggregate that Convert has no rule of its own for.
template <class T>
concept Record = std::is_aggregate_v<T> && std::is_class_v<T> && !requires {
  typename std::tuple_size<T>::type;
};

struct RecordField {
  std::string name;  ///< A word of Python gets an underscore behind it: `from_`.
  const TypeOps* ops;
  std::size_t offset;   ///< In the struct.
  Py_ssize_t slot = 0;  ///< In the object of Python.
};

/// A registered record.
struct RecordInfo {
  std::string name;
  std::vector<RecordField> fields;
  py::object type;  ///< The class.
  Py_ssize_t value_slot = 0;
  Owner (*make)() = nullptr;  ///< A default value.
  Owner (*copy)(const void* value) = nullptr;
  /// Brings what follows from other fields up to date after they were changed; may be null.
  void (*settle)(void* value) = nullptr;
};

/// That of T; its name is empty until T is registered.
template <class T>
RecordInfo& record_info() {
  static RecordInfo info;
  return info;
}

namespace detail {
/// Makes the class and puts it into the module.
void add_record(py::module_& module, RecordInfo& info, const char* type_name, const char* doc,
                std::vector<RecordField> fields, std::size_t size);
py::object show_record(const RecordInfo& info, Owner value);
/// The value of an object of Python: shared where nothing of it was read or set, else a new one.
Owner read_record(const RecordInfo& info, py::handle object);

template <class T, class M>
RecordField field(const char* name, M T::*member) {
  alignas(T) static std::byte place[sizeof(T)];
  const T& at = reinterpret_cast<const T&>(place);
  return {name, &kOps<M>, as_size(reinterpret_cast<const std::byte*>(&(at.*member)) - place)};
}
}  // namespace detail

/// `type_name`: as it is written in C++; the class has the part behind the last "::".
template <Record T>
void add_record(py::module_& module, const char* type_name, const char* doc,
                std::vector<RecordField> fields) {
  RecordInfo& info = record_info<T>();
  info.make = [] { return Owner(std::make_shared<T>()); };
  info.copy = [](const void* value) {
    return Owner(std::make_shared<T>(*static_cast<const T*>(value)));
  };
  detail::add_record(module, info, type_name, doc, std::move(fields), sizeof(T));
}

template <Record T>
std::shared_ptr<const T> shared_from_python(py::handle object) {
  return std::static_pointer_cast<const T>(detail::read_record(record_info<T>(), object));
}

template <Record T>
struct Convert<T> {
  static constexpr bool kIsRecord = true;
  static constexpr bool kMutable = true;
  static py::object to(const T& value, const Owner& owner) {
    return detail::show_record(record_info<T>(), Owner(owner, &value));
  }
  static void from(py::handle object, T& value) { value = *shared_from_python<T>(object); }
  static std::string name() { return record_info<T>().name; }
  static void write(const T& value, std::string& out) {
    for (const RecordField& field : record_info<T>().fields) {
      field.ops->write(reinterpret_cast<const std::byte*>(&value) + field.offset, out);
    }
  }
  static void read(std::string_view& bytes, T& value) {
    for (const RecordField& field : record_info<T>().fields) {
      field.ops->read(bytes, reinterpret_cast<std::byte*>(&value) + field.offset);
    }
  }
};

template <class T>
struct Convert<std::shared_ptr<const T>> {
  static constexpr bool kMutable = true;
  static py::object to(const std::shared_ptr<const T>& value, const Owner&) {
    return value ? Convert<T>::to(*value, value) : py::none();
  }
  static void from(py::handle object, std::shared_ptr<const T>& value) {
    value = object.is_none() ? nullptr : shared_from_python<T>(object);
  }
  static std::string name() { return Convert<T>::name() + " | None"; }
  static void write(const std::shared_ptr<const T>& value, std::string& out) {
    PlainBytes::write(value != nullptr, out);
    if (value) Convert<T>::write(*value, out);
  }
  static void read(std::string_view& bytes, std::shared_ptr<const T>& value) {
    bool engaged = false;
    PlainBytes::read(bytes, engaged);
    value = nullptr;
    if (!engaged) return;
    auto made = std::make_shared<T>();
    Convert<T>::read(bytes, *made);
    value = std::move(made);
  }
};

}  // namespace orrery::python

#define ORRERY_FIELDS_AGAIN() ORRERY_FIELDS_STEP
#define ORRERY_FIELDS_STEP(T, member, ...)             \
  ::orrery::python::detail::field(#member, &T::member) \
      __VA_OPT__(, ORRERY_FIELDS_AGAIN ORRERY_PARENS(T, __VA_ARGS__))
#define ORRERY_PARENS ()
#define ORRERY_EXPAND(...) ORRERY_EXPAND3(ORRERY_EXPAND3(ORRERY_EXPAND3(__VA_ARGS__)))
#define ORRERY_EXPAND3(...) ORRERY_EXPAND2(ORRERY_EXPAND2(ORRERY_EXPAND2(__VA_ARGS__)))
#define ORRERY_EXPAND2(...) ORRERY_EXPAND1(ORRERY_EXPAND1(ORRERY_EXPAND1(__VA_ARGS__)))
#define ORRERY_EXPAND1(...) __VA_ARGS__
/// ORRERY_RECORD(module, T, doc, fields...): registers the aggregate T with all its fields.
#define ORRERY_RECORD(module, T, doc, ...)         \
  ::orrery::python::add_record<T>(module, #T, doc, \
                                  {ORRERY_EXPAND(ORRERY_FIELDS_STEP(T, __VA_ARGS__))})
