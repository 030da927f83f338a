#include "tools/python/convert.h"

#include <fmt/format.h>

#include "models/config/diagnostics.h"

namespace orrery::python {

void expected(const std::string& wanted, py::handle got) {
  std::string text = py::repr(got);
  if (constexpr std::size_t kMost = 60; text.size() > kMost) {
    text = text.substr(0, kMost) + "...";
  }
  throw Mismatch{
      "", fmt::format("expected {}, got {} {}", wanted,
                      std::string(py::str(py::type::handle_of(got).attr("__name__"))), text)};
}

void raise(const Mismatch& mismatch) {
  std::string path = mismatch.path;
  if (path.starts_with(".")) path.erase(0, 1);
  throw py::type_error(path.empty() ? mismatch.what : path + ": " + mismatch.what);
}

void Convert<config::Value>::write(const config::Value& value, std::string& out) {
  PlainBytes::write(value.kind, out);
  Convert<std::string>::write(value.text, out);
  PlainBytes::write(value.quoted, out);
  PlainBytes::write(value.items.size(), out);
  for (const config::Value& item : value.items) write(item, out);
  PlainBytes::write(value.entries.size(), out);
  for (const config::Value::Entry& entry : value.entries) {
    Convert<std::string>::write(entry.key, out);
    Convert<config::Position>::write(entry.at, out);
    write(entry.value, out);
  }
  Convert<config::Position>::write(value.at, out);
}

void Convert<config::Value>::read(std::string_view& bytes, config::Value& value) {
  std::size_t count = 0;
  PlainBytes::read(bytes, value.kind);
  Convert<std::string>::read(bytes, value.text);
  PlainBytes::read(bytes, value.quoted);
  PlainBytes::read(bytes, count);
  value.items.resize(count);
  for (config::Value& item : value.items) read(bytes, item);
  PlainBytes::read(bytes, count);
  value.entries.resize(count);
  for (config::Value::Entry& entry : value.entries) {
    Convert<std::string>::read(bytes, entry.key);
    Convert<config::Position>::read(bytes, entry.at);
    read(bytes, entry.value);
  }
  Convert<config::Position>::read(bytes, value.at);
}

void Convert<config::Position>::write(const config::Position& at, std::string& out) {
  Convert<std::string>::write(at.file, out);
  PlainBytes::write(at.line, out);
  PlainBytes::write(at.column, out);
}

void Convert<config::Position>::read(std::string_view& bytes, config::Position& at) {
  Convert<std::string>::read(bytes, at.file);
  PlainBytes::read(bytes, at.line);
  PlainBytes::read(bytes, at.column);
}

namespace detail {

bool read_bool(py::handle object) {
  if (object.ptr() == Py_True) return true;
  if (object.ptr() == Py_False) return false;
  // numpy.bool_
  if (PyNumber_Check(object.ptr()) && !PyFloat_Check(object.ptr()) && !PyLong_Check(object.ptr())) {
    const int truth = PyObject_IsTrue(object.ptr());
    if (truth >= 0) return truth == 1;
    PyErr_Clear();
  }
  expected("True or False", object);
}

std::int64_t read_integer(py::handle object, std::int64_t low, std::int64_t high) {
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr())) expected("an integer", object);
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!number) throw py::error_already_set();
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || value < low || value > high) {
    expected(fmt::format("an integer from {} to {}", low, high), object);
  }
  return value;
}

double read_number(py::handle object) {
  if (PyBool_Check(object.ptr()) || PyUnicode_Check(object.ptr()) ||
      !PyNumber_Check(object.ptr())) {
    expected("a number", object);
  }
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    expected("a number", object);
  }
  if (!std::isfinite(value)) expected("a finite number", object);
  return value;
}

std::string read_string(py::handle object) {
  if (PyUnicode_Check(object.ptr())) return object.cast<std::string>();
  if (py::hasattr(object, "__fspath__")) return object.attr("__fspath__")().cast<std::string>();
  expected("a string", object);
}

std::size_t read_name(py::handle object, const std::vector<std::string>& names) {
  if (PyUnicode_Check(object.ptr())) {
    const auto text = object.cast<std::string>();
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == text) return i;
    }
    throw Mismatch{
        "", fmt::format("no such value '{}' ({})", text, config::suggest(text, names, "values"))};
  }
  expected(fmt::format("one of {}", fmt::join(names, ", ")), object);
}

py::object read_sequence(py::handle object) {
  if (PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr()) || PyDict_Check(object.ptr())) {
    expected("a list", object);
  }
  PyObject* items = PySequence_Fast(object.ptr(), "");
  if (items == nullptr) {
    PyErr_Clear();
    expected("a list", object);
  }
  return py::reinterpret_steal<py::object>(items);
}

py::dict read_mapping(py::handle object) {
  if (!PyDict_Check(object.ptr())) expected("a dict", object);
  return py::reinterpret_borrow<py::dict>(object);
}

py::object value_to_python(const config::Value& value) {
  switch (value.kind) {
    case config::Value::Kind::null:
      return py::none();
    case config::Value::Kind::scalar:
      return py::str(value.text);
    case config::Value::Kind::list: {
      py::list list;
      for (const config::Value& item : value.items) list.append(value_to_python(item));
      return list;
    }
    case config::Value::Kind::map: {
      py::dict map;
      for (const config::Value::Entry& entry : value.entries) {
        map[py::str(entry.key)] = value_to_python(entry.value);
      }
      return map;
    }
  }
  return py::none();
}

config::Value value_from_python(py::handle object) {
  if (object.is_none()) return {};
  if (PyBool_Check(object.ptr())) {
    return config::Value::scalar(object.ptr() == Py_True ? "true" : "false");
  }
  if (PyUnicode_Check(object.ptr()) || py::hasattr(object, "__fspath__")) {
    config::Value text = config::Value::scalar(read_string(object));
    return text;
  }
  if (PyFloat_Check(object.ptr())) {
    const double number = PyFloat_AS_DOUBLE(object.ptr());
    if (!std::isfinite(number)) expected("a finite number", object);
    return config::Value::scalar(config::format_number(number));
  }
  if (PyIndex_Check(object.ptr())) return config::Value::scalar(py::str(object));
  if (PyDict_Check(object.ptr())) {
    config::Value map = config::Value::map({});
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(object)) {
      at_step("[" + std::string(py::repr(key)) + "]", [&, key = key, value = value] {
        map.append(read_string(key), value_from_python(value));
      });
    }
    return map;
  }
  if (py::hasattr(object, "to_settings")) return value_from_python(object.attr("to_settings")());
  if (PyNumber_Check(object.ptr()) && !PySequence_Check(object.ptr())) {  // numpy.float64 and such
    return config::Value::scalar(config::format_number(read_number(object)));
  }
  config::Value list = config::Value::list({});
  const py::object items = read_sequence(object);
  for (std::size_t i = 0; i < py::len(items); ++i) {
    at_step("[" + std::to_string(i) + "]",
            [&] { list.items.push_back(value_from_python(items[py::int_(i)])); });
  }
  return list;
}

}  // namespace detail
}  // namespace orrery::python
