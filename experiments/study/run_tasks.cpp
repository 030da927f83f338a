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
#include "sim/flow/fork.h"

namespace orrery::experiments {
namespace {

// First byte of what a child delivers.
constexpr char kReport = 'r';
constexpr char kProblems = 'p';

/// What a child delivers: what `work` returns, or the problems that it throws.
std::string deliver(pid_t parent, const std::function<std::string()>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);  // it was gone before
  try {
    return kReport + work();
  } catch (const config::ConfigError& error) {
    return kProblems + std::string(error.what());
  }
}

std::string receive(const std::string& name, sim::ForkedRun child) {
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
  return bytes.substr(1);
}

std::string carry_out(const RunTask& task, const Cancellation& cancellation,
                      const models::AnswerStore* answers) {
  Session session(task.run, answers);
  // SimGrid has just put its own handler in place, which ends the process untidily.
  if (task.run.spec.planner) {
    cancellation.request_on_interrupt();
  } else {
    signal(SIGINT, SIG_DFL);
  }
  RunOutcome outcome = session.execute(task.exports.any(), cancellation.flag());
  outcome.name = task.name;
  if (outcome.plan && outcome.evaluation) {
    write_exports(task.exports, task.run.cluster, outcome.program, outcome.log);
  }
  return config::dump<RunReport>(outcome);
}

}  // namespace

std::string run_child(const std::string& name, const std::function<std::string()>& work) {
  return receive(name,
                 sim::ForkedRun([&work, parent = getpid()] { return deliver(parent, work); }));
}

void run_children(std::size_t count, const std::function<std::string(std::size_t)>& name,
                  const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const std::string&)>& take) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::deque<sim::ForkedRun> children;
  for (std::size_t started = 0, done = 0; done < count; ++done) {
    for (; started < count && children.size() < cores; ++started) {
      children.emplace_back([&work, started, parent = getpid()] {
        return deliver(parent, [&work, started] { return work(started); });
      });
    }
    const std::string bytes = receive(name(done), std::move(children.front()));
    children.pop_front();
    take(done, bytes);
  }
}

std::vector<RunReport> run_tasks(const std::vector<RunTask>& tasks, const Call& call,
                                 const models::AnswerStore* answers) {
  const bool searches = std::any_of(tasks.begin(), tasks.end(), [](const RunTask& task) {
    return task.run.spec.planner.has_value();
  });
  const Cancellation::Listener listener(call.cancellation, searches);
  std::vector<RunReport> reports;
  run_children(
      tasks.size(), [&](std::size_t i) { return tasks[i].name; },
      [&](std::size_t i) { return carry_out(tasks[i], call.cancellation, answers); },
      [&](std::size_t i, const std::string& bytes) {
        reports.push_back(delivered<RunReport>(bytes, tasks[i].name));
      });
  return reports;
}

}  // namespace orrery::experiments
