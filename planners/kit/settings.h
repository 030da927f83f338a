/// Settings of planners and recovery policies are described structs (models/config/visitor.h): the
/// options of `-o NAME=VALUE`, of manifests and of `orrery list planners` are their fields.
#pragma once
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "models/config/document.h"
#include "planners/planner.h"

namespace orrery::planners {

namespace detail {
std::vector<OptionInfo> options_of(config::Slot prototype);
std::optional<PlannerEntry::BadOption> read_settings(const Options& given, config::Slot out);
}  // namespace detail

/// The fields of Settings with their defaults and explanations.
template <class Settings>
std::vector<OptionInfo> options_of() {
  Settings prototype{};
  return detail::options_of(config::detail::slot(prototype));
}

/// Reads what was given over the defaults; the first problem where there is any.
template <class Settings>
std::optional<PlannerEntry::BadOption> read_settings(const Options& given, Settings& out) {
  return detail::read_settings(given, config::detail::slot(out));
}

/// An entry of the catalog for a class P that is made from its P::Settings.
template <class P>
constexpr PlannerEntry planner_entry(const char* name, const char* source, const char* searches,
                                     const char* ignores, OwnEstimate* estimate = nullptr,
                                     bool takes_lengths = false) {
  return {
      name,
      source,
      searches,
      ignores,
      options_of<typename P::Settings>,
      [](const Options& given) -> std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> {
        typename P::Settings settings;
        if (auto problem = read_settings(given, settings)) return *std::move(problem);
        return std::make_unique<P>(std::move(settings));
      },
      takes_lengths,
      estimate};
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
