/// Reading config files into described structs (visitor.h), and what else follows from their
/// descriptions: the effective-config dump, the JSON Schema for editors, the reference page.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/config/visitor.h"

namespace orrery::config {

/// A setting of a described struct, for lists and help texts.
struct FieldText {
  std::string key;
  std::string type;           ///< In words, Markdown: "integer", "one of `a`, `b`".
  std::string default_value;  ///< As a file would say it; "" of a required one.
  std::string doc;
};

namespace detail {
void read_value(const Value& value, Slot out, Diagnostics& problems);
void read_file(const std::string& path, Slot out, Diagnostics& problems);
void read_text(std::string_view text, const std::string& name, Slot out, Diagnostics& problems);
Value to_value(Slot value);
std::string json_schema(Slot prototype, const std::string& title);
std::string reference_page(Slot prototype, const std::string& title);
std::vector<FieldText> field_texts(Slot prototype);
}  // namespace detail

/// Reads a YAML file as a tree. Problems (no such file, a directory, empty, larger than 64 MiB, not
/// UTF-8, ill-formed, duplicate keys, nested or expanded beyond measure) are added to `problems`,
/// and what could be read comes back.
Value load_value(const std::string& path, Diagnostics& problems);
/// The same for text; positions give `name` as the file.
Value load_value_text(std::string_view text, const std::string& name, Diagnostics& problems);

/// Reads a described struct from a file. All problems are added to `problems`; if there are any,
/// the result is incomplete and the caller is expected to raise() before using it.
template <class T>
T load_file(const std::string& path, Diagnostics& problems) {
  T out{};
  detail::read_file(path, detail::slot(out), problems);
  return out;
}
/// The same for text; positions give `name` as the file.
template <class T>
T load_text(std::string_view text, const std::string& name, Diagnostics& problems) {
  T out{};
  detail::read_text(text, name, detail::slot(out), problems);
  return out;
}
/// Reads a tree that was loaded earlier (and perhaps changed by merge()) into any supported type.
/// False if that added problems.
template <class T>
bool describe_value(const Value& value, T& out, Diagnostics& problems) {
  const std::size_t before = problems.problems().size();
  detail::read_value(value, detail::slot(out), problems);
  return problems.problems().size() == before;
}

/// Every field of `value`, defaults included, as a tree without positions.
template <class T>
Value to_value(T value) {
  return detail::to_value(detail::slot(value));
}
/// Every field of `value`, defaults included, as YAML: the effective configuration. Equal values
/// give equal bytes, and load_text() of a dump gives an equal dump.
template <class T>
std::string dump(const T& value) {
  return to_yaml(to_value(value));
}

/// The settings of T in the order of its describe(); keys of a struct within it are "outer.inner".
template <class T>
std::vector<FieldText> field_texts() {
  T prototype{};
  return detail::field_texts(detail::slot(prototype));
}

/// JSON Schema (draft 2020-12) of the files that load_file<T>() accepts; ends in a newline.
template <class T>
std::string json_schema(const std::string& title) {
  T prototype{};
  return detail::json_schema(detail::slot(prototype), title);
}
/// Markdown: one table (key, type, default, meaning) for T and each struct below it.
template <class T>
std::string reference_page(const std::string& title) {
  T prototype{};
  return detail::reference_page(detail::slot(prototype), title);
}

}  // namespace orrery::config
