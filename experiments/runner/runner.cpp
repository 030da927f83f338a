#include "experiments/runner/runner.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <filesystem>
#include <list>
#include <memory>
#include <set>
#include <system_error>
#include <variant>

#include "experiments/runner/execute.h"
#include "experiments/runner/figure.h"
#include "experiments/runner/files.h"
#include "experiments/runner/store.h"
#include "experiments/runner/worker.h"
#include "sim/flow/fork.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kTickMilliseconds = 200;

volatile sig_atomic_t stop_requested = 0;  // a signal handler can reach nothing else

/// SIGINT and SIGTERM set a flag as long as this lives.
class StopSignals {
 public:
  StopSignals() {
    stop_requested = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { stop_requested = 1; };
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
  }
  ~StopSignals() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct sigaction interrupt_ {};
  struct sigaction terminate_ {};
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

/// Nothing can be written any more: going on would lose every result.
bool is_disk_error(int code) {
  return code == ENOSPC || code == EDQUOT || code == EROFS || code == EIO || code == EFBIG;
}

/// Clusters and models that the manifest names, in `run` or on an axis, when no run could be read.
void check_names(const Manifest& manifest, const models::Library& library,
                 config::Diagnostics& diagnostics) {
  const auto check = [&](const std::string& key, const config::Value& name) {
    if (!name.is_scalar()) return;
    if (key == "cluster") models::load_cluster(name.text, library, name.at, diagnostics);
    if (key == "model") models::load_model(name.text, library, name.at, diagnostics);
  };
  for (const config::Value::Entry& entry : manifest.run.entries) check(entry.key, entry.value);
  for (const auto& [path, values] : manifest.sweep) {
    for (const config::Value& value : values.value) check(path, value);
  }
}

/// All runs with their identities, as far as they have no problems.
std::vector<SweepRun> load_runs(const Manifest& manifest, const models::Library& library,
                                config::Diagnostics& diagnostics) {
  std::vector<SweepRun> runs;
  for (PlannedRun& planned : expand(manifest, diagnostics)) {
    runs.push_back({std::move(planned), {}});
  }
  if (runs.empty()) check_names(manifest, library, diagnostics);
  std::set<std::string> seen;
  for (SweepRun& run : runs) {
    config::Diagnostics found;
    const LoadedRun loaded = load_run(run.planned.spec, manifest.folder, library, found);
    for (const config::Problem& problem : found.problems()) {
      if (seen.insert(to_string(problem)).second) {
        diagnostics.add(problem.at, problem.what, problem.hint);
      }
    }
    if (found.empty()) run.identity = identify(run.planned, loaded);
  }
  return runs;
}

/// As load_runs; throws ConfigError.
std::vector<SweepRun> good_runs(const Manifest& manifest, const models::Library& library) {
  config::Diagnostics diagnostics;
  std::vector<SweepRun> runs = load_runs(manifest, library, diagnostics);
  diagnostics.raise();
  return runs;
}

std::string describe_run(const PlannedRun& run) {
  const std::string by = run.spec.planner
                             ? run.spec.planner->name.value
                             : fs::path(run.spec.plan ? run.spec.plan->value : "").stem().string();
  return fmt::format("{} {} seed {}", run.spec.model.value, by, run.spec.seed);
}

class Sweep {
 public:
  Sweep(const Manifest& manifest, const models::Library& library, const RunnerOptions& options,
        const std::function<void(const Progress&)>& on_progress)
      : manifest_(manifest),
        library_(library),
        options_(options),
        on_progress_(on_progress),
        workers_(options.workers > 0 ? options.workers : cores()),
        store_(manifest, options.results_root + "/" + manifest.name, good_runs(manifest, library)) {
  }

  SweepResult run();

 private:
  struct Worker {
    const SweepRun* run;
    Clock::time_point start;
    std::unique_ptr<sim::ForkedRun> process;
  };

  void find_missing();
  void estimate();
  void work();
  void start_next();
  void wait_for_any();
  void finish(Worker& worker);
  void fail(const SweepRun& run, const std::string& reason);
  void stop_workers();
  void close();
  void show(std::string message);

  const Manifest& manifest_;
  const models::Library& library_;
  const RunnerOptions& options_;
  const std::function<void(const Progress&)>& on_progress_;
  int workers_;
  Store store_;
  SweepResult result_;
  std::deque<const SweepRun*> missing_;
  std::list<Worker> running_;
  bool disk_failed_ = false;
  Clock::time_point start_ = Clock::now();
  double busy_seconds_ = 0;  ///< Of the runs that this call finished.
};

void Sweep::find_missing() {
  for (std::size_t i = 0; i < store_.runs().size(); ++i) {
    const auto shard = static_cast<std::size_t>(options_.shard_index - 1);
    if (i % static_cast<std::size_t>(options_.shard_count) != shard) continue;
    const SweepRun& run = store_.runs()[i];
    result_.runs.push_back(run.planned);
    result_.runs.back().hash = run.identity.hash;
    ++result_.total;
    if (store_.present(run, options_.timelines)) {
      ++result_.present;
    } else {
      missing_.push_back(&run);
    }
  }
  result_.missing = static_cast<int>(missing_.size());
}

/// Runs that were timed count with their own time, others with the mean of all.
void Sweep::estimate() {
  const std::map<std::string, Timing> timings = store_.timings();
  if (missing_.empty()) result_.estimate_seconds = 0;
  if (timings.empty() || missing_.empty()) return;
  double mean = 0;
  for (const auto& [run, timing] : timings) mean += timing.total;
  mean /= static_cast<double>(timings.size());
  double sum = 0;
  for (const SweepRun* run : missing_) {
    const auto known = timings.find(run->identity.hash);
    sum += known == timings.end() ? mean : known->second.total;
  }
  result_.estimate_seconds = sum / std::min(workers_, static_cast<int>(missing_.size()));
}

void Sweep::show(std::string message) {
  if (!on_progress_) return;
  Progress progress;
  progress.total = result_.total;
  progress.done = result_.done;
  progress.present = result_.present;
  progress.failed = result_.failed;
  progress.elapsed_seconds = seconds_since(start_);
  const int ended = result_.done + result_.failed;
  const int left = result_.missing - ended;
  if (ended > 0) {
    const double mean = busy_seconds_ / ended;
    double under_way = 0;
    for (const Worker& worker : running_) {
      under_way += std::min(mean, seconds_since(worker.start));
    }
    progress.remaining_seconds = (left * mean - under_way) / std::max(1, std::min(workers_, left));
  }
  progress.message = std::move(message);
  on_progress_(progress);
}

void Sweep::start_next() {
  const SweepRun* run = missing_.front();
  missing_.pop_front();
  const WorkerTask task{run->planned,       run->identity,
                        manifest_.folder,   store_.work_folder(*run),
                        options_.timelines, getpid()};
  running_.push_back({run, Clock::now(), nullptr});
  running_.back().process =
      std::make_unique<sim::ForkedRun>([&task, this] { return run_worker(task, library_); });
  show("started " + describe_run(run->planned));
}

void Sweep::wait_for_any() {
  std::vector<pollfd> pipes;
  for (const Worker& worker : running_) {
    pipes.push_back({worker.process->file_descriptor(), POLLIN, 0});
  }
  if (poll(pipes.data(), pipes.size(), kTickMilliseconds) <= 0) return show("");
  std::size_t i = 0;
  for (auto worker = running_.begin(); worker != running_.end() && !disk_failed_; ++i) {
    const bool ended = worker->process->file_descriptor() < 0 || pipes[i].revents != 0;
    if (!ended) {
      ++worker;
      continue;
    }
    finish(*worker);
    worker = running_.erase(worker);
  }
}

void Sweep::fail(const SweepRun& run, const std::string& reason) {
  const std::string log = fs::path(store_.failed_folder(run)) / "log.txt";
  ++result_.failed;
  result_.problems.push_back(fmt::format("{}: {}; see {}", describe_run(run.planned), reason, log));
  store_.fail(run, fmt::format("{}; see failed/{}/log.txt", reason, run.identity.hash));
  store_.append(run, std::nullopt);
  show("failed " + describe_run(run.planned));
}

void Sweep::finish(Worker& worker) {
  const sim::ForkResult delivered = worker.process->join();
  const SweepRun& run = *worker.run;
  const double total = seconds_since(worker.start);
  busy_seconds_ += total;
  if (const auto* failure = std::get_if<sim::ChildFailure>(&delivered)) {
    return fail(run, failure->message);
  }
  const WorkerReport report = decode_report(std::get<std::string>(delivered));
  if (is_disk_error(report.write_error)) {
    store_.discard(run);
    disk_failed_ = true;
    result_.problems.push_back(report.problem);
    return;
  }
  if (!report.problem.empty()) return fail(run, report.problem);
  store_.publish(run, options_.timelines);
  ++result_.done;
  store_.append(run, Timing{report.planning_seconds, report.evaluation_seconds, total});
  show("finished " + describe_run(run.planned));
}

void Sweep::stop_workers() {
  for (Worker& worker : running_) {
    worker.process.reset();  // kills and reaps
    store_.discard(*worker.run);
  }
  running_.clear();
}

void Sweep::work() {
  const StopSignals signals;
  while (!missing_.empty() || !running_.empty()) {
    if (stop_requested != 0) {
      result_.interrupted = true;
      break;
    }
    if (disk_failed_) break;
    if (!missing_.empty() && std::ssize(running_) < workers_) {
      start_next();
    } else {
      wait_for_any();
    }
  }
}

/// Final order of runs.csv and timings.csv, index, figure.
void Sweep::close() {
  std::error_code ignored;
  fs::remove(store_.folder() + "/.work", ignored);  // only if it is empty
  store_.rewrite_runs();
  store_.rewrite_timings();
  store_.rewrite_index();
  const bool draw = options_.figure && !manifest_.plot.empty() && !result_.interrupted &&
                    !disk_failed_ && store_.complete();
  if (!draw) return;
  FigureResult figure = draw_figure(manifest_, store_.runs_csv(), store_.figures());
  result_.figures = std::move(figure.files);
  if (!figure.problem.empty()) result_.problems.push_back(std::move(figure.problem));
}

SweepResult Sweep::run() {
  result_.results_folder = store_.folder();
  result_.runs_csv = store_.runs_csv();
  find_missing();
  estimate();
  if (options_.dry_run) return std::move(result_);
  // What cannot be written is a problem of the surroundings, not of the input.
  const auto guarded = [&](void (Sweep::*step)()) {
    try {
      (this->*step)();
    } catch (const std::exception& error) {
      disk_failed_ = true;
      const std::string what = error.what();
      if (result_.problems.empty() || result_.problems.back() != what) {
        result_.problems.push_back(what);
      }
    }
  };
  try {
    store_.prepare({missing_.begin(), missing_.end()});
    store_.rewrite_runs();
  } catch (const std::exception& error) {
    result_.problems.emplace_back(error.what());
    return std::move(result_);
  }
  guarded(&Sweep::work);
  stop_workers();
  guarded(&Sweep::close);
  return std::move(result_);
}

}  // namespace

std::size_t check_runs(const Manifest& manifest, const models::Library& library,
                       config::Diagnostics& diagnostics) {
  if (!manifest.run.is_map()) return 0;
  return load_runs(manifest, library, diagnostics).size();
}

SweepResult run_sweep(const Manifest& manifest, const models::Library& library,
                      const RunnerOptions& options,
                      const std::function<void(const Progress&)>& on_progress) {
  return Sweep(manifest, library, options, on_progress).run();
}

}  // namespace orrery::experiments
