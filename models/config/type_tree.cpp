#include "models/config/type_tree.h"

#include <algorithm>
#include <boost/core/demangle.hpp>
#include <typeindex>
#include <utility>

namespace orrery::config {
namespace {

/// Describes one type; children get a TypeVisitor of their own.
class TypeVisitor final : public Visitor {
 public:
  explicit TypeVisitor(std::vector<std::type_index>& above) : above_(above) {}
  TypeNode node;

  void schema(const char* kind, int version) override {
    node.schema = std::string(kind) + "/" + std::to_string(version);
  }
  void title(const char* text) override { node.type_name = text; }
  void doc(const char* text) override { node.doc = text; }

  void field(const char* key, const char* doc, bool required, Slot value) override {
    node.fields.push_back({key, doc, required, required ? Value{} : detail::to_value(value),
                           below([&](Visitor& v) { value.visit(v); })});
  }
  void boolean(bool&) override { node.kind = TypeNode::Kind::boolean; }
  void integer(std::int64_t&, std::int64_t low, std::int64_t high) override {
    node.kind = TypeNode::Kind::integer;
    node.low = low;
    node.high = high;
  }
  void number(double&) override { node.kind = TypeNode::Kind::number; }
  void string(std::string&) override { node.kind = TypeNode::Kind::string; }
  void quantity(double&, UnitTable units) override {
    node.kind = TypeNode::Kind::quantity;
    node.units = units;
  }
  void enumeration(std::size_t&, const std::vector<std::string>& names) override {
    node.kind = TypeNode::Kind::enumeration;
    node.names = names;
  }
  void any(Value&) override { node.kind = TypeNode::Kind::any; }
  void locate(Position&) override {}
  void maybe(MaybeSlot& slot) override { container(TypeNode::Kind::maybe, slot); }
  void list(ListSlot& slot) override { container(TypeNode::Kind::list, slot); }
  void dictionary(DictionarySlot& slot) override { container(TypeNode::Kind::dictionary, slot); }
  void structure(const std::type_info& type, Slot body, const Shorthand* shorthand) override {
    node.kind = TypeNode::Kind::structure;
    node.shorthand = shorthand != nullptr;
    const std::string name = boost::core::demangle(type.name());
    node.type_name = name.substr(name.rfind(':') + 1);
    node.recursive = std::find(above_.begin(), above_.end(), std::type_index(type)) != above_.end();
    if (node.recursive) return;
    above_.emplace_back(type);
    body.visit(*this);
    above_.pop_back();
  }

 private:
  template <class Visit>
  TypeNode below(Visit visit) {
    TypeVisitor visitor(above_);
    visit(visitor);
    return std::move(visitor.node);
  }
  template <class Container>
  void container(TypeNode::Kind kind, Container& slot) {
    node.kind = kind;
    node.element.push_back(below([&](Visitor& v) { slot.visit_prototype(v); }));
  }

  std::vector<std::type_index>& above_;
};

}  // namespace

TypeNode type_of(Slot prototype) {
  std::vector<std::type_index> above;
  TypeVisitor visitor(above);
  prototype.visit(visitor);
  return std::move(visitor.node);
}

}  // namespace orrery::config
