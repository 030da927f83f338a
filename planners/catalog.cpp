#include "planners/catalog.h"

#include <array>

namespace orrery::planners {

extern const PlannerEntry kHexiscale;
extern const PlannerEntry kMegatronGrid;

std::span<const PlannerEntry* const> catalog() {
  // clang-format off
  static constexpr std::array entries = {
      &kMegatronGrid,
      &kHexiscale,
  };
  // clang-format on
  return entries;
}

const PlannerEntry* find_planner(const std::string& name) {
  for (const PlannerEntry* entry : catalog()) {
    if (name == entry->name) return entry;
  }
  return nullptr;
}

std::vector<std::string> planner_names() {
  std::vector<std::string> names;
  for (const PlannerEntry* entry : catalog()) names.emplace_back(entry->name);
  return names;
}

}  // namespace orrery::planners
