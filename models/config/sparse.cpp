#include "models/config/sparse.h"

#include <algorithm>

namespace orrery::config {
namespace {

bool equal(const Value& a, const Value& b) {
  if (a.kind != b.kind || a.text != b.text) return false;
  const auto same_entry = [](const auto& x, const auto& y) {
    return x.key == y.key && equal(x.value, y.value);
  };
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal) &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
                    same_entry);
}

}  // namespace

Value detail::sparse(const Value& value, const TypeNode& type,
                     const std::set<std::string>& always) {
  switch (type.kind) {
    case TypeNode::Kind::maybe:
      return value.is_null() ? value : sparse(value, type.element.front(), always);
    case TypeNode::Kind::list: {
      Value out = value;
      for (Value& item : out.items) item = sparse(item, type.element.front(), always);
      return out;
    }
    case TypeNode::Kind::structure: {
      if (!value.is_map()) return value;
      Value out = Value::map({});
      for (const Value::Entry& entry : value.entries) {
        const auto field = std::find_if(type.fields.begin(), type.fields.end(),
                                        [&](const auto& f) { return f.key == entry.key; });
        if (field == type.fields.end()) {
          out.append(entry.key, entry.value);  // `schema`
        } else if (field->required || always.contains(entry.key) ||
                   !equal(field->fallback, entry.value)) {
          out.append(entry.key, sparse(entry.value, field->type, always));
        }
      }
      return out;
    }
    default:
      return value;
  }
}

}  // namespace orrery::config
