#include "sim/replay/training_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "models/base/check.h"

namespace orrery::sim {
namespace {

/// Longer cycles of checkpoints hardly repeat between two events.
constexpr std::int64_t kLongestCycle = 1'000'000;
/// After a jump the last cycles are run step by step, so that the replicas that are kept are right.
constexpr std::int64_t kCyclesAfterJump = 3;

}  // namespace

TrainingRun::TrainingRun(Start start, ReplayLedger& ledger, ReplicaStore& replicas)
    : ledger_(ledger),
      replicas_(replicas),
      plan_(std::move(start.plan)),
      devices_(std::move(start.devices)),
      samples_(ir::global_batch(*plan_)),
      now_(start.now),
      done_(start.done),
      iteration_(start.iteration) {
  set_checkpoints(std::move(start.checkpoints));
  due_ = levels_.size();  // the state that training starts from is not written again
  open_run(next_duration());
}

void TrainingRun::set_checkpoints(CheckpointSchedule checkpoints) {
  std::map<ReplicaStore::Slot, std::int64_t> background_until;
  for (const Level& level : levels_) background_until[level.slot] = level.background_until;
  levels_.clear();
  background_iterations_ = std::move(checkpoints.background_iterations);
  time_with_background_ = std::move(checkpoints.time_with_background);
  background_times_.clear();
  cycle_.reset();
  cycle_length_ = 1;
  longest_ = 0;
  std::map<ir::Location, int> numbers;
  for (models::CheckpointLevel& level : checkpoints.levels) {
    ORRERY_CHECK(level.every >= 1 && level.stall.count >= 0 && level.persist.count >= 0,
                 "a level of checkpoints every {} iterations, stall {} ns, persist {} ns",
                 level.every, level.stall.count, level.persist.count);
    ORRERY_CHECK(level.stored_on.empty() || level.stored_on.size() == devices_.all->size(),
                 "{} places for {} shards", level.stored_on.size(), devices_.all->size());
    const ReplicaStore::Slot slot{level.location, numbers[level.location]++};
    DeviceList stored_on;
    if (!level.stored_on.empty()) {
      stored_on = std::make_shared<std::vector<DeviceId>>(std::move(level.stored_on));
    }
    if (cycle_length_ > 0) {
      const std::int64_t step = level.every / std::gcd(level.every, cycle_length_);
      cycle_length_ = step > kLongestCycle / cycle_length_ ? 0 : cycle_length_ * step;
    }
    const bool background = !background_iterations_.empty();
    const std::int64_t overlap = background ? background_iterations_[levels_.size()] : 0;
    if (overlap > 0 && overlap < level.every) cycle_length_ = 0;  // iterations of a cycle differ
    const std::int64_t from = replicas_.counts_from(slot, done_);
    const std::int64_t until = background ? background_until[slot] : 0;
    levels_.push_back({std::move(level), slot, std::move(stored_on), from, until});
    if (levels_.back().level.every > levels_[longest_].level.every) longest_ = levels_.size() - 1;
  }
}

void TrainingRun::open_run(Nanoseconds duration) {
  ORRERY_CHECK(duration.count > 0, "an iteration of {} ns", duration.count);
  run_duration_ = duration;
  const bool loaded = background_levels() != 0 && !retimed_ && duration > iteration_;
  ledger_.open_run(now_, done_ + 1, duration, devices_.working_count(), samples_,
                   loaded ? duration - iteration_ : Nanoseconds{});
}

/// Levels whose background transfers overlap with the next iteration, a bit each.
std::uint32_t TrainingRun::background_levels() const {
  std::uint32_t levels = 0;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    if (done_ < levels_[i].background_until) levels |= std::uint32_t{1} << i;
  }
  return levels;
}

/// The duration of the next iteration.
Nanoseconds TrainingRun::next_duration() {
  const std::uint32_t levels = background_levels();
  if (levels == 0) return iteration_;
  const auto [at, is_new] = background_times_.try_emplace(levels);
  if (is_new) at->second = time_with_background_(levels);
  return at->second;
}

bool TrainingRun::advance(Instant until, std::optional<Instant> stop) {
  if (stop && activity_ != Activity::none && start_ == now_ && *stop <= now_)
    activity_ = Activity::none;
  while (true) {
    if (activity_ == Activity::none) {
      if (stop && now_ >= *stop) return true;
      begin(until, stop);
      continue;
    }
    if (end_ > until) break;
    end_activity();
  }
  now_ = until;
  return false;
}

/// Starts the next step, or jumps over many.
void TrainingRun::begin(Instant until, std::optional<Instant> stop) {
  if (begin_checkpoint()) return;
  if (const Nanoseconds next = next_duration(); next != run_duration_) {
    ledger_.close_run(now_);
    open_run(next);
    cycle_.reset();
  }
  const Instant limit = stop ? std::min(until, *stop) : until;
  jump_cycles(limit);
  const std::int64_t before = done_;
  jump_iterations(until, stop);
  if (done_ > before) return;
  activity_ = Activity::iteration;
  start_ = now_;
  end_ = now_ + run_duration_;
  whole_ = run_duration_;
}

bool TrainingRun::begin_checkpoint() {
  while (due_ < levels_.size() && done_ - levels_[due_].counted_from < levels_[due_].level.every) {
    ++due_;
  }
  if (due_ == levels_.size()) return false;
  checkpoint_ = levels_[due_];
  replicas_.settle(now_);
  activity_ = Activity::checkpoint;
  start_ = now_;
  stall_start_ = replicas_.pending(checkpoint_.slot).value_or(now_);
  end_ = stall_start_ + checkpoint_.level.stall;
  return true;
}

void TrainingRun::end_activity() {
  const Nanoseconds duration = end_ - start_;
  now_ = end_;
  if (activity_ == Activity::iteration) {
    ledger_.add_iterations(1);
    ++done_;
    due_ = 0;
    if (retimed_) {
      ledger_.close_run(now_);
      retimed_ = false;
      open_run(next_duration());
    }
  } else {
    ledger_.add_checkpoint(duration);
    replicas_.settle(stall_start_);
    replicas_.persist(checkpoint_.slot, done_, plan_, devices_, checkpoint_.stored_on,
                      stall_start_ + std::max(checkpoint_.level.stall, checkpoint_.level.persist));
    replicas_.settle(now_);
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      if (levels_[i].slot != checkpoint_.slot) continue;
      levels_[i].counted_from = done_;
      if (!background_iterations_.empty()) {
        levels_[i].background_until = done_ + background_iterations_[i];
      }
    }
    due_ = std::min(due_ + 1, levels_.size());
  }
  activity_ = Activity::none;
}

/// Levels repeat after the least common multiple of their iterations. If what is being persisted
/// and what is due look the same at both ends of such a cycle, everything between them repeats
/// until something happens. Cycles end at checkpoints of the longest level, where jumps of
/// iterations do.
void TrainingRun::jump_cycles(Instant limit) {
  if (levels_.empty() || cycle_length_ == 0 || levels_[longest_].counted_from != done_) return;
  if (cycle_ && done_ < cycle_->done + cycle_length_) return;
  replicas_.settle(now_);
  Cycle here{done_, now_, {}, {}};
  for (const Level& level : levels_) {
    const auto end = replicas_.pending(level.slot);
    here.pending.push_back(end ? (*end - now_).count : 0);
    here.since.push_back(done_ - level.counted_from);
  }
  const bool repeats = cycle_ && cycle_->done + cycle_length_ == done_ &&
                       cycle_->pending == here.pending && cycle_->since == here.since;
  if (repeats && limit > now_) {
    const Nanoseconds duration = now_ - cycle_->at;
    const std::int64_t count = (limit - now_).count / duration.count - kCyclesAfterJump;
    if (count > 0) {
      const Nanoseconds training{cycle_length_ * run_duration_.count};
      const Nanoseconds jump{count * duration.count};
      ledger_.add_iterations(count * cycle_length_);
      ledger_.add_checkpoint({count * (duration - training).count});
      for (Level& level : levels_) {
        replicas_.shift(level.slot, count * cycle_length_, jump);
        level.counted_from += count * cycle_length_;
        level.background_until += count * cycle_length_;
      }
      done_ += count * cycle_length_;
      now_ = now_ + jump;
      here.done = done_;
      here.at = now_;
    }
  }
  cycle_ = std::move(here);
}

/// Skips as many whole iterations as fit before the next checkpoint, the end and the stop.
void TrainingRun::jump_iterations(Instant until, std::optional<Instant> stop) {
  std::int64_t count = std::max<std::int64_t>(0, (until - now_).count) / run_duration_.count;
  for (const Level& level : levels_) {
    if (done_ < level.background_until) count = std::min(count, level.background_until - done_);
    const std::int64_t left = level.counted_from + level.level.every - done_;
    count = std::min(count, std::max<std::int64_t>(1, left));
  }
  if (stop) {
    const std::int64_t left = (*stop - now_).count;
    count = std::min(count, (left + run_duration_.count - 1) / run_duration_.count);
  }
  if (count == 0) return;
  ledger_.add_iterations(count);
  done_ += count;
  now_ = now_ + Nanoseconds{count * run_duration_.count};
  due_ = 0;
}

void TrainingRun::retime(Nanoseconds iteration, CheckpointSchedule checkpoints) {
  const Nanoseconds old = iteration_;
  const std::size_t before = levels_.size();
  const Instant now = now_;
  set_checkpoints(std::move(checkpoints));
  if (levels_.size() != before) due_ = levels_.size();
  iteration_ = iteration;
  if (iteration == old) return;
  const Nanoseconds next = next_duration();
  const bool in_activity = activity_ != Activity::none;
  if (in_activity) now_ = start_;
  ledger_.close_run(now_);
  if (activity_ == Activity::iteration && start_ < now) {
    const double left = static_cast<double>((end_ - now).count) / static_cast<double>(whole_.count);
    const std::int64_t rest = std::llround(left * static_cast<double>(next.count));
    end_ = now + Nanoseconds{rest};
    retimed_ = true;
    open_run(end_ - start_);
  } else {
    if (activity_ == Activity::iteration) end_ = start_ + next;
    retimed_ = false;
    open_run(next);
  }
  whole_ = next;
  now_ = now;
}

void TrainingRun::stop(const std::string& cause) {
  if (activity_ == Activity::checkpoint) {
    ledger_.add_checkpoint(now_ - start_);
    ledger_.close_run(now_);
  } else {
    const Instant start = activity_ == Activity::iteration ? start_ : now_;
    ledger_.close_run(start);
    ledger_.add(Bucket::rolled_back, start, now_, devices_.working_count(), cause, done_ + 1);
  }
  activity_ = Activity::none;
}

void TrainingRun::finish() {
  if (activity_ != Activity::iteration) return stop("");
  ledger_.close_run(start_);
  ledger_.add_unfinished(start_, now_, devices_.working_count(), done_ + 1);
  activity_ = Activity::none;
}

}  // namespace orrery::sim
