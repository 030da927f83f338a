#include "experiments/study/run_tasks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

#include "models/base/check.h"
#include "models/config/document.h"
#include "sim/flow/fork.h"

namespace orrery::experiments {
namespace {

// First byte of what a child delivers.
constexpr char kReport = 'r';
constexpr char kProblems = 'p';

std::string carry_out(const RunTask& task, const Cancellation& cancellation, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);  // it was gone before
  try {
    Session session(task.run);
    // SimGrid has just put its own handler in place, which ends the process untidily.
    if (task.run.spec.planner) {
      cancellation.request_on_interrupt();
    } else {
      signal(SIGINT, SIG_DFL);
    }
    RunOutcome outcome = session.execute(task.exports.any(), cancellation.flag());
    outcome.name = task.name;
    if (outcome.plan && outcome.evaluation) write_exports(task.exports, task.run, outcome);
    return kReport + config::dump<RunReport>(outcome);
  } catch (const config::ConfigError& error) {
    return kProblems + std::string(error.what());
  }
}

RunReport receive(const std::string& name, sim::ForkedRun child) {
  const sim::ForkResult result = child.join();
  if (const auto* failure = std::get_if<sim::ChildFailure>(&result)) {
    throw std::runtime_error(fmt::format("{}: {}", name, failure->message));
  }
  const std::string& bytes = std::get<std::string>(result);
  ORRERY_CHECK(!bytes.empty(), "child of {} delivered nothing", name);
  if (bytes[0] == kProblems) {
    config::Diagnostics of_child;
    of_child.add({}, bytes.substr(1));
    of_child.raise();
  }
  config::Diagnostics problems;
  RunReport report =
      config::load_text<RunReport>(std::string_view(bytes).substr(1), name, problems);
  ORRERY_CHECK(problems.empty(), "report of {}: {}", name,
               config::to_string(problems.problems().front()));
  return report;
}

}  // namespace

std::vector<RunReport> run_tasks(const std::vector<RunTask>& tasks, const Call& call) {
  const bool searches = std::any_of(tasks.begin(), tasks.end(), [](const RunTask& task) {
    return task.run.spec.planner.has_value();
  });
  const Cancellation::Listener listener(call.cancellation, searches);
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::deque<sim::ForkedRun> children;
  std::vector<RunReport> reports;
  for (std::size_t started = 0; reports.size() < tasks.size();) {
    for (; started < tasks.size() && children.size() < cores; ++started) {
      const RunTask& task = tasks[started];
      children.emplace_back(
          [&task, &call, parent = getpid()] { return carry_out(task, call.cancellation, parent); });
    }
    reports.push_back(receive(tasks[reports.size()].name, std::move(children.front())));
    children.pop_front();
  }
  return reports;
}

}  // namespace orrery::experiments
