#include "experiments/study/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace orrery::experiments {
namespace {

using Json = nlohmann::ordered_json;

Json tree(const config::Value& value) {
  switch (value.kind) {
    case config::Value::Kind::null:
      return nullptr;
    case config::Value::Kind::scalar:
      return value.text;
    case config::Value::Kind::list: {
      Json list = Json::array();
      for (const config::Value& item : value.items) list.push_back(tree(item));
      return list;
    }
    case config::Value::Kind::map:
      break;
  }
  Json map = Json::object();
  for (const config::Value::Entry& entry : value.entries) map[entry.key] = tree(entry.value);
  return map;
}

/// Writes one value; children get a writer of their own.
class Writer final : public config::Visitor {
 public:
  Json value;

  void schema(const char* kind, int version) override {
    value["schema"] = std::string(kind) + "/" + std::to_string(version);
  }
  void field(const char* key, const char*, bool, config::Slot child) override {
    Writer writer;
    child.visit(writer);
    value[key] = std::move(writer.value);
  }
  void boolean(bool& b) override { value = b; }
  void integer(std::int64_t& i, std::int64_t, std::int64_t) override { value = i; }
  void number(double& x) override { value = std::isfinite(x) ? Json(x) : Json(nullptr); }
  void string(std::string& text) override { value = text; }
  void quantity(double& x, config::UnitTable) override { number(x); }
  void enumeration(std::size_t& index, const std::vector<std::string>& names) override {
    value = names[index];
  }
  void any(config::Value& v) override { value = tree(v); }
  void locate(config::Position&) override {}
  void maybe(config::MaybeSlot& slot) override {
    if (slot.engaged()) slot.visit(*this);
  }
  void list(config::ListSlot& slot) override {
    value = Json::array();
    for (std::size_t i = 0; i < slot.size(); ++i) {
      Writer item;
      slot.visit(item, i);
      value.push_back(std::move(item.value));
    }
  }
  void dictionary(config::DictionarySlot& slot) override {
    value = Json::object();
    for (const std::string& key : slot.keys()) {
      Writer item;
      slot.visit(item, key);
      value[key] = std::move(item.value);
    }
  }
  void structure(const std::type_info&, config::Slot body, const config::Shorthand*) override {
    value = Json::object();
    body.visit(*this);
  }
};

}  // namespace

std::string detail::to_json(config::Slot slot) {
  Writer writer;
  slot.visit(writer);
  return writer.value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::experiments
