/// Reads a planner's options: names, ranges and choices are checked in one place, and the defaults
/// stand only in the planner's list of OptionInfo.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planners/planner.h"

namespace orrery::planners {

/// Values of an option that is a choice between names.
template <class E>
using Choices = std::vector<std::pair<const char*, E>>;

class OptionReader {
 public:
  /// Later values of the same name win over earlier ones. An unknown name is a problem.
  OptionReader(std::vector<OptionInfo> infos, const Options& given);

  /// An integer in [low, high]; the default after a problem.
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high);
  /// A finite number in [low, high]; the default after a problem.
  double number(const char* name, double low, double high);
  template <class E>
  E choice(const char* name, const Choices<E>& values) {
    std::vector<const char*> names;
    for (const auto& value : values) names.push_back(value.first);
    return values[pick(name, names)].second;
  }

  /// The value as it was given, or the default.
  std::string text(const char* name) const;

  /// The first problem met, in words with the valid values.
  const std::optional<PlannerEntry::BadOption>& problem() const { return problem_; }

 private:
  const OptionInfo& info(const std::string& name) const;
  void report(const char* name, std::string what);
  std::size_t pick(const char* name, const std::vector<const char*>& names);

  std::vector<OptionInfo> infos_;
  Options given_;
  std::optional<PlannerEntry::BadOption> problem_;
};

}  // namespace orrery::planners
