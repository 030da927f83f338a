#include "experiments/study/sweep.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "experiments/study/claims.h"
#include "experiments/study/clock.h"
#include "experiments/study/figure.h"
#include "experiments/study/files.h"
#include "experiments/study/run_files.h"
#include "experiments/study/slurm.h"
#include "experiments/study/store.h"
#include "experiments/study/task.h"
#include "experiments/study/worker.h"
#include "models/base/hash.h"
#include "models/base/ids.h"
#include "sim/flow/fork.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr int kTickMilliseconds = 200;
/// Between looks at what other calls have done.
constexpr double kLookSeconds = 1;
/// Between questions to Slurm: at first, and growing up to.
constexpr double kAskSeconds = 1;
constexpr double kMostAskSeconds = 15;
/// How long the tasks of a job array get to end.
constexpr double kEndSeconds = 60;
/// How old what is seen of a folder on a network file system may be. [nfs(5), acdirmax]
constexpr double kStaleSeconds = 75;

int cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

/// Runs of one kind take about as long as each other: those that differ by their seed only.
std::string kind_of(const Task& task) {
  std::string text;
  for (const auto& [axis, value] : task.point.axes) text += fmt::format("{}={} ", axis, value);
  return text;
}

/// How long runs take, by what was seen of their kind, else of all.
class RunTimes {
 public:
  void add(const std::string& kind, double seconds) {
    for (Seen* seen : {&all_, &kinds_[kind]}) {
      seen->seconds += seconds;
      ++seen->runs;
    }
  }
  bool empty() const { return all_.runs == 0; }
  double expected(const std::string& kind) const {
    const auto found = kinds_.find(kind);
    return (found == kinds_.end() ? all_ : found->second).mean();
  }

 private:
  struct Seen {
    double seconds = 0;
    int runs = 0;
    double mean() const { return runs == 0 ? 0 : seconds / runs; }
  };
  Seen all_;
  std::map<std::string, Seen> kinds_;
};

/// Nothing can be written any more: going on would lose every result.
bool is_disk_error(int code) {
  return code == ENOSPC || code == EDQUOT || code == EROFS || code == EIO || code == EFBIG;
}

/// A number that a forked child sets and its parent reads.
class SharedShare {
 public:
  SharedShare() {
    void* memory = mmap(nullptr, sizeof(std::atomic<double>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) share_ = new (memory) std::atomic<double>(0);
  }
  ~SharedShare() {
    if (share_ != nullptr) munmap(share_, sizeof *share_);
  }
  SharedShare(SharedShare&& other) noexcept : share_(std::exchange(other.share_, nullptr)) {}
  SharedShare& operator=(SharedShare&&) = delete;
  void set(double share) const {
    if (share_ != nullptr) share_->store(share);
  }
  double get() const { return share_ == nullptr ? 0 : share_->load(); }

 private:
  std::atomic<double>* share_ = nullptr;  ///< Without shared memory nothing is told.
};

class Sweep {
 public:
  Sweep(const TaskList& list, const std::string& name, const RunnerOptions& options,
        const Call& call)
      : list_(list),
        options_(options),
        call_(call),
        workers_(options.workers > 0 ? options.workers : cores()),
        claims_(Store::work_folders(options.results_root + "/" + name), slurm_group()),
        store_(list, options.results_root + "/" + name, claims_) {}

  SweepOutcome run();

 private:
  struct Worker {
    std::size_t run;
    Clock::time_point start;
    SharedShare done;
    std::unique_ptr<sim::ForkedRun> process;
  };

  void find_missing();
  void take_known();
  void estimate();
  void work();
  void work_on_slurm();
  bool look_elsewhere();
  void finished_elsewhere(std::size_t run);
  void ask_slurm();
  std::vector<std::string> left_by_array();
  void end_array();
  void start_next();
  void wait_for_any();
  void finish(Worker& worker);
  void fail(std::size_t run, const std::string& reason);
  void stop_workers();
  void close();
  void note_time(std::size_t run, const std::optional<Timing>& timing);
  void add_seconds();
  void show(std::string message);

  const Task& task(std::size_t run) const { return list_.tasks[run]; }
  bool remembers(std::size_t run) const {
    return options_.answers != nullptr && !options_.timelines && task(run).repeatable;
  }

  const TaskList& list_;
  const RunnerOptions& options_;
  const Call& call_;
  int workers_;
  Claims claims_;
  Store store_;
  SweepOutcome result_;
  std::deque<std::size_t> missing_;
  std::list<Worker> running_;
  std::deque<std::size_t> taken_;  ///< By other calls.
  std::set<std::string> ended_;    ///< Store::ended(), as it was when it was listed.
  Clock::time_point listed_;
  Clock::time_point last_look_ = Clock::now();
  std::optional<SlurmArray> array_;
  std::optional<SlurmView> view_;  ///< Of the array, as far as is known.
  Clock::time_point last_asked_;
  double ask_after_ = 0;
  bool deaf_ = false;  ///< Slurm did not answer, which was said.
  bool disk_failed_ = false;
  Clock::time_point start_ = Clock::now();
  RunTimes times_;  ///< Of the runs that this call finished.
};

void Sweep::find_missing() {
  std::set<std::string> queued;  // equal runs share a folder
  for (std::size_t run = 0; run < list_.tasks.size(); ++run) {
    const std::size_t shard = options_.shard_index - 1;
    if (run % as_size(options_.shard_count) != shard) continue;
    result_.positions.push_back(run);
    ++result_.total;
    const bool ended = store_.present(run) || (options_.join && store_.failed(run));
    if (ended || !queued.insert(task(run).hash).second) {
      ++result_.present;
    } else {
      missing_.push_back(run);
    }
  }
  if (options_.limit > 0 && std::ssize(missing_) > options_.limit) {
    missing_.resize(options_.limit);
  }
  result_.missing = static_cast<int>(missing_.size());
  if (options_.join &&
      !missing_.empty()) {  // each begins elsewhere: they are in each other's way less
    const std::size_t begin = name_hash(claims_.name()) % missing_.size();
    std::rotate(missing_.begin(), missing_.begin() + static_cast<std::ptrdiff_t>(begin),
                missing_.end());
  }
}

/// Writes the files of runs that another call has done.
void Sweep::take_known() {
  std::deque<std::size_t> left;
  for (const std::size_t run : std::exchange(missing_, {})) {
    claims_.beat();
    const Clock::time_point start = Clock::now();
    const auto files = remembers(run) ? options_.answers->find(files_key(task(run))) : std::nullopt;
    std::optional<RunSeconds> seconds;
    if (files && !call_.cancellation.requested()) {
      seconds = unpack_files(*files, store_.work_folder(run));
    }
    if (!seconds) {
      left.push_back(run);
      continue;
    }
    store_.publish(run);
    ++result_.done;
    note_time(run, Timing{seconds->planning, seconds->evaluation, seconds_since(start)});
    show("remembered " + task(run).in_words);
  }
  missing_ = std::move(left);
}

/// Runs that were timed count with their own time, others with the mean of their kind, or of all.
void Sweep::estimate() {
  const std::map<std::string, Timing> timings = store_.timings();
  if (missing_.empty()) result_.estimate_seconds = 0;
  if (timings.empty() || missing_.empty()) return;
  std::map<std::string, std::string> kinds;
  for (const Task& each : list_.tasks) kinds[each.hash] = kind_of(each);
  RunTimes times;
  for (const auto& [run, timing] : timings) times.add(kinds[run], timing.total);
  double sum = 0;
  for (const std::size_t run : missing_) {
    const auto known = timings.find(task(run).hash);
    sum += known == timings.end() ? times.expected(kind_of(task(run))) : known->second.total;
  }
  result_.estimate_seconds = sum / std::min(workers_, static_cast<int>(missing_.size()));
}

void Sweep::show(std::string message) {
  Progress progress;
  progress.total = result_.total;
  progress.done = result_.done;
  progress.present = result_.present;
  progress.failed = result_.failed;
  progress.elapsed_seconds = seconds_since(start_);
  for (const Worker& worker : running_) progress.under_way += worker.done.get();
  if (!times_.empty()) {
    double left = 0;
    for (const std::size_t run : missing_) left += times_.expected(kind_of(task(run)));
    for (const Worker& worker : running_) {
      const double expected = times_.expected(kind_of(task(worker.run)));
      left += std::max(0.0, expected - seconds_since(worker.start));
    }
    const int runs = result_.missing - result_.done - result_.failed;
    progress.remaining_seconds = left / std::max(1, std::min(workers_, runs));
  } else if (array_ && result_.elsewhere > 0) {
    progress.remaining_seconds =
        progress.elapsed_seconds / result_.elsewhere * static_cast<double>(taken_.size());
  }
  progress.message = std::move(message);
  call_.progress(progress);
}

void Sweep::start_next() {
  const std::size_t run = missing_.front();
  missing_.pop_front();
  if (seconds_since(listed_) >= kLookSeconds) {
    ended_ = store_.ended();
    listed_ = Clock::now();
  }
  const auto has_ended = [&] { return store_.present(run) || store_.failed(run); };
  if (ended_.contains(task(run).hash) && has_ended()) return finished_elsewhere(run);
  if (!claims_.take(task(run).hash)) return taken_.push_back(run);
  if (has_ended()) {  // a moment ago
    claims_.give_back(task(run).hash);
    return finished_elsewhere(run);
  }
  running_.push_back({run, Clock::now(), SharedShare(), nullptr});
  Worker& worker = running_.back();
  worker.process =
      std::make_unique<sim::ForkedRun>([&, folder = store_.work_folder(run), parent = getpid()] {
        return run_worker(folder, parent, [&] {
          const RunSeconds seconds =
              task(run).fill(folder, [&](double share) { worker.done.set(share); });
          if (remembers(run)) {
            if (const auto files = packed_files(folder, seconds)) {
              options_.answers->keep(files_key(task(run)), *files);
            }
          }
          return seconds;
        });
      });
  show("started " + task(run).in_words);
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

void Sweep::fail(std::size_t run, const std::string& reason) {
  // A signal for all processes (Ctrl-C, the end of a task of Slurm) ends what a run has started
  // before this process hears of it: then the run has not failed, it was stopped.
  usleep(1000 * kTickMilliseconds);
  if (call_.cancellation.requested()) {
    store_.discard(run);
    return claims_.give_back(task(run).hash);
  }
  const std::string log = fs::path(store_.failed_folder(run)) / "log.txt";
  ++result_.failed;
  result_.problems.push_back(fmt::format("{}: {}; see {}", task(run).in_words, reason, log));
  store_.fail(run, fmt::format("{}; see failed/{}/log.txt", reason, task(run).hash));
  claims_.give_back(task(run).hash);
  note_time(run, std::nullopt);
  show("failed " + task(run).in_words);
}

void Sweep::finish(Worker& worker) {
  const sim::ForkResult delivered = worker.process->join();
  const std::size_t run = worker.run;
  const double total = seconds_since(worker.start);
  times_.add(kind_of(task(run)), total);
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
  store_.publish(run);
  claims_.give_back(task(run).hash);
  ++result_.done;
  note_time(run, Timing{report.seconds.planning, report.seconds.evaluation, total});
  worker.done.set(0);
  show("finished " + task(run).in_words);
}

void Sweep::stop_workers() {
  for (Worker& worker : running_) {
    worker.process.reset();  // kills and reaps
    store_.discard(worker.run);
  }
  running_.clear();
}

void Sweep::note_time(std::size_t run, const std::optional<Timing>& timing) {
  if (!options_.join) return store_.append(run, timing);
  if (timing) store_.hand_over(run, *timing);
}

void Sweep::finished_elsewhere(std::size_t run) {
  if (store_.present(run)) {
    ++result_.done;
    ++result_.elsewhere;
    return show("finished elsewhere: " + task(run).in_words);
  }
  ++result_.failed;
  result_.problems.push_back(fmt::format("{}: {}", task(run).in_words, store_.failure(run)));
  show("failed elsewhere: " + task(run).in_words);
}

/// What became of the runs that other calls have taken. False: nothing to do here until those have
/// done them, and they are at it.
bool Sweep::look_elsewhere() {
  last_look_ = Clock::now();
  bool all_at_work = true;
  const std::set<std::string> ended = store_.ended();
  for (const std::size_t run : std::exchange(taken_, {})) {
    if (ended.contains(task(run).hash) && (store_.present(run) || store_.failed(run))) {
      finished_elsewhere(run);
    } else if (array_) {
      taken_.push_back(run);
    } else {
      all_at_work = all_at_work && claims_.is_at_work_on(task(run).hash);
      missing_.push_back(run);  // start_next() sees whether it is free by now
    }
  }
  return !all_at_work || missing_.empty();
}

void Sweep::work() {
  while (!missing_.empty() || !running_.empty() || !taken_.empty()) {
    if (call_.cancellation.requested()) {
      result_.interrupted = true;
      break;
    }
    if (disk_failed_) break;
    claims_.beat();
    if (!missing_.empty() && std::ssize(running_) < workers_) {
      start_next();
      continue;
    }
    wait_for_any();
    if (!missing_.empty() || taken_.empty() || seconds_since(last_look_) < kLookSeconds) continue;
    const bool more = look_elsewhere();
    if (options_.join && running_.empty() && !more) break;
  }
}

void Sweep::ask_slurm() {
  if (seconds_since(last_asked_) < ask_after_) return;
  ask_after_ = std::clamp(1.5 * ask_after_, kAskSeconds, kMostAskSeconds);
  std::string problem;
  std::optional<SlurmView> view = array_->look(problem);
  last_asked_ = Clock::now();
  if (!view) {
    if (!std::exchange(deaf_, true)) {
      call_.note("Slurm does not answer, results are waited for all the same: " + problem);
    }
    return;
  }
  deaf_ = false;
  if (view->tasks.empty() && view_) {  // Slurm forgets ended jobs after minutes.
    view_->running = view_->waiting = 0;
  } else {
    view_ = std::move(*view);
  }
  std::string text = fmt::format("Slurm's job {}: {} running", array_->id(), view_->running);
  if (view_->waiting > 0) text += fmt::format(", {} waiting", view_->waiting);
  if (!view_->reason.empty()) text += fmt::format(" ({})", view_->reason);
  show(text);
}

/// Cancels what is left of the array and waits for its end.
void Sweep::end_array() {
  array_->cancel(!result_.interrupted);
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < kEndSeconds) {
    std::string ignored;
    const auto view = array_->look(ignored);
    if (view && view->ended()) {
      claims_.dissolve(array_->group());
      if (result_.problems.empty() && !result_.interrupted) array_->forget();
      break;
    }
    usleep(1000 * kTickMilliseconds);
  }
  array_.reset();
}

/// What the array came to, if it has ended and left runs undone: in words.
std::vector<std::string> Sweep::left_by_array() {
  const Clock::time_point ended = Clock::now();
  const double patience = is_on_network(store_.folder()) ? kStaleSeconds : 0;
  do {
    look_elsewhere();  // what came in between
    if (taken_.empty() || call_.cancellation.requested()) return {};
    if (patience > 0) usleep(1000 * 1000);
  } while (seconds_since(ended) < patience);
  std::vector<std::string> problems = array_->failures(*view_);
  problems.push_back(
      fmt::format("Slurm's job {} has ended with {} of {} runs undone; the same command goes on "
                  "from there",
                  array_->id(), taken_.size(), result_.total));
  return problems;
}

void Sweep::work_on_slurm() {
  const std::string folder = fs::absolute(store_.folder() + "/slurm").lexically_normal();
  std::swap(taken_, missing_);
  array_ = SlurmArray::noted(folder);
  bool submitted = false;
  while (!taken_.empty()) {
    if (call_.cancellation.requested()) {
      result_.interrupted = true;
      break;
    }
    claims_.beat();
    if (!array_) {
      const int tasks =
          std::min(options_.slurm->settings.nodes.value_or(1), static_cast<int>(taken_.size()));
      array_ = SlurmArray::submit(folder, *options_.slurm, tasks);
      submitted = true;
      view_.reset();
      ask_after_ = 0;
    }
    ask_slurm();
    if (seconds_since(last_look_) >= kLookSeconds) look_elsewhere();
    if (view_ && view_->ended() && !deaf_) {
      std::vector<std::string> problems = left_by_array();
      if (problems.empty()) continue;  // all done, or canceled
      claims_.dissolve(array_->group());
      if (submitted) {
        result_.problems.insert(result_.problems.end(), problems.begin(), problems.end());
        break;
      }
      array_.reset();  // of an earlier call: this one gets an array of its own
      continue;
    }
    show("");
    usleep(1000 * kTickMilliseconds);
  }
  if (array_) end_array();
}

void Sweep::add_seconds() {
  const std::map<std::string, Timing> timings = store_.timings();
  std::set<std::string> counted;
  for (const Task& each : list_.tasks) {
    const auto known = timings.find(each.hash);
    if (known == timings.end() || !counted.insert(each.hash).second) continue;
    result_.planning_seconds += known->second.planning;
    result_.evaluation_seconds += known->second.evaluation;
    result_.total_seconds += known->second.total;
  }
}

/// Final order of runs.csv and timings.csv, index, table, figure.
void Sweep::close() {
  if (options_.join) return;
  store_.tidy({});  // after calls that ended while this one worked
  store_.rewrite_runs();
  store_.rewrite_timings();
  store_.rewrite_index();
  const std::vector<std::string> absent = store_.publish_files();
  if (store_.complete()) {
    for (const std::string& name : absent) {
      call_.note(fmt::format("publish: no run wrote '{}'", name));
    }
  }
  if (!list_.table.empty()) result_.table = store_.gather_table();
  const bool has_rows = list_.table.empty() || fs::file_size(result_.table) > 0;
  const bool draw = options_.figure && has_rows && !list_.figure.plot.empty() &&
                    !result_.interrupted && !disk_failed_ && !list_.tasks.empty() &&
                    store_.complete();
  if (!draw) return;
  FigureResult figure = draw_figure(
      list_.figure, list_.table.empty() ? store_.runs_csv() : result_.table, store_.figures());
  result_.figures = std::move(figure.files);
  if (!figure.problem.empty()) result_.problems.push_back(std::move(figure.problem));
}

SweepOutcome Sweep::run() {
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
    store_.open();
    claims_.enter();
    if (!options_.join) {
      store_.tidy({missing_.begin(), missing_.end()});
      store_.rewrite_runs();
    }
  } catch (const std::exception& error) {
    result_.problems.emplace_back(error.what());
    return std::move(result_);
  }
  guarded(&Sweep::take_known);
  guarded(options_.slurm ? &Sweep::work_on_slurm : &Sweep::work);
  stop_workers();
  guarded(&Sweep::close);
  guarded(&Sweep::add_seconds);
  claims_.leave();
  return std::move(result_);
}

}  // namespace

SweepOutcome sweep_runs(const TaskList& list, const std::string& name, const RunnerOptions& options,
                        const Call& call) {
  return Sweep(list, name, options, call).run();
}

}  // namespace orrery::experiments
