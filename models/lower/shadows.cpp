#include "models/lower/shadows.h"

#include <cstdint>
#include <tuple>

#include "models/base/check.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"

namespace orrery::models {
namespace {

/// What one rank sends to another.
struct Message {
  std::map<std::pair<DeviceId, DeviceId>, Bytes> paths;
  std::vector<ir::Region> regions;
  Bytes bytes;
};

class Feeder {
 public:
  Feeder(const LowerContext& context, const PlacedSegment& shadow)
      : context_(context), shadow_(shadow) {}

  /// Adds one parameter of blocks [first, last].
  void add(BlockId first, BlockId last, std::size_t parameter,
           const std::vector<ParameterStep>& steps) {
    const Block& block = context_.workload.block(first);
    const Bytes whole{static_cast<double>(block.parameters[parameter].elements) *
                      (last.value - first.value + 1) * context_.job.state_bytes.gradient};
    if (context_.replicas.is_tied(first, parameter)) {
      first = last = {0};
      for (parameter = 0; !context_.replicas.is_tied(first, parameter);) ++parameter;
    }
    for (const ParameterStep& one : steps) {
      ORRERY_CHECK(one.step.kind == StepKind::send_receive, "gradients travel by {}",
                   to_string(one.step.kind));
      const DeviceId source = {one.step.source};
      const DeviceId destination = {one.step.destination};
      const auto& rank_of = context_.placement.rank_of;
      Message& message = messages_[{rank_of[source], rank_of[destination]}];
      message.paths[{source, destination}] += one.share * whole;
      message.bytes += one.share * whole;
      for (const Slice& slice : one.step.slices) {
        message.regions.push_back({ir::TensorKind::gradient, first, last,
                                   static_cast<std::int32_t>(parameter), slice.begin, slice.end});
      }
    }
  }

  void emit(const GradientWait& wait, ProgramBuilder& builder, ShadowRecvs& recvs) {
    for (auto& [ends, message] : messages_) {
      std::vector<ir::Transfer> transfers;
      for (const auto& [path, bytes] : message.paths) {
        transfers.push_back({path.first, path.second, bytes});
      }
      ir::Op op;
      op.kind = ir::OpKind::send;
      op.stream = ir::Stream::p2p;
      op.purpose = ir::Purpose::state;
      op.rank = ends.first;
      op.bytes = message.bytes;
      op.transfers = builder.transfer_set(std::move(transfers));
      op.regions = builder.region_set(std::move(message.regions));
      const PendingOp send = builder.add(op);
      wait(send, ends.first, *shadow_.segment);
      op.kind = ir::OpKind::recv;
      op.rank = ends.second;
      const PendingOp recv = builder.add(op);
      builder.match(send, recv);
      recvs[ends.second].push_back(recv);
    }
  }

 private:
  const LowerContext& context_;
  const PlacedSegment& shadow_;
  std::map<std::pair<RankId, RankId>, Message> messages_;
};

}  // namespace

ShadowRecvs add_shadow_gradients(const LowerContext& context,
                                 const std::vector<std::pair<BlockId, BlockId>>& alike,
                                 const GradientWait& wait, ProgramBuilder& builder) {
  ShadowRecvs recvs;
  for (const std::vector<PlacedSegment>& shadows : context.placement.shadows) {
    for (const PlacedSegment& shadow : shadows) {
      if (!context.builds(shadow.pipeline)) continue;
      Feeder feeder(context, shadow);
      for (const auto& [first, last] : alike) {
        if (first < shadow.segment->first_block || shadow.segment->last_block < first) continue;
        // By length of the split, expert and tied: what decides the steps.
        std::map<std::tuple<std::int64_t, bool, bool>, std::vector<ParameterStep>> known;
        const std::vector<Parameter>& parameters = context.workload.block(first).parameters;
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const auto [steps, fresh] =
              known.try_emplace({parameters[i].split_length, parameters[i].expert,
                                 context.replicas.is_tied(first, i)});
          if (fresh) steps->second = context.replicas.shadow_steps(first, i, shadow.pipeline);
          feeder.add(first, last, i, steps->second);
        }
      }
      feeder.emit(wait, builder, recvs);
    }
  }
  return recvs;
}

std::map<RankId, ir::BufferEffect> add_shadow_states(const LowerContext& context,
                                                     std::vector<Bytes>& states,
                                                     ProgramBuilder& builder) {
  using Action = ir::BufferEffect::Action;
  std::map<RankId, ir::BufferEffect> received;
  for (const std::vector<PlacedSegment>& shadows : context.placement.shadows) {
    for (const PlacedSegment& shadow : shadows) {
      if (!context.builds(shadow.pipeline)) continue;
      const ir::Segment& segment = *shadow.segment;
      for (std::size_t g = 0; g < segment.groups.size(); ++g) {
        const ir::Group& group = segment.groups[g];
        const SegmentMemory memory =
            segment_memory(segment, group, 1, context.workload, context.job);
        double updated = 0;
        for (int b = segment.first_block.value; b <= segment.last_block.value; ++b) {
          updated += device_parameters(context.workload.block({b}), group.tensor_parallel,
                                       segment.expert_parallel);
        }
        for (const RankId rank : shadow.ranks[g]) {
          states[rank.index()] += Bytes{updated * context.job.state_bytes.total()};
          const auto add = [&](ir::BufferKind kind, Bytes bytes) {
            if (bytes <= 0_B) return;
            builder.program.resident[rank.index()].push_back(
                {kind, Action::allocate, false, shadow.infos[g], bytes});
          };
          add(ir::BufferKind::parameters, memory.parameters);
          add(ir::BufferKind::optimizer_states, memory.optimizer_states);
          received[rank] = {ir::BufferKind::gradients, Action::transient, false, shadow.infos[g],
                            memory.gradients};
        }
      }
    }
  }
  return received;
}

}  // namespace orrery::models
