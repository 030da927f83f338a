#include "tools/commands/judge.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

#include "models/base/check.h"
#include "models/config/document.h"
#include "sim/flow/fork.h"

namespace orrery::tools {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int) {
  if (interrupted.exchange(true)) _exit(kInterrupted);
}

/// Returns the former action.
struct sigaction handle_interrupt() {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before);
  return before;
}

/// While it lives, the first Ctrl-C sets `interrupted` instead of ending the process.
class InterruptGuard {
 public:
  explicit InterruptGuard(bool active) : active_(active) {
    if (active_) before_ = handle_interrupt();
  }
  ~InterruptGuard() {
    if (active_) sigaction(SIGINT, &before_, nullptr);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  bool active_;
  struct sigaction before_ {};
};

// First byte of what a child delivers.
constexpr char kReport = 'r';
constexpr char kProblems = 'p';

std::string carry_out(const Task& task) {
  try {
    experiments::Session session(task.run);
    // SimGrid has just put its own handler in place, which ends the process untidily.
    if (task.run.spec.planner) {
      handle_interrupt();
    } else {
      signal(SIGINT, SIG_DFL);
    }
    const experiments::RunOutcome outcome = session.execute(task.exports.any(), &interrupted);
    if (outcome.plan && outcome.evaluation) write_exports(task.exports, task.run, outcome);
    return kReport +
           config::dump(make_report(task.name, task.run.spec.planner.has_value(), outcome));
  } catch (const config::ConfigError& error) {
    return kProblems + std::string(error.what());
  }
}

Report receive(const std::string& name, sim::ForkedRun child) {
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
  Report report = config::load_text<Report>(std::string_view(bytes).substr(1), name, problems);
  ORRERY_CHECK(problems.empty(), "report of {}: {}", name,
               config::to_string(problems.problems().front()));
  return report;
}

}  // namespace

bool was_interrupted() { return interrupted; }

std::vector<Report> judge(const std::vector<Task>& tasks) {
  const bool searches = std::any_of(tasks.begin(), tasks.end(), [](const Task& task) {
    return task.run.spec.planner.has_value();
  });
  const InterruptGuard guard(searches);
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::deque<sim::ForkedRun> children;
  std::vector<Report> reports;
  for (std::size_t started = 0; reports.size() < tasks.size();) {
    for (; started < tasks.size() && children.size() < cores; ++started) {
      const Task& task = tasks[started];
      children.emplace_back([&task] { return carry_out(task); });
    }
    reports.push_back(receive(tasks[reports.size()].name, std::move(children.front())));
    children.pop_front();
  }
  return reports;
}

}  // namespace orrery::tools
