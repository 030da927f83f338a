/// From paths of plan defects to positions in the plan's file.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "models/check/validate.h"
#include "models/config/document.h"

namespace orrery::models {
namespace {

/// Takes the next key or "[index]" off the front of a path.
std::string_view take(std::string_view& path) {
  if (path.front() == '.') path.remove_prefix(1);
  const std::size_t end = std::min(path.find_first_of(".[", 1), path.size());
  const std::string_view step = path.substr(0, end);
  path.remove_prefix(end);
  return step;
}

const config::Value* child(const config::Value& value, std::string_view step) {
  if (!step.starts_with('[')) return value.find(step);
  std::size_t index = 0;
  const auto parsed = std::from_chars(step.data() + 1, step.data() + step.size(), index);
  return parsed.ec == std::errc{} && index < value.items.size() ? &value.items[index] : nullptr;
}

}  // namespace

void report(const std::vector<PlanDefect>& defects, const std::string& plan_file,
            config::Diagnostics& diagnostics) {
  if (defects.empty()) return;
  config::Diagnostics unread;
  const config::Value root = config::load_value(plan_file, unread);
  for (const PlanDefect& defect : defects) {
    const config::Value* node = &root;
    std::string_view rest = defect.path;
    while (!rest.empty()) {
      const config::Value* next = child(*node, take(rest));
      if (next == nullptr) break;
      node = next;
    }
    config::Position at = node->at;
    if (at.file.empty()) at.file = plan_file;
    const std::string where = defect.path.empty() ? "" : defect.path + ": ";
    diagnostics.add(at, where + defect.what, defect.hint);
  }
}

}  // namespace orrery::models
