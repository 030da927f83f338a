#include "tools/commands/run_tasks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "models/base/check.h"
#include "models/config/document.h"
#include "sim/flow/fork.h"

namespace orrery::tools {
namespace {

using Flag = std::atomic<bool>;
static_assert(Flag::is_always_lock_free);

/// In memory that children share: a signal that only the parent gets ends their searches too.
Flag* shared_interrupt = nullptr;
volatile sig_atomic_t interrupts = 0;  // of this process

void interrupt_searches(int) {
  if (interrupts != 0) _exit(kInterrupted);
  interrupts = 1;
  shared_interrupt->store(true);
}

void share_flag() {
  if (shared_interrupt != nullptr) return;
  void* memory =
      mmap(nullptr, sizeof(Flag), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  shared_interrupt = new (memory) Flag(false);
}

/// Returns the former action.
struct sigaction handle_interrupt() {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = interrupt_searches;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before);
  return before;
}

/// While it lives, the first Ctrl-C sets `shared_interrupt` instead of ending the process.
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

std::string carry_out(const RunTask& task, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);  // it was gone before
  try {
    experiments::Session session(task.run);
    // SimGrid has just put its own handler in place, which ends the process untidily.
    if (task.run.spec.planner) {
      handle_interrupt();
    } else {
      signal(SIGINT, SIG_DFL);
    }
    experiments::RunOutcome outcome = session.execute(task.exports.any(), shared_interrupt);
    outcome.name = task.name;
    if (outcome.plan && outcome.evaluation) write_exports(task.exports, task.run, outcome);
    return kReport + config::dump<experiments::RunReport>(outcome);
  } catch (const config::ConfigError& error) {
    return kProblems + std::string(error.what());
  }
}

experiments::RunReport receive(const std::string& name, sim::ForkedRun child) {
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
  experiments::RunReport report =
      config::load_text<experiments::RunReport>(std::string_view(bytes).substr(1), name, problems);
  ORRERY_CHECK(problems.empty(), "report of {}: {}", name,
               config::to_string(problems.problems().front()));
  return report;
}

}  // namespace

bool was_interrupted() { return shared_interrupt != nullptr && *shared_interrupt; }

std::vector<experiments::RunReport> run_tasks(const std::vector<RunTask>& tasks) {
  const bool searches = std::any_of(tasks.begin(), tasks.end(), [](const RunTask& task) {
    return task.run.spec.planner.has_value();
  });
  share_flag();
  const InterruptGuard guard(searches);
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::deque<sim::ForkedRun> children;
  std::vector<experiments::RunReport> reports;
  for (std::size_t started = 0; reports.size() < tasks.size();) {
    for (; started < tasks.size() && children.size() < cores; ++started) {
      const RunTask& task = tasks[started];
      children.emplace_back([&task, parent = getpid()] { return carry_out(task, parent); });
    }
    reports.push_back(receive(tasks[reports.size()].name, std::move(children.front())));
    children.pop_front();
  }
  return reports;
}

}  // namespace orrery::tools
