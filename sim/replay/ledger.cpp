#include "sim/replay/ledger.h"

#include <algorithm>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::sim {
namespace {

Nanoseconds times(std::int64_t count, Nanoseconds duration) { return {count * duration.count}; }

}  // namespace

void ReplayLedger::append(Entry entry) {
  const Instant reached = entries_.empty() ? Instant{} : entries_.back().end;
  ORRERY_CHECK(entry.start == reached, "an entry starts at {} ns, the one before ends at {} ns",
               entry.start.nanoseconds, reached.nanoseconds);
  ORRERY_CHECK(entry.start <= entry.end, "an entry from {} ns to {} ns", entry.start.nanoseconds,
               entry.end.nanoseconds);
  if (entry.start == entry.end) return;
  entries_.push_back(std::move(entry));
}

void ReplayLedger::open_run(Instant start, std::int64_t first, Nanoseconds duration,
                            std::int64_t devices, std::int64_t samples, Nanoseconds background) {
  ORRERY_CHECK(!is_open_, "a run of iterations is open");
  open_ = {};
  open_.run = true;
  open_.start = start;
  open_.first = first;
  open_.duration = duration;
  open_.background = background;
  open_.devices = devices;
  open_.samples = samples;
  is_open_ = true;
}

void ReplayLedger::add_iterations(std::int64_t count) { open_.counted += count; }

void ReplayLedger::add_checkpoint(Nanoseconds duration) { open_.checkpoint += duration; }

void ReplayLedger::close_run(Instant end) {
  ORRERY_CHECK(is_open_, "no run of iterations is open");
  const Nanoseconds accounted = times(open_.counted, open_.duration) + open_.checkpoint;
  ORRERY_CHECK(open_.start + accounted == end,
               "a run from {} ns accounts for {} ns and ends at {} ns", open_.start.nanoseconds,
               accounted.count, end.nanoseconds);
  open_.end = end;
  is_open_ = false;
  const bool counts = open_.counted > 0;
  append(std::move(open_));
  if (counts) counting_.push_back(entries_.size() - 1);
}

void ReplayLedger::add(Bucket bucket, Instant start, Instant end, std::int64_t devices,
                       std::string what, std::int64_t iteration) {
  ORRERY_CHECK(!is_open_, "a run of iterations is open");
  Entry entry;
  entry.bucket = bucket;
  entry.start = start;
  entry.end = end;
  entry.devices = devices;
  entry.first = iteration;
  entry.what = std::move(what);
  append(std::move(entry));
}

void ReplayLedger::add_unfinished(Instant start, Instant end, std::int64_t devices,
                                  std::int64_t iteration) {
  const Instant split = start + std::min(end - start, reference_);
  add(Bucket::productive, start, split, devices, "unfinished iteration", iteration);
  add(Bucket::degraded, split, end, devices, "unfinished iteration", iteration);
}

std::int64_t ReplayLedger::roll_back(std::int64_t iteration, const std::string& cause) {
  ORRERY_CHECK(!is_open_, "a run of iterations is open");
  std::int64_t rolled = 0;
  while (!counting_.empty()) {
    Entry& run = entries_[counting_.back()];
    const std::int64_t keep = std::clamp<std::int64_t>(iteration - run.first + 1, 0, run.counted);
    if (keep == run.counted) break;
    rolled += run.counted - keep;
    run.lost += run.counted - keep;
    run.counted = keep;
    run.what = cause;
    if (keep > 0) break;
    counting_.pop_back();
  }
  return rolled;
}

/// The order inside a run is for timelines: what counts, checkpoints, what was lost.
std::vector<ReplayLedger::Piece> ReplayLedger::pieces(const Entry& entry) const {
  if (!entry.run) return {{entry.bucket, entry.end - entry.start, entry.first, 0}};
  const Nanoseconds useful = std::min(entry.duration, reference_);
  return {
      {Bucket::productive, times(entry.counted, useful), entry.first, entry.counted},
      {Bucket::degraded, times(entry.counted, entry.duration - useful), entry.first, entry.counted},
      {Bucket::checkpoint, entry.checkpoint, 0, 0},
      {Bucket::rolled_back, times(entry.lost, entry.duration), entry.first + entry.counted,
       entry.lost}};
}

void ReplayLedger::fill(ReplayResult& result, bool spans) const {
  ORRERY_CHECK(!is_open_, "a run of iterations is open");
  Instant at;
  for (const Entry& entry : entries_) {
    result.samples += entry.counted * entry.samples;
    result.iterations += entry.counted;
    result.background += times(entry.counted, entry.background);
    for (const Piece& piece : pieces(entry)) {
      if (piece.duration.count == 0) continue;
      result.wall[index_of(piece.bucket)] += piece.duration;
      const Instant end = at + piece.duration;
      if (spans) {
        const std::string& what =
            entry.run && piece.bucket != Bucket::rolled_back ? std::string{} : entry.what;
        ReplaySpan* last = result.spans.empty() ? nullptr : &result.spans.back();
        if (last != nullptr && last->bucket == piece.bucket && last->what == what &&
            (piece.iterations == 0 || last->first_iteration + last->iterations == piece.first)) {
          last->end = end;
          last->iterations += piece.iterations;
        } else {
          result.spans.push_back({piece.bucket, at, end, piece.first, piece.iterations, what});
        }
      }
      at = end;
    }
    ORRERY_CHECK(at == entry.end, "the parts of an entry reach to {} ns, the entry to {} ns",
                 at.nanoseconds, entry.end.nanoseconds);
  }
  ORRERY_CHECK(at == Instant{} + result.horizon, "{} ns of {} are accounted for", at.nanoseconds,
               result.horizon.count);
  Nanoseconds sum;
  for (const Nanoseconds part : result.wall) sum += part;
  ORRERY_CHECK(sum == result.horizon, "buckets add up to {} ns of {}", sum.count,
               result.horizon.count);
}

std::array<WideCount, kBuckets> ReplayLedger::in_plan() const {
  std::array<WideCount, kBuckets> sums{};
  for (const Entry& entry : entries_) {
    for (const Piece& piece : pieces(entry)) {
      sums[index_of(piece.bucket)] += WideCount{entry.devices} * piece.duration.count;
    }
  }
  return sums;
}

}  // namespace orrery::sim
