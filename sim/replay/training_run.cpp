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
/// After a jump the last cycles are run step by step, so that the copies that are kept are right.
constexpr std::int64_t kCyclesAfterJump = 3;

}  // namespace

TrainingRun::TrainingRun(Start start, ReplayLedger& ledger, CopyStore& copies)
    : ledger_(ledger),
      copies_(copies),
      plan_(std::move(start.plan)),
      devices_(std::move(start.devices)),
      samples_(ir::global_batch(*plan_)),
      now_(start.now),
      done_(start.done),
      iteration_(start.iteration) {
  set_levels(std::move(start.levels), std::move(start.load));
  due_ = levels_.size();  // the state that training starts from is not written again
  open_run(next_duration());
}

void TrainingRun::set_levels(std::vector<models::CheckpointLevel> levels, CopyLoad load) {
  std::map<CopyStore::Slot, std::int64_t> loaded_until;
  for (const Level& level : levels_) loaded_until[level.slot] = level.loaded_until;
  levels_.clear();
  load_ = std::move(load);
  loaded_.clear();
  cycle_.reset();
  cycle_length_ = 1;
  longest_ = 0;
  std::map<ir::Location, int> numbers;
  for (models::CheckpointLevel& level : levels) {
    ORRERY_CHECK(level.every >= 1 && level.stall.count >= 0 && level.persist.count >= 0,
                 "a level of checkpoints every {} iterations, stall {} ns, persist {} ns",
                 level.every, level.stall.count, level.persist.count);
    ORRERY_CHECK(level.stored_on.empty() || level.stored_on.size() == devices_.all->size(),
                 "{} holders for {} shares", level.stored_on.size(), devices_.all->size());
    const CopyStore::Slot slot{level.location, numbers[level.location]++};
    DeviceList holders;
    if (!level.stored_on.empty()) {
      holders = std::make_shared<std::vector<DeviceId>>(std::move(level.stored_on));
    }
    if (cycle_length_ > 0) {
      const std::int64_t step = level.every / std::gcd(level.every, cycle_length_);
      cycle_length_ = step > kLongestCycle / cycle_length_ ? 0 : cycle_length_ * step;
    }
    const std::int64_t from = copies_.counts_from(slot, done_);
    const std::size_t i = levels_.size();
    const bool partly =
        !load_.iterations.empty() && load_.iterations[i] > 0 && load_.iterations[i] < level.every;
    if (partly) cycle_length_ = 0;  // iterations of a cycle differ
    const std::int64_t until = load_.iterations.empty() ? 0 : loaded_until[slot];
    levels_.push_back({std::move(level), slot, std::move(holders), from, until});
    if (levels_.back().level.every > levels_[longest_].level.every) longest_ = levels_.size() - 1;
  }
}

void TrainingRun::open_run(Nanoseconds duration) {
  ORRERY_CHECK(duration.count > 0, "an iteration of {} ns", duration.count);
  run_duration_ = duration;
  ledger_.open_run(now_, done_ + 1, duration, working(), samples_);
}

/// Levels whose copies the next iteration is beside.
std::uint32_t TrainingRun::loads() const {
  std::uint32_t levels = 0;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    if (done_ < levels_[i].loaded_until) levels |= std::uint32_t{1} << i;
  }
  return levels;
}

/// Of the next iteration.
Nanoseconds TrainingRun::next_duration() {
  const std::uint32_t levels = loads();
  if (levels == 0) return iteration_;
  const auto [at, is_new] = loaded_.try_emplace(levels);
  if (is_new) at->second = load_.time(levels);
  return at->second;
}

bool TrainingRun::advance(Instant until, std::optional<Instant> stop) {
  if (stop && step_ != Step::none && step_start_ == now_ && *stop <= now_) step_ = Step::none;
  while (true) {
    if (step_ == Step::none) {
      if (stop && now_ >= *stop) return true;
      begin(until, stop);
      continue;
    }
    if (step_end_ > until) break;
    end_step();
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
  step_ = Step::iteration;
  step_start_ = now_;
  step_end_ = now_ + run_duration_;
}

bool TrainingRun::begin_checkpoint() {
  while (due_ < levels_.size() && done_ - levels_[due_].counted_from < levels_[due_].level.every) {
    ++due_;
  }
  if (due_ == levels_.size()) return false;
  checkpoint_ = levels_[due_];
  copies_.settle(now_);
  step_ = Step::checkpoint;
  step_start_ = now_;
  stall_start_ = copies_.pending(checkpoint_.slot).value_or(now_);
  step_end_ = stall_start_ + checkpoint_.level.stall;
  return true;
}

void TrainingRun::end_step() {
  const Nanoseconds duration = step_end_ - step_start_;
  now_ = step_end_;
  if (step_ == Step::iteration) {
    ledger_.add_iterations(1);
    ++done_;
    due_ = 0;
    if (odd_) {
      ledger_.close_run(now_);
      odd_ = false;
      open_run(next_duration());
    }
  } else {
    ledger_.add_checkpoint(duration);
    copies_.settle(stall_start_);
    copies_.persist(checkpoint_.slot, done_, plan_, devices_, checkpoint_.holders,
                    stall_start_ + std::max(checkpoint_.level.stall, checkpoint_.level.persist));
    copies_.settle(now_);
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      if (levels_[i].slot != checkpoint_.slot) continue;
      levels_[i].counted_from = done_;
      if (!load_.iterations.empty()) levels_[i].loaded_until = done_ + load_.iterations[i];
    }
    due_ = std::min(due_ + 1, levels_.size());
  }
  step_ = Step::none;
}

/// Levels repeat after the least common multiple of their iterations. If at both ends of so many
/// what is being persisted and what is due look the same, everything between them repeats until
/// something happens. Cycles end at checkpoints of the longest level, where jumps of iterations do.
void TrainingRun::jump_cycles(Instant limit) {
  if (levels_.empty() || cycle_length_ == 0 || levels_[longest_].counted_from != done_) return;
  if (cycle_ && done_ < cycle_->done + cycle_length_) return;
  copies_.settle(now_);
  Cycle here{done_, now_, {}, {}};
  for (const Level& level : levels_) {
    const auto end = copies_.pending(level.slot);
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
        copies_.shift(level.slot, count * cycle_length_, jump);
        level.counted_from += count * cycle_length_;
        level.loaded_until += count * cycle_length_;
      }
      done_ += count * cycle_length_;
      now_ = now_ + jump;
      here.done = done_;
      here.at = now_;
    }
  }
  cycle_ = std::move(here);
}

/// As many whole iterations as fit before the next checkpoint, the end and the stop.
void TrainingRun::jump_iterations(Instant until, std::optional<Instant> stop) {
  std::int64_t count = std::max<std::int64_t>(0, (until - now_).count) / run_duration_.count;
  for (const Level& level : levels_) {
    if (done_ < level.loaded_until) count = std::min(count, level.loaded_until - done_);
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

void TrainingRun::retime(Nanoseconds iteration, std::vector<models::CheckpointLevel> levels,
                         CopyLoad load) {
  const Nanoseconds old = iteration_;
  const std::size_t before = levels_.size();
  const Instant now = now_;
  set_levels(std::move(levels), std::move(load));
  if (levels_.size() != before) due_ = levels_.size();
  iteration_ = iteration;
  if (iteration == old) return;
  const Nanoseconds next = next_duration();
  const bool in_step = step_ != Step::none;
  if (in_step) now_ = step_start_;
  ledger_.close_run(now_);
  if (step_ == Step::iteration && step_start_ < now) {
    const double whole = static_cast<double>((step_end_ - step_start_).count);
    const double left = static_cast<double>((step_end_ - now).count) / whole;
    const std::int64_t rest = std::llround(left * static_cast<double>(next.count));
    step_end_ = now + Nanoseconds{rest};
    odd_ = true;
    open_run(step_end_ - step_start_);
  } else {
    if (step_ == Step::iteration) step_end_ = step_start_ + next;
    odd_ = false;
    open_run(next);
  }
  now_ = now;
}

void TrainingRun::stop(const std::string& cause) {
  if (step_ == Step::checkpoint) {
    ledger_.add_checkpoint(now_ - step_start_);
    ledger_.close_run(now_);
  } else {
    const Instant start = step_ == Step::iteration ? step_start_ : now_;
    ledger_.close_run(start);
    ledger_.book(Bucket::rolled_back, start, now_, working(), cause, done_ + 1);
  }
  step_ = Step::none;
}

void TrainingRun::finish() {
  if (step_ != Step::iteration) return stop("");
  ledger_.close_run(step_start_);
  ledger_.book_unfinished(step_start_, now_, working(), done_ + 1);
  step_ = Step::none;
}

}  // namespace orrery::sim
