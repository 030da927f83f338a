#include "experiments/study/run_tasks.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <list>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "experiments/study/clock.h"
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

/// How far searches in children are: in memory that they share with this process.
class SharedProgress {
 public:
  explicit SharedProgress(std::size_t count) : count_(count) {
    void* memory =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory that processes share");
    all_ = static_cast<planners::SearchProgress*>(memory);
    std::uninitialized_value_construct_n(all_, count_);
  }
  ~SharedProgress() { munmap(all_, bytes()); }
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;
  planners::SearchProgress& operator[](std::size_t i) const { return all_[i]; }

 private:
  std::size_t bytes() const { return std::max<std::size_t>(1, count_) * sizeof *all_; }
  std::size_t count_;
  planners::SearchProgress* all_;
};

/// "orrery: 12.3 s, 4.1 % above the bound"; "": nothing is known yet.
std::string in_words(const std::string& name, const planners::SearchProgress& search) {
  const double best = search.best, bound = search.bound;
  if (best <= 0) return "";
  std::string text = fmt::format("{}: {:.4g} s", name, best);
  if (bound > 0) {
    text += fmt::format(", bound {:.4g} s, gap {:.1f} %", bound, 100 * (best / bound - 1));
  }
  return text;
}

/// What a search that has ended came to.
void tell_end(const RunReport& report, const std::vector<bool>& ended, double seconds,
              const Call& call) {
  Progress progress;
  progress.total = static_cast<int>(ended.size());
  progress.done = static_cast<int>(std::count(ended.begin(), ended.end(), true));
  progress.noun = "planners";
  progress.elapsed_seconds = seconds;
  progress.lasting = true;
  const bool not_run = call.cancellation.requested() && report.looked_at_nothing();
  progress.message =
      report.evaluation
          ? fmt::format("{}: {:.4g} s", report.name, report.evaluation->iteration_time.value)
          : fmt::format("{}: {}", report.name, not_run ? "not run" : "no plan");
  call.progress(progress);
}

/// What searches have done of all that they may, which is their share of a run.
void tell(const std::vector<RunTask>& tasks, const SharedProgress& searches,
          const std::vector<bool>& ended, double seconds, const Call& call) {
  Progress progress;
  std::string state;
  std::int64_t work = 0, budget = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (searches[i].budget == 0 || ended[i]) continue;
    work += searches[i].work;
    budget += searches[i].budget;
    const std::string words = in_words(tasks[i].name, searches[i]);
    if (!words.empty()) state += (state.empty() ? "" : "; ") + words;
  }
  if (budget == 0) return;
  const bool one = tasks.size() == 1;
  progress.total = one ? static_cast<int>(budget) : static_cast<int>(tasks.size());
  const auto done = static_cast<int>(std::count(ended.begin(), ended.end(), true));
  progress.done = one ? static_cast<int>(std::min(work, budget)) : done;
  progress.noun = one ? "simulations" : "planners";
  progress.elapsed_seconds = seconds;
  progress.state = std::move(state);
  call.progress(progress);
}

std::string carry_out(const RunTask& task, const Cancellation& cancellation,
                      const models::AnswerStore* answers, planners::SearchProgress* progress) {
  Session session(task.run, answers);
  // SimGrid has just put its own handler in place, which ends the process untidily.
  if (task.run.spec.planner) {
    cancellation.request_on_interrupt();
  } else {
    signal(SIGINT, SIG_DFL);
  }
  RunOutcome outcome = session.execute(task.exports.any(), cancellation.flag(), progress);
  outcome.name = task.name;
  if (outcome.plan && outcome.evaluation) {
    write_exports(task.exports, task.run.cluster, outcome.program, outcome.log);
  }
  if (task.run.plan) outcome.plan.reset();  // The parent has it.
  return config::dump<RunReport>(outcome);
}

}  // namespace

std::string run_child(const std::string& name, const std::function<std::string()>& work) {
  return receive(name,
                 sim::ForkedRun([&work, parent = getpid()] { return deliver(parent, work); }));
}

void run_children(std::size_t count, const std::function<std::string(std::size_t)>& name,
                  const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const std::string&)>& take,
                  const std::function<void()>& waiting) {
  constexpr int kMillisecondsBetween = 250;
  struct Running {
    std::size_t index;
    sim::ForkedRun child;
  };
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::list<Running> running;
  // The first in order that failed, whichever ended first: those before it are waited for.
  std::size_t failed = count;
  std::exception_ptr failure;
  std::size_t started = 0;
  while (true) {
    for (; started < std::min(count, failed) && running.size() < cores; ++started) {
      running.push_back({started, sim::ForkedRun([&work, started, parent = getpid()] {
                           return deliver(parent, [&work, started] { return work(started); });
                         })});
    }
    std::erase_if(running, [&](const Running& one) { return one.index > failed; });
    if (running.empty()) break;
    std::vector<pollfd> answers;
    bool known = false;  // A child that could not be started has no descriptor.
    for (const Running& one : running) {
      answers.push_back({one.child.file_descriptor(), POLLIN, 0});
      known |= answers.back().fd < 0;
    }
    const int milliseconds = known ? 0 : waiting ? kMillisecondsBetween : -1;
    if (poll(answers.data(), answers.size(), milliseconds) <= 0 && !known) {
      if (waiting) waiting();
      continue;
    }
    auto one = running.begin();
    for (const pollfd& answer : answers) {
      const auto now = one++;
      if (answer.revents == 0 && answer.fd >= 0) continue;
      const std::size_t index = now->index;
      try {
        take(index, receive(name(index), std::move(now->child)));
      } catch (...) {
        if (index < failed) failure = std::current_exception();
        failed = std::min(failed, index);
      }
      running.erase(now);
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::vector<RunReport> run_tasks(const std::vector<RunTask>& tasks, const Call& call,
                                 const models::AnswerStore* answers) {
  const bool searches = std::any_of(tasks.begin(), tasks.end(), [](const RunTask& task) {
    return task.run.spec.planner.has_value();
  });
  const Cancellation::Listener listener(call.cancellation, searches);
  const Clock::time_point start = Clock::now();
  const SharedProgress progress(tasks.size());
  std::vector<RunReport> reports(tasks.size());
  std::vector<bool> ended(tasks.size());
  run_children(
      tasks.size(), [&](std::size_t i) { return tasks[i].name; },
      [&](std::size_t i) { return carry_out(tasks[i], call.cancellation, answers, &progress[i]); },
      [&](std::size_t i, const std::string& bytes) {
        reports[i] = delivered<RunReport>(bytes, tasks[i].name);
        if (tasks[i].run.plan) reports[i].plan = tasks[i].run.plan;
        ended[i] = true;
        if (searches && tasks.size() > 1) tell_end(reports[i], ended, seconds_since(start), call);
      },
      [&] { tell(tasks, progress, ended, seconds_since(start), call); });
  return reports;
}

}  // namespace orrery::experiments
