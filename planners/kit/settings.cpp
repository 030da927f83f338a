#include "planners/kit/settings.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "models/base/check.h"
#include "planners/kit/integers.h"

namespace orrery::planners {

std::vector<OptionInfo> detail::options_of(config::Slot prototype) {
  std::vector<OptionInfo> options;
  for (config::FieldText& field : config::detail::field_texts(prototype)) {
    options.push_back({field.key, field.default_value, field.doc});
  }
  return options;
}

config::Diagnostics detail::check_options(const Options& given, config::Slot out) {
  std::map<std::string, std::string> last;  // Later values of the same name win.
  for (const auto& [name, text] : given) last[name] = text;
  config::Diagnostics problems;
  config::Value tree = config::Value::map({});
  for (const auto& [name, text] : last) {
    tree =
        config::merge(std::move(tree), name, config::Value::scalar(text, {name, 0, 0}), problems);
  }
  for (config::Value::Entry& entry : tree.entries) entry.at = {entry.key, 0, 0};
  config::detail::read_value(tree, out, problems);
  return problems;
}

void detail::read_settings(const Options& given, config::Slot out) {
  const config::Diagnostics problems = check_options(given, out);
  ORRERY_CHECK(problems.empty(), "{}", to_string(problems.problems().front()));
}

void check_power_of_two(config::Visitor& v, const char* key, int value) {
  if (v.reading() && value > 0 && !is_power_of_two(value)) {
    v.problem(key, fmt::format("{} is not a power of two", value));
  }
}

}  // namespace orrery::planners
