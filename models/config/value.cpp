#include "models/config/value.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace orrery::config {
namespace {

/// Replaces what lies below `node` at `path`; false, with a problem, if the path leads nowhere.
bool set(Value& node, std::string_view path, const Value& value, std::string_view whole,
         Diagnostics& problems) {
  if (path.empty()) {
    node = value;
    return true;
  }
  const std::size_t dot = path.find('.');
  const std::string_view segment = path.substr(0, dot);
  const std::string_view rest = dot == std::string_view::npos ? "" : path.substr(dot + 1);
  const auto fail = [&](const std::string& what, const std::string& hint) {
    problems.add(value.at, fmt::format("path '{}': {}", whole, what), hint);
    return false;
  };
  if (segment.empty() || (dot != std::string_view::npos && rest.empty()))
    return fail("empty segment", "segments are separated by one dot");
  if (node.is_scalar())
    return fail(fmt::format("{} has nothing below it", kind_text(node)),
                fmt::format("'{}' would have to be a key", segment));
  if (node.is_list()) {
    std::size_t index = 0;
    const auto [end, status] =
        std::from_chars(segment.data(), segment.data() + segment.size(), index);
    if (status != std::errc{} || end != segment.data() + segment.size() ||
        index >= node.items.size())
      return fail(fmt::format("no list item '{}'", segment),
                  fmt::format("the list has {} items, counted from 0", node.items.size()));
    return set(node.items[index], rest, value, whole, problems);
  }
  if (node.is_null()) node = Value::map({}, value.at);
  for (Value::Entry& entry : node.entries)
    if (entry.key == segment) return set(entry.value, rest, value, whole, problems);
  node.entries.push_back({std::string(segment), value.at, Value{}});
  return set(node.entries.back().value, rest, value, whole, problems);
}

}  // namespace

Value Value::scalar(std::string text, Position at) {
  Value value;
  value.kind = Kind::scalar;
  value.text = std::move(text);
  value.at = std::move(at);
  return value;
}

Value Value::list(std::vector<Value> items, Position at) {
  Value value;
  value.kind = Kind::list;
  value.items = std::move(items);
  value.at = std::move(at);
  return value;
}

Value Value::map(std::vector<Entry> entries, Position at) {
  Value value;
  value.kind = Kind::map;
  value.entries = std::move(entries);
  value.at = std::move(at);
  return value;
}

void Value::append(std::string key, Value value) {
  Entry& entry = entries.emplace_back();
  entry.key = std::move(key);
  entry.value = std::move(value);
}

const Value* Value::find(std::string_view key) const {
  for (const Entry& entry : entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

std::string kind_text(const Value& value) {
  constexpr std::size_t kShown = 60;
  switch (value.kind) {
    case Value::Kind::null:
      return "nothing";
    case Value::Kind::list:
      return "a list";
    case Value::Kind::map:
      return "a map";
    case Value::Kind::scalar:
      break;
  }
  if (value.text.size() <= kShown) return fmt::format("'{}'", value.text);
  std::size_t cut = kShown;  // not within a UTF-8 sequence
  while (cut > 0 && (static_cast<unsigned char>(value.text[cut]) & 0xC0) == 0x80) --cut;
  return fmt::format("'{}...'", std::string_view(value.text).substr(0, cut));
}

Value merge(Value base, std::string_view path, const Value& value, Diagnostics& problems) {
  Value changed = base;
  if (path.empty()) {
    problems.add(value.at, "empty path", "a path reads 'job.global_batch'");
    return base;
  }
  return set(changed, path, value, path, problems) ? changed : base;
}

}  // namespace orrery::config
