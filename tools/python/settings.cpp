#include "tools/python/settings.h"

namespace orrery::python {
namespace {

using Kind = config::TypeNode::Kind;

bool is_number(py::handle object) {
  return !PyBool_Check(object.ptr()) && !PyUnicode_Check(object.ptr()) &&
         (PyFloat_Check(object.ptr()) || PyIndex_Check(object.ptr()) ||
          (PyNumber_Check(object.ptr()) && !PySequence_Check(object.ptr())));
}

const config::TypeNode* field_of(const config::TypeNode& type, const std::string& key) {
  for (const config::TypeNode::Field& field : type.fields) {
    if (field.key == key) return &field.type;
  }
  return nullptr;
}

/// One item where the file may have it without its list.
const config::TypeNode& item_type(const config::TypeNode& type) {
  return type.kind == Kind::list ? type.element.front() : type;
}

}  // namespace

config::Value tree_of(py::handle object, const config::TypeNode& type, const std::string& path) {
  const config::Position at{path, 0, 0};
  if (type.kind == Kind::maybe && !object.is_none()) {
    return tree_of(object, type.element.front(), path);
  }
  if (type.kind == Kind::quantity && is_number(object)) {
    return config::Value::scalar(config::format_quantity(detail::read_number(object), type.units),
                                 at);
  }
  if (PyDict_Check(object.ptr())) {
    static const config::TypeNode kAny;
    const config::TypeNode& inside = item_type(type);
    config::Value map = config::Value::map({}, at);
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(object)) {
      const std::string name = detail::read_string(key);
      const config::TypeNode* known =
          inside.kind == Kind::dictionary ? &inside.element.front() : field_of(inside, name);
      const std::string below = path.empty() ? name : path + "." + name;
      map.entries.push_back({name, {below, 0, 0}, tree_of(value, known ? *known : kAny, below)});
    }
    return map;
  }
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    config::Value list = config::Value::list({}, at);
    const py::object items = detail::read_sequence(object);
    for (std::size_t i = 0; i < py::len(items); ++i) {
      list.items.push_back(
          tree_of(items[py::int_(i)], item_type(type), path + "[" + std::to_string(i) + "]"));
    }
    return list;
  }
  config::Value value;
  at_step(path, [&] { value = detail::value_from_python(object); });
  place_paths(value, path);
  return value;
}

void place_paths(config::Value& tree, const std::string& path) {
  tree.at = {path, 0, 0};
  for (std::size_t i = 0; i < tree.items.size(); ++i) {
    place_paths(tree.items[i], path + "[" + std::to_string(i) + "]");
  }
  for (config::Value::Entry& entry : tree.entries) {
    entry.at = {path + "." + entry.key, 0, 0};
    place_paths(entry.value, entry.at.file);
  }
}

}  // namespace orrery::python
