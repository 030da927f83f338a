#include "models/spec/sparse.h"

#include <algorithm>

namespace orrery::models {
namespace {

bool equal(const config::Value& a, const config::Value& b) {
  if (a.kind != b.kind || a.text != b.text) return false;
  const auto same_entry = [](const auto& x, const auto& y) {
    return x.key == y.key && equal(x.value, y.value);
  };
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal) &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
                    same_entry);
}

}  // namespace

config::Value sparse(const config::Value& value, const config::Value& defaults,
                     const SparseRules& rules) {
  config::Value out = config::Value::map({});
  for (const config::Value::Entry& entry : value.entries) {
    const config::Value* usual = defaults.find(entry.key);
    if (usual != nullptr && !rules.always.contains(entry.key) && equal(*usual, entry.value)) {
      continue;
    }
    const auto item = rules.items.find(entry.key);
    if (item != rules.items.end() && entry.value.is_list()) {
      config::Value list = config::Value::list({});
      for (const config::Value& each : entry.value.items) {
        list.items.push_back(sparse(each, item->second, rules));
      }
      out.append(entry.key, std::move(list));
    } else if (usual != nullptr && usual->is_map() && entry.value.is_map()) {
      out.append(entry.key, sparse(entry.value, *usual, rules));
    } else {
      out.append(entry.key, entry.value);
    }
  }
  return out;
}

}  // namespace orrery::models
