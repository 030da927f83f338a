#include <algorithm>
#include <map>
#include <utility>

#include "models/base/check.h"
#include "models/lower/passes.h"
#include "models/sharding/activation.h"
#include "models/sharding/flatten.h"

namespace orrery::models {
namespace {

/// How the activations of a micro-batch lie at the ends of a segment. The devices of a group are
/// numbered part of the sequence by part, in a part by tensor-parallel rank.
Annotation activations(const ir::Segment& segment) {
  Annotation out;
  out.hetero_axis = kSampleAxis;
  for (const ir::Group& group : segment.groups) {
    Subgroup subgroup;
    for (const DeviceId device : group.devices) subgroup.devices.push_back(device.value);
    if (group.sequence == ir::SequenceParallelism::megatron) {
      subgroup.states = {{kTokenAxis, group.tensor_parallel}};
    } else if (group.sequence_degree > 1) {
      subgroup.states = {{kTokenAxis, group.sequence_degree}, {kDuplicate, group.tensor_parallel}};
    } else {
      subgroup.states = {{kDuplicate, group.tensor_parallel}};
    }
    out.subgroups.push_back(std::move(subgroup));
    out.shares.push_back(group.samples);
  }
  return out;
}

/// One op pair or collective of a boundary, the same for every micro-batch.
struct Pattern {
  bool transfer = false;
  bool local_sends = false;  ///< Collective of sends inside one collapsed rank.
  bool brings_own = false;   ///< The destination computes some of what it receives, too.
  RankId source;
  RankId destination;
  std::vector<RankId> members;  ///< Of a collective.
  std::int32_t transfers = ir::kNone;
  std::int32_t shape = ir::kNone;
  std::int32_t regions = ir::kNone;
  Bytes bytes;
};

std::vector<ir::Region> regions_of(const std::vector<Slice>& slices, bool backward, BlockId block) {
  std::vector<ir::Region> regions;
  for (const Slice& slice : slices) {
    regions.push_back({backward ? ir::TensorKind::activation_gradient : ir::TensorKind::activation,
                       block, block, 0, slice.begin, slice.end});
  }
  return regions;
}

class Boundary {
 public:
  /// Between two elements of the pipeline, `lower` being passed first in the forward direction.
  Boundary(const LowerContext& context, const PlacedSegment& lower, const PlacedSegment& upper,
           bool backward, KnownTransfers& known, ProgramBuilder& builder)
      : context_(context),
        lower_(lower),
        upper_(upper),
        backward_(backward),
        senders_(activations(*(backward ? upper : lower).segment)),
        shape_{total_share(senders_), context.workload.sequence_length},
        builder_(builder) {
    const PlacedSegment& receiver = backward ? lower_ : upper_;
    const auto steps = known.steps(senders_, activations(*receiver.segment), shape_,
                                   context.plan.communication.activation_transfer);
    for (const GroupStep& step : steps) add_pattern(step);
  }

  const std::vector<Pattern>& patterns() const { return patterns_; }

 private:
  RankId rank(int device) const { return context_.placement.rank_of[{device}]; }

  Bytes bytes(std::int64_t tokens) const {
    const Block& block = context_.workload.block(lower_.segment->last_block);
    return static_cast<double>(tokens) / static_cast<double>(context_.workload.sequence_length) *
           block.output_bytes;
  }

  void add_pattern(const GroupStep& step) {
    const Bytes size = bytes(elements(step.slices));
    const auto regions = regions_of(step.slices, backward_, lower_.segment->last_block);
    if (step.kind == StepKind::send_receive && rank(step.source) != rank(step.destination)) {
      add_send(step, size, regions);
      return;
    }
    if (step.kind == StepKind::send_receive && joins_local_sends(step, size, regions)) return;
    Pattern pattern;
    pattern.local_sends = step.kind == StepKind::send_receive;
    std::vector<DeviceId> devices;
    for (const int owner : step.group) {
      devices.push_back({owner});
      const RankId member = rank(owner);
      if (std::find(pattern.members.begin(), pattern.members.end(), member) ==
          pattern.members.end()) {
        pattern.members.push_back(member);
      }
    }
    ir::CollectiveShape shape;
    shape.kind = collective_kind(step.kind);
    shape.purpose = ir::Purpose::pipeline;
    ir::CollectiveShape::Part part = {builder_.group(std::move(devices)), size, {}};
    for (const std::vector<Slice>& slices : step.parts) {
      part.member_regions.push_back(regions_of(slices, backward_, lower_.segment->last_block));
    }
    shape.parts = {std::move(part)};
    shape.regions = builder_.region_set(regions);
    pattern.regions = shape.regions;
    pattern.shape = builder_.collective_shape(std::move(shape));
    pattern.bytes = size;
    patterns_.push_back(std::move(pattern));
  }

  /// Sends inside a collapsed rank that do not read what one of them brings run side by side.
  bool joins_local_sends(const GroupStep& step, Bytes size,
                         const std::vector<ir::Region>& regions) {
    if (patterns_.empty() || !patterns_.back().local_sends) return false;
    Pattern& pattern = patterns_.back();
    if (pattern.members.front() != rank(step.source)) return false;
    ir::CollectiveShape shape = builder_.program.collective_shapes[pattern.shape];
    for (const ir::CollectiveShape::Part& part : shape.parts) {
      const auto& pair = builder_.program.group(part.group).devices;
      if (pair.back().value == step.source) return false;
    }
    shape.parts.push_back({builder_.group({{step.source}, {step.destination}}), size, {}});
    auto all = builder_.program.region_sets[shape.regions];
    all.insert(all.end(), regions.begin(), regions.end());
    shape.regions = pattern.regions = builder_.region_set(std::move(all));
    pattern.shape = builder_.collective_shape(std::move(shape));
    pattern.bytes += size;
    return true;
  }

  /// Whether the device holds some of the slices once it has computed its part.
  bool computes_some(int device, const std::vector<Slice>& slices) const {
    const bool sends = std::any_of(
        senders_.subgroups.begin(), senders_.subgroups.end(), [&](const Subgroup& subgroup) {
          return std::find(subgroup.devices.begin(), subgroup.devices.end(), device) !=
                 subgroup.devices.end();
        });
    if (!sends) return false;
    const std::vector<Slice> own = held(flatten(senders_, shape_), device);
    return std::any_of(slices.begin(), slices.end(), [&](const Slice& slice) {
      return std::any_of(own.begin(), own.end(), [&](const Slice& computed) {
        return slice.begin < computed.end && computed.begin < slice.end;
      });
    });
  }

  /// Sends between the same two ranks (slices of a collapsed group) travel side by side.
  void add_send(const GroupStep& step, Bytes size, const std::vector<ir::Region>& regions) {
    const RankId source = rank(step.source);
    const RankId destination = rank(step.destination);
    const ir::Transfer transfer = {{step.source}, {step.destination}, size};
    const bool brings_own = computes_some(step.destination, step.slices);
    for (Pattern& pattern : patterns_) {
      if (!pattern.transfer || pattern.source != source || pattern.destination != destination) {
        continue;
      }
      auto transfers = builder_.program.transfer_sets[pattern.transfers];
      transfers.push_back(transfer);
      pattern.transfers = builder_.transfer_set(std::move(transfers));
      auto all = builder_.program.region_sets[pattern.regions];
      all.insert(all.end(), regions.begin(), regions.end());
      pattern.regions = builder_.region_set(std::move(all));
      pattern.bytes += size;
      pattern.brings_own |= brings_own;
      return;
    }
    Pattern pattern;
    pattern.transfer = true;
    pattern.brings_own = brings_own;
    pattern.source = source;
    pattern.destination = destination;
    pattern.transfers = builder_.transfer_set({transfer});
    pattern.regions = builder_.region_set(regions);
    pattern.bytes = size;
    patterns_.push_back(std::move(pattern));
  }

  const LowerContext& context_;
  const PlacedSegment& lower_;
  const PlacedSegment& upper_;
  bool backward_;
  Annotation senders_;
  Shape shape_;
  ProgramBuilder& builder_;
  std::vector<Pattern> patterns_;
};

/// Group and member of each rank in an element.
std::map<RankId, std::pair<int, int>> positions(const PlacedSegment& element) {
  std::map<RankId, std::pair<int, int>> out;
  for (std::size_t g = 0; g < element.ranks.size(); ++g) {
    for (std::size_t m = 0; m < element.ranks[g].size(); ++m) {
      out[element.ranks[g][m]] = {static_cast<int>(g), static_cast<int>(m)};
    }
  }
  return out;
}

/// Adds the ops of one micro-batch crossing one boundary. `last_send` keeps sends of one pattern in
/// order: they share a channel.
class Crossing {
 public:
  /// `foreign`: a segment of the micro-batches' pipeline if they leave its ranks, else kNone.
  Crossing(const PlacedSegment& sender, const PlacedSegment& receiver, int sender_index,
           int receiver_index, bool backward, std::int32_t foreign, ComputeOps& ops,
           ProgramBuilder& builder)
      : sender_at_(positions(sender)),
        receiver_at_(positions(receiver)),
        sender_index_(sender_index),
        receiver_index_(receiver_index),
        backward_(backward),
        foreign_(foreign),
        ops_(ops),
        builder_(builder) {}

  void add(const std::vector<Pattern>& patterns, int micro_batch,
           std::vector<PendingOp>& last_send) {
    arrived_.clear();
    last_send.resize(patterns.size(), kNoOp);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (patterns[i].transfer) {
        last_send[i] = add_transfer(patterns[i], micro_batch, last_send[i]);
      } else {
        add_collective(patterns[i], micro_batch);
      }
    }
    for (const auto& [rank, at] : receiver_at_) {
      const PendingOp compute =
          ops_.at(backward_, receiver_index_, micro_batch, at.first, at.second).first;
      if (const auto it = arrived_.find(rank); it != arrived_.end()) {
        for (const PendingOp op : it->second) builder_.depends(compute, op);
      } else if (const auto own = sender_at_.find(rank); own != sender_at_.end()) {
        builder_.depends(compute, ops_.at(backward_, sender_index_, micro_batch, own->second.first,
                                          own->second.second)
                                      .last);
      }
    }
  }

 private:
  ir::Op op(ir::OpKind kind, RankId rank, const Pattern& pattern, int micro_batch) const {
    ir::Op op;
    op.kind = kind;
    op.stream = ir::Stream::p2p;
    op.purpose = ir::Purpose::pipeline;
    op.rank = rank;
    op.micro_batch = {micro_batch};
    op.regions = pattern.regions;
    op.segment = foreign_;
    op.transfers = pattern.transfers;
    op.bytes = pattern.bytes;
    return op;
  }

  /// What `rank` has of this micro-batch so far: what arrived, and what it computed itself.
  void depend_on_source(PendingOp op, RankId rank, int micro_batch) {
    if (const auto it = arrived_.find(rank); it != arrived_.end()) {
      for (const PendingOp before : it->second) builder_.depends(op, before);
    }
    depend_on_own(op, rank, micro_batch);
  }

  void depend_on_own(PendingOp op, RankId rank, int micro_batch) {
    if (const auto own = sender_at_.find(rank); own != sender_at_.end()) {
      builder_.depends(
          op, ops_.at(backward_, sender_index_, micro_batch, own->second.first, own->second.second)
                  .last);
    }
  }

  PendingOp add_transfer(const Pattern& pattern, int micro_batch, PendingOp last_send) {
    const PendingOp send = builder_.add(op(ir::OpKind::send, pattern.source, pattern, micro_batch));
    const PendingOp recv =
        builder_.add(op(ir::OpKind::recv, pattern.destination, pattern, micro_batch));
    builder_.match(send, recv);
    depend_on_source(send, pattern.source, micro_batch);
    // Else its own pass may write what has arrived, or what arrives.
    if (pattern.brings_own) depend_on_own(recv, pattern.destination, micro_batch);
    builder_.depends(send, last_send);
    arrived_[pattern.destination].push_back(recv);
    return send;
  }

  void add_collective(const Pattern& pattern, int micro_batch) {
    std::vector<PendingOp> members;
    for (const RankId rank : pattern.members) {
      const PendingOp id = builder_.add(op(ir::OpKind::collective, rank, pattern, micro_batch));
      depend_on_source(id, rank, micro_batch);
      members.push_back(id);
    }
    builder_.add_collective(pattern.shape, members);
    for (std::size_t i = 0; i < members.size(); ++i) arrived_[pattern.members[i]] = {members[i]};
  }

  std::map<RankId, std::pair<int, int>> sender_at_;
  std::map<RankId, std::pair<int, int>> receiver_at_;
  int sender_index_;
  int receiver_index_;
  bool backward_;
  std::int32_t foreign_;
  ComputeOps& ops_;
  ProgramBuilder& builder_;
  std::map<RankId, std::vector<PendingOp>> arrived_;
};

}  // namespace

void add_transfers(const LowerContext& context, int pipeline, KnownTransfers& known,
                   ComputeOps& ops, ProgramBuilder& builder) {
  const Placement& placement = context.placement;
  // The micro-batches that cross from one element to another, in order.
  std::map<std::pair<int, int>, std::vector<int>> crossings;
  const int micro_batches = context.plan.pipelines[pipeline].micro_batches;
  for (int m = 0; m < micro_batches; ++m) {
    const std::vector<int> route = placement.route(context.plan, pipeline, m);
    for (std::size_t i = 0; i + 1 < route.size(); ++i)
      crossings[{route[i], route[i + 1]}].push_back(m);
  }
  for (const auto& [ends, crossing_batches] : crossings) {
    const PlacedSegment& lower = placement.element(pipeline, ends.first);
    const PlacedSegment& upper = placement.element(pipeline, ends.second);
    const auto chain = static_cast<int>(placement.elements[pipeline].size());
    const bool leaves = ends.first >= chain || ends.second >= chain;
    const std::int32_t foreign = leaves ? lower.infos.front() : ir::kNone;
    for (const bool backward : {false, true}) {
      const Boundary boundary(context, lower, upper, backward, known, builder);
      Crossing crossing(backward ? upper : lower, backward ? lower : upper,
                        backward ? ends.second : ends.first, backward ? ends.first : ends.second,
                        backward, foreign, ops, builder);
      std::vector<PendingOp> last_send;
      for (const int m : crossing_batches) crossing.add(boundary.patterns(), m, last_send);
    }
  }
}

}  // namespace orrery::models
