/// From objects of Python to trees that the config reader reads: where a description asks for a
/// number with a unit, a plain number counts in base units.
#pragma once
#include <string>

#include "models/config/type_tree.h"
#include "tools/python/caster.h"

namespace orrery::python {

/// Positions name the path in `object`: "cluster.nodes[0].count".
config::Value tree_of(py::handle object, const config::TypeNode& type, const std::string& path);

template <class T>
const config::TypeNode& type_of() {
  static const config::TypeNode kType = [] {
    T prototype{};
    return config::type_of(config::detail::slot(prototype));
  }();
  return kType;
}

/// Reads a described struct from a dict. Throws ConfigError.
template <class T>
T described(py::handle object, const std::string& path) {
  config::Diagnostics problems;
  T value{};
  config::describe_value(tree_of(object, type_of<T>(), path), value, problems);
  problems.raise();
  return value;
}

/// Gives every node of the tree its path as position.
void place_paths(config::Value& tree, const std::string& path);

/// Throws ConfigError if a value that was changed in code is not what a file may say.
template <class T>
void check_described(const T& value, const char* what) {
  config::Diagnostics problems;
  config::Value tree = config::to_value(value);
  place_paths(tree, what);
  T copy{};
  config::describe_value(tree, copy, problems);
  problems.raise();
}

}  // namespace orrery::python
