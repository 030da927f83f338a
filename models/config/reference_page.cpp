#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "models/config/type_tree.h"

namespace orrery::config {
namespace {

/// Text within a table cell.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return out;
}

std::string type_text(const TypeNode& type) {
  switch (type.kind) {
    case TypeNode::Kind::boolean:
      return "`true` or `false`";
    case TypeNode::Kind::integer:
      return "integer";
    case TypeNode::Kind::number:
      return "number";
    case TypeNode::Kind::string:
      return "string";
    case TypeNode::Kind::quantity:
      return fmt::format("number with unit ({})", unit_names(type.units));
    case TypeNode::Kind::enumeration:
      return fmt::format("one of `{}`", fmt::join(type.names, "`, `"));
    case TypeNode::Kind::any:
      return "any YAML";
    case TypeNode::Kind::maybe:
      return type_text(type.element[0]) + ", or `null`";
    case TypeNode::Kind::list:
      return fmt::format("list of: {}", type_text(type.element[0]));
    case TypeNode::Kind::dictionary:
      return fmt::format("map from name to: {}", type_text(type.element[0]));
    case TypeNode::Kind::structure:
      return (type.shorthand ? "string or " : "") + type.type_name;
  }
  return "";
}

/// The table of a struct, then those of the structs below it that have not been written yet.
void write_structure(const TypeNode& type, std::set<std::string>& written, std::string& page);

void write_below(const TypeNode& type, std::set<std::string>& written, std::string& page) {
  for (const TypeNode& element : type.element) write_below(element, written, page);
  if (type.kind != TypeNode::Kind::structure || type.recursive) return;
  if (!written.insert(type.type_name).second) return;
  page += fmt::format("\n## {}\n", type.type_name);
  write_structure(type, written, page);
}

void write_structure(const TypeNode& type, std::set<std::string>& written, std::string& page) {
  if (!type.doc.empty()) page += fmt::format("\n{}\n", type.doc);
  page += "\n| key | type | default | meaning |\n|---|---|---|---|\n";
  if (!type.schema.empty())
    page +=
        fmt::format("| `schema` | `{}` | required | kind and version of the file |\n", type.schema);
  for (const TypeNode::Field& field : type.fields)
    page += fmt::format(
        "| `{}` | {} | {} | {} |\n", field.key, cell(type_text(field.type)),
        field.required ? "required" : fmt::format("`{}`", cell(to_flow(field.fallback))),
        cell(field.doc));
  for (const TypeNode::Field& field : type.fields) write_below(field.type, written, page);
}

void add_fields(const TypeNode& type, const std::string& above, std::vector<FieldText>& out) {
  for (const TypeNode::Field& field : type.fields) {
    const bool nested =
        field.type.kind == TypeNode::Kind::structure && !field.type.shorthand && !field.required;
    if (nested) {
      add_fields(field.type, above + field.key + ".", out);
    } else {
      const Value& fallback = field.fallback;
      out.push_back({above + field.key, type_text(field.type),
                     field.required         ? ""
                     : fallback.is_scalar() ? fallback.text
                                            : to_flow(fallback),
                     field.doc});
    }
  }
}

}  // namespace

std::vector<FieldText> detail::field_texts(Slot prototype) {
  std::vector<FieldText> out;
  add_fields(type_of(prototype), "", out);
  return out;
}

std::string detail::reference_page(Slot prototype, const std::string& title) {
  const TypeNode type = type_of(prototype);
  std::string page = fmt::format("# {}\n", title);
  std::set<std::string> written{type.type_name};
  if (type.kind == TypeNode::Kind::structure) {
    write_structure(type, written, page);
  } else {
    page += fmt::format("\n{}\n", type_text(type));
    write_below(type, written, page);
  }
  return page;
}

}  // namespace orrery::config
