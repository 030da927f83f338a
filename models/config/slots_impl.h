/// The template layer of visitor.h: maps each supported C++ type to one event of Visitor.
#pragma once
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/config/visitor.h"

namespace orrery::config::detail {

template <class T>
void visit(Visitor& v, T& value);

template <class T>
concept Described = requires(Visitor& v, T& value) {
  describe(v, value);
};
template <class T>
concept HasShorthand = requires(const std::string& text, T& out, std::string& error) {
  { from_scalar(text, out, error) } -> std::same_as<bool>;
};
template <class T>
concept OneScalar = HasShorthand<T> && requires(const T& value) {
  { to_scalar(value) } -> std::same_as<std::string>;
};
template <class T>
concept NamedEnum = std::is_enum_v<T> && requires(T value) {
  enum_names(value);
};
template <class T>
concept Integer =
    std::integral<T> && !std::same_as<T, bool> && (sizeof(T) < 8 || std::signed_integral<T>);

template <class T>
struct MaybeOf final : MaybeSlot {
  explicit MaybeOf(std::optional<T>& o) : object(o) {}
  bool engaged() const override { return object.has_value(); }
  void reset() override { object.reset(); }
  void emplace() override { object.emplace(); }
  void visit(Visitor& v) override { detail::visit(v, *object); }
  void visit_prototype(Visitor& v) override {
    T prototype{};
    detail::visit(v, prototype);
  }
  std::optional<T>& object;
};

template <class T>
struct ListOf final : ListSlot {
  static_assert(!std::same_as<T, bool>, "std::vector<bool> has no elements to refer to");
  explicit ListOf(std::vector<T>& o) : object(o) {}
  std::size_t size() const override { return object.size(); }
  void assign_default(std::size_t count) override {
    object.clear();
    object.resize(count);
  }
  void visit(Visitor& v, std::size_t index) override { detail::visit(v, object[index]); }
  void visit_prototype(Visitor& v) override {
    T prototype{};
    detail::visit(v, prototype);
  }
  std::vector<T>& object;
};

template <class T>
struct DictionaryOf final : DictionarySlot {
  explicit DictionaryOf(std::map<std::string, T>& o) : object(o) {}
  std::vector<std::string> keys() const override {
    std::vector<std::string> names;
    for (const auto& entry : object) names.push_back(entry.first);
    return names;
  }
  void clear() override { object.clear(); }
  void visit(Visitor& v, const std::string& key) override { detail::visit(v, object[key]); }
  void visit_prototype(Visitor& v) override {
    T prototype{};
    detail::visit(v, prototype);
  }
  std::map<std::string, T>& object;
};

template <class T>
void visit_enum(Visitor& v, T& value) {
  const auto table = enum_names(value);
  std::vector<std::string> names;
  std::size_t index = table.size();
  for (std::size_t i = 0; i < table.size(); ++i) {
    names.emplace_back(table[i].second);
    if (table[i].first == value && index == table.size()) index = i;
  }
  ORRERY_CHECK(index < table.size(), "enum value {} has no name", static_cast<int>(value));
  v.enumeration(index, names);
  value = table[index].first;
}

template <HasShorthand T>
Shorthand shorthand_of(T& value) {
  return {&value, [](void* o, const std::string& text, std::string& error) {
            return from_scalar(text, *static_cast<T*>(o), error);
          }};
}

template <class T>
void visit_struct(Visitor& v, T& value) {
  const Slot body{&value, [](Visitor& w, void* o) { describe(w, *static_cast<T*>(o)); }};
  if constexpr (HasShorthand<T>) {
    const Shorthand shorthand = shorthand_of(value);
    v.structure(typeid(T), body, &shorthand);
  } else {
    v.structure(typeid(T), body, nullptr);
  }
}

inline void visit_plain(Visitor& v, bool& value) { v.boolean(value); }
inline void visit_plain(Visitor& v, double& value) { v.number(value); }
inline void visit_plain(Visitor& v, std::string& value) { v.string(value); }
inline void visit_plain(Visitor& v, Value& value) { v.any(value); }
template <Integer T>
void visit_plain(Visitor& v, T& value) {
  std::int64_t wide = value;
  v.integer(wide, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  value = static_cast<T>(wide);
}
template <class Tag>
void visit_plain(Visitor& v, Id<Tag>& id) {
  std::int64_t wide = id.value;
  v.integer(wide, -1, std::numeric_limits<std::int32_t>::max());
  id.value = static_cast<std::int32_t>(wide);
}
template <int S, int B, int F, int D, int J>
void visit_plain(Visitor& v, Quantity<S, B, F, D, J>& quantity) {
  v.quantity(quantity.value, unit_table(quantity));
}
template <class T>
void visit_plain(Visitor& v, Located<T>& located) {
  v.locate(located.at);
  visit(v, located.value);
}
template <class T>
void visit_plain(Visitor& v, std::optional<T>& value) {
  MaybeOf<T> erased(value);
  v.maybe(erased);
}
template <class T>
void visit_plain(Visitor& v, std::vector<T>& value) {
  ListOf<T> erased(value);
  v.list(erased);
}
template <class T>
void visit_plain(Visitor& v, std::map<std::string, T>& value) {
  DictionaryOf<T> erased(value);
  v.dictionary(erased);
}

template <class T>
void visit(Visitor& v, T& value) {
  if constexpr (NamedEnum<T>) {
    visit_enum(v, value);
  } else if constexpr (OneScalar<T>) {
    v.scalar(to_scalar(value), shorthand_of(value));
  } else if constexpr (Described<T>) {
    visit_struct(v, value);
  } else {
    visit_plain(v, value);  // no match: T needs describe() or enum_names() declared next to it
  }
}

template <class T>
Slot slot(T& value) {
  return {&value, [](Visitor& v, void* o) { visit(v, *static_cast<T*>(o)); }};
}

}  // namespace orrery::config::detail
