#include "calibration/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "models/base/ids.h"
#include "models/base/median.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"

namespace orrery::calibration {
namespace {

using ir::Op;
using ir::OpKind;

/// Both logs, and which of the measured steps count.
struct Sides {
  std::vector<LoggedStep> predicted;
  std::vector<LoggedStep> measured;
  std::size_t simulated = 0;         ///< Index into `predicted` of the step that counts.
  std::vector<std::size_t> counted;  ///< Indices into `measured`, ascending; at least one.
};

/// After the warm-up, without the last step: what ranks do of the step after it is not in the log.
/// Steps that follow a checkpoint only count where there are no others.
std::vector<std::size_t> counted_steps(const std::vector<LoggedStep>& steps, int warm_up) {
  const std::size_t count = steps.size();
  const std::size_t first = std::min(as_size(std::max(0, warm_up)), count - 1);
  const std::size_t last = count - first > 1 ? count - 1 : count;
  std::vector<std::size_t> all;
  std::vector<std::size_t> plain;
  for (std::size_t k = first; k < last; ++k) {
    all.push_back(k);
    if (!steps[k].after_checkpoint) plain.push_back(k);
  }
  return plain.empty() ? all : plain;
}

std::variant<Sides, CompareProblem> sides_of(const ir::Program& program,
                                             const ir::RunLog& predicted,
                                             const ir::RunLog& measured,
                                             const CompareOptions& options) {
  Sides sides;
  for (auto [log, steps, name] : {std::tuple(&predicted, &sides.predicted, "predicted"),
                                  std::tuple(&measured, &sides.measured, "measured")}) {
    auto found = logged_steps(program, *log);
    if (const auto* problem = std::get_if<std::string>(&found)) {
      return fmt::format("the {} log: {}", name, *problem);
    }
    *steps = std::move(std::get<std::vector<LoggedStep>>(found));
  }
  sides.simulated = simulated_step(sides.predicted.size());
  sides.counted = counted_steps(sides.measured, options.warm_up);
  return sides;
}

double seconds(Nanoseconds duration) { return to_seconds(duration).value; }

std::vector<JoinedOp> joined(const ir::Program& program, const Sides& sides) {
  std::vector<JoinedOp> out(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    JoinedOp& op = out[i];
    op.op = {static_cast<std::int32_t>(i)};
    const ir::Span& simulated = sides.predicted[sides.simulated].spans[i];
    op.own.predicted = seconds(simulated.end - simulated.start - simulated.inner);
    op.inner.predicted = seconds(simulated.inner);
    std::vector<double> own;
    std::vector<double> inner;
    for (const std::size_t k : sides.counted) {
      const ir::Span& span = sides.measured[k].spans[i];
      own.push_back(seconds(span.end - span.start - span.inner));
      inner.push_back(seconds(span.inner));
    }
    op.own.measured = median(std::move(own));
    op.inner.measured = median(std::move(inner));
  }
  return out;
}

/// Indices of the middle half of the steps that count, by duration; at least one.
std::vector<std::size_t> middle_steps(const Sides& sides) {
  std::vector<std::size_t> order = sides.counted;
  const auto length = [&](std::size_t k) {
    return sides.measured[k].end - sides.measured[k].start;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) < length(b); });
  const std::size_t cut = order.size() / 4;
  return {order.begin() + static_cast<std::ptrdiff_t>(cut),
          order.end() - static_cast<std::ptrdiff_t>(cut)};
}

constexpr std::size_t kComponents = 8;
constexpr std::size_t kZero = 3;
constexpr const char* kComponentNames[kComponents] = {"forward",   "backward", "tensor_parallel",
                                                      "zero",      "pipeline", "data_parallel",
                                                      "optimizer", "bubble"};

/// Adds the mean over ranks of one step, times `weight`.
void add_parts(const std::vector<RankParts>& ranks, double weight, double (&sums)[kComponents]) {
  for (const RankParts& rank : ranks) {
    const Nanoseconds parts[kComponents] = {
        rank.forward,      rank.backward,          rank.all.tensor_parallel, rank.all.zero,
        rank.all.pipeline, rank.all.data_parallel, rank.all.optimizer,       rank.all.bubble};
    for (std::size_t c = 0; c < kComponents; ++c) {
      sums[c] += weight / static_cast<double>(ranks.size()) * seconds(parts[c]);
    }
  }
}

void compare_components(const ir::Program& program, const Sides& sides, Comparison& out) {
  const std::vector<std::size_t> middle = middle_steps(sides);
  const double weight = 1.0 / static_cast<double>(middle.size());
  double predicted[kComponents] = {};
  double measured[kComponents] = {};
  const LoggedStep& simulated = sides.predicted[sides.simulated];
  add_parts(step_parts(program, sides.predicted, sides.simulated), 1, predicted);
  out.iteration.predicted = seconds(simulated.end - simulated.start);
  for (const std::size_t k : middle) {
    add_parts(step_parts(program, sides.measured, k), weight, measured);
    out.iteration.measured += weight * seconds(sides.measured[k].end - sides.measured[k].start);
  }
  for (std::size_t c = 0; c < kComponents; ++c) {
    // Few runs shard parameters.
    if (c == kZero && predicted[c] == 0 && measured[c] == 0) continue;
    out.components.push_back({kComponentNames[c],
                              {predicted[c], measured[c]},
                              (predicted[c] - measured[c]) / out.iteration.measured});
  }
  out.shortest_step = std::numeric_limits<double>::infinity();
  for (const std::size_t k : sides.counted) {
    const double length = seconds(sides.measured[k].end - sides.measured[k].start);
    out.shortest_step = std::min(out.shortest_step, length);
    out.longest_step = std::max(out.longest_step, length);
  }
}

/// Bytes at most, by rank; negative where the log has no sample.
std::vector<double> peaks(const ir::Program& program, const ir::RunLog& log) {
  std::vector<double> out(program.ranks.size(), -1);
  for (const ir::MemorySample& sample : log.memory) {
    out[sample.rank.index()] = std::max(out[sample.rank.index()], sample.allocated.value);
  }
  return out;
}

bool is_first_member(const ir::Program& program, const Op& op, OpId id) {
  if (op.match == ir::kNone) return true;
  const auto& collective = program.collective_of(op);
  return program.members_of(collective.members).front() == id;
}

/// False for an op of a transfer or collective that another op represents.
bool counts(const ir::Program& program, OpId id) {
  const Op& op = program.op(id);
  if (op.kind == OpKind::send) return op.match == ir::kNone;
  return op.kind != OpKind::collective || is_first_member(program, op, id);
}

std::string describe_group(const ir::Program& program, const Op& op) {
  std::string blocks;
  if (op.segment != ir::kNone) {
    const auto& segment = program.segment_of(op);
    blocks = fmt::format(" of blocks {}-{}", segment.first_block.value, segment.last_block.value);
  }
  if (ir::is_transfer(op.kind)) {
    const bool known = op.match != ir::kNone;
    const int peer = known ? program.op({op.match}).rank.value : -1;
    return fmt::format("{}{} {} rank {}", ir::name_of(op.purpose), blocks,
                       op.kind == OpKind::send ? "to" : "from", peer);
  }
  if (op.kind == OpKind::collective && op.match != ir::kNone) {
    const auto& collective = program.collective_of(op);
    const auto& shape = program.shape_of(collective);
    return fmt::format("{} for {} of {} ranks", ir::name_of(shape.kind), ir::name_of(shape.purpose),
                       collective.members.member_count);
  }
  return ir::name_of(op.kind) + blocks;
}

void rank_ops(const ir::Program& program, const std::vector<JoinedOp>& ops, int most,
              Comparison& out) {
  std::map<std::pair<std::int32_t, std::string>, OpRow> rows;
  double total = 0;
  for (const JoinedOp& joined : ops) {
    if (!counts(program, joined.op)) continue;
    const Op& op = program.op(joined.op);
    const std::string what = describe_group(program, op);
    OpRow& row = rows[{op.rank.value, what}];
    row.rank = op.rank;
    row.what = what;
    ++row.ops;
    row.seconds.predicted += joined.own.predicted + joined.inner.predicted;
    row.seconds.measured += joined.own.measured + joined.inner.measured;
  }
  PredictedMeasured sum;
  for (auto& [key, row] : rows) {
    sum.predicted += row.seconds.predicted;
    sum.measured += row.seconds.measured;
    total += std::abs(row.seconds.predicted - row.seconds.measured);
    out.worst.push_back(row);
  }
  out.op_bias = sum.error();
  for (OpRow& row : out.worst) {
    row.share = total > 0 ? std::abs(row.seconds.predicted - row.seconds.measured) / total : 0;
  }
  std::stable_sort(out.worst.begin(), out.worst.end(),
                   [](const OpRow& a, const OpRow& b) { return a.share > b.share; });
  if (out.worst.size() > as_size(std::max(0, most))) {
    out.worst.resize(std::max(0, most));
  }
}

void compare_transfers(const ir::Program& program, const std::vector<JoinedOp>& ops,
                       Comparison& out) {
  double wrong = 0;
  for (const JoinedOp& joined : ops) {
    const Op& op = program.op(joined.op);
    const bool pass = ir::is_pass(op.kind);
    if (op.kind == OpKind::optimizer_step || !counts(program, joined.op)) continue;
    const PredictedMeasured& time = pass ? joined.inner : joined.own;
    out.transfers.predicted += time.predicted;
    out.transfers.measured += time.measured;
    wrong += std::abs(time.predicted - time.measured);
  }
  if (out.transfers.measured > 0) out.transfer_error = wrong / out.transfers.measured;
}

}  // namespace

std::vector<ComponentRow> times_of(const Comparison& comparison) {
  std::vector<ComponentRow> out = {{"iteration", comparison.iteration}};
  out.insert(out.end(), comparison.components.begin(), comparison.components.end());
  out.push_back({"transfers", comparison.transfers});
  return out;
}

void describe(config::Visitor& v, ComponentRow& row) {
  double error = row.seconds.error();
  v.required("name", row.name, "");
  v.required("predicted", row.seconds.predicted, "seconds");
  v.required("measured", row.seconds.measured, "");
  v.required("error", error, "predicted / measured - 1; null: nothing was measured");
}

void describe(config::Visitor& v, MemoryRow& row) {
  double error = row.bytes.error();
  v.required("rank", row.rank, "");
  v.required("device", row.device, "");
  v.required("predicted_bytes", row.bytes.predicted, "peak");
  v.required("measured_bytes", row.bytes.measured, "peak");
  v.required("error", error, "");
}

void describe(config::Visitor& v, OpRow& row) {
  v.required("rank", row.rank, "");
  v.required("what", row.what, "");
  v.required("ops", row.ops, "that differ in the micro-batch only");
  v.required("predicted_seconds", row.seconds.predicted, "");
  v.required("measured_seconds", row.seconds.measured, "");
  v.required("share", row.share, "of the sum of all |differences|");
}

double PredictedMeasured::error() const {
  if (predicted == measured) return 0;
  return predicted / measured - 1;
}

std::variant<std::vector<JoinedOp>, CompareProblem> join_ops(const ir::Program& program,
                                                             const ir::RunLog& predicted,
                                                             const ir::RunLog& measured,
                                                             const CompareOptions& options) {
  auto sides = sides_of(program, predicted, measured, options);
  if (auto* problem = std::get_if<CompareProblem>(&sides)) return std::move(*problem);
  return joined(program, std::get<Sides>(sides));
}

std::variant<Comparison, CompareProblem> compare(const ir::Program& program,
                                                 const ir::RunLog& predicted,
                                                 const ir::RunLog& measured,
                                                 const CompareOptions& options) {
  auto found = sides_of(program, predicted, measured, options);
  if (auto* problem = std::get_if<CompareProblem>(&found)) return std::move(*problem);
  const Sides& sides = std::get<Sides>(found);
  Comparison out;
  out.steps = static_cast<std::int64_t>(sides.counted.size());
  for (const LoggedStep& step : sides.measured) out.held += seconds(step.held);
  compare_components(program, sides, out);
  const std::vector<JoinedOp> ops = joined(program, sides);
  compare_transfers(program, ops, out);
  rank_ops(program, ops, options.worst, out);
  const std::vector<double> simulated = peaks(program, predicted);
  const std::vector<double> held = peaks(program, measured);
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    if (simulated[r] < 0 || held[r] < 0) continue;
    out.memory.push_back(
        {{static_cast<std::int32_t>(r)}, program.ranks[r].device, {simulated[r], held[r]}});
  }
  return out;
}

}  // namespace orrery::calibration
