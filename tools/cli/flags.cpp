#include "tools/cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "models/base/check.h"
#include "models/base/text.h"
#include "models/config/partial_visitor.h"
#include "models/config/type_tree.h"

namespace orrery::tools {
namespace {

using config::TypeNode;

/// Turns the fields of one description into flags.
class Collector final : public config::PartialVisitor {
 public:
  Collector(CLI::App& app, std::vector<std::unique_ptr<Flag>>& flags) : app_(app), flags_(flags) {}

  void section(const char* title) override { section_ = title; }
  void show(const config::Face& face) override { face_ = face; }
  void field(const char* key, const char* doc, bool required, config::Slot value) override {
    Flag& flag = *flags_.emplace_back(std::make_unique<Flag>());
    flag.key = key;
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    flag.display = face_.positional ? name : "--" + name;
    flag.kind = kind_of(config::type_of(value));
    CLI::Option* option = add(flag, names(name), doc);
    if (required) option->required();
    if (!section_.empty()) option->group(section_);
    face_ = {};
  }

 private:
  Flag::Kind kind_of(const TypeNode& type) const {
    if (face_.toggle) return Flag::Kind::toggle;
    switch (type.kind) {
      case TypeNode::Kind::any:
        return face_.commas ? Flag::Kind::comma_list : Flag::Kind::value;
      case TypeNode::Kind::boolean:
        return Flag::Kind::toggle;
      case TypeNode::Kind::maybe:
        return type.element[0].kind == TypeNode::Kind::boolean ? Flag::Kind::value
                                                               : kind_of(type.element[0]);
      case TypeNode::Kind::list:
        return face_.commas ? Flag::Kind::comma_list : Flag::Kind::list;
      case TypeNode::Kind::dictionary:
        return Flag::Kind::map;
      default:
        return Flag::Kind::value;
    }
  }
  /// As CLI11 wants them: "--planner,-p", or "plan".
  std::string names(const std::string& name) const {
    if (face_.positional) return name;
    return "--" + name + (face_.letter != 0 ? std::string(",-") + face_.letter : "");
  }
  CLI::Option* add(Flag& flag, const std::string& name, const char* doc) {
    switch (flag.kind) {
      case Flag::Kind::toggle:
        return app_.add_flag(name, flag.given, doc);
      case Flag::Kind::value:
      case Flag::Kind::comma_list:
        return app_.add_option(name, flag.text, doc);
      case Flag::Kind::list:
      case Flag::Kind::map:
        break;
    }
    CLI::Option* option = app_.add_option(name, flag.texts, doc);
    if (!face_.positional) option->allow_extra_args(false);
    return option;
  }

  CLI::App& app_;
  std::vector<std::unique_ptr<Flag>>& flags_;
  std::string section_;
  config::Face face_;
};

config::Value list_of(const std::vector<std::string>& texts, const config::Position& at) {
  std::vector<config::Value> items;
  for (const std::string& text : texts) items.push_back(config::Value::scalar(text, at));
  return config::Value::list(std::move(items), at);
}

config::Value map_of(const Flag& flag, const config::Position& at, config::Diagnostics& problems) {
  config::Value map = config::Value::map({}, at);
  for (const std::string& text : flag.texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.add(at, fmt::format("'{}' is not NAME=VALUE", text));
      continue;
    }
    const std::string name = text.substr(0, equals);
    if (map.find(name) != nullptr) {
      problems.add(at, fmt::format("'{}' is given twice", name));
      continue;
    }
    map.entries.push_back({name, at, config::Value::scalar(text.substr(equals + 1), at)});
  }
  return map;
}

}  // namespace

void Flags::add(void (*describe)(config::Visitor&), CLI::App& app) {
  Collector collector(app, flags_);
  describe(collector);
}

config::Value Flags::given(const CLI::App& app, config::Diagnostics& problems) const {
  config::Value all = config::Value::map({}, {"command line", 0, 0});
  for (const std::unique_ptr<Flag>& flag : flags_) {
    const CLI::Option* option = app.get_option_no_throw(flag->display);
    ORRERY_CHECK(option != nullptr, "no option {}", flag->display);
    if (option->count() == 0) continue;
    const config::Position at = at_flag(flag->display.c_str());
    config::Value value;
    switch (flag->kind) {
      case Flag::Kind::toggle:
        value = config::Value::scalar(flag->given ? "true" : "false", at);  // --flag=false
        break;
      case Flag::Kind::value:
        value = config::Value::scalar(flag->text, at);
        break;
      case Flag::Kind::list:
        value = list_of(flag->texts, at);
        break;
      case Flag::Kind::comma_list:
        value = list_of(split(flag->text, ','), at);
        break;
      case Flag::Kind::map:
        value = map_of(*flag, at, problems);
        break;
    }
    all.entries.push_back({flag->key, at, std::move(value)});
  }
  return all;
}

config::Position at_flag(const char* flag) { return {flag, 0, 0}; }

}  // namespace orrery::tools
