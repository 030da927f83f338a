#include "experiments/study/run_study.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "experiments/study/checks.h"
#include "experiments/study/commands.h"

namespace orrery::experiments {
namespace {

/// An axis must not have the column of a result, whose cells it would take. As in SQL, capitals
/// make no other name.
void check_columns(const Study& study, const TaskList& list, config::Diagnostics& diagnostics) {
  const auto small = [](std::string name) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return name;
  };
  std::set<std::string> known;
  for (const std::string& column : list.columns) {
    if (known.insert(small(column)).second) continue;
    std::string name = column;
    config::Position at = study.axes.at;  // of an axis that a case brings
    for (const config::Value::Entry& axis : study.axes.entries) {
      if (small(axis.key) != small(column)) continue;
      name = axis.key;
      at = axis.at.line > 0 ? axis.at : axis.value.at;
    }
    diagnostics.add(at, fmt::format("axis '{}': runs.csv has another column of this name", name),
                    "call it otherwise");
  }
}

}  // namespace

TaskList tasks_of(const Study& study, const models::Library& library, const RunnerOptions& options,
                  config::Diagnostics& diagnostics) {
  TaskList list;
  std::vector<Point> points = expand(study, diagnostics);
  for (const std::string& data : study.needs) {
    const std::string path = data_path(data, study.folder);
    std::error_code error;
    if (std::filesystem::exists(path, error)) continue;
    list.skipped.push_back(
        fmt::format("{} is skipped: {} is not there (set ORRERY_DATA to the folder with it)",
                    study.name, path));
  }
  if (!list.skipped.empty()) return list;
  const StudyCommand& command = command_of(study);
  list = command.tasks(study, std::move(points), library, options, diagnostics);
  check_columns(study, list, diagnostics);
  list.table = command.table == nullptr ? "" : command.table;
  list.publish = study.publish;
  list.figure = study.figure();
  return list;
}

std::size_t check_study(const Study& study, const models::Library& library,
                        config::Diagnostics& diagnostics) {
  if (find_study_command(study.command.value) == nullptr) return 0;
  std::set<std::string> known;
  for (const config::Problem& problem : diagnostics.problems()) known.insert(to_string(problem));
  config::Diagnostics found;
  const TaskList list = tasks_of(study, library, {}, found);
  for (const config::Problem& problem : found.problems()) {
    if (!known.contains(to_string(problem))) {
      diagnostics.add(problem.at, problem.what, problem.hint);
    }
  }
  return list.tasks.size();
}

StudyResult run_study(const Study& study, const models::Library& library,
                      const RunnerOptions& options, const Call& call) {
  config::Diagnostics diagnostics;
  const TaskList list = tasks_of(study, library, options, diagnostics);
  diagnostics.raise();
  StudyResult result;
  result.skipped = list.skipped;
  if (list.columns.empty()) return result;  // its data is not there
  static_cast<SweepOutcome&>(result) = sweep_runs(list, study.name, options, call);
  for (const std::size_t run : result.positions) result.runs.push_back(list.tasks[run]);
  return result;
}

}  // namespace orrery::experiments
