#include "experiments/study/points.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "experiments/study/checks.h"
#include "experiments/study/commands.h"

namespace orrery::experiments {
namespace {

using config::Value;

constexpr std::size_t kMostRuns = 100'000;
constexpr const char* kName = "name";
constexpr const char* kAxes = "axes";

struct Axis {
  enum class Kind { setting, cases, option };
  Kind kind = Kind::setting;
  std::string name;
  std::string choice;  ///< Of an option: the planner or policy that has it.
  std::string path;    ///< In the settings; "" of cases.
  std::vector<Value> values;
};

/// An axis and the value that a run takes on it.
struct Choice {
  const Axis* axis = nullptr;
  const Value* value = nullptr;
};
using Selection = std::vector<Choice>;

std::string text_of(const Axis& axis, const Value& value) {
  if (axis.kind == Axis::Kind::cases) return value.find(kName)->text;
  return value.is_scalar() ? value.text : config::to_flow(value);
}

config::Position place_of(const Choice& choice) {
  const Value* name =
      choice.axis->kind == Axis::Kind::cases ? choice.value->find(kName) : choice.value;
  return name->at;
}

std::string first_segment(const std::string& path) { return path.substr(0, path.find('.')); }

/// The axes of a study, told apart, and their products.
class Product {
 public:
  Product(const Study& study, config::Diagnostics& diagnostics)
      : study_(study),
        command_(command_of(study)),
        diagnostics_(diagnostics),
        settings_(setting_names(command_)) {
    find_choices();
    axes_ = axes_of(study.axes);
  }

  std::vector<Selection> selections() {
    if (good_) extend({}, {axes_.begin(), axes_.end()});
    if (good_) check_options();
    if (!good_) selections_.clear();
    return std::move(selections_);
  }

  /// In their order; cases' own behind them.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    const auto add = [&](const Axis* axis) {
      if (std::find(names.begin(), names.end(), axis->name) == names.end()) {
        names.push_back(axis->name);
      }
    };
    for (const Axis* axis : axes_) {
      add(axis);
      for (const Value& value : axis->values) {
        const auto own = own_axes_.find(&value);
        if (own == own_axes_.end()) continue;
        for (const Axis* each : own->second) add(each);
      }
    }
    return names;
  }

 private:
  void problem(const config::Position& at, const std::string& what, const std::string& hint = "") {
    diagnostics_.add(at, what, hint);
    good_ = false;
  }

  bool is_setting(const std::string& path) const {
    return std::find(settings_.begin(), settings_.end(), first_segment(path)) != settings_.end();
  }

  /// What the runs choose of the command's catalog, wherever the study says so.
  void find_choices() {
    if (command_.choice == nullptr) return;
    const std::string setting = command_.choice;
    const auto take = [&](const Value* value) {
      if (value != nullptr) choices_.insert(name_of_choice(*value));
    };
    const auto take_axes = [&](const Value* axes) {
      if (axes == nullptr) return;
      for (const auto& entry : axes->entries) {
        if (entry.key != setting && entry.key != setting + ".name") continue;
        for (const Value& value : entry.value.items) take(&value);
      }
    };
    take(study_.settings.find(setting));
    take_axes(&study_.axes);
    for (const auto& axis : study_.axes.entries) {
      for (const Value& value : axis.value.items) {
        take(value.find(setting));
        take_axes(value.find(kAxes));
      }
    }
  }

  /// Options go behind what they are options of.
  std::vector<const Axis*> axes_of(const Value& map) {
    std::vector<const Axis*> axes;
    if (!map.is_map() && !map.is_null()) {
      problem(map.at, "expected a map of axes, got " + config::kind_text(map));
      return axes;
    }
    for (const Value::Entry& entry : map.entries) {
      if (!entry.value.is_list()) {
        problem(entry.value.at, fmt::format("axis '{}': expected a list of values, got {}",
                                            entry.key, config::kind_text(entry.value)));
      } else if (entry.value.items.empty()) {
        problem(entry.value.at, fmt::format("axis '{}' has no values", entry.key),
                "give at least one, or remove the axis");
      } else if (const Axis* axis = axis_of(entry)) {
        axes.push_back(axis);
      }
    }
    std::stable_partition(axes.begin(), axes.end(),
                          [](const Axis* axis) { return axis->kind != Axis::Kind::option; });
    return axes;
  }

  const Axis* axis_of(const Value::Entry& entry) {
    Axis axis{Axis::Kind::setting, entry.key, "", entry.key, entry.value.items};
    const std::string first = first_segment(entry.key);
    const bool has_dot = first.size() < entry.key.size();
    if (!is_setting(entry.key) && has_dot && choices_.contains(first)) {
      axis.kind = Axis::Kind::option;
      axis.choice = first;
      axis.path = fmt::format("{}.options.{}", command_.choice, entry.key.substr(first.size() + 1));
    } else if (!is_setting(entry.key) && !has_dot && entry.value.items.front().is_map()) {
      axis.kind = Axis::Kind::cases;
      axis.path = "";
    } else if (!is_setting(entry.key)) {
      std::vector<std::string> known = settings_;
      known.insert(known.end(), choices_.begin(), choices_.end());
      problem(entry.at.line > 0 ? entry.at : entry.value.at,
              fmt::format("axis '{}' is no setting of `{}`", entry.key, command_.name),
              config::suggest(first, known, "settings") +
                  "; an axis of cases has values like {name: small, SETTING: VALUE}");
      return nullptr;
    }
    axes_stored_.push_back(std::move(axis));
    const Axis* stored = &axes_stored_.back();
    if (stored->kind == Axis::Kind::cases && !read_cases(*stored)) return nullptr;
    return stored;
  }

  bool read_cases(const Axis& axis) {
    const bool before = std::exchange(good_, true);
    std::set<std::string> names;
    for (const Value& value : axis.values) {
      const Value* name = value.find(kName);
      if (!value.is_map() || name == nullptr || !name->is_scalar() || name->text.empty()) {
        problem(value.at, fmt::format("a value of axis '{}' without a `name`", axis.name),
                "as in {name: small, model: llama_7b}");
        continue;
      }
      if (!names.insert(name->text).second) {
        problem(name->at,
                fmt::format("two values of axis '{}' are called '{}'", axis.name, name->text));
      }
      for (const Value::Entry& entry : value.entries) {
        if (entry.key == kName || is_setting(entry.key)) continue;
        if (entry.key == kAxes) {
          own_axes_[&value] = axes_of(entry.value);
          continue;
        }
        problem(entry.at, fmt::format("unknown setting '{}' of `{}`", entry.key, command_.name),
                config::suggest(first_segment(entry.key), settings_, "settings"));
      }
    }
    return std::exchange(good_, good_ && before);
  }

  /// An option of what no run chooses would be left out without a word.
  void check_options() {
    for (const Axis& axis : axes_stored_) {
      if (axis.kind != Axis::Kind::option) continue;
      const auto takes = [&](const Choice& choice) { return choice.axis->name == axis.name; };
      if (std::any_of(selections_.begin(), selections_.end(), [&](const Selection& selection) {
            return std::any_of(selection.begin(), selection.end(), takes);
          })) {
        continue;
      }
      problem(
          axis.values.front().at,
          fmt::format("axis '{}': no run has the {} '{}'", axis.name, command_.choice, axis.choice),
          "remove the axis, or let a run choose it");
    }
  }

  /// The planner or policy that the run has so far.
  std::string choice_of(const Selection& selection) const {
    const std::string setting = command_.choice;
    std::string name;
    if (const Value* base = study_.settings.find(setting)) name = name_of_choice(*base);
    for (const Choice& choice : selection) {
      const Value* value = choice.axis->kind == Axis::Kind::cases ? choice.value->find(setting)
                           : choice.axis->path == setting || choice.axis->path == setting + ".name"
                               ? choice.value
                               : nullptr;
      if (value != nullptr) name = name_of_choice(*value);
    }
    return name;
  }

  /// Axes of a case take the place of others of their names; new ones come next.
  static std::deque<const Axis*> with_own(std::deque<const Axis*> rest,
                                          const std::vector<const Axis*>& own) {
    std::vector<const Axis*> added;
    for (const Axis* axis : own) {
      const auto same = std::find_if(rest.begin(), rest.end(),
                                     [&](const Axis* other) { return other->name == axis->name; });
      if (same == rest.end()) {
        added.push_back(axis);
      } else {
        *same = axis;
      }
    }
    rest.insert(rest.begin(), added.begin(), added.end());
    return rest;
  }

  void extend(const Selection& selection, std::deque<const Axis*> rest) {
    if (!good_) return;
    if (rest.empty()) {
      selections_.push_back(selection);
      if (selections_.size() * study_.seeds.value.size() <= kMostRuns) return;
      problem(selection.empty() ? study_.seeds.at : place_of(selection.back()),
              fmt::format("more than {} runs", kMostRuns), "split them over several studies");
      return;
    }
    const Axis* axis = rest.front();
    rest.pop_front();
    if (axis->kind == Axis::Kind::option && choice_of(selection) != axis->choice) {
      return extend(selection, std::move(rest));
    }
    for (const Value& value : axis->values) {
      Selection longer = selection;
      longer.push_back({axis, &value});
      const auto own = own_axes_.find(&value);
      extend(longer, own == own_axes_.end() ? rest : with_own(rest, own->second));
    }
  }

  const Study& study_;
  const StudyCommand& command_;
  config::Diagnostics& diagnostics_;
  std::vector<std::string> settings_;  ///< Keys of the command.
  bool good_ = true;
  std::set<std::string> choices_;
  std::deque<Axis> axes_stored_;
  std::vector<const Axis*> axes_;
  std::map<const Value*, std::vector<const Axis*>> own_axes_;  ///< Of cases.
  std::vector<Selection> selections_;
};

bool is_excluded(const Selection& selection, const std::map<std::string, Value>& exclusion) {
  return std::all_of(exclusion.begin(), exclusion.end(), [&](const auto& wanted) {
    const Value& value = wanted.second;
    const std::string text = value.is_scalar() ? value.text : config::to_flow(value);
    return std::any_of(selection.begin(), selection.end(), [&](const Choice& choice) {
      return choice.axis->name == wanted.first && text_of(*choice.axis, *choice.value) == text;
    });
  });
}

void exclude(const Study& study, config::Diagnostics& diagnostics,
             std::vector<Selection>& selections) {
  for (const auto& exclusion : study.exclude) {
    const std::size_t removed = std::erase_if(selections, [&](const Selection& selection) {
      return is_excluded(selection, exclusion.value);
    });
    if (removed == 0 || exclusion.value.empty()) {
      diagnostics.add(exclusion.at, "this leaves out no point of the axes",
                      "give `axes` and values that they take");
    } else if (selections.empty()) {
      return diagnostics.add(exclusion.at, "this leaves out the last point of the axes");
    }
  }
}

/// A job may be the path of a file.
void complete(Value& settings, const Study& study, config::Diagnostics& problems) {
  if (!command_of(study).job_files) return;
  for (Value::Entry& entry : settings.entries) {
    if (entry.key == "job") complete_job(entry.value, study.folder, problems);
  }
}

/// A choice by its name alone becomes a map, so that options can be put into it.
Value with_map(Value settings, const std::string& key) {
  for (Value::Entry& entry : settings.entries) {
    if (entry.key != key || !entry.value.is_scalar()) continue;
    Value map = Value::map({}, entry.value.at);
    map.append(kName, entry.value);
    map.entries.back().at = entry.value.at;
    entry.value = std::move(map);
  }
  return settings;
}

/// The point of a selection but for its seed, or problems.
Point make_point(const Study& study, const Selection& selection, config::Diagnostics& problems) {
  Point point;
  Value& tree = point.settings;
  tree = study.settings;
  complete(tree, study, problems);
  for (const auto& [axis, value] : selection) {
    if (!problems.empty()) return point;
    if (axis->kind == Axis::Kind::cases) {
      for (const Value::Entry& entry : value->entries) {
        if (entry.key == kName || entry.key == kAxes) continue;
        tree = config::merge(std::move(tree), entry.key, entry.value, problems);
      }
    } else {
      if (axis->kind == Axis::Kind::option) {
        tree = with_map(std::move(tree), command_of(study).choice);
      }
      tree = config::merge(std::move(tree), axis->path, *value, problems);
    }
    point.axes.emplace_back(axis->name, text_of(*axis, *value));
  }
  if (const Value* seed = tree.find("seed"); seed != nullptr && problems.empty()) {
    problems.add(seed->at, "a run takes its seed from `seeds`", "write `seeds: [1, 2, 3]`");
  }
  complete(tree, study, problems);  // an axis may bring another job
  return point;
}

const Value* at_path(const Value& tree, const std::string& path) {
  const std::string first = first_segment(path);
  const Value* value = tree.find(first);
  if (value == nullptr || first.size() == path.size()) return value;
  return at_path(*value, path.substr(first.size() + 1));
}

void set_seed(Point& point, const Study& study, std::int64_t seed) {
  config::Diagnostics ignored;  // a setting of the wrong kind is a problem where it is read
  point.seed = seed;
  for (const char* path : command_of(study).seeds) {
    if (at_path(point.settings, path) != nullptr) continue;
    point.settings = config::merge(std::move(point.settings), path,
                                   Value::scalar(std::to_string(seed), study.seeds.at), ignored);
  }
}

/// It draws no random numbers.
bool is_unseeded(const Study& study, const Value& settings, std::set<std::string>& known) {
  const char* key = command_of(study).choice;
  const Value* choice = key == nullptr ? nullptr : settings.find(key);
  if (choice == nullptr) return false;
  const std::string name = name_of_choice(*choice);
  known.insert(name);
  return std::any_of(study.unseeded.begin(), study.unseeded.end(),
                     [&](const auto& each) { return each.value == name; });
}

void check_unseeded(const Study& study, const std::set<std::string>& known,
                    config::Diagnostics& diagnostics) {
  for (const config::Located<std::string>& name : study.unseeded) {
    if (known.contains(name.value)) continue;
    diagnostics.add(name.at, fmt::format("no run of this study has '{}'", name.value),
                    config::suggest(name.value, {known.begin(), known.end()}, "there are"));
  }
}

/// Names the first run that appears twice.
void check_distinct(const Study& study, const std::vector<Point>& points,
                    config::Diagnostics& diagnostics) {
  std::map<std::pair<std::vector<std::pair<std::string, std::string>>, std::int64_t>, std::size_t>
      seen;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto [first, is_new] = seen.emplace(std::pair(points[i].axes, points[i].seed), i);
    if (is_new) continue;
    diagnostics.add(points[i].axes.empty() ? study.seeds.at : points[i].at,
                    fmt::format("runs {} and {} are the same", first->second + 1, i + 1),
                    "an axis or `seeds` has a value twice");
    return;
  }
}

}  // namespace

std::string Point::on(const std::string& axis) const {
  const auto found =
      std::find_if(axes.begin(), axes.end(), [&](const auto& each) { return each.first == axis; });
  return found == axes.end() ? "" : found->second;
}

std::vector<Point> expand(const Study& study, config::Diagnostics& diagnostics) {
  std::vector<Point> points;
  if (study.seeds.value.empty()) {
    diagnostics.add(study.seeds.at, "`seeds` has no values", "as in [0]");
    return points;
  }
  Product product(study, diagnostics);
  std::vector<Selection> selections = product.selections();
  if (selections.empty()) return points;
  exclude(study, diagnostics, selections);
  DistinctProblems distinct(diagnostics);
  std::set<std::string> choices;
  bool whole = true;
  for (const Selection& selection : selections) {
    config::Diagnostics problems;
    const Point point = make_point(study, selection, problems);
    distinct.take(problems);
    whole &= problems.empty();
    if (!problems.empty()) continue;
    const bool one_seed = is_unseeded(study, point.settings, choices);
    for (const std::int64_t seed : study.seeds.value) {
      points.push_back(point);
      points.back().at = selection.empty() ? study.settings.at : place_of(selection.back());
      set_seed(points.back(), study, seed);
      if (one_seed) break;
    }
  }
  if (whole) check_unseeded(study, choices, diagnostics);
  check_distinct(study, points, diagnostics);
  return points;
}

std::vector<std::string> axis_names(const Study& study) {
  config::Diagnostics ignored;
  return Product(study, ignored).names();
}

std::string name_of_choice(const config::Value& value) {
  if (!value.is_map()) return value.text;
  for (const char* key : {"label", kName}) {
    const Value* name = value.find(key);
    if (name != nullptr && !name->text.empty()) return name->text;
  }
  return "";
}

void DistinctProblems::take(const config::Diagnostics& found) {
  std::vector<std::string> now;
  for (const config::Problem& problem : found.problems()) {
    now.push_back(problem.what);
    const bool known = std::find(earlier_.begin(), earlier_.end(), problem.what) != earlier_.end();
    if (!known) out_.add(problem.at, problem.what, problem.hint);
  }
  earlier_.insert(earlier_.end(), now.begin(), now.end());
}

}  // namespace orrery::experiments
