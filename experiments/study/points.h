/// The points of a study: settings of single runs, made of what the study says of all of them and
/// of its axes.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/study.h"
#include "models/config/diagnostics.h"
#include "models/config/document.h"
#include "models/config/value.h"

namespace orrery::experiments {

struct Point {
  config::Value settings;  ///< A map, the seed included.
  /// The values that it takes: (axis, value as text; of a case its name).
  std::vector<std::pair<std::string, std::string>> axes;
  std::int64_t seed = 0;
  config::Position at;  ///< Of its value on the last axis.

  /// Text of an axis; "" where it is on none of that name.
  std::string on(const std::string& axis) const;
};

/// The product of axes and seeds: axes in their order, the last one fastest, then seeds. Problems,
/// each named once and at the axis that brings it: an axis without values or one that leads
/// nowhere, values and cases that appear twice, exclusions that exclude nothing, too many runs.
std::vector<Point> expand(const Study& study, config::Diagnostics& diagnostics);

/// Names of the axes of a study, those of single cases included, in their order.
std::vector<std::string> axis_names(const Study& study);

/// The name in a value that is a choice: `hexiscale`, `{name: hexiscale, ...}`; of a label, that.
std::string name_of_choice(const config::Value& value);

/// Collects problems of many runs: what an earlier run had too is not repeated, be it at the same
/// place or at another value of the same axis.
class DistinctProblems {
 public:
  explicit DistinctProblems(config::Diagnostics& out) : out_(out) {}
  void take(const config::Diagnostics& found);

 private:
  config::Diagnostics& out_;
  std::vector<std::string> earlier_;
};

/// The settings of all points as a described type; points with problems are left out. `check` adds
/// what else is wrong with settings, be they read in full or in part.
template <class Settings, class Check>
std::vector<std::pair<Point, Settings>> read_settings(std::vector<Point> points,
                                                      config::Diagnostics& diagnostics,
                                                      const Check& check) {
  std::vector<std::pair<Point, Settings>> read;
  DistinctProblems distinct(diagnostics);
  for (Point& point : points) {
    config::Diagnostics found;
    Settings settings;
    config::describe_value(point.settings, settings, found);
    check(settings, found);
    distinct.take(found);
    if (found.empty()) read.emplace_back(std::move(point), std::move(settings));
  }
  return read;
}

}  // namespace orrery::experiments
