#include "models/lower/micro_batch_lengths.h"

#include <algorithm>
#include <utility>

#include "models/base/check.h"
#include "models/ir/op_traits.h"
#include "models/spec/workload.h"

namespace orrery::models {
namespace {

/// Buffers that grow with the tokens of the micro-batch.
bool grows(ir::BufferKind kind) {
  return kind == ir::BufferKind::activations || kind == ir::BufferKind::recomputed ||
         kind == ir::BufferKind::logits;
}

class Scaler {
 public:
  Scaler(ir::Program& program, const MicroBatchLengths& lengths, StepEnd end)
      : program_(program), lengths_(lengths), end_(end) {}

  void run() {
    for (ir::Op& op : program_.ops) {
      const std::int64_t length = length_of(op);
      if (length == program_.header.sequence_length) continue;
      op.inner = inner(op.inner, length);
      op.buffers = buffers(op.buffers, length);
      op.transfers = transfers(op.transfers, length);
      if (op.kind == ir::OpKind::collective) {
        std::int32_t& shape = program_.collectives[op.match].shape;
        if (own_.count(shape) == 0) shape = collective(shape, length);
      }
      op.bytes *= factor(length);
    }
    drop_idle_teams();
  }

 private:
  using Key = std::pair<std::int32_t, std::int64_t>;  ///< Index of the reference's entry, length.

  /// Ops of an empty micro-batch have nothing left to run together.
  void drop_idle_teams() {
    std::vector<ir::Rendezvous> kept;
    for (const ir::Rendezvous& op_group : program_.op_groups) {
      const auto members = program_.members_of(op_group);
      const bool idle = program_.op(members.front()).inner == ir::kNone;
      for (const OpId member : members) {
        program_.ops[member.index()].match =
            idle ? ir::kNone : static_cast<std::int32_t>(kept.size());
      }
      if (!idle) kept.push_back(op_group);
    }
    program_.op_groups = std::move(kept);
  }

  double factor(std::int64_t length) const {
    return static_cast<double>(length) / static_cast<double>(program_.header.sequence_length);
  }

  /// What follows the update counts as a micro-batch of no tokens when there is no update.
  std::int64_t length_of(const ir::Op& op) const {
    const std::int64_t reference = program_.header.sequence_length;
    const bool after_sync = op.purpose == ir::Purpose::zero || op.purpose == ir::Purpose::state;
    if (after_sync && !ir::is_pass(op.kind)) {
      return end_ == StepEnd::update ? reference : 0;
    }
    const bool of_micro_batch =
        op.micro_batch.valid() && (ir::is_pass(op.kind) || op.purpose == ir::Purpose::pipeline);
    if (!of_micro_batch) return reference;
    const std::size_t pipeline = program_.rank_of(op).pipeline;
    return lengths_[pipeline][op.micro_batch.index()];
  }

  /// The entry of `table` that `make` makes of entry `index`, made once for each length.
  template <class Table, class Make>
  std::int32_t variant(Table& table, std::map<Key, std::int32_t>& known, std::int32_t index,
                       std::int64_t length, const Make& make) {
    const auto [place, added] = known.try_emplace({index, length}, ir::kNone);
    if (!added) return place->second;
    auto entry = table[index];
    if (!make(entry)) return place->second;
    place->second = static_cast<std::int32_t>(table.size());
    table.push_back(std::move(entry));
    return place->second;
  }

  std::int32_t inner(std::int32_t index, std::int64_t length) {
    if (index == ir::kNone) return index;
    return variant(program_.inner_sets, inner_, index, length, [&](auto& set) {
      for (ir::InnerCollective& one : set) {
        if (one.purpose == ir::Purpose::zero) continue;  // parameters
        one.bytes *= factor(length);
        for (double& bytes : one.bytes_per_peer) bytes *= factor(length);
      }
      if (length == 0) {
        std::erase_if(set, [](const auto& one) { return one.purpose != ir::Purpose::zero; });
      }
      return !set.empty();
    });
  }

  std::int32_t buffers(std::int32_t index, std::int64_t length) {
    if (index == ir::kNone) return index;
    return variant(program_.buffer_sets, buffers_, index, length, [&](auto& set) {
      for (ir::BufferEffect& effect : set) {
        if (grows(effect.kind)) effect.bytes *= factor(length);
      }
      return true;
    });
  }

  std::int32_t transfers(std::int32_t index, std::int64_t length) {
    if (index == ir::kNone) return index;
    return variant(program_.transfer_sets, transfers_, index, length, [&](auto& set) {
      for (ir::Transfer& one : set) one.bytes *= factor(length);
      return true;
    });
  }

  std::int32_t collective(std::int32_t index, std::int64_t length) {
    const std::int32_t made =
        variant(program_.collective_shapes, shapes_, index, length, [&](auto& shape) {
          for (ir::CollectiveShape::Part& part : shape.parts) part.bytes *= factor(length);
          return true;
        });
    own_[made] = true;
    return made;
  }

  ir::Program& program_;
  const MicroBatchLengths& lengths_;
  StepEnd end_;
  std::map<Key, std::int32_t> inner_, buffers_, transfers_, shapes_;
  std::map<std::int32_t, bool> own_;  ///< Shapes that were made here.
};

}  // namespace

ir::Program with_lengths(ir::Program program, const MicroBatchLengths& lengths, StepEnd end) {
  ORRERY_CHECK(lengths.size() == program.pipelines.size(), "lengths of {} pipelines for {}",
               lengths.size(), program.pipelines.size());
  for (std::size_t p = 0; p < lengths.size(); ++p) {
    ORRERY_CHECK(static_cast<int>(lengths[p].size()) == program.pipelines[p].micro_batches,
                 "{} lengths for {} micro-batches", lengths[p].size(),
                 program.pipelines[p].micro_batches);
  }
  Scaler(program, lengths, end).run();
  return program;
}

LengthPricer::LengthPricer(Cluster cluster, ir::ModelShape shape, Job job, ir::Profile profile)
    : cluster_(std::move(cluster)),
      shape_(std::move(shape)),
      job_(std::move(job)),
      profile_(std::move(profile)) {}

const Pricer& LengthPricer::at(std::int64_t length) const {
  std::unique_ptr<Pricer>& pricer = pricers_[length];
  if (!pricer) {
    pricer = std::make_unique<Pricer>(cluster_, build_workload(shape_, length, job_.dtype), job_,
                                      profile_);
  }
  return *pricer;
}

Seconds LengthPricer::price(const ir::Program& program, const ir::Op& op,
                            std::int64_t length) const {
  const ir::Rank& rank = program.rank_of(op);
  const int type = cluster_.device(rank.device).gpu_type;
  const bool uniform = std::all_of(rank.devices.begin(), rank.devices.end(), [&](DeviceId device) {
    return cluster_.device(device).gpu_type == type;
  });
  if (!uniform || op.segment == ir::kNone) return at(length).compute(program, op);
  const ir::SegmentInfo& segment = program.segment_of(op);
  const Key key{type,
                segment.first_block.value,
                segment.last_block.value,
                segment.tensor_parallel,
                segment.sequence_degree,
                segment.expert_parallel,
                static_cast<int>(segment.recompute),
                op.samples,
                static_cast<int>(op.kind),
                length};
  const auto [place, added] = known_.try_emplace(key);
  if (added) place->second = at(length).compute(program, op);
  return place->second;
}

ProgramPrices LengthPricer::prices(const ir::Program& program, const MicroBatchLengths& lengths,
                                   StepEnd end) const {
  std::vector<Seconds> by_op(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    if (op.kind == ir::OpKind::optimizer_step) {
      if (end == StepEnd::update)
        by_op[i] = at(program.header.sequence_length).compute(program, op);
      continue;
    }
    if (!ir::is_pass(op.kind)) continue;
    const std::size_t pipeline = program.rank_of(op).pipeline;
    const std::int64_t length = lengths[pipeline][op.micro_batch.index()];
    if (length > 0) by_op[i] = price(program, op, length);
  }
  return ProgramPrices(std::move(by_op), at(program.header.sequence_length).overlaps(program));
}

}  // namespace orrery::models
