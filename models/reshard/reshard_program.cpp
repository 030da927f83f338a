#include "models/reshard/reshard_program.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/lower/program_builder.h"

namespace orrery::models {
namespace {

std::vector<ir::TensorKind> tensors(StatePart part, const ReshardBytes& bytes,
                                    ir::Optimizer optimizer) {
  std::vector<ir::TensorKind> kinds;
  if (part != StatePart::optimizer && bytes.weight > 0) kinds.push_back(ir::TensorKind::parameter);
  if (part == StatePart::weights) return kinds;
  if (bytes.master > 0) kinds.push_back(ir::TensorKind::master_parameter);
  if (bytes.moments > 0) kinds.push_back(ir::TensorKind::first_moment);
  if (bytes.moments > 0 && optimizer == ir::Optimizer::adam) {
    kinds.push_back(ir::TensorKind::second_moment);
  }
  return kinds;
}

class ProgramMaker {
 public:
  ProgramMaker(const ReshardPlan& plan, const Workload& workload, const Job& job)
      : plan_(plan), job_(job) {
    ir::ProgramHeader& header = builder_.program.header;
    header.model = workload.shape;
    for (const Block& block : workload.blocks) header.blocks.push_back(block.kind);
    header.sequence_length = workload.sequence_length;
    header.global_batch = job.global_batch;
    header.dtype = workload.dtype;
    header.optimizer = job.optimizer;
    header.workload_hash = workload.hash;
    for (const DeviceTraffic& device : plan.devices) {
      if (device.messages_sent + device.messages_received > 0) add_rank(device.device);
    }
    if (!ranks_.empty()) builder_.program.pipelines.push_back({});
    waits_.resize(ranks_.size());
  }

  ir::Program make() {
    for (const ReshardMessage& message : plan_.messages) add(message);
    return builder_.finish();
  }

 private:
  /// A device's ops of the call that it took part in last, and of the one before that.
  struct Calls {
    std::int32_t call = -1;
    std::vector<PendingOp> current;
    std::vector<PendingOp> before;
  };

  void add_rank(DeviceId device) {
    ranks_[device] = {static_cast<std::int32_t>(builder_.program.ranks.size())};
    ir::Rank rank;
    rank.device = device;
    rank.devices = {device};
    builder_.program.ranks.push_back(std::move(rank));
  }

  /// Slices that follow one another, and blocks that do with equal slices, share a region.
  std::vector<ir::Region> regions(const ReshardMessage& message) const {
    std::vector<ir::Region> out;
    for (std::uint32_t i = 0; i < message.sends; ++i) {
      const SliceSend& send = plan_.sends[plan_.by_message[message.first_send + i]];
      const StateRow& row = plan_.rows[send.row];
      for (const ir::TensorKind kind : tensors(row.part, plan_.bytes, job_.optimizer)) {
        out.push_back({kind, row.block, row.block, row.parameter, row.slice.begin, row.slice.end});
      }
    }
    const auto place = [](const ir::Region& r) {
      return std::tuple(r.tensor, r.parameter, r.first_block, r.begin);
    };
    std::sort(out.begin(), out.end(),
              [&](const ir::Region& a, const ir::Region& b) { return place(a) < place(b); });
    std::vector<ir::Region> joined;
    for (const ir::Region& region : out) {
      ir::Region* last = joined.empty() ? nullptr : &joined.back();
      if (last != nullptr && last->tensor == region.tensor && last->parameter == region.parameter &&
          last->first_block == region.first_block && last->end == region.begin) {
        last->end = region.end;
      } else {
        joined.push_back(region);
      }
    }
    return join_blocks(joined);
  }

  static std::vector<ir::Region> join_blocks(const std::vector<ir::Region>& regions) {
    std::vector<ir::Region> out;
    std::map<std::tuple<ir::TensorKind, std::int32_t, std::int64_t, std::int64_t>, std::size_t>
        latest;
    for (const ir::Region& region : regions) {
      const auto [at, fresh] = latest.try_emplace(
          {region.tensor, region.parameter, region.begin, region.end}, out.size());
      if (!fresh && out[at->second].last_block.value + 1 == region.first_block.value) {
        out[at->second].last_block = region.last_block;
        continue;
      }
      at->second = out.size();
      out.push_back(region);
    }
    return out;
  }

  void add(const ReshardMessage& message) {
    ir::Op op;
    op.kind = ir::OpKind::send;
    op.stream = ir::Stream::p2p;
    op.purpose = ir::Purpose::state;
    op.rank = ranks_.at(message.source);
    op.bytes = message.bytes;
    op.regions = builder_.region_set(regions(message));
    op.transfers = builder_.transfer_set({{message.source, message.destination, message.bytes}});
    const PendingOp send = add_op(op, message.call);
    op.kind = ir::OpKind::recv;
    op.rank = ranks_.at(message.destination);
    const PendingOp recv = add_op(op, message.call);
    builder_.match(send, recv);
  }

  PendingOp add_op(const ir::Op& op, std::int32_t call) {
    Calls& calls = waits_[op.rank];
    if (calls.call != call) {
      calls.call = call;
      calls.before = std::move(calls.current);
      calls.current.clear();
    }
    const PendingOp id = builder_.add(op);
    for (const PendingOp before : calls.before) builder_.depends(id, before);
    calls.current.push_back(id);
    return id;
  }

  const ReshardPlan& plan_;
  const Job& job_;
  ProgramBuilder builder_;
  std::map<DeviceId, RankId> ranks_;
  IdVector<RankId, Calls> waits_;  ///< By rank.
};

}  // namespace

ir::Program reshard_program(const ReshardPlan& plan, const Workload& workload, const Job& job) {
  return ProgramMaker(plan, workload, job).make();
}

}  // namespace orrery::models
