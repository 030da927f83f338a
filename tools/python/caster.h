/// Lets pybind11 pass the types of convert.h and record.h as arguments and results of functions: a
/// binding is a lambda over C++ types.
///
///     module.def("global_batch", [](const ir::Plan& plan) { return ir::global_batch(plan); });
///
/// Every file with bindings includes this one (and not pybind11/stl.h, which would convert lists in
/// its own way).
#pragma once
#include "tools/python/record.h"

namespace orrery::python {

/// An argument or result that is shared with the record, not copied: for what keeps it. (pybind11
/// has plans of its own for a std::shared_ptr.)
template <class T>
struct Shared {
  std::shared_ptr<const T> pointer;
};
template <class T>
Shared(std::shared_ptr<const T>) -> Shared<T>;

/// Types that convert.h has rules for.
template <class T>
struct IsConverted : std::bool_constant<(std::is_aggregate_v<T> && std::is_class_v<T>) ||
                                        config::detail::NamedEnum<T>> {};
template <class T>
struct IsConverted<std::optional<T>> : std::true_type {};
template <class T>
struct IsConverted<std::vector<T>> : std::true_type {};
template <class I, class T>
struct IsConverted<IdVector<I, T>> : std::true_type {};
template <class K, class T>
struct IsConverted<std::map<K, T>> : std::true_type {};
template <class A, class B>
struct IsConverted<std::pair<A, B>> : std::true_type {};
template <class... T>
struct IsConverted<std::variant<T...>> : std::true_type {};
template <class T>
struct IsConverted<Shared<T>> : std::false_type {};

}  // namespace orrery::python

namespace pybind11::detail {

template <class T>
class type_caster<T, enable_if_t<orrery::python::IsConverted<T>::value>> {
 public:
  static constexpr auto name = const_name("object");
  template <class>
  using cast_op_type = const T&;

  bool load(handle object, bool) {
    try {
      if constexpr (requires { orrery::python::Convert<T>::kIsRecord; }) {
        value_ = orrery::python::shared_from_python<T>(object);
      } else {
        value_ = std::make_shared<const T>(orrery::python::from_python<T>(object));
      }
    } catch (const orrery::python::Mismatch& mismatch) {
      orrery::python::raise(mismatch);
    }
    return true;
  }
  operator const T&() const { return *value_; }
  static handle cast(T value, return_value_policy, handle) {
    return orrery::python::to_python(std::move(value)).release();
  }

 private:
  std::shared_ptr<const T> value_;
};

/// A record that the function shares; None: null.
template <class T>
class type_caster<orrery::python::Shared<T>> {
 public:
  static constexpr auto name = const_name("object");
  template <class>
  using cast_op_type = const orrery::python::Shared<T>&;

  bool load(handle object, bool) {
    try {
      orrery::python::Convert<std::shared_ptr<const T>>::from(object, value_.pointer);
    } catch (const orrery::python::Mismatch& mismatch) {
      orrery::python::raise(mismatch);
    }
    return true;
  }
  operator const orrery::python::Shared<T>&() const { return value_; }
  static handle cast(const orrery::python::Shared<T>& value, return_value_policy, handle) {
    return orrery::python::Convert<std::shared_ptr<const T>>::to(value.pointer, value.pointer)
        .release();
  }

 private:
  orrery::python::Shared<T> value_;
};

}  // namespace pybind11::detail
