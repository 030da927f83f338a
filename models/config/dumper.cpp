/// The visitor that writes every field of a described struct into a Value tree.
#include "models/base/check.h"
#include "models/config/document.h"

namespace orrery::config {
namespace {

/// Writes one value; children get a Dumper of their own.
class Dumper final : public Visitor {
 public:
  Value value;

  bool dumping() const override { return true; }
  void schema(const char* kind, int version) override {
    value.append("schema", Value::scalar(std::string(kind) + "/" + std::to_string(version)));
  }
  void field(const char* key, const char*, bool, Slot child) override {
    ORRERY_CHECK(value.find(key) == nullptr, "key '{}' is described twice", key);
    value.append(key, detail::to_value(child));
  }
  void boolean(bool& b) override { value = Value::scalar(b ? "true" : "false"); }
  void integer(std::int64_t& i, std::int64_t, std::int64_t) override {
    value = Value::scalar(std::to_string(i));
  }
  void number(double& x) override { value = Value::scalar(format_number(x)); }
  void string(std::string& text) override { value = Value::scalar(text); }
  void quantity(double& x, UnitTable units) override {
    value = Value::scalar(format_quantity(x, units));
  }
  void enumeration(std::size_t& index, const std::vector<std::string>& names) override {
    value = Value::scalar(names[index]);
  }
  void any(Value& tree) override { value = tree; }
  void locate(Position&) override {}
  void maybe(MaybeSlot& slot) override {
    if (slot.engaged()) slot.visit(*this);
  }
  void list(ListSlot& slot) override {
    value = Value::list({});
    for (std::size_t i = 0; i < slot.size(); ++i) {
      Dumper item;
      slot.visit(item, i);
      value.items.push_back(std::move(item.value));
    }
  }
  void dictionary(DictionarySlot& slot) override {
    value = Value::map({});
    for (const std::string& key : slot.keys()) {
      Dumper item;
      slot.visit(item, key);
      value.append(key, std::move(item.value));
    }
  }
  void structure(const std::type_info&, Slot body, const Shorthand*) override {
    value = Value::map({});
    body.visit(*this);
  }
};

}  // namespace

Value detail::to_value(Slot slot) {
  Dumper dumper;
  slot.visit(dumper);
  return std::move(dumper.value);
}

}  // namespace orrery::config
