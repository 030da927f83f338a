#include "tools/python/catalogs.h"

#include <array>
#include <deque>
#include <utility>

#include "models/base/check.h"
#include "planners/catalog.h"
#include "planners/recovery/catalog.h"
#include "tools/python/bindings.h"
#include "tools/python/plugins.h"

namespace orrery::python {
namespace {

/// Most classes of each kind in one process: entries of the catalogs are functions without state,
/// so that each needs functions of its own.
constexpr std::size_t kMost = 32;

/// A class of Python; never freed, as it is needed until the process ends.
struct PluginClass {
  std::string name;  ///< "file.py:Class".
  std::string source;
  std::string summary;
  py::object type;
};

std::deque<PluginClass>& planner_classes() {
  static auto* classes = new std::deque<PluginClass>;
  return *classes;
}
std::deque<PluginClass>& policy_classes() {
  static auto* classes = new std::deque<PluginClass>;
  return *classes;
}

/// Errors of Python as the problem of whoever gave the name.
[[noreturn]] void rethrow(py::error_already_set& error, const std::string& name) {
  const py::object config_error = py::module_::import("orrery.errors").attr("ConfigError");
  std::vector<config::Problem> problems;
  if (error.matches(config_error)) {
    for (const py::handle problem : error.value().attr("problems")) {
      problems.push_back({{problem.attr("file").cast<std::string>(), 0, 0},
                          problem.attr("what").cast<std::string>(),
                          problem.attr("hint").cast<std::string>()});
    }
  } else {
    problems.push_back({{name, 0, 0}, error.what(), ""});
  }
  throw config::ConfigError(std::move(problems));
}

std::vector<planners::OptionInfo> options_of(const PluginClass& plugin) {
  const py::gil_scoped_acquire acquire;
  return from_python<std::vector<planners::OptionInfo>>(
      py::module_::import("orrery.plugins").attr("options_of")(plugin.type));
}

py::dict settings_of(const planners::Options& options) {
  py::dict settings;
  for (const auto& [name, value] : options) settings[name.c_str()] = value;
  return settings;
}

/// Problems of settings, each at the name of its setting.
config::Diagnostics check(const PluginClass& plugin, const planners::Options& options) {
  const py::gil_scoped_acquire acquire;
  config::Diagnostics problems;
  const py::object found =
      py::module_::import("orrery.plugins").attr("problems_of")(plugin.type, settings_of(options));
  for (const py::handle problem : found) {
    const auto parts = problem.cast<py::tuple>();
    problems.add({parts[0].cast<std::string>(), 0, 0}, parts[1].cast<std::string>(),
                 parts[2].cast<std::string>());
  }
  return problems;
}

template <std::size_t I>
std::unique_ptr<planners::Planner> make_planner(const planners::Options& options) {
  const py::gil_scoped_acquire acquire;
  return std::make_unique<PythonPlanner>(planner_classes()[I].type(**settings_of(options)));
}

template <std::size_t I>
planners::MadePolicy make_policy(const planners::PolicyInput& input,
                                 const planners::Options& options) {
  const py::gil_scoped_acquire acquire;
  return make_python_policy(policy_classes()[I].type, settings_of(options), input);
}

template <std::size_t... I>
const planners::PlannerEntry* add_planner(PluginClass plugin, std::index_sequence<I...>) {
  using Entry = planners::PlannerEntry;
  static constexpr std::array<decltype(Entry::options), sizeof...(I)> kOptions = {
      [] { return options_of(planner_classes()[I]); }...};
  static constexpr std::array<decltype(Entry::check), sizeof...(I)> kCheck = {
      [](const planners::Options& options) { return check(planner_classes()[I], options); }...};
  static constexpr std::array<decltype(Entry::make), sizeof...(I)> kMake = {make_planner<I>...};
  static std::deque<Entry> entries;
  const std::size_t at = entries.size();
  planner_classes().push_back(std::move(plugin));
  const PluginClass& kept = planner_classes().back();
  Entry& entry = entries.emplace_back();
  entry.name = kept.name.c_str();
  entry.source = kept.source.c_str();
  entry.searches = kept.summary.c_str();
  entry.ignores = "";
  entry.options = kOptions[at];
  entry.check = kCheck[at];
  entry.make = kMake[at];
  entry.draws = true;  // It may.
  return &entry;
}

template <std::size_t... I>
const planners::RecoveryEntry* add_policy(PluginClass plugin, std::index_sequence<I...>) {
  using Entry = planners::RecoveryEntry;
  static constexpr std::array<decltype(Entry::options), sizeof...(I)> kOptions = {
      [] { return options_of(policy_classes()[I]); }...};
  static constexpr std::array<decltype(Entry::check), sizeof...(I)> kCheck = {
      [](const planners::Options& options) { return check(policy_classes()[I], options); }...};
  static constexpr std::array<decltype(Entry::make), sizeof...(I)> kMake = {make_policy<I>...};
  static std::deque<Entry> entries;
  const std::size_t at = entries.size();
  policy_classes().push_back(std::move(plugin));
  const PluginClass& kept = policy_classes().back();
  Entry& entry = entries.emplace_back();
  entry.name = kept.name.c_str();
  entry.source = kept.source.c_str();
  entry.recovers = kept.summary.c_str();
  entry.needs = entry.loses = entry.slow = entry.deviations = "";
  entry.options = kOptions[at];
  entry.check = kCheck[at];
  entry.make = kMake[at];
  return &entry;
}

/// The class that "file.py:Class" means.
PluginClass load(const std::string& name, const char* base) {
  const py::module_ plugins = py::module_::import("orrery.plugins");
  try {
    PluginClass plugin;
    plugin.type = plugins.attr("load")(name, plugins.attr(base));
    plugin.name = name;
    plugin.source = name.substr(0, name.rfind(':'));
    plugin.summary = py::str(plugins.attr("summary_of")(plugin.type));
    return plugin;
  } catch (py::error_already_set& error) {
    rethrow(error, name);
  }
}

/// The entry of a name: the one that was made before, or a new one.
template <class Entry, class Add>
const Entry* entry_of(const std::string& name, const char* base, Add add) {
  const py::gil_scoped_acquire acquire;
  static std::map<std::string, const Entry*> known;
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  if (known.size() == kMost) {
    throw config::ConfigError({{{name, 0, 0}, "too many classes of Python in one run", ""}});
  }
  return known[name] = add(load(name, base), std::make_index_sequence<kMost>{});
}

}  // namespace

void offer_plugins() {
  planners::set_planner_source([](const std::string& name) {
    return entry_of<planners::PlannerEntry>(
        name, "Planner", [](auto plugin, auto all) { return add_planner(std::move(plugin), all); });
  });
  planners::set_policy_source([](const std::string& name) {
    return entry_of<planners::RecoveryEntry>(name, "RecoveryPolicy", [](auto plugin, auto all) {
      return add_policy(std::move(plugin), all);
    });
  });
}

}  // namespace orrery::python
