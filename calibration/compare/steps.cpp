#include "calibration/compare/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "calibration/compare/checkpoints.h"
#include "models/base/check.h"
#include "models/base/id_vector.h"
#include "models/ir/op_traits.h"
#include "models/ir/timeline.h"

namespace orrery::calibration {
namespace {

using ir::Op;
using ir::OpKind;
using ir::Span;

/// Spans of each op in the order of time.
std::vector<std::vector<Span>> by_op(const ir::Program& program, const ir::RunLog& log) {
  std::vector<std::vector<Span>> spans(program.ops.size());
  for (const Span& span : log.spans) spans[span.op.index()].push_back(span);
  for (auto& of_op : spans) {
    std::stable_sort(of_op.begin(), of_op.end(),
                     [](const Span& a, const Span& b) { return a.start < b.start; });
  }
  return spans;
}

/// All of `ops` from when the last of them starts to when the last of them ends.
template <class Ops>
void join(const Ops& ops, std::vector<Span>& spans) {
  Instant start{std::numeric_limits<std::int64_t>::min()};
  Instant end = start;
  for (const OpId op : ops) {
    start = std::max(start, spans[op.index()].start);
    end = std::max(end, spans[op.index()].end);
  }
  for (const OpId op : ops) {
    spans[op.index()].start = start;
    spans[op.index()].end = end;
  }
}

void join_meetings(const ir::Program& program, std::vector<Span>& spans) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.kind != OpKind::send || op.match == ir::kNone) continue;
    join(std::vector<OpId>{{static_cast<std::int32_t>(i)}, {op.match}}, spans);
  }
  for (const ir::Collective& collective : program.collectives) {
    join(program.members_of(collective.members), spans);
  }
}

/// Compute ops of a rank must follow one another; their inner time must lie in them.
std::string find_overlap(const ir::Program& program, const std::vector<LoggedStep>& steps) {
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank{static_cast<std::int32_t>(r)};
    const std::size_t row = r * ir::kStreams;
    Instant last{std::numeric_limits<std::int64_t>::min()};
    for (const LoggedStep& step : steps) {
      for (std::size_t i = program.stream_begin[row]; i < program.stream_begin[row + 1]; ++i) {
        const Span& span = step.spans[i];
        if (span.start < last || span.gathers.count < 0 || span.inner < span.gathers ||
            span.end - span.start < span.inner) {
          return fmt::format("step {}: op {} of rank {} overlaps the op before it", step.number, i,
                             rank.value);
        }
        last = span.end;
      }
    }
  }
  return "";
}

/// When a rank's first op of a step starts and its last one ends.
struct RankTimes {
  Instant first{std::numeric_limits<std::int64_t>::max()};
  Instant last{std::numeric_limits<std::int64_t>::min()};
};

IdVector<RankId, RankTimes> rank_times(const ir::Program& program, const LoggedStep& step) {
  IdVector<RankId, RankTimes> out(program.ranks.size());
  for (const Span& span : step.spans) {
    RankTimes& times = out[span.rank];
    times.first = std::min(times.first, span.start);
    times.last = std::max(times.last, span.end);
  }
  return out;
}

/// Takes what checkpoints held training up out of the steps that follow them. A rank is held from
/// the end of its last op on, for as long as it said, and at most until its next op starts.
void take_out_checkpoints(const ir::Program& program, const ir::RunLog& log,
                          std::vector<LoggedStep>& steps) {
  const std::vector<LoggedCheckpoint> written = logged_checkpoints(program, log).written;
  for (std::size_t k = 1; k < steps.size() && !written.empty(); ++k) {
    LoggedStep& step = steps[k];
    const IdVector<RankId, RankTimes> before = rank_times(program, steps[k - 1]);
    const IdVector<RankId, RankTimes> after = rank_times(program, step);
    Instant on = step.start;
    for (const LoggedCheckpoint& one : written) {
      if (one.iteration != steps[k - 1].number) continue;
      step.after_checkpoint = true;
      const Instant last = before[one.rank].last;
      const Instant free{last.nanoseconds + to_nanoseconds(one.held).count};
      on = std::max(on, std::min(free, after[one.rank].first));
    }
    if (on >= step.end) continue;  // Ops without a length.
    step.held = on - step.start;
    step.start = on;
  }
}

/// The part of a span in [start, end), counted from `start`; inner collectives are at its end.
Span clipped(Span span, Instant start, Instant end) {
  const Instant inner_start{span.end.nanoseconds - span.inner.count};
  const auto inside = [&](Instant at) {
    return Instant{std::clamp(at, start, end).nanoseconds - start.nanoseconds};
  };
  const Nanoseconds inner = span.inner;
  span.inner = inside(span.end) - inside(inner_start);
  // Where among the inner collectives the gathers were is not in the log.
  if (inner.count > 0 && span.inner != inner) {
    span.gathers = {static_cast<std::int64_t>(static_cast<double>(span.gathers.count) *
                                              static_cast<double>(span.inner.count) /
                                              static_cast<double>(inner.count))};
  }
  span.start = inside(span.start);
  span.end = inside(span.end);
  return span;
}

}  // namespace

std::variant<std::vector<LoggedStep>, std::string> logged_steps(const ir::Program& program,
                                                                const ir::RunLog& log) {
  if (const std::string problem = ir::find_mismatch(program, log); !problem.empty()) {
    return problem;
  }
  if (program.ops.empty()) return "the program has no ops";
  const std::vector<std::vector<Span>> spans = by_op(program, log);
  std::size_t count = log.iterations.size();
  for (const auto& of_op : spans) count = std::min(count, of_op.size());
  if (count == 0) return "no finished step has all its ops in the log";
  std::vector<LoggedStep> steps(count);
  for (std::size_t k = 0; k < count; ++k) {
    const ir::IterationMark& mark = log.iterations[k];
    LoggedStep& step = steps[k];
    step.number = mark.iteration;
    step.start = k == 0 ? mark.start : log.iterations[k - 1].end;
    step.end = mark.end;
    if (step.end <= step.start) {
      return fmt::format("step {} does not end after the step before it", step.number);
    }
    step.spans.reserve(program.ops.size());
    for (const auto& of_op : spans) {
      step.spans.push_back(of_op[k]);
      if (of_op[k].start < mark.start || mark.end < of_op[k].end) {
        return fmt::format("op {} lies outside step {}", of_op[k].op.value, step.number);
      }
    }
  }
  if (const std::string problem = find_overlap(program, steps); !problem.empty()) return problem;
  take_out_checkpoints(program, log, steps);
  for (LoggedStep& step : steps) join_meetings(program, step.spans);
  return steps;
}

std::size_t simulated_step(std::size_t steps) { return steps / 2; }

Nanoseconds simulated_iteration(const ir::RunLog& log) {
  ORRERY_CHECK(!log.iterations.empty(), "a simulated log without an iteration");
  const std::size_t k = simulated_step(log.iterations.size());
  const Instant start = k == 0 ? log.iterations[k].start : log.iterations[k - 1].end;
  return log.iterations[k].end - start;
}

std::vector<RankParts> step_parts(const ir::Program& program, const std::vector<LoggedStep>& steps,
                                  std::size_t k) {
  ORRERY_CHECK(k < steps.size(), "step {} of {}", k, steps.size());
  const LoggedStep& step = steps[k];
  std::vector<RankParts> out(program.ranks.size());
  std::vector<Span> spans;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    spans.clear();
    const std::size_t row = r * ir::kStreams;
    for (std::size_t j = k == 0 ? 0 : k - 1; j < std::min(k + 2, steps.size()); ++j) {
      for (std::size_t i = program.stream_begin[row]; i < program.stream_begin[row + ir::kStreams];
           ++i) {
        const Span span = clipped(steps[j].spans[i], step.start, step.end);
        if (span.start == span.end) continue;
        spans.push_back(span);
        if (program.ops[i].stream != ir::Stream::compute) continue;
        const Nanoseconds own = span.end - span.start - span.inner;
        if (program.ops[i].kind == OpKind::forward) out[r].forward += own;
        if (ir::is_backward(program.ops[i].kind)) out[r].backward += own;
      }
    }
    out[r].all = ir::rank_breakdown(program, spans, step.end - step.start);
    ORRERY_CHECK(out[r].forward + out[r].backward == out[r].all.compute,
                 "passes of rank {} take {} ns of {} ns of compute", r,
                 (out[r].forward + out[r].backward).count, out[r].all.compute.count);
  }
  return out;
}

}  // namespace orrery::calibration
