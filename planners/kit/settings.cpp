#include "planners/kit/settings.h"

#include <map>
#include <string>

namespace orrery::planners {

std::vector<OptionInfo> detail::options_of(config::Slot prototype) {
  std::vector<OptionInfo> options;
  for (config::FieldText& field : config::detail::field_texts(prototype)) {
    options.push_back({field.key, field.default_value, field.doc});
  }
  return options;
}

std::optional<PlannerEntry::BadOption> detail::read_settings(const Options& given,
                                                             config::Slot out) {
  std::map<std::string, std::string> last;  // Later values of the same name win.
  for (const auto& [name, text] : given) last[name] = text;
  config::Diagnostics problems;
  config::Value tree = config::Value::map({});
  for (const auto& [name, text] : last) {
    // The position names the option, so that a problem can be told by it.
    tree =
        config::merge(std::move(tree), name, config::Value::scalar(text, {name, 0, 0}), problems);
  }
  for (config::Value::Entry& entry : tree.entries) entry.at = {entry.key, 0, 0};
  config::detail::read_value(tree, out, problems);
  if (problems.empty()) return std::nullopt;
  const config::Problem& first = problems.problems().front();
  const std::string hint = first.hint.empty() ? "" : " (" + first.hint + ")";
  return PlannerEntry::BadOption{first.at.file, first.what + hint};
}

}  // namespace orrery::planners
