/// Dumps without what the defaults say anyway, so that written plans and profiles read well.
#pragma once
#include <set>
#include <string>

#include "models/config/document.h"
#include "models/config/type_tree.h"

namespace orrery::config {

namespace detail {
Value sparse(const Value& value, const TypeNode& type, const std::set<std::string>& always);
}  // namespace detail

/// As to_value() without the optional fields that have their default, in all structs below T.
/// Fields with a key in `always` are kept.
template <class T>
Value sparse(const T& value, const std::set<std::string>& always) {
  static const TypeNode kType = [] {
    T prototype{};
    return type_of(detail::slot(prototype));
  }();
  return detail::sparse(to_value(value), kType, always);
}

}  // namespace orrery::config
