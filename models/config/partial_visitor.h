/// A base for visitors that need few of the events: the others do nothing, and structs are entered.
#pragma once
#include <cstdint>
#include <string>
#include <typeinfo>
#include <vector>

#include "models/config/visitor.h"

namespace orrery::config {

class PartialVisitor : public Visitor {
 public:
  void schema(const char*, int) override {}
  void field(const char*, const char*, bool, Slot) override {}
  void boolean(bool&) override {}
  void integer(std::int64_t&, std::int64_t, std::int64_t) override {}
  void number(double&) override {}
  void string(std::string&) override {}
  void quantity(double&, UnitTable) override {}
  void enumeration(std::size_t&, const std::vector<std::string>&) override {}
  void any(Value&) override {}
  void locate(Position&) override {}
  void maybe(MaybeSlot&) override {}
  void list(ListSlot&) override {}
  void dictionary(DictionarySlot&) override {}
  void structure(const std::type_info&, Slot body, const Shorthand*) override { body.visit(*this); }
};

}  // namespace orrery::config
