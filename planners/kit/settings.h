/// Settings of planners and recovery policies are described structs (models/config/visitor.h): the
/// options of `-o NAME=VALUE`, of manifests and of `orrery list planners` are their fields.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "models/config/document.h"
#include "planners/planner.h"

namespace orrery::planners {

namespace detail {
std::vector<OptionInfo> options_of(config::Slot prototype);
config::Diagnostics check_options(const Options& given, config::Slot prototype);
void read_settings(const Options& given, config::Slot out);
}  // namespace detail

/// The fields of Settings with their defaults and explanations.
template <class Settings>
std::vector<OptionInfo> options_of() {
  Settings prototype{};
  return detail::options_of(config::detail::slot(prototype));
}

/// PlannerEntry::check() of what has these settings.
template <class Settings>
config::Diagnostics check_options(const Options& given) {
  Settings prototype{};
  return detail::check_options(given, config::detail::slot(prototype));
}

/// What was given over the defaults, of options that have been checked.
template <class Settings>
Settings read_settings(const Options& given) {
  Settings settings{};
  detail::read_settings(given, config::detail::slot(settings));
  return settings;
}

/// A problem of the setting `key` whose value is neither 0 nor a power of two.
void check_power_of_two(config::Visitor& v, const char* key, int value);

/// An entry of the catalog for a class P that is made from its P::Settings.
template <class P>
constexpr PlannerEntry planner_entry(const char* name, const char* source, const char* searches,
                                     const char* ignores, OwnEstimate* estimate = nullptr,
                                     bool takes_lengths = false, bool draws = false,
                                     bool keeps_near = false, bool judges_all = false) {
  return {name,
          source,
          searches,
          ignores,
          options_of<typename P::Settings>,
          check_options<typename P::Settings>,
          [](const Options& given) -> std::unique_ptr<Planner> {
            return std::make_unique<P>(read_settings<typename P::Settings>(given));
          },
          takes_lengths,
          estimate,
          draws,
          keeps_near,
          judges_all};
}

/// A planner whose work is Search(input, settings).run().
template <class Search, class S>
class SearchPlanner final : public Planner {
 public:
  using Settings = S;
  explicit SearchPlanner(S settings) : settings_(std::move(settings)) {}
  PlannerResult plan(const PlannerInput& input) const override {
    return Search(input, settings_).run();
  }

 private:
  S settings_;
};

}  // namespace orrery::planners
