#include "models/lower/inner.h"

#include <algorithm>
#include <map>
#include <variant>

#include "models/base/check.h"
#include "models/cost/device_share.h"
#include "models/sharding/resolve.h"

namespace orrery::models {
namespace {

ir::CollectiveKind kind_of(StepKind kind) {
  switch (kind) {
    case StepKind::all_reduce:
      return ir::CollectiveKind::all_reduce;
    case StepKind::reduce_scatter:
      return ir::CollectiveKind::reduce_scatter;
    case StepKind::all_gather:
      return ir::CollectiveKind::all_gather;
    case StepKind::broadcast:
      return ir::CollectiveKind::broadcast;
    case StepKind::send_receive:
      break;
  }
  ORRERY_CHECK(false, "step {} is no collective", static_cast<int>(kind));
}

using DeviceSets = std::vector<std::vector<DeviceId>>;

/// Tensor-parallel groups, one for each part of the sequence.
DeviceSets tensor_groups(const ir::Group& group) {
  DeviceSets sets;
  auto first = group.devices.begin();
  for (int part = 0; part < group.sequence_degree; ++part) {
    sets.emplace_back(first, first + group.tensor_parallel);
    first += group.tensor_parallel;
  }
  return sets;
}

/// Sequence-parallel groups, one for each tensor slice.
DeviceSets sequence_groups(const ir::Group& group) {
  DeviceSets sets(static_cast<std::size_t>(group.tensor_parallel));
  for (std::size_t i = 0; i < group.devices.size(); ++i) {
    sets[i % sets.size()].push_back(group.devices[i]);
  }
  return sets;
}

/// Expert-parallel groups: consecutive groups of the stage, one set for each position.
DeviceSets expert_groups(const ir::Segment& segment, int group) {
  const int degree = segment.expert_parallel;
  const int first = group / degree * degree;
  DeviceSets sets(segment.groups[static_cast<std::size_t>(group)].devices.size());
  for (int i = 0; i < degree; ++i) {
    const ir::Group& member = segment.groups[static_cast<std::size_t>(first + i)];
    for (std::size_t position = 0; position < sets.size(); ++position) {
      sets[position].push_back(member.devices[position % member.devices.size()]);
    }
  }
  return sets;
}

class Collector {
 public:
  explicit Collector(Draft& draft) : draft_(draft) {}

  void add(ir::CollectiveKind kind, ir::Purpose purpose, const DeviceSets& sets, int count,
           Bytes bytes, std::vector<double> per_peer = {}) {
    const bool moves = std::any_of(sets.begin(), sets.end(),
                                   [](const auto& devices) { return devices.size() > 1; });
    if (!moves || count == 0 || bytes <= 0_B) return;
    ir::InnerCollective inner = {kind, purpose, {}, 0, bytes, std::move(per_peer)};
    for (const std::vector<DeviceId>& devices : sets) {
      inner.groups.push_back(draft_.group(devices));
    }
    counts_[inner] += count;
  }

  std::vector<ir::InnerCollective> take() const {
    std::vector<ir::InnerCollective> all;
    for (const auto& [inner, count] : counts_) {
      all.push_back(inner);
      all.back().count = count;
    }
    return all;
  }

 private:
  Draft& draft_;
  std::map<ir::InnerCollective, std::int32_t> counts_;
};

/// Tensor-parallel groups and what they run after each tensor-parallel product.
struct TensorParallel {
  DeviceSets sets;
  std::vector<ir::CollectiveKind> kinds;
};

/// Each tensor-parallel product leaves partial sums that the next one needs whole: an all-reduce,
/// or with Megatron's sequence parallelism a reduce-scatter now and an all-gather before the next
/// product. The further all-gather of the backward pass overlaps with its matrix products there and
/// is left out [Korthikanti et al. 2022, 4.2.2].
TensorParallel tensor_parallel(const ir::Group& group) {
  TensorParallel out;
  out.sets = tensor_groups(group);
  std::vector<int> owners;
  for (const DeviceId device : out.sets.front()) owners.push_back(device.value);
  const auto tokens = static_cast<std::int64_t>(owners.size());
  const auto add = [&](const Layout& from, const Layout& to) {
    const auto steps = std::get<std::vector<Step>>(resolve(from, to));
    for (const Step& step : steps) out.kinds.push_back(kind_of(step.kind));
  };
  if (group.sequence == ir::SequenceParallelism::megatron) {
    add(partial(tokens, owners), split(tokens, owners));
    add(split(tokens, owners), replicated(tokens, owners));
  } else {
    add(partial(tokens, owners), replicated(tokens, owners));
  }
  return out;
}

std::vector<double> even_exchange(std::size_t members, Bytes of_member) {
  std::vector<double> bytes(members * members, of_member.value / static_cast<double>(members));
  for (std::size_t i = 0; i < members; ++i) bytes[i * members + i] = 0;
  return bytes;
}

/// Ulysses: four all-to-alls (Q, K, V in, output out) of the member's activations around attention
/// [Jacobs et al. 2023, 3.1]. Ring attention: keys and values travel once around the ring, with
/// their gradients in the backward pass [Liu et al. 2023, 3]. `activation` is that of the whole
/// sequence.
void add_sequence_parallel(const ir::Group& group, Bytes activation, const ir::ModelShape& shape,
                           bool backward, Collector& out) {
  const auto degree = static_cast<std::size_t>(group.sequence_degree);
  const DeviceSets sets = sequence_groups(group);
  const Bytes part = activation / static_cast<double>(group.tensor_parallel);
  const double kv = shape.heads > 0 ? static_cast<double>(shape.kv_heads) / shape.heads : 1.0;
  if (group.sequence == ir::SequenceParallelism::ulysses) {
    const Bytes of_member = part / static_cast<double>(degree);
    out.add(ir::CollectiveKind::all_to_all, ir::Purpose::sequence_parallel, sets, 2, part,
            even_exchange(degree, of_member));
    out.add(ir::CollectiveKind::all_to_all, ir::Purpose::sequence_parallel, sets, 2, kv * part,
            even_exchange(degree, kv * of_member));
  } else {
    out.add(ir::CollectiveKind::all_gather, ir::Purpose::sequence_parallel, sets, backward ? 4 : 2,
            kv * part);
  }
}

/// Dispatch and combine between the experts' holders [Lepikhin et al., GShard, 3.2]. Each member of
/// a group sends all tokens of its part of the sequence; with Megatron's sequence parallelism it
/// has only its own.
void add_expert_parallel(const InnerQuery& query, const ir::Group& group, Bytes activation,
                         const ir::ModelShape& shape, Collector& out) {
  const int degree = query.segment->expert_parallel;
  if (degree < 2) return;
  const int shares =
      group.sequence == ir::SequenceParallelism::megatron ? group.tensor_parallel : 1;
  const Bytes routed = activation * (shape.top_k * shape.capacity_factor / shares);
  out.add(ir::CollectiveKind::all_to_all, ir::Purpose::expert_parallel,
          expert_groups(*query.segment, query.group), 2, routed,
          even_exchange(static_cast<std::size_t>(degree), routed));
}

/// Collectives of one block in one direction, ZeRO apart.
void add_block(const InnerQuery& query, const ir::Group& group, const TensorParallel& tensor,
               const Block& block, const ir::ModelShape& shape, bool backward, Collector& out) {
  const double part = static_cast<double>(group.samples) / group.sequence_degree;
  // Backward, gradients of the input are added up. An embedding has none: its collective stands for
  // the sum at the input of the head (Block::tensor_collectives).
  const bool of_input = backward && block.input_bytes > 0_B;
  const Bytes activation = part * (of_input ? block.input_bytes : block.output_bytes);
  for (const ir::CollectiveKind kind : tensor.kinds) {
    out.add(kind, ir::Purpose::tensor_parallel, tensor.sets, block.tensor_collectives, activation);
  }
  if (block.kind == ir::BlockKind::transformer || block.kind == ir::BlockKind::moe) {
    add_sequence_parallel(group, activation * group.sequence_degree, shape, backward, out);
  }
  if (block.expert_all_to_all) add_expert_parallel(query, group, activation, shape, out);
}

}  // namespace

std::vector<ir::InnerCollective> inner_collectives(const InnerQuery& query,
                                                   const Workload& workload,
                                                   const ZeroGathers& gathers, Draft& draft) {
  const ir::Group& group = query.segment->groups[static_cast<std::size_t>(query.group)];
  const bool recomputes = query.backward && query.segment->recompute == ir::Recompute::full;
  const TensorParallel tensor = tensor_parallel(group);
  Collector out(draft);
  std::map<int, int> gathered;  // Class of blocks -> how often.
  for (int b = query.first.value; b <= query.last.value; ++b) {
    const Block& block = workload.block({b});
    add_block(query, group, tensor, block, workload.shape, query.backward, out);
    ++gathered[gathers.class_of({b})];
    if (recomputes && is_recomputed(block.kind)) {
      add_block(query, group, tensor, block, workload.shape, false, out);
      ++gathered[gathers.class_of({b})];
    }
  }
  for (const auto& [block_class, count] : gathered) {
    for (const GatherRound& round : gathers.rounds(block_class, group)) {
      out.add(ir::CollectiveKind::all_gather, ir::Purpose::zero, round.sets, count, round.bytes);
    }
  }
  return out.take();
}

}  // namespace orrery::models
