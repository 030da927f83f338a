#include "calibration/importers/json_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "calibration/read_text.h"
#include "models/config/document.h"
#include "models/config/json_text.h"

namespace orrery::calibration {

bool load_json(const std::string& path, config::Value& root, config::Diagnostics& diagnostics) {
  std::string text;
  if (!read_text(path, text, diagnostics)) return false;
  nlohmann::json parsed;  // Only checked: the tree below has positions.
  if (const auto fault = config::parse_json(text, parsed)) {
    diagnostics.add(config::position_of_byte(path, text, fault->byte), fault->what);
    return false;
  }
  if (!parsed.is_object()) {
    diagnostics.add({path, 1, 1}, "is no JSON object");
    return false;
  }
  // JSON is YAML but for tabs, which it allows between tokens only.
  std::replace(text.begin(), text.end(), '\t', ' ');
  const std::size_t before = diagnostics.problems().size();
  root = config::load_value_text(text, path, diagnostics);
  return diagnostics.problems().size() == before;
}

void JsonReader::fail(const config::Value& at, std::string what, std::string hint) {
  diagnostics_.add(at.at, std::move(what), std::move(hint));
}

const config::Value* JsonReader::find(const std::string& path) {
  const config::Value* value = &root_;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    if (!value->is_map()) {
      fail(*value, fmt::format("expected an object with '{}', not {}", key, kind_text(*value)));
      return nullptr;
    }
    const config::Value* below = value->find(key);
    if (below == nullptr) {
      fail(*value, fmt::format("'{}' is missing", path));
      return nullptr;
    }
    value = below;
    begin = end + 1;
  }
  return value;
}

std::string JsonReader::text(const std::string& path) {
  const config::Value* value = find(path);
  if (value == nullptr) return "";
  if (value->is_scalar() && value->quoted && !value->text.empty()) return value->text;
  fail(*value, fmt::format("'{}' must be a text, is {}", path, kind_text(*value)));
  return "";
}

std::optional<double> JsonReader::parse(const config::Value& value, const std::string& path,
                                        double low) {
  double number = 0;
  bool good = value.is_scalar() && !value.quoted;
  if (good) {
    const char* end = value.text.data() + value.text.size();
    const auto [stop, error] = std::from_chars(value.text.data(), end, number);
    good = error == std::errc{} && stop == end && std::isfinite(number);
  }
  if (!good) {
    fail(value, fmt::format("'{}' must be a number, is {}", path, kind_text(value)));
    return std::nullopt;
  }
  if (number < low) {
    fail(value, fmt::format("'{}' must be at least {}, is {}", path, low, value.text));
    return std::nullopt;
  }
  return number;
}

double JsonReader::number(const std::string& path, double low) {
  const config::Value* value = find(path);
  return value == nullptr ? low : parse(*value, path, low).value_or(low);
}

double JsonReader::positive(const std::string& path) {
  const config::Value* value = find(path);
  if (value == nullptr) return 0;
  const auto number = parse(*value, path, -std::numeric_limits<double>::infinity());
  if (number && *number <= 0) {
    fail(*value, fmt::format("'{}' must be positive, is {}", path, value->text));
  }
  return number && *number > 0 ? *number : 0;
}

std::vector<double> JsonReader::numbers(const std::string& path, double low) {
  std::vector<double> result;
  const config::Value* value = find(path);
  if (value == nullptr) return result;
  if (!value->is_list() || value->items.empty()) {
    fail(*value, fmt::format("'{}' must be a list of numbers, is {}", path,
                             value->is_list() ? "empty" : kind_text(*value)));
    return result;
  }
  for (std::size_t i = 0; i < value->items.size(); ++i) {
    result.push_back(parse(value->items[i], fmt::format("{}[{}]", path, i), low).value_or(low));
  }
  return result;
}

}  // namespace orrery::calibration
