#include "models/lower/inner.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <variant>

#include "models/base/check.h"
#include "models/cost/device_share.h"
#include "models/cost/expert_share.h"
#include "models/sharding/flatten.h"
#include "models/sharding/resolve.h"

namespace orrery::models {
namespace {

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
  DeviceSets sets(group.tensor_parallel);
  for (std::size_t i = 0; i < group.devices.size(); ++i) {
    sets[i % sets.size()].push_back(group.devices[i]);
  }
  return sets;
}

/// Expert-parallel groups: consecutive groups of the stage, one set for each position.
DeviceSets expert_groups(const ir::Segment& segment, int group) {
  const int degree = segment.expert_parallel;
  const int first = group / degree * degree;
  DeviceSets sets(segment.groups[group].devices.size());
  for (int i = 0; i < degree; ++i) {
    const ir::Group& member = segment.groups[first + i];
    for (std::size_t position = 0; position < sets.size(); ++position) {
      sets[position].push_back(member.devices[position % member.devices.size()]);
    }
  }
  return sets;
}

/// Equal but for the groups.
bool alike(const ir::InnerCollective& a, const ir::InnerCollective& b) {
  return std::tie(a.kind, a.purpose, a.count, a.bytes, a.bytes_per_peer) ==
         std::tie(b.kind, b.purpose, b.count, b.bytes, b.bytes_per_peer);
}

class Collector {
 public:
  explicit Collector(ProgramBuilder& builder) : builder_(builder) {}

  void add(ir::CollectiveKind kind, ir::Purpose purpose, const DeviceSets& sets, int count,
           Bytes bytes, std::vector<double> per_peer = {}) {
    const bool moves = std::any_of(sets.begin(), sets.end(),
                                   [](const auto& devices) { return devices.size() > 1; });
    if (!moves || count == 0 || bytes <= 0_B) return;
    ir::InnerCollective inner = {kind, purpose, {}, 0, bytes, std::move(per_peer)};
    for (const std::vector<DeviceId>& devices : sets) {
      inner.groups.push_back(builder_.group(devices));
    }
    counts_[inner] += count;
  }

  /// In an order that is the same in every pipeline: it does not tell which groups were named
  /// first.
  std::vector<ir::InnerCollective> take() const {
    std::vector<ir::InnerCollective> all;
    for (const auto& [inner, count] : counts_) {
      all.push_back(inner);
      all.back().count = count;
    }
    std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
      return std::tie(a.kind, a.purpose, a.bytes, a.count, a.bytes_per_peer) <
                 std::tie(b.kind, b.purpose, b.bytes, b.count, b.bytes_per_peer) ||
             (alike(a, b) && std::lexicographical_compare(
                                 a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(),
                                 [&](std::int32_t one, std::int32_t other) {
                                   return builder_.devices(one) < builder_.devices(other);
                                 }));
    });
    return all;
  }

 private:
  ProgramBuilder& builder_;
  std::map<ir::InnerCollective, std::int32_t> counts_;
};

/// Tensor-parallel groups and what they run after each tensor-parallel product.
struct TensorParallel {
  DeviceSets sets;
  std::vector<ir::CollectiveKind> kinds;
};

/// What turns the tensor from one layout over `shards` devices into the next.
void add_kinds(int shards, Axis before, Axis after, std::vector<ir::CollectiveKind>& kinds) {
  const auto over = [&](Axis axis) {
    std::vector<int> owners;
    for (int i = 0; i < shards; ++i) owners.push_back(i);
    const Annotation annotation{{{owners, {{axis, shards}}}}, kDuplicate, {}};
    return flatten(annotation, {shards});  // As many tokens as devices.
  };
  const auto steps = std::get<std::vector<GroupStep>>(resolve(over(before), over(after)));
  for (const GroupStep& step : steps) kinds.push_back(collective_kind(step.kind));
}

/// Each tensor-parallel product leaves partial sums that the next one needs whole: an all-reduce,
/// or with Megatron's sequence parallelism a reduce-scatter now and an all-gather before the next
/// product. The further all-gather of the backward pass overlaps with its matrix products there and
/// is left out [Korthikanti et al. 2022, 4.2.2].
std::vector<ir::CollectiveKind> tensor_kinds(int shards, bool megatron) {
  std::vector<ir::CollectiveKind> kinds;
  if (megatron) {
    add_kinds(shards, kPartial, 0, kinds);
    add_kinds(shards, 0, kDuplicate, kinds);
  } else {
    add_kinds(shards, kPartial, kDuplicate, kinds);
  }
  return kinds;
}

TensorParallel tensor_parallel(const ir::Group& group) {
  static const std::array<std::vector<ir::CollectiveKind>, 4> kKinds = {
      tensor_kinds(1, false), tensor_kinds(1, true), tensor_kinds(2, false), tensor_kinds(2, true)};
  const bool megatron = group.sequence == ir::SequenceParallelism::megatron;
  // More shards than two take the same kinds.
  return {tensor_groups(group), kKinds[(group.tensor_parallel > 1 ? 2 : 0) + (megatron ? 1 : 0)]};
}

std::vector<double> even_exchange(std::size_t members, Bytes of_member) {
  std::vector<double> bytes(members * members, of_member.value / static_cast<double>(members));
  for (std::size_t i = 0; i < members; ++i) bytes[i * members + i] = 0;
  return bytes;
}

/// What a device of the group has to send to experts. Each member of a tensor-parallel group sends
/// all tokens of its part of the sequence; with Megatron's sequence parallelism it has only its
/// own.
Bytes routed_bytes(const ir::Group& group, Bytes of_sample, const ir::ModelShape& shape) {
  const int shares =
      group.sequence == ir::SequenceParallelism::megatron ? group.tensor_parallel : 1;
  const double part = static_cast<double>(group.samples) / group.sequence_degree;
  return part * of_sample * (shape.top_k * shape.capacity_factor / shares);
}

/// Ulysses: four all-to-alls (Q, K, V in, output out) of the member's activations around attention
/// [Jacobs et al. 2023, 3.1]. Ring attention: keys and values travel once around the ring, with
/// their gradients in the backward pass [Liu et al. 2023, 3]. `activation` is that of the whole
/// sequence, of hidden width.
void add_sequence_parallel(const ir::Group& group, Bytes activation, const ir::ModelShape& shape,
                           bool backward, Collector& out) {
  const std::size_t degree = group.sequence_degree;
  const DeviceSets sets = sequence_groups(group);
  const Bytes part = activation / static_cast<double>(group.tensor_parallel);
  const AttentionWidths widths = attention_widths(shape);
  // A workload may have blocks alone.
  const bool known = shape.hidden > 0 && widths.query > 0;
  const double queries = known ? (widths.query + widths.output) / 2 / shape.hidden : 1.0;
  const double kv = known ? (widths.key + widths.value) / 2 / shape.hidden : 1.0;
  if (group.sequence == ir::SequenceParallelism::ulysses) {
    const Bytes of_member = part / static_cast<double>(degree);
    out.add(ir::CollectiveKind::all_to_all, ir::Purpose::sequence_parallel, sets, 2, queries * part,
            even_exchange(degree, queries * of_member));
    out.add(ir::CollectiveKind::all_to_all, ir::Purpose::sequence_parallel, sets, 2, kv * part,
            even_exchange(degree, kv * of_member));
  } else {
    out.add(ir::CollectiveKind::all_gather, ir::Purpose::sequence_parallel, sets, backward ? 4 : 2,
            kv * part);
  }
}

/// Tokens of each of the groups that share experts go to the holders of theirs, or come back.
std::vector<double> uneven_exchange(const ir::Segment& segment, int first, Bytes of_sample,
                                    const ir::ModelShape& shape, bool back) {
  const std::size_t degree = as_size(segment.expert_parallel);
  std::vector<double> bytes(degree * degree, 0);
  for (std::size_t from = 0; from < degree; ++from) {
    const ir::Group& sender = segment.groups[as_size(first) + from];
    const Bytes routed = routed_bytes(sender, of_sample, shape);
    for (std::size_t to = 0; to < degree; ++to) {
      if (to == from) continue;
      const ir::Group& holder = segment.groups[as_size(first) + to];
      const double parts = expert_share(segment, holder).parts(shape.experts).parts;
      bytes[back ? to * degree + from : from * degree + to] = routed.value / parts;
    }
  }
  return bytes;
}

/// Dispatch and combine between the experts' holders [Lepikhin et al., GShard, 3.2]. `of_sample`:
/// activation of a sample.
void add_expert_parallel(const InnerQuery& query, const ir::Group& group, Bytes of_sample,
                         const ir::ModelShape& shape, Collector& out) {
  const ir::Segment& segment = *query.segment;
  const int degree = segment.expert_parallel;
  if (degree < 2) return;
  const DeviceSets sets = expert_groups(segment, query.group);
  const auto exchange = [&](int count, Bytes routed, std::vector<double> per_peer) {
    out.add(ir::CollectiveKind::all_to_all, ir::Purpose::expert_parallel, sets, count, routed,
            std::move(per_peer));
  };
  if (expert_share(segment, group).even()) {
    const Bytes routed = routed_bytes(group, of_sample, shape);
    return exchange(2, routed, even_exchange(as_size(degree), routed));
  }
  const int first = query.group / degree * degree;
  Bytes largest;
  for (int g = first; g < first + degree; ++g) {
    largest = std::max(largest, routed_bytes(segment.groups[as_size(g)], of_sample, shape));
  }
  for (const bool back : {false, true}) {
    exchange(1, largest, uneven_exchange(segment, first, of_sample, shape, back));
  }
}

/// Numbers for each token that the vocabulary-parallel cross-entropy reduces at once, in fp32: the
/// largest logit, then sum of exponentials and logit of the target [Shoeybi et al. 2019, 3].
constexpr int kCrossEntropyNumbers[] = {1, 2};

/// Products of the block whose results are summed over the group in this direction.
int tensor_sums(const Block& block, bool backward) {
  // The forward pass of an embedding sums over the vocabulary's parts; the backward pass of the
  // head sums the gradients of its input.
  if (block.kind == ir::BlockKind::embedding) return backward ? 0 : block.tensor_collectives;
  if (block.kind == ir::BlockKind::head && block.logits > 0_B) return backward ? 1 : 0;
  return block.tensor_collectives;
}

/// Collectives of one block in one direction, ZeRO apart.
void add_block(const InnerQuery& query, const ir::Group& group, const TensorParallel& tensor,
               const Workload& workload, const Block& block, bool backward, Collector& out) {
  const ir::ModelShape& shape = workload.shape;
  const double part = static_cast<double>(group.samples) / group.sequence_degree;
  const Bytes of_sample = backward ? block.input_bytes : block.output_bytes;
  const Bytes activation = part * of_sample;
  for (const ir::CollectiveKind kind : tensor.kinds) {
    out.add(kind, ir::Purpose::tensor_parallel, tensor.sets, tensor_sums(block, backward),
            activation);
  }
  if (block.kind == ir::BlockKind::head && block.logits > 0_B && !backward) {
    const Bytes number = {4 * part * static_cast<double>(workload.sequence_length)};
    for (const int count : kCrossEntropyNumbers) {
      out.add(ir::CollectiveKind::all_reduce, ir::Purpose::tensor_parallel, tensor.sets, 1,
              count * number);
    }
  }
  if (block.kind == ir::BlockKind::transformer || block.kind == ir::BlockKind::moe) {
    add_sequence_parallel(group, activation * group.sequence_degree, shape, backward, out);
  }
  if (block.expert_all_to_all) add_expert_parallel(query, group, of_sample, shape, out);
}

/// The feed-forward of experts once more: dispatch, combine, and its sum over the tensor-parallel
/// group.
void add_experts_again(const InnerQuery& query, const ir::Group& group,
                       const TensorParallel& tensor, const Workload& workload, const Block& block,
                       Collector& out) {
  const double part = static_cast<double>(group.samples) / group.sequence_degree;
  const Bytes activation = part * block.output_bytes;
  for (const ir::CollectiveKind kind : tensor.kinds) {
    out.add(kind, ir::Purpose::tensor_parallel, tensor.sets, 1, activation);
  }
  add_expert_parallel(query, group, block.output_bytes, workload.shape, out);
}

}  // namespace

std::vector<ir::InnerCollective> inner_collectives(const InnerQuery& query,
                                                   const Workload& workload,
                                                   const ZeroGathers& gathers,
                                                   ProgramBuilder& builder) {
  const ir::Group& group = query.segment->groups[query.group];
  const ir::Recompute again = query.backward ? query.segment->recompute : ir::Recompute::none;
  const TensorParallel tensor = tensor_parallel(group);
  Collector out(builder);
  std::map<int, int> gathered;  // Class of blocks -> how often.
  for (int b = query.first.value; b <= query.last.value; ++b) {
    const Block& block = workload.block({b});
    add_block(query, group, tensor, workload, block, query.backward, out);
    ++gathered[gathers.class_of({b})];
    if (again == ir::Recompute::experts && block.expert_all_to_all) {
      add_experts_again(query, group, tensor, workload, block, out);
    }
    if (again == ir::Recompute::full && is_recomputed(block.kind)) {
      add_block(query, group, tensor, workload, block, false, out);
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

namespace {

/// Whether passes of groups that share experts can be one: what else they exchange is equal, or
/// they are single devices, which exchange nothing else.
bool meet(const ir::Group& a, const ir::Group& b) {
  if (a.devices.size() == 1 && b.devices.size() == 1) return true;
  return a.tensor_parallel == b.tensor_parallel && a.samples == b.samples &&
         a.sequence == b.sequence && a.sequence_degree == b.sequence_degree;
}

}  // namespace

std::vector<ir::InnerCollective> joint_collectives(const InnerQuery& query,
                                                   const Workload& workload,
                                                   const ZeroGathers& gathers,
                                                   ProgramBuilder& builder) {
  const int degree = query.segment->expert_parallel;
  if (degree < 2) return {};
  std::vector<ir::InnerCollective> all;
  const int first = query.group / degree * degree;
  for (int g = first; g < first + degree; ++g) {
    if (!meet(query.segment->groups[g], query.segment->groups[first])) return {};
    InnerQuery other = query;
    other.group = g;
    const auto own = inner_collectives(other, workload, gathers, builder);
    if (g == first) {
      all = own;
      continue;
    }
    if (!std::equal(all.begin(), all.end(), own.begin(), own.end(), alike)) return {};
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (const std::int32_t index : own[i].groups) {
        std::vector<std::int32_t>& known = all[i].groups;
        if (std::find(known.begin(), known.end(), index) == known.end()) known.push_back(index);
      }
    }
  }
  const bool dispatches = std::any_of(all.begin(), all.end(), [](const auto& inner) {
    return inner.purpose == ir::Purpose::expert_parallel;
  });
  return dispatches ? all : std::vector<ir::InnerCollective>{};
}

}  // namespace orrery::models
