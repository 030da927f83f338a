/// Any function of this folder, from described settings to a described result, as a command of
/// studies: a run's settings are the function's, and its row of runs.csv ends in the result,
/// flattened ("plans.0.evaluation.mfu"); result.json has it as it is. Paths in the settings are
/// seen from the folder of the study. An input_files(settings) beside the function names those that
/// decide its result.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/commands.h"
#include "experiments/study/json.h"

namespace orrery::experiments {

/// What a function came to.
struct FunctionResult {
  std::string json;  ///< The result.
  int status = 0;    ///< As of the command line: not 0 where it found nothing.
};

/// A call of a function.
struct FunctionRun {
  config::Value settings;           ///< Every field, defaults included.
  std::vector<std::string> inputs;  ///< Files and entries of the library that it names.
  std::function<FunctionResult()> call;
};

TaskList function_tasks(const Study& study, const std::vector<std::pair<Point, FunctionRun>>& runs,
                        const models::Library& library, bool uses_all);

namespace detail {

template <class Function>
struct FunctionTraits;
template <class R, class S, class... Problems>
struct FunctionTraits<R (*)(const S&, const Call&, Problems...)> {
  using Settings = S;
  static constexpr bool kTakesProblems = sizeof...(Problems) > 0;
};

template <auto Function, class Settings>
FunctionResult call_function(const Settings& settings) {
  const auto finish = [](auto result) {
    FunctionResult out;
    if constexpr (requires { exit_status(result); }) out.status = exit_status(result);
    out.json = to_json(std::move(result));
    return out;
  };
  if constexpr (FunctionTraits<decltype(Function)>::kTakesProblems) {
    return finish(Function(settings, Call(), {}));
  } else {
    return finish(Function(settings, Call()));
  }
}

template <auto Function, bool kUsesAll>
TaskList tasks_of_function(const Study& study, std::vector<Point> points,
                           const models::Library& library, const RunnerOptions& options,
                           config::Diagnostics& diagnostics) {
  using Settings = typename FunctionTraits<decltype(Function)>::Settings;
  std::vector<std::pair<Point, FunctionRun>> runs;
  for (auto& [point, read] : read_settings<Settings>(
           std::move(points), diagnostics, [](const Settings&, const config::Diagnostics&) {})) {
    Settings& settings = read;
    const config::Value asked = config::to_value(settings);
    if constexpr (requires { settings.judge.cache; }) settings.judge.cache = options.cache;
    FunctionRun run{asked, input_files(settings),
                    [settings] { return call_function<Function, Settings>(settings); }};
    runs.emplace_back(std::move(point), std::move(run));
  }
  return function_tasks(study, runs, library, kUsesAll);
}

}  // namespace detail

/// `seeds`: as StudyCommand::seeds. `kUsesAll`: the function may use any planner and policy, not
/// only those that its settings name (Identity).
template <auto Function, bool kUsesAll = false>
StudyCommand function_study(const char* name, const char* summary,
                            std::vector<const char*> seeds = {}) {  // NOLINT: it is moved.
  using Settings = typename detail::FunctionTraits<decltype(Function)>::Settings;
  return {.name = name,
          .summary = summary,
          .seeds = std::move(seeds),
          .choice = nullptr,
          .settings = settings_text<Settings>(),
          .resolve = nullptr,
          .table = nullptr,
          .tasks = detail::tasks_of_function<Function, kUsesAll>};
}

}  // namespace orrery::experiments
