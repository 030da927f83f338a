/// Runs in forked children: one simulator a process, as many at once as there are cores.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/execute.h"
#include "experiments/study/exports.h"
#include "models/base/check.h"
#include "models/config/document.h"

namespace orrery::experiments {

/// A described value that a child has dumped.
template <class T>
T delivered(const std::string& bytes, const std::string& name) {
  config::Diagnostics problems;
  T value = config::load_text<T>(bytes, name, problems);
  ORRERY_CHECK(problems.empty(), "what {} delivered: {}", name,
               config::to_string(problems.problems().front()));
  return value;
}

struct RunTask {
  std::string name;  ///< Of the report.
  LoadedRun run;
  Exports exports;
};

/// What `work` returns in a forked child: simulators live as long as their process, and one process
/// has one. `name` is for messages. Throws what `work` throws as ConfigError; std::runtime_error if
/// it fails otherwise.
std::string run_child(const std::string& name, const std::function<std::string()>& work);

/// The same for a described value.
template <class T>
T run_in_child(const std::string& name, const std::function<T()>& work) {
  const std::string bytes = run_child(name, [&work] { return config::dump<T>(work()); });
  return delivered<T>(bytes, name);
}

/// What `work(i)` returns in forked children for each i below `count`, as many at once as there are
/// cores; `take` hears it as they end. `name(i)` is for messages, `waiting` is called a few times
/// each second. Throws as run_child(), for the first in order that fails; later ones are killed
/// then.
void run_children(std::size_t count, const std::function<std::string(std::size_t)>& name,
                  const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const std::string&)>& take,
                  const std::function<void()>& waiting = {});

/// Carries out all tasks, reports in their order. SIGINT cancels searches: the best plan so far
/// comes back; searches that tell how far they are give the call's progress. `answers`: of Session.
/// Throws std::runtime_error if a child fails.
std::vector<RunReport> run_tasks(const std::vector<RunTask>& tasks, const Call& call,
                                 const models::AnswerStore* answers = nullptr);

}  // namespace orrery::experiments
