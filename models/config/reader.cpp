/// The visitor that fills described structs from a Value tree.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models/config/document.h"

namespace orrery::config {
namespace {

/// Problems with a suggestion of what was meant. A file with more is of another kind, and looking
/// for the names that are nearest takes a while.
constexpr std::size_t kMostSuggestions = 1000;

class Reader final : public Visitor {
 public:
  Reader(const Value& root, Diagnostics& problems) : node_(&root), problems_(problems) {}

  void schema(const char* kind, int version) override;
  bool reading() const override { return true; }
  bool given(const char* key) const override { return frames_.back().map->find(key) != nullptr; }
  bool good() const override { return count() == frames_.back().problems_before; }
  Position at(const char* key) const override;
  void problem(const char* key, const std::string& what, const std::string& hint) override;

  void field(const char* key, const char* doc, bool required, Slot value) override;
  void boolean(bool& value) override;
  void integer(std::int64_t& value, std::int64_t low, std::int64_t high) override;
  void number(double& value) override;
  void string(std::string& value) override;
  void quantity(double& value, UnitTable units) override;
  void enumeration(std::size_t& index, const std::vector<std::string>& names) override;
  void any(Value& value) override { value = *node_; }
  void scalar(std::string text, const Shorthand& shorthand) override;
  void locate(Position& at) override { at = node_->at; }
  void maybe(MaybeSlot& value) override;
  void list(ListSlot& value) override;
  void dictionary(DictionarySlot& value) override;
  void structure(const std::type_info& type, Slot body, const Shorthand* shorthand) override;

 private:
  /// One map that is being read.
  struct Frame {
    const Value* map;
    std::size_t problems_before;
    std::vector<std::string> known;
    std::set<std::string> bad;
    bool abandoned = false;  // wrong schema: nothing else in it is worth a word
  };

  std::size_t count() const { return problems_.problems().size(); }
  void fail(std::string what, std::string hint = "") {
    problems_.add(node_->at, std::move(what), std::move(hint));
  }
  void fail(const TextError& error) { fail(error.what, error.hint); }
  void expected(const char* wanted, std::string hint = "") {
    fail(fmt::format("expected {}, got {}", wanted, kind_text(*node_)), std::move(hint));
  }
  /// A scalar without quotes, or a problem.
  bool plain(const char* wanted) {
    if (!node_->is_scalar()) {
      expected(wanted);
    } else if (node_->quoted) {
      fail(fmt::format("expected {}, got the string {}", wanted, kind_text(*node_)),
           "remove the quotes");
    } else {
      return true;
    }
    return false;
  }
  template <class Visit>
  void descend(const Value& child, Visit visit) {
    const Value* parent = node_;
    node_ = &child;
    visit();
    node_ = parent;
  }
  void report_unknown_keys(const Frame& frame);

  const Value* node_;
  Diagnostics& problems_;
  std::vector<Frame> frames_;
};

void Reader::schema(const char* kind, int version) {
  Frame& frame = frames_.back();
  const std::string wanted = fmt::format("{}/{}", kind, version);
  frame.known.emplace_back("schema");
  const Value* given = frame.map->find("schema");
  if (given == nullptr) {
    problems_.add(frame.map->at, "missing key 'schema'", fmt::format("add 'schema: {}'", wanted));
    return;
  }
  if (given->is_scalar() && given->text == wanted) return;
  frame.abandoned = true;
  const bool version_only = given->is_scalar() && given->text.starts_with(std::string(kind) + "/");
  problems_.add(given->at,
                version_only ? fmt::format("unsupported schema version {}", kind_text(*given))
                             : fmt::format("wrong schema {}", kind_text(*given)),
                fmt::format("'{}' is needed here", wanted));
}

Position Reader::at(const char* key) const {
  const Value* value = frames_.back().map->find(key);
  return value != nullptr ? value->at : frames_.back().map->at;
}

void Reader::problem(const char* key, const std::string& what, const std::string& hint) {
  Frame& frame = frames_.back();
  const std::string name = key;
  if (frame.abandoned || frame.bad.contains(name) || (name.empty() && !frame.bad.empty())) return;
  if (!name.empty()) frame.bad.insert(name);
  problems_.add(at(key), what, hint);
}

void Reader::field(const char* key, const char* doc, bool required, Slot value) {
  Frame& frame = frames_.back();
  if (frame.abandoned) return;
  // A field that is a name or a list is visited as both.
  if (std::find(frame.known.begin(), frame.known.end(), key) == frame.known.end())
    frame.known.emplace_back(key);
  const Value* given = frame.map->find(key);
  const std::size_t before = count();
  if (given != nullptr) {
    descend(*given, [&] { value.visit(*this); });
  } else if (required) {
    problems_.add(frame.map->at, fmt::format("missing key '{}'", key), doc);
  }
  if (count() != before) frames_.back().bad.insert(key);  // `frame` may have moved
}

void Reader::boolean(bool& value) {
  if (!plain("true or false")) return;
  if (node_->text == "true" || node_->text == "yes" || node_->text == "on") {
    value = true;
  } else if (node_->text == "false" || node_->text == "no" || node_->text == "off") {
    value = false;
  } else {
    expected("true or false");
  }
}

void Reader::integer(std::int64_t& value, std::int64_t low, std::int64_t high) {
  TextError error;
  if (!plain("an integer")) return;
  if (const auto parsed = parse_integer(node_->text, low, high, error)) {
    value = *parsed;
  } else {
    fail(error);
  }
}

void Reader::number(double& value) {
  TextError error;
  if (!plain("a number")) return;
  if (const auto parsed = parse_number(node_->text, error)) {
    value = *parsed;
  } else {
    fail(error);
  }
}

void Reader::string(std::string& value) {
  if (!node_->is_scalar()) return expected("a string");
  value = node_->text;
}

void Reader::scalar(std::string, const Shorthand& shorthand) {
  std::string error;
  if (!node_->is_scalar()) return expected("a string");
  if (!shorthand.read(node_->text, error)) fail(error);
}

void Reader::quantity(double& value, UnitTable units) {
  TextError error;
  if (!node_->is_scalar()) return expected("a number with a unit", "units: " + unit_names(units));
  if (const auto parsed = parse_quantity(node_->text, units, error)) {
    value = *parsed;
  } else {
    fail(error);
  }
}

void Reader::enumeration(std::size_t& index, const std::vector<std::string>& names) {
  const std::string choice = suggest("", names, "one of");
  if (!node_->is_scalar()) return expected("a name", choice);
  const auto found = std::find(names.begin(), names.end(), node_->text);
  if (found != names.end()) {
    index = found - names.begin();
    return;
  }
  const std::string best = count() < kMostSuggestions ? closest(node_->text, names) : "";
  fail(fmt::format("unknown value {}", kind_text(*node_)),
       best.empty() ? choice : fmt::format("did you mean '{}'? {}", best, choice));
}

void Reader::maybe(MaybeSlot& value) {
  if (node_->is_null()) return value.reset();
  if (!value.engaged()) value.emplace();
  value.visit(*this);
}

void Reader::list(ListSlot& value) {
  if (!node_->is_list()) return expected("a list", "write [a, b], or one line '- a' for each item");
  const std::vector<Value>& items = node_->items;
  value.assign_default(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) descend(items[i], [&] { value.visit(*this, i); });
}

void Reader::dictionary(DictionarySlot& value) {
  if (!node_->is_map()) return expected("a map", "write one line 'name: value' for each entry");
  value.clear();
  for (const Value::Entry& entry : node_->entries)
    descend(entry.value, [&] { value.visit(*this, entry.key); });
}

void Reader::structure(const std::type_info&, Slot body, const Shorthand* shorthand) {
  if (shorthand != nullptr && node_->is_scalar()) {
    std::string error;
    if (!shorthand->read(node_->text, error)) fail(error);
    return;
  }
  if (!node_->is_map()) return expected(shorthand != nullptr ? "a string or a map" : "a map");
  frames_.push_back({node_, count(), {}, {}, false});
  body.visit(*this);
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  if (!frame.abandoned) report_unknown_keys(frame);
}

void Reader::report_unknown_keys(const Frame& frame) {
  std::vector<std::string> unused;  // a mistyped key is rather one that is not there
  for (const std::string& key : frame.known)
    if (frame.map->find(key) == nullptr) unused.push_back(key);
  const std::set<std::string> known(frame.known.begin(), frame.known.end());
  for (const Value::Entry& entry : frame.map->entries) {
    if (known.contains(entry.key)) continue;
    if (count() >= kMostSuggestions) {
      problems_.add(entry.at, fmt::format("unknown key '{}'", entry.key));
      continue;
    }
    const std::string best = closest(entry.key, unused);
    problems_.add(entry.at, fmt::format("unknown key '{}'", entry.key),
                  best.empty() ? suggest(entry.key, frame.known, "known keys")
                               : fmt::format("did you mean '{}'?", best));
  }
}

}  // namespace

namespace detail {

void read_value(const Value& value, Slot out, Diagnostics& problems) {
  Reader reader(value, problems);
  out.visit(reader);
}

void read_file(const std::string& path, Slot out, Diagnostics& problems) {
  const std::size_t before = problems.problems().size();
  const Value value = load_value(path, problems);
  if (!value.is_null() || problems.problems().size() == before) read_value(value, out, problems);
}

void read_text(std::string_view text, const std::string& name, Slot out, Diagnostics& problems) {
  const std::size_t before = problems.problems().size();
  const Value value = load_value_text(text, name, problems);
  if (!value.is_null() || problems.problems().size() == before) read_value(value, out, problems);
}

}  // namespace detail
}  // namespace orrery::config
