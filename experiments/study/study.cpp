#include "experiments/study/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "experiments/study/assumptions.h"
#include "experiments/study/checks.h"
#include "experiments/study/commands.h"
#include "experiments/study/files.h"
#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Value;

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const StudyCommand* command : study_commands()) names.emplace_back(command->name);
  return names;
}

bool is_or_is_below(const std::string& path, const std::string& setting) {
  return path == setting || path.rfind(setting + ".", 0) == 0;
}

/// Removes a setting from axes and their cases.
void forget(Value& axes, const std::string& setting, const std::vector<std::string>& settings) {
  const auto remove = [&](Value& map) {
    std::erase_if(map.entries,
                  [&](const Value::Entry& entry) { return is_or_is_below(entry.key, setting); });
  };
  remove(axes);
  for (Value::Entry& axis : axes.entries) {
    const std::string first = axis.key.substr(0, axis.key.find('.'));
    if (std::find(settings.begin(), settings.end(), first) != settings.end()) continue;
    for (Value& one : axis.value.items) {
      remove(one);
      for (Value::Entry& entry : one.entries) {
        if (entry.key == "axes") forget(entry.value, setting, settings);
      }
    }
  }
}

/// Puts the study's settings on top of its base's, and adds what that assumes.
void take_base(Study& study, config::Diagnostics& diagnostics) {
  const std::string path = (fs::path(study.folder) / study.base).string();
  const auto base = config::load_file<Assumptions>(path, diagnostics);
  if (base.settings.is_map()) study.settings = overlay(base.settings, study.settings);
  for (const Assumption& one : base.assumptions) {
    study.assumptions.push_back(fmt::format("{}: {} ({})", one.what, one.value, one.source));
  }
}

/// Says what to write where the file is one of a former kind.
bool is_former(const Value& tree, config::Diagnostics& diagnostics) {
  const Value* schema = tree.find("schema");
  if (schema == nullptr || !schema->is_scalar()) return false;
  const std::string hint = former_schema_hint(schema->text);
  if (hint.empty()) return false;
  diagnostics.add(schema->at, fmt::format("'{}' is a study now", schema->text), hint);
  return true;
}

}  // namespace

void Study::set(const std::string& setting, const Value& value) {
  forget(axes, setting, setting_names(command_of(*this)));
  config::Diagnostics ignored;  // paths of settings lead through maps
  settings = config::merge(std::move(settings), setting, value, ignored);
}

void Study::set_axis(const std::string& axis, std::vector<Value> values) {
  forget(axes, axis, setting_names(command_of(*this)));
  std::erase_if(settings.entries, [&](const Value::Entry& entry) { return entry.key == axis; });
  axes.append(axis, Value::list(std::move(values)));
}

void Study::change_axis(
    const std::string& axis,
    const std::function<std::vector<Value>(const std::vector<Value>&)>& change) {
  std::vector<Value> of_study;
  const auto take = [&](const Value& map) {
    const Value* value = map.find(axis);
    if (value == nullptr) return;
    if (value->is_list()) {
      of_study.insert(of_study.end(), value->items.begin(), value->items.end());
    } else {
      of_study.push_back(*value);
    }
  };
  take(axes);
  take(settings);
  std::map<std::pair<std::string, std::size_t>, Value> of_cases;
  for (const Value::Entry& cases : axes.entries) {
    if (cases.key == axis) continue;
    for (std::size_t i = 0; i < cases.value.items.size(); ++i) {
      const Value& one = cases.value.items[i];
      if (!one.is_map()) continue;
      take(one);
      const Value* own = one.find("axes");
      const Value* list = own == nullptr ? nullptr : own->find(axis);
      if (list != nullptr) of_cases[{cases.key, i}] = Value::list(change(list->items), list->at);
    }
  }
  set_axis(axis, change(of_study));
  for (Value::Entry& cases : axes.entries) {
    for (std::size_t i = 0; i < cases.value.items.size(); ++i) {
      const auto list = of_cases.find({cases.key, i});
      if (list == of_cases.end()) continue;
      for (Value::Entry& entry : cases.value.items[i].entries) {
        if (entry.key == "axes") entry.value.append(axis, list->second);
      }
    }
  }
}

void Study::drop_option_axes(const std::vector<std::string>& keep) {
  const std::vector<std::string> known = setting_names(command_of(*this));
  std::erase_if(axes.entries, [&](const Value::Entry& axis) {
    const std::string first = axis.key.substr(0, axis.key.find('.'));
    return first != axis.key && std::find(known.begin(), known.end(), first) == known.end() &&
           std::find(keep.begin(), keep.end(), first) == keep.end();
  });
}

void describe(config::Visitor& v, Study& study) {
  static const std::string kCommands = [] {
    std::string text = "what each run does:";
    for (const StudyCommand* command : study_commands()) {
      text +=
          fmt::format("{} {} ({})", text.back() == ':' ? "" : ",", command->name, command->summary);
    }
    return text;
  }();
  v.schema("orrery/study", 1);
  v.title("Study");
  v.doc("A command at every point of some axes, and the figure that its results end in.");
  v.required("name", study.name, "folder under results/, for example hexiscale/case_study");
  v.optional("title", study.title, "of the figure");
  v.optional("about", study.about, "what the paper did, what comes out");
  v.required("command", study.command, kCommands.c_str());
  v.optional("base", study.base, "file of assumptions, seen from here; its settings lie below");
  v.optional("settings", study.settings, "of the command, for every run");
  v.optional("axes", study.axes,
             "settings and the values that they take; or a name and cases, which are maps of "
             "settings, each with a `name`, and perhaps with `axes` of its own; or NAME.OPTION of "
             "a planner or policy");
  v.optional("exclude", study.exclude,
             "points to leave out, as {axis: value, ...}; other axes are free");
  v.optional("seeds", study.seeds, "each point runs once with each");
  v.optional("unseeded", study.unseeded,
             "planners without random numbers: they run with the first seed only");
  v.optional("needs", study.needs,
             "files or folders below $ORRERY_DATA without which nothing runs");
  v.optional("publish", study.publish, "files of runs that also go to the results folder itself");
  v.optional("assumptions", study.assumptions, "what the paper does not say and is assumed");
  v.optional("plot", study.plot, "Python script next to this file that draws the figure");
  v.optional("published", study.published, "CSV of published values next to this file");
  for (const std::int64_t seed : study.seeds.value) v.not_negative("seeds", seed);
  if (!v.reading()) return;
  for (const auto& [key, value] : {std::pair("settings", &study.settings), {"axes", &study.axes}}) {
    if (v.given(key) && !value->is_map()) {
      v.problem(key, "expected a map, got " + config::kind_text(*value));
    }
  }
  if (v.given("command") && find_study_command(study.command.value) == nullptr) {
    v.problem("command", fmt::format("unknown command '{}'", study.command.value),
              config::suggest(study.command.value, command_names(), "commands"));
  }
  check_result_name(v, study.name);
  for (const std::string& name : study.publish) {
    if (!is_result_name(name) || name.find('/') != std::string::npos) {
      v.problem("publish", fmt::format("'{}' is no plain file name", name));
    } else if (name == "runs.csv" || name == "timings.csv" || name == "index.sqlite") {
      v.problem("publish", fmt::format("'{}' is a file of the runner", name));
    }
  }
  check_beside(v, "base", study.base);
  check_beside(v, "plot", study.plot);
  check_beside(v, "published", study.published);
}

Study load_study(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  Study study;
  const Value tree = config::load_value(path, diagnostics);
  if (diagnostics.problems().size() != before || is_former(tree, diagnostics)) return study;
  config::describe_value(tree, study, diagnostics);
  study.path = path;
  study.folder = fs::path(path).parent_path().string();
  if (study.folder.empty()) study.folder = ".";
  if (diagnostics.problems().size() != before) return study;
  std::string text = read_text_file(path);
  if (!study.base.empty()) {
    text += read_text_file((fs::path(study.folder) / study.base).string());
    take_base(study, diagnostics);
  }
  study.hash = content_hash(text);
  if (diagnostics.problems().size() != before) return study;
  resolve(study, diagnostics);
  return study;
}

void resolve(Study& study, config::Diagnostics& diagnostics) {
  const StudyCommand& command = command_of(study);
  if (command.resolve != nullptr) command.resolve(study, diagnostics);
}

const StudyCommand& command_of(const Study& study) {
  const StudyCommand* command = find_study_command(study.command.value);
  ORRERY_CHECK(command != nullptr, "command '{}' was not checked", study.command.value);
  return *command;
}

std::string study_schema() {
  using Json = nlohmann::ordered_json;
  Json schema = Json::parse(config::json_schema<Study>("Orrery study"));
  Json names = Json::array();
  Json rules = Json::array();
  for (const StudyCommand* command : study_commands()) {
    names.push_back(command->name);
    Json settings = Json::parse(command->settings.schema());
    settings.erase("$schema");
    settings.erase("required");  // what is missing may come from the axes
    if (Json& properties = settings["properties"]; properties.contains("job")) {
      Json& job = properties["job"];
      job = {{"anyOf", Json::array({Json{{"type", "string"}}, job})}};
      job["anyOf"][1].erase("required");
    }
    rules.push_back({{"if", {{"properties", {{"command", {{"const", command->name}}}}}}},
                     {"then", {{"properties", {{"settings", std::move(settings)}}}}}});
  }
  schema["properties"]["command"]["enum"] = names;
  schema["allOf"] = rules;
  return schema.dump(2) + "\n";
}

std::string study_reference() {
  std::string text = config::reference_page<Study>("Study");
  for (const StudyCommand* command : study_commands()) {
    text +=
        fmt::format("\n# Settings of `{}`\n\n{}\n", command->name, command->settings.reference());
  }
  return text;
}

std::string former_schema_hint(const std::string& schema) {
  const auto is = [&](const char* kind) { return schema.rfind(kind, 0) == 0; };
  const std::string begin = "write `schema: orrery/study/1`, ";
  if (is("orrery/manifest/")) {
    return begin +
           "`command: plan`, `settings:` for `run:`, `axes:` for `sweep:`, and an axis "
           "`case:` for `cases:`";
  }
  if (is("orrery/replay/")) {
    return begin +
           "`command: replay`, axes `case:` and `policy:` for `cases:` and `policies:`, "
           "and what else is of every run below `settings:`";
  }
  if (is("orrery/mixed_length/")) {
    return begin +
           "`command: mixed_length`, an axis `case:` for `cases:`, in each case `axes: "
           "{system: [...]}` for its systems, and what is of every run below `settings:`";
  }
  if (is("orrery/steps/")) {
    return begin +
           "`command: program`, an axis `step:` for `steps:`, and `settings: {inputs: "
           "[...]}` for `inputs:`";
  }
  if (is("orrery/twin/")) {
    return begin +
           "`command: twin`, an axis `run:` for `plans:` and `recoveries:`, and what is of "
           "every run below `settings:`";
  }
  return "";
}

}  // namespace orrery::experiments
