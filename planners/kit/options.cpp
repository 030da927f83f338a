#include "planners/kit/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "models/base/check.h"

namespace orrery::planners {
namespace {

/// The whole text as a number, or nothing.
template <class T>
std::optional<T> parse(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

OptionReader::OptionReader(std::vector<OptionInfo> infos, const Options& given)
    : infos_(std::move(infos)), given_(given) {
  for (const auto& [name, value] : given_) {
    const bool known = std::any_of(infos_.begin(), infos_.end(),
                                   [&](const OptionInfo& info) { return name == info.name; });
    if (known || problem_) continue;
    std::vector<std::string> names;
    for (const OptionInfo& info : infos_) names.emplace_back(info.name);
    problem_ = {name, fmt::format("unknown option (valid: {})", fmt::join(names, ", "))};
  }
}

const OptionInfo& OptionReader::info(const std::string& name) const {
  const auto found = std::find_if(infos_.begin(), infos_.end(),
                                  [&](const OptionInfo& info) { return name == info.name; });
  ORRERY_CHECK(found != infos_.end(), "option {} is read but not declared", name);
  return *found;
}

std::string OptionReader::text(const char* name) const {
  std::string value = info(name).default_value;
  for (const auto& [given, text] : given_) {
    if (given == name) value = text;
  }
  return value;
}

void OptionReader::report(const char* name, std::string what) {
  if (!problem_) problem_ = {name, std::move(what)};
}

std::int64_t OptionReader::integer(const char* name, std::int64_t low, std::int64_t high) {
  const auto value = parse<std::int64_t>(text(name));
  if (value && low <= *value && *value <= high) return *value;
  report(name, fmt::format("expected an integer from {} to {}, not '{}'", low, high, text(name)));
  return parse<std::int64_t>(info(name).default_value).value_or(low);
}

double OptionReader::number(const char* name, double low, double high) {
  const auto value = parse<double>(text(name));
  if (value && std::isfinite(*value) && low <= *value && *value <= high) return *value;
  report(name, fmt::format("expected a number from {} to {}, not '{}'", low, high, text(name)));
  return parse<double>(info(name).default_value).value_or(low);
}

std::size_t OptionReader::pick(const char* name, const std::vector<const char*>& names) {
  const auto position = [&](const std::string& wanted) {
    return static_cast<std::size_t>(
        std::find_if(names.begin(), names.end(), [&](const char* n) { return wanted == n; }) -
        names.begin());
  };
  const std::size_t found = position(text(name));
  if (found < names.size()) return found;
  report(name, fmt::format("'{}' is none of {}", text(name), fmt::join(names, ", ")));
  return std::min(position(info(name).default_value), names.size() - 1);
}

}  // namespace orrery::planners
