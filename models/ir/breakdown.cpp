#include "models/ir/breakdown.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/base/check.h"
#include "models/ir/op_traits.h"

namespace orrery::ir {
namespace {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Disjoint intervals in order.
using Cover = std::vector<Interval>;

/// Union of intervals in any order.
Cover unite(std::vector<Interval> intervals) {
  const auto earlier = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  if (!std::is_sorted(intervals.begin(), intervals.end(), earlier)) {
    std::sort(intervals.begin(), intervals.end(), earlier);
  }
  std::size_t kept = 0;
  for (const Interval& interval : intervals) {
    if (kept > 0 && interval.begin <= intervals[kept - 1].end) {
      intervals[kept - 1].end = std::max(intervals[kept - 1].end, interval.end);
    } else {
      intervals[kept++] = interval;
    }
  }
  intervals.resize(kept);
  return intervals;
}

Cover unite(const Cover& a, const Cover& b) {
  std::vector<Interval> all(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), all.begin(),
             [](const Interval& x, const Interval& y) { return x.begin < y.begin; });
  return unite(std::move(all));
}

/// Length of the part of `a` that `b` does not cover.
std::int64_t length_without(const Cover& a, const Cover& b) {
  std::int64_t length = 0;
  auto next = b.begin();
  for (const Interval& interval : a) {
    std::int64_t from = interval.begin;
    while (next != b.end() && next->end <= from) ++next;
    for (auto cut = next; cut != b.end() && cut->begin < interval.end; ++cut) {
      length += std::max<std::int64_t>(0, cut->begin - from);
      from = std::max(from, cut->end);
    }
    length += std::max<std::int64_t>(0, interval.end - from);
  }
  return length;
}

}  // namespace

Nanoseconds RankBreakdown::total() const {
  return compute + tensor_parallel + zero + pipeline + data_parallel + optimizer + bubble;
}

RankBreakdown rank_breakdown(const Program& program, std::span<const Span> spans,
                             Nanoseconds iteration) {
  RankBreakdown parts;
  std::vector<Interval> busy, kernels, pipeline, other;
  for (const Span& span : spans) {
    const Op& op = program.op(span.op);
    const Interval interval{span.start.nanoseconds, span.end.nanoseconds};
    if (op.kind == OpKind::host) continue;
    if (op.kind == OpKind::kernel) {
      busy.push_back(interval);
      kernels.push_back(interval);
      continue;
    }
    if (op.stream != Stream::compute) {
      (op.purpose == Purpose::pipeline ? pipeline : other).push_back(interval);
      continue;
    }
    busy.push_back(interval);
    if (is_pass(op.kind)) {
      parts.compute += span.end - span.start - span.inner;
      parts.tensor_parallel += span.inner - span.gathers;
      parts.zero += span.gathers;
    } else {
      parts.optimizer += span.end - span.start;
    }
  }
  // Those of several streams may run at the same time.
  parts.compute += Nanoseconds{length_without(unite(std::move(kernels)), {})};
  const Cover computing = unite(std::move(busy));
  const Cover moving = unite(std::move(pipeline));
  const Cover synchronizing = unite(std::move(other));
  const Cover both = unite(computing, moving);
  const Cover any = unite(both, synchronizing);
  parts.pipeline = {length_without(moving, computing)};
  parts.data_parallel = {length_without(synchronizing, both)};
  parts.bubble = {length_without({{0, iteration.count}}, any)};
  ORRERY_CHECK(parts.total() == iteration, "parts of rank {} add up to {} ns of {} ns",
               spans.empty() ? -1 : spans.front().rank.value, parts.total().count, iteration.count);
  return parts;
}

}  // namespace orrery::ir
