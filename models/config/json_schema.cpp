#include <limits>
#include <nlohmann/json.hpp>

#include "models/config/type_tree.h"

namespace orrery::config {
namespace {

using Json = nlohmann::ordered_json;

Json default_json(const Value& value, const TypeNode& type) {
  TextError error;
  switch (value.kind) {
    case Value::Kind::null:
      return nullptr;
    case Value::Kind::list: {
      Json items = Json::array();
      for (const Value& item : value.items)
        items.push_back(default_json(item, type.element.empty() ? type : type.element[0]));
      return items;
    }
    case Value::Kind::map: {
      Json object = Json::object();
      for (const Value::Entry& entry : value.entries) {
        const TypeNode* below = type.element.empty() ? &type : &type.element[0];
        for (const TypeNode::Field& field : type.fields)
          if (field.key == entry.key) below = &field.type;
        object[entry.key] = default_json(entry.value, *below);
      }
      return object;
    }
    case Value::Kind::scalar:
      break;
  }
  switch (type.kind) {
    case TypeNode::Kind::maybe:
      return default_json(value, type.element[0]);
    case TypeNode::Kind::boolean:
      return value.text == "true";
    case TypeNode::Kind::integer:
      if (const auto number = parse_integer(value.text, type.low, type.high, error)) return *number;
      return value.text;
    case TypeNode::Kind::number:
      if (const auto number = parse_number(value.text, error)) return *number;
      return value.text;
    default:
      return value.text;
  }
}

Json type_json(const TypeNode& type);

Json structure_json(const TypeNode& type) {
  Json object;
  if (!type.doc.empty()) object["description"] = type.doc;
  object["type"] = "object";
  if (!type.recursive) {
    Json properties = Json::object();
    Json required = Json::array();
    if (!type.schema.empty()) {
      properties["schema"] = {{"const", type.schema}};
      required.push_back("schema");
    }
    for (const TypeNode::Field& field : type.fields) {
      Json property = type_json(field.type);
      property["description"] = field.doc;
      if (field.required) {
        required.push_back(field.key);
      } else {
        property["default"] = default_json(field.fallback, field.type);
      }
      properties[field.key] = std::move(property);
    }
    object["properties"] = std::move(properties);
    if (!required.empty()) object["required"] = std::move(required);
    object["additionalProperties"] = false;
  }
  if (!type.shorthand) return object;
  return {{"anyOf", Json::array({Json{{"type", "string"}}, object})}};
}

Json type_json(const TypeNode& type) {
  switch (type.kind) {
    case TypeNode::Kind::boolean:
      return {{"type", "boolean"}};
    case TypeNode::Kind::integer: {
      Json integer = {{"type", "integer"}};
      if (type.low != std::numeric_limits<std::int64_t>::min()) integer["minimum"] = type.low;
      if (type.high != std::numeric_limits<std::int64_t>::max()) integer["maximum"] = type.high;
      return integer;
    }
    case TypeNode::Kind::number:
      return {{"type", "number"}};
    case TypeNode::Kind::string:
      return {{"type", "string"}};
    case TypeNode::Kind::quantity:
      return {{"type", "string"}, {"pattern", quantity_pattern(type.units)}};
    case TypeNode::Kind::enumeration:
      return {{"enum", type.names}};
    case TypeNode::Kind::any:
      return Json::object();
    case TypeNode::Kind::maybe:
      return {{"anyOf", Json::array({type_json(type.element[0]), Json{{"type", "null"}}})}};
    case TypeNode::Kind::list:
      return {{"type", "array"}, {"items", type_json(type.element[0])}};
    case TypeNode::Kind::dictionary:
      return {{"type", "object"}, {"additionalProperties", type_json(type.element[0])}};
    case TypeNode::Kind::structure:
      return structure_json(type);
  }
  return Json::object();
}

}  // namespace

std::string detail::json_schema(Slot prototype, const std::string& title) {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  schema.update(type_json(type_of(prototype)));
  return schema.dump(2) + "\n";
}

}  // namespace orrery::config
