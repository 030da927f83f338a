#include "models/ir/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"

namespace orrery::ir {
namespace {

const char* plural(TensorKind kind) {
  constexpr const char* kNames[] = {"activations",   "activation gradients", "parameters",
                                    "gradients",     "master copies",        "first moments",
                                    "second moments"};
  return kNames[index_of(kind)];
}

std::string spaced(std::string name, char space) {
  std::replace(name.begin(), name.end(), '_', space);
  return name;
}

}  // namespace

std::string find_mismatch(const Program& program, const RunLog& log) {
  const auto is_rank = [&](RankId rank) {
    return rank.valid() && rank.index() < program.ranks.size();
  };
  for (std::size_t i = 0; i < log.spans.size(); ++i) {
    const Span& span = log.spans[i];
    if (!span.op.valid() || span.op.index() >= program.ops.size()) {
      return fmt::format("span {} is of op {}, the program has {}", i, span.op.value,
                         program.ops.size());
    }
    if (program.op(span.op).rank != span.rank || !is_rank(span.rank)) {
      return fmt::format("span {} says that rank {} ran op {} of rank {}", i, span.rank.value,
                         span.op.value, program.op(span.op).rank.value);
    }
    if (span.end < span.start) return fmt::format("span {} ends before it starts", i);
  }
  for (const MemorySample& sample : log.memory) {
    if (!is_rank(sample.rank)) return fmt::format("memory of rank {}", sample.rank.value);
  }
  for (const ClockOffset& clock : log.clocks) {
    if (!is_rank(clock.rank)) return fmt::format("clock of rank {}", clock.rank.value);
  }
  return "";
}

Timeline::Timeline(const Program& program, const RunLog& log, const TimelineNames& names)
    : program_(program), log_(log), names_(names) {
  const std::string mismatch = find_mismatch(program, log);
  ORRERY_CHECK(mismatch.empty(), "the log is of another program: {}", mismatch);
  ORRERY_CHECK(names.device != nullptr, "no names of devices");
  place_ranks();
  place_spans();
  std::int64_t first = 0;
  for (const Span& span : log.spans) first = std::min(first, span.start.nanoseconds);
  for (const IterationMark& mark : log.iterations) first = std::min(first, mark.start.nanoseconds);
  for (const MemorySample& sample : log.memory) first = std::min(first, sample.at.nanoseconds);
  for (const LogEvent& event : log.events) first = std::min(first, event.at.nanoseconds);
  shift_ = -first;
}

void Timeline::place_ranks() {
  const bool with_nodes = names_.node_of != nullptr && names_.node != nullptr;
  std::map<NodeId, std::vector<RankId>> by_node;
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    const NodeId node = with_nodes ? names_.node_of(program_.ranks[r].device) : NodeId{};
    by_node[node].push_back({static_cast<std::int32_t>(r)});
  }
  for (auto& [node, ranks] : by_node) {
    nodes_.push_back({with_nodes ? names_.node(node) : "", std::move(ranks)});
  }
}

void Timeline::place_spans() {
  const std::vector<Span>& spans = log_.spans;
  const auto stream = [&](std::uint32_t i) { return program_.op(spans[i].op).stream; };
  std::vector<std::uint32_t> order(spans.size());
  occurrence_.resize(spans.size());
  occurrences_.resize(program_.ops.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    occurrence_[i] = occurrences_[spans[i].op]++;
  }
  const auto key = [&](std::uint32_t i) {
    return std::tuple(spans[i].rank, stream(i), spans[i].start, spans[i].end, spans[i].op, i);
  };
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  std::size_t first = 0;  // First lane of the current stream.
  for (const std::uint32_t i : order) {
    if (first == lanes_.size() || lanes_[first].rank != spans[i].rank ||
        lanes_[first].stream != stream(i)) {
      first = lanes_.size();
    }
    const auto lane =
        std::find_if(lanes_.begin() + static_cast<std::ptrdiff_t>(first), lanes_.end(),
                     [&](const Lane& l) { return spans[l.spans.back()].end <= spans[i].start; });
    if (lane != lanes_.end()) {
      lane->spans.push_back(i);
    } else {
      lanes_.push_back({spans[i].rank, stream(i), static_cast<int>(lanes_.size() - first), {i}});
    }
  }
}

std::string Timeline::rank_name(RankId id) const {
  const Rank& rank = program_.rank(id);
  std::string name = names_.device(rank.device);
  if (rank.devices.size() > 1) name += fmt::format(" x{}", rank.devices.size());
  return name + fmt::format(" (pipeline {}, stage {})", rank.pipeline, rank.stage);
}

std::string Timeline::lane_name(const Lane& lane) {
  if (lane.number == 0) return name_of(lane.stream);
  return fmt::format("{} {}", name_of(lane.stream), lane.number + 1);
}

std::string Timeline::span_name(const Span& span) const {
  const Op& op = program_.op(span.op);
  const std::string batch =
      op.micro_batch.valid() ? fmt::format(" mb{}", op.micro_batch.value) : "";
  const OpTraits& kind = traits(op.kind);
  const auto pass = [&] {
    if (op.segment < 0) return kind.label + batch;
    const SegmentInfo& info = program_.segment_of(op);
    const char* what = info.redundant ? "redundant " : "";
    if (info.first_block == info.last_block) {
      return fmt::format("{}{}{} block {}", what, kind.label, batch, info.first_block.value);
    }
    return fmt::format("{}{}{} blocks {}-{}", what, kind.label, batch, info.first_block.value,
                       info.last_block.value);
  };
  const auto moved = [&]() -> std::string {
    const auto regions = program_.regions_of(op);
    return regions.empty() ? "" : std::string(" ") + plural(regions.front().tensor);
  };
  const auto peer = [&] { return names_.device(program_.rank_of(program_.op({op.match})).device); };
  switch (kind.timing) {
    case OpTiming::compute:
      return is_pass(op.kind) ? pass() : kind.label;
    case OpTiming::transfer:
      return fmt::format("{}{}{} {} {}", kind.label, moved(), batch, kind.preposition, peer());
    case OpTiming::collective: {
      const CollectiveShape& shape = program_.shape_of(program_.collective_of(op));
      return spaced(name_of(shape.kind), '-') + moved() + batch;
    }
    case OpTiming::storage:
      return fmt::format("{}{} {} {}", kind.label, moved(), kind.preposition,
                         spaced(name_of(op.location), ' '));
  }
  ORRERY_CHECK(false, "op of kind {}", static_cast<int>(op.kind));
}

const char* Timeline::category(const Span& span) const {
  const Op& op = program_.op(span.op);
  return op.stream == Stream::compute ? name_of(op.kind) : name_of(op.purpose);
}

std::uint64_t Timeline::flow(std::uint32_t span) const {
  const OpId id = log_.spans[span].op;
  const Op& op = program_.op(id);
  if (!is_transfer(op.kind) || occurrence_[span] >= occurrences_[OpId{op.match}]) {
    return 0;
  }
  const std::int32_t send = op.kind == OpKind::send ? id.value : op.match;
  return std::uint64_t{occurrence_[span]} * program_.ops.size() + static_cast<std::uint64_t>(send) +
         1;
}

bool Timeline::is_send(std::uint32_t span) const {
  return program_.op(log_.spans[span].op).kind == OpKind::send;
}

}  // namespace orrery::ir
