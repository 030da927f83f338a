#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "models/ir/breakdown.h"
#include "models/ir/program.h"

namespace orrery::sim::breakdown_law_test {
namespace {

/// A rank with a compute stream, point-to-point ops and collectives at random instants.
struct Timeline {
  ir::Program program;
  std::vector<ir::Span> spans;
  std::int64_t end = 0;
};

Timeline random_timeline() {
  Timeline out;
  out.program.ranks.emplace_back();
  const auto add = [&](ir::OpKind kind, ir::Stream stream, ir::Purpose purpose, std::int64_t start,
                       std::int64_t end, std::int64_t inner, std::int64_t gathers = 0) {
    ir::Op op;
    op.kind = kind;
    op.stream = stream;
    op.purpose = purpose;
    op.rank = {0};
    out.spans.push_back({{0},
                         {static_cast<std::int32_t>(out.program.ops.size())},
                         {start},
                         {end},
                         {inner},
                         {},
                         {gathers}});
    out.program.ops.push_back(op);
    out.end = std::max(out.end, end);
  };
  std::int64_t now = 0;
  const int computes = *rc::gen::inRange(0, 8);
  for (int i = 0; i < computes; ++i) {
    now += *rc::gen::inRange(0, 6);
    const std::int64_t length = *rc::gen::inRange(0, 10);
    const std::int64_t inner = *rc::gen::inRange<std::int64_t>(0, length + 1);
    const ir::OpKind kind =
        *rc::gen::element(ir::OpKind::forward, ir::OpKind::backward, ir::OpKind::optimizer_step);
    add(kind, ir::Stream::compute, ir::Purpose::tensor_parallel, now, now + length,
        kind == ir::OpKind::optimizer_step ? 0 : inner,
        kind == ir::OpKind::optimizer_step ? 0 : *rc::gen::inRange<std::int64_t>(0, inner + 1));
    now += length;
  }
  for (const ir::Stream stream : {ir::Stream::p2p, ir::Stream::collective}) {
    const int count = *rc::gen::inRange(0, 8);
    for (int i = 0; i < count; ++i) {
      const std::int64_t start = *rc::gen::inRange(0, 60);
      const ir::Purpose purpose =
          *rc::gen::element(ir::Purpose::pipeline, ir::Purpose::data_parallel, ir::Purpose::zero);
      add(ir::OpKind::collective, stream, purpose, start, start + *rc::gen::inRange(0, 20), 0);
    }
  }
  out.end += *rc::gen::inRange(0, 5);
  return out;
}

/// A rank of a recorded run: kernels on two streams, host time and collectives at random instants.
Timeline random_record() {
  Timeline out;
  out.program.ranks.emplace_back();
  const int count = *rc::gen::inRange(0, 16);
  for (int i = 0; i < count; ++i) {
    ir::Op op;
    op.kind = *rc::gen::element(ir::OpKind::kernel, ir::OpKind::host, ir::OpKind::collective);
    op.stream = *rc::gen::element(ir::Stream::compute, ir::Stream::p2p);
    if (op.kind == ir::OpKind::collective) op.stream = ir::Stream::collective;
    op.purpose = ir::Purpose::data_parallel;
    op.rank = {0};
    const std::int64_t start = *rc::gen::inRange(0, 60);
    const std::int64_t end = start + *rc::gen::inRange(0, 20);
    out.spans.push_back({{0}, {static_cast<std::int32_t>(i)}, {start}, {end}, {}, {}, {}});
    out.program.ops.push_back(op);
    out.end = std::max(out.end, end);
  }
  out.end += *rc::gen::inRange(0, 5);
  return out;
}

/// Paints every nanosecond with the part that it belongs to: the slow reference.
std::array<std::int64_t, 7> painted(const Timeline& timeline) {
  enum { compute, inner, zero, pipeline, data, optimizer, bubble };
  std::array<std::int64_t, 7> parts{};
  for (std::int64_t t = 0; t < timeline.end; ++t) {
    int part = bubble;
    for (const ir::Span& span : timeline.spans) {
      if (t < span.start.nanoseconds || t >= span.end.nanoseconds) continue;
      const ir::Op& op = timeline.program.op(span.op);
      if (op.kind == ir::OpKind::host) continue;
      if (op.kind == ir::OpKind::kernel) {
        part = compute;
        break;
      }
      if (op.stream == ir::Stream::compute) {
        // Where among the inner collectives the gathers are makes no difference.
        const std::int64_t left = span.end.nanoseconds - t;
        part = op.kind == ir::OpKind::optimizer_step ? optimizer
               : left <= span.gathers.count          ? zero
               : left <= span.inner.count            ? inner
                                                     : compute;
        break;
      }
      if (op.purpose == ir::Purpose::pipeline) part = pipeline;
      if (op.purpose != ir::Purpose::pipeline && part == bubble) part = data;
    }
    ++parts[part];
  }
  return parts;
}

RC_GTEST_PROP(Breakdown, EqualsPaintingEveryNanosecond, ()) {
  const Timeline timeline = *rc::gen::arbitrary<bool>() ? random_timeline() : random_record();
  const ir::RankBreakdown parts =
      ir::rank_breakdown(timeline.program, timeline.spans, Nanoseconds{timeline.end});
  const std::array<std::int64_t, 7> expected = painted(timeline);
  RC_ASSERT(parts.compute.count == expected[0]);
  RC_ASSERT(parts.tensor_parallel.count == expected[1]);
  RC_ASSERT(parts.zero.count == expected[2]);
  RC_ASSERT(parts.pipeline.count == expected[3]);
  RC_ASSERT(parts.data_parallel.count == expected[4]);
  RC_ASSERT(parts.optimizer.count == expected[5]);
  RC_ASSERT(parts.bubble.count == expected[6]);
}

}  // namespace
}  // namespace orrery::sim::breakdown_law_test
