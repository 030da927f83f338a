#include "tests/calibration/compare/support.h"

#include <algorithm>
#include <vector>

#include "models/base/ids.h"
#include "models/ir/op_traits.h"

namespace orrery::calibration {
namespace {

/// Ops by rank and stream, put together at the end.
class Builder {
 public:
  Builder() {
    for (int r = 0; r < 2; ++r) {
      ir::Rank rank;
      rank.device = {r};
      rank.devices = {{r}};
      rank.stage = r;
      program_.ranks.push_back(rank);
      ir::SegmentInfo segment;
      segment.stage = r;
      segment.first_block = {2 * r};
      segment.last_block = {2 * r + 1};
      segment.samples = 1;
      program_.segments.push_back(segment);
    }
  }

  /// Number of the op until build() places it.
  int add(int rank, ir::Stream stream, ir::OpKind kind, int micro_batch, std::vector<int> after) {
    ir::Op op;
    op.kind = kind;
    op.stream = stream;
    op.rank = {rank};
    op.micro_batch = {micro_batch};
    op.segment = rank;
    op.purpose =
        kind == ir::OpKind::collective ? ir::Purpose::data_parallel : ir::Purpose::pipeline;
    ops_.push_back({op, std::move(after)});
    return static_cast<int>(ops_.size()) - 1;
  }
  void match(int send, int recv) { matches_.emplace_back(send, recv); }
  void collective(std::vector<int> members) { collectives_.push_back(std::move(members)); }

  ir::Program build() {
    std::vector<int> order;
    program_.stream_begin.push_back(0);
    for (int rank = 0; rank < 2; ++rank) {
      for (const ir::Stream stream :
           {ir::Stream::compute, ir::Stream::p2p, ir::Stream::collective}) {
        for (std::size_t i = 0; i < ops_.size(); ++i) {
          if (ops_[i].op.rank.value == rank && ops_[i].op.stream == stream) {
            order.push_back(static_cast<int>(i));
          }
        }
        program_.stream_begin.push_back(static_cast<std::uint32_t>(order.size()));
      }
    }
    std::vector<int> place(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
    const auto at = [&](int number) { return place[number]; };
    for (const auto& [send, recv] : matches_) {
      ops_[send].op.match = at(recv);
      ops_[recv].op.match = at(send);
    }
    for (std::size_t c = 0; c < collectives_.size(); ++c) {
      ir::Collective collective;
      collective.shape = 0;
      collective.members = {static_cast<std::uint32_t>(program_.members.size()),
                            static_cast<std::uint32_t>(collectives_[c].size())};
      for (const int member : collectives_[c]) {
        program_.members.push_back({at(member)});
        ops_[member].op.match = static_cast<std::int32_t>(c);
      }
      program_.collectives.push_back(collective);
    }
    program_.collective_shapes.emplace_back();
    program_.dependency_begin.push_back(0);
    for (const int number : order) {
      const Item& item = ops_[number];
      program_.ops.push_back(item.op);
      for (const int before : item.after) program_.dependencies.push_back({at(before)});
      program_.dependency_begin.push_back(static_cast<std::uint32_t>(program_.dependencies.size()));
    }
    return std::move(program_);
  }

 private:
  struct Item {
    ir::Op op;
    std::vector<int> after;
  };
  ir::Program program_;
  std::vector<Item> ops_;
  std::vector<std::pair<int, int>> matches_;
  std::vector<std::vector<int>> collectives_;
};

}  // namespace

ir::Program two_stage_program(int micro_batches) {
  Builder b;
  using ir::OpKind;
  using ir::Stream;
  std::vector<int> forwards[2];
  std::vector<int> backwards[2];
  std::vector<int> activations;
  std::vector<int> gradients;
  for (int m = 0; m < micro_batches; ++m) {
    forwards[0].push_back(b.add(0, Stream::compute, OpKind::forward, m, {}));
    const int send = b.add(0, Stream::p2p, OpKind::send, m, {forwards[0].back()});
    const int recv = b.add(1, Stream::p2p, OpKind::recv, m, {});
    b.match(send, recv);
    activations.push_back(recv);
  }
  for (int m = 0; m < micro_batches; ++m) {
    forwards[1].push_back(b.add(1, Stream::compute, OpKind::forward, m, {activations[m]}));
    backwards[1].push_back(b.add(1, Stream::compute, OpKind::backward, m, {}));
    const int send = b.add(1, Stream::p2p, OpKind::send, m, {backwards[1].back()});
    const int recv = b.add(0, Stream::p2p, OpKind::recv, m, {});
    b.match(send, recv);
    gradients.push_back(recv);
  }
  for (int m = 0; m < micro_batches; ++m) {
    backwards[0].push_back(b.add(0, Stream::compute, OpKind::backward, m, {gradients[m]}));
  }
  std::vector<int> reduces;
  for (int r = 0; r < 2; ++r) {
    reduces.push_back(b.add(r, Stream::collective, OpKind::collective, 0, {backwards[r].back()}));
  }
  b.collective(reduces);
  for (int r = 0; r < 2; ++r) {
    b.add(r, Stream::compute, OpKind::optimizer_step, 0, {reduces[r]});
  }
  return b.build();
}

ir::RunLog timed(const ir::Program& program, const std::function<std::int64_t(OpId)>& length) {
  const std::size_t count = program.ops.size();
  std::vector<std::int64_t> end(count, -1);
  std::vector<std::int64_t> start(count, -1);
  // Ready when dependencies and the op before it on an ordered stream have ended.
  const auto ready = [&](std::size_t i) -> std::int64_t {
    const ir::Op& op = program.ops[i];
    std::int64_t at = 0;
    for (const OpId before : program.dependencies_of({static_cast<std::int32_t>(i)})) {
      if (end[before.index()] < 0) return -1;
      at = std::max(at, end[before.index()]);
    }
    const std::size_t row = op.rank.index() * ir::kStreams + index_of(op.stream);
    if (op.stream != ir::Stream::p2p && i > program.stream_begin[row]) {
      if (end[i - 1] < 0) return -1;
      at = std::max(at, end[i - 1]);
    }
    return at;
  };
  const auto rendezvous = [&](std::size_t i) {
    const ir::Op& op = program.ops[i];
    std::vector<std::size_t> members = {i};
    if (op.kind == ir::OpKind::send || op.kind == ir::OpKind::recv) {
      members.push_back(op.match);
    } else if (op.kind == ir::OpKind::collective) {
      members.clear();
      const auto& collective = program.collective_of(op);
      for (const OpId id : program.members_of(collective.members)) members.push_back(id.index());
    }
    return members;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (end[i] >= 0) continue;
      std::int64_t at = 0;
      std::int64_t long_ = 0;
      bool all = true;
      for (const std::size_t member : rendezvous(i)) {
        const std::int64_t one = ready(member);
        all = all && one >= 0;
        at = std::max(at, one);
        long_ = std::max(long_, length({static_cast<std::int32_t>(member)}));
      }
      if (!all) continue;
      for (const std::size_t member : rendezvous(i)) {
        start[member] = at;
        end[member] = at + long_;
      }
      moved = true;
    }
  }
  ir::RunLog log;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t inner = ir::is_pass(program.ops[i].kind) ? (end[i] - start[i]) / 4 : 0;
    log.spans.push_back(
        {program.ops[i].rank, {static_cast<std::int32_t>(i)}, {start[i]}, {end[i]}, {inner}, {}});
    last = std::max(last, end[i]);
  }
  log.iterations = {{0, {}, {last}}};
  for (int r = 0; r < 2; ++r) log.memory.push_back({{r}, {last / 2}, Bytes{1000.0 * (r + 1)}});
  return log;
}

ir::RunLog repeated(const ir::Program& program, const ir::RunLog& log, int count) {
  ir::RunLog out;
  const Nanoseconds length = log.iterations.front().end - log.iterations.front().start;
  for (int k = 0; k < count; ++k) {
    const Nanoseconds shift{k * length.count};
    out.iterations.push_back({k + 1, Instant{} + shift, Instant{} + shift + length});
  }
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    for (int k = 0; k < count; ++k) {
      ir::Span span = log.spans[i];
      span.start = span.start + Nanoseconds{k * length.count};
      span.end = span.end + Nanoseconds{k * length.count};
      out.spans.push_back(span);
    }
  }
  out.memory = log.memory;
  return out;
}

ir::RunLog stretched(ir::RunLog log, std::int64_t numerator, std::int64_t denominator) {
  const auto times = [&](std::int64_t value) { return value * numerator / denominator; };
  for (ir::Span& span : log.spans) {
    span.start = {times(span.start.nanoseconds)};
    span.end = {times(span.end.nanoseconds)};
    span.inner = {times(span.inner.count)};
  }
  for (ir::IterationMark& mark : log.iterations) {
    mark.start = {times(mark.start.nanoseconds)};
    mark.end = {times(mark.end.nanoseconds)};
  }
  return log;
}

}  // namespace orrery::calibration
