#include "executor/engine/rank_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "executor/engine/worker.h"
#include "models/base/check.h"
#include "models/ir/op_traits.h"

namespace orrery::executor {
namespace {

const std::vector<ir::Region> kNoRegions;

/// Passes of a rank over blocks with ZeRO-3, in order.
std::vector<std::tuple<ir::OpKind, std::int32_t, std::int32_t>> sharded_passes(
    const ir::Program& program, RankId rank) {
  std::vector<std::tuple<ir::OpKind, std::int32_t, std::int32_t>> out;
  for (const ir::Op& op : program.stream_ops(rank, ir::Stream::compute)) {
    if (!ir::is_pass(op.kind)) continue;
    const ir::SegmentInfo& info = program.segment_of(op);
    if (!info.zero.shards_parameters()) continue;
    out.emplace_back(op.kind, info.first_block.value, info.last_block.value);
  }
  return out;
}

/// Members of a gradients' reduce-scatter that do not run the same passes with ZeRO-3.
bool gathers_miss(const ir::Program& program) {
  for (const ir::Collective& collective : program.collectives) {
    const auto& shape = program.shape_of(collective);
    if (shape.kind != ir::CollectiveKind::reduce_scatter) continue;
    const auto members = program.members_of(collective.members);
    const auto first = sharded_passes(program, program.op(members.front()).rank);
    for (const OpId member : members) {
      if (sharded_passes(program, program.op(member).rank) != first) return true;
    }
  }
  return false;
}

}  // namespace

RankView::RankView(const ir::Program& program, RankId rank) : program_(program), rank_(rank) {
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    rank_of_[program.ranks[r].device] = static_cast<int>(r);
  }
  const std::size_t row = rank.index() * ir::kStreams;
  first_ = static_cast<std::int32_t>(program.stream_begin[row]);
  count_ = program.stream_begin[row + ir::kStreams] - program.stream_begin[row];
  counts_.resize(count_);
  dependents_.resize(count_);
  for (std::size_t local = 0; local < count_; ++local) {
    for (const OpId before : program.dependencies_of(global(local))) {
      if (program.op(before).rank != rank) continue;
      ++counts_[local];
      dependents_[before.value - first_].push_back(local);
    }
  }
  for (const ir::Op& at : ops()) {
    if (!ir::is_pass(at.kind) || at.match == ir::kNone) continue;
    const ir::SegmentInfo& info = segment(at);
    for (const BlockId b : ids_from_to(info.first_block, info.last_block)) {
      op_groups_[{info.pipeline, info.stage, b}] = groups_of_members(at);
    }
  }
  find_pass_tags();
  for (std::size_t local = 0; local < count_; ++local) {
    const ir::Op& at = op(local);
    const bool receives = at.kind == ir::OpKind::recv || at.kind == ir::OpKind::collective;
    if (!receives || at.purpose != ir::Purpose::zero) continue;
    std::vector<ir::Region> mine;
    std::vector<ir::Region> all = regions(at.regions);
    if (at.kind == ir::OpKind::collective) {
      const ir::CollectiveShape& of = shape(at);
      const auto& part = of.parts.front();
      const RingGroup group = ring(program.group(part.group));
      const std::size_t position = group.position;
      if (of.kind == ir::CollectiveKind::broadcast && position == 0) continue;
      if (of.kind == ir::CollectiveKind::all_gather) {
        all.clear();
        for (std::size_t m = 0; m < part.member_regions.size(); ++m) {
          if (m == position) continue;
          all.insert(all.end(), part.member_regions[m].begin(), part.member_regions[m].end());
        }
      }
    }
    for (const ir::Region& region : all) {
      if (region.tensor != ir::TensorKind::parameter) continue;
      for (const BlockId b : ids_from_to(region.first_block, region.last_block)) {
        arriving_[{b, region.parameter}].push_back({region.begin, region.end});
      }
    }
  }
  find_gathers();
}

/// Group by group, and in it member by member.
PassGroups RankView::groups_of_members(const ir::Op& op) const {
  std::vector<int> ranks;
  std::size_t own = 0;
  const auto members = program_.members_of(program_.op_groups[op.match]);
  for (const OpId member : members) {
    const int other = program_.op(member).rank.value;
    if (other == rank_.value) own = ranks.size();
    ranks.push_back(other);
  }
  const std::size_t degree = as_size(segment(op).tensor_parallel);
  PassGroups out;
  out.tensor.position = static_cast<int>(own % degree);
  out.experts.position = static_cast<int>(own / degree);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i / degree == own / degree) out.tensor.ranks.push_back(ranks[i]);
    if (i % degree != own % degree) continue;
    out.experts.ranks.push_back(ranks[i]);
    const ir::SegmentInfo& info = segment(program_.op(members[i]));
    if (info.expert_samples == 0) continue;
    const int even = program_.header.model.experts / info.expert_parallel;
    out.expert_members.push_back({info.experts > 0 ? info.experts : even, info.samples});
  }
  return out;
}

/// Lowering gives an op group to passes that count collectives. The backward pass of an embedding
/// counts none, but gathers tokens (executor/model/block.h), and with ZeRO-3 any pass may gather
/// weights.
void RankView::find_pass_tags() {
  using Key = std::tuple<ir::OpKind, MicroBatchId, std::int32_t>;
  std::map<RankId, std::map<Key, std::uint64_t>> of_first;
  for (std::size_t local = 0; local < count_; ++local) {
    const ir::Op& at = op(local);
    if (!ir::is_pass(at.kind) || !ir::crosses_blocks(at.kind) || at.match != ir::kNone) continue;
    const ir::SegmentInfo& info = segment(at);
    if (info.tensor_parallel == 1) continue;
    if (!has_sequence(info) && !info.zero.shards_parameters()) continue;
    const RankId first = {groups(at).tensor.ranks.front()};
    auto& known = of_first[first];
    if (known.empty()) {
      for (std::size_t i = program_.stream_begin[first.index() * ir::kStreams];
           i < program_.stream_begin[first.index() * ir::kStreams + 1]; ++i) {
        const ir::Op& other = program_.ops[i];
        known[{other.kind, other.micro_batch, other.segment}] = i;
      }
    }
    pass_tags_[local] = known.at({at.kind, at.micro_batch, at.segment});
  }
}

bool RankView::has_sequence(const ir::SegmentInfo& info) const {
  return info.sequence == ir::SequenceParallelism::megatron && info.tensor_parallel > 1;
}

const std::vector<int>& RankView::kept_by_first(BlockId block) const {
  static const std::vector<int> kNone;
  const auto it = kept_by_first_.find(block);
  return it == kept_by_first_.end() ? kNone : it->second;
}

/// With sequence parallelism each member has gradients of its own of what is whole, but for biases
/// of experts: it has the rows of all tokens.
void RankView::find_kept_by_first() {
  for (const ir::Op& at : ops()) {
    if (!ir::is_pass(at.kind)) continue;
    const ir::SegmentInfo& info = segment(at);
    if (info.tensor_parallel == 1) continue;
    for (const BlockId b : ids_from_to(info.first_block, info.last_block)) {
      if (gathers(b).empty() || kept_by_first_.contains(b)) continue;
      std::vector<int>& kept = kept_by_first_[b];
      const std::vector<ParameterInfo> all = parameters_of(program_.header, b);
      for (std::size_t p = 0; p < all.size(); ++p) {
        const bool whole = all[p].split_length == all[p].experts;
        if (!whole || (all[p].experts == 0 && has_sequence(info))) continue;
        kept.push_back(static_cast<int>(p));
        if (groups(at).tensor.position == 0) continue;
        arriving_[{b, kept.back()}] = {{0, std::max<std::int64_t>(1, all[p].split_length)}};
      }
    }
  }
}

void RankView::find_gathers() {
  std::set<BlockId> sharded;
  for (const ir::Op& at : ops()) {
    if (!ir::is_pass(at.kind) || !segment(at).zero.shards_parameters()) continue;
    const ir::SegmentInfo& info = segment(at);
    for (const BlockId b : ids_from_to(info.first_block, info.last_block)) {
      sharded.insert(b);
    }
  }
  for (std::size_t local = 0; local < count_; ++local) {
    const ir::Op& at = op(local);
    if (at.kind != ir::OpKind::collective || at.purpose != ir::Purpose::data_parallel) continue;
    const ir::CollectiveShape& of = shape(at);
    if (of.kind != ir::CollectiveKind::reduce_scatter) continue;
    const auto& part = of.parts.front();
    std::map<BlockId, ShardGather> found;
    const std::size_t members = part.member_regions.size();
    for (std::size_t m = 0; m < members; ++m) {
      for (const ir::Region& region : part.member_regions[m]) {
        for (const BlockId b : ids_from_to(region.first_block, region.last_block)) {
          if (!sharded.contains(b)) continue;
          ShardGather& gather = found[b];
          gather.members.resize(members);
          gather.members[m].push_back(region);
        }
      }
    }
    for (auto& [block, gather] : found) {
      gather.group = ring(program_.group(part.group));
      gather.tag = tag_number(local);
      for (std::size_t m = 0; m < members; ++m) {
        if (static_cast<int>(m) == gather.group.position) continue;
        for (const ir::Region& region : gather.members[m]) {
          arriving_[{block, region.parameter}].push_back({region.begin, region.end});
        }
      }
      // Every round of gradient synchronization has the same reduce-scatters.
      std::vector<ShardGather>& known = gathers_[block];
      const bool again =
          std::any_of(known.begin(), known.end(), [&made = gather](const ShardGather& other) {
            return other.group.ranks == made.group.ranks && other.members == made.members;
          });
      if (!again) known.push_back(std::move(gather));
    }
  }
  find_kept_by_first();
}

const std::vector<RankView::ShardGather>& RankView::gathers(BlockId block) const {
  static const std::vector<ShardGather> kNone;
  const auto it = gathers_.find(block);
  return it == gathers_.end() ? kNone : it->second;
}

std::span<const ir::Op> RankView::ops() const {
  return std::span(program_.ops).subspan(first_, count_);
}

std::vector<std::size_t> RankView::stream(ir::Stream stream) const {
  std::vector<std::size_t> out;
  for (std::size_t local = 0; local < count_; ++local) {
    if (op(local).stream == stream) out.push_back(local);
  }
  return out;
}

const ir::SegmentInfo& RankView::segment(const ir::Op& op) const { return program_.segment_of(op); }

const std::vector<ir::Region>& RankView::regions(std::int32_t set) const {
  return set == ir::kNone ? kNoRegions : program_.region_sets[set];
}

std::uint64_t RankView::tag_number(std::size_t local) const {
  const ir::Op& at = op(local);
  std::int32_t number = global(local).value;
  if (at.match == ir::kNone) {
    const auto agreed = pass_tags_.find(local);
    return agreed == pass_tags_.end() ? static_cast<std::uint64_t>(number) : agreed->second;
  }
  if (ir::is_transfer(at.kind)) return static_cast<std::uint64_t>(std::min(number, at.match));
  const ir::Rendezvous rendezvous = at.kind == ir::OpKind::collective
                                        ? program_.collectives[at.match].members
                                        : program_.op_groups[at.match];
  for (const OpId member : program_.members_of(rendezvous)) number = std::min(number, member.value);
  return static_cast<std::uint64_t>(number);
}

int RankView::peer(const ir::Op& op) const { return program_.op({op.match}).rank.value; }

const ir::CollectiveShape& RankView::shape(const ir::Op& op) const {
  const ir::Collective& collective = program_.collective_of(op);
  return program_.shape_of(collective);
}

RingGroup RankView::ring(const ir::CommunicationGroup& group) const {
  RingGroup out;
  out.position = -1;
  for (const DeviceId device : group.devices) {
    const int rank = rank_of_.at(device);
    if (rank == rank_.value) out.position = out.size();
    out.ranks.push_back(rank);
  }
  ORRERY_CHECK(out.position >= 0, "rank {} is not in its own group", rank_.value);
  return out;
}

PassGroups RankView::groups(const ir::Op& op) const {
  if (op.match != ir::kNone) return groups_of_members(op);
  const ir::SegmentInfo& info = segment(op);
  const RingGroup alone = {{rank_.value}, 0};
  const auto it = op_groups_.find({info.pipeline, info.stage, info.first_block});
  if (it != op_groups_.end()) return it->second;
  if (info.tensor_parallel == 1) return {alone, alone};
  // Blocks that exchange nothing: the group of the stage that this rank is in.
  const ir::Rank& self = program_.ranks[rank_.index()];
  RingGroup out{std::vector<int>(info.tensor_parallel), self.position};
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    const ir::Rank& other = program_.ranks[r];
    if (other.pipeline != self.pipeline || other.stage != self.stage || other.group != self.group) {
      continue;
    }
    ORRERY_CHECK(other.position < out.size(), "position {} in a group of {}", other.position,
                 out.size());
    out.ranks[other.position] = static_cast<int>(r);
  }
  return {out, alone};
}

std::vector<ActivationKey> RankView::touches(const ir::Op& op) const {
  std::vector<ActivationKey> out;
  const std::int32_t pipeline =
      op.segment == ir::kNone ? program_.rank_of(op).pipeline : segment(op).pipeline;
  if (ir::is_pass(op.kind)) {
    if (!ir::crosses_blocks(op.kind)) return out;
    const ir::SegmentInfo& info = segment(op);
    const auto last_block = static_cast<std::int32_t>(program_.header.blocks.size()) - 1;
    const bool gradient = ir::is_backward(op.kind);
    const std::int32_t micro_batch = op.micro_batch.value;
    if (info.first_block.value > 0) {
      out.push_back({pipeline, micro_batch, info.first_block.value - 1, gradient});
    }
    if (info.last_block.value < last_block) {
      out.push_back({pipeline, micro_batch, info.last_block.value, gradient});
    }
    return out;
  }
  if (op.purpose != ir::Purpose::pipeline) return out;
  std::vector<ir::Region> all = regions(op.regions);
  if (op.kind == ir::OpKind::collective) {
    const ir::CollectiveShape& of = shape(op);
    all = regions(of.regions);
    for (const auto& member : of.parts.front().member_regions) {
      all.insert(all.end(), member.begin(), member.end());
    }
  }
  for (const ir::Region& region : all) {
    const ActivationKey key = {pipeline, op.micro_batch.value, region.first_block.value,
                               region.tensor == ir::TensorKind::activation_gradient};
    if (std::find(out.begin(), out.end(), key) == out.end()) out.push_back(key);
  }
  return out;
}

std::vector<ModelShard::HeldBlock> RankView::held_blocks() const {
  std::map<BlockId, ModelShard::HeldBlock> blocks;
  for (const ir::Op& at : ops()) {
    if (!ir::crosses_blocks(at.kind)) continue;
    const ir::SegmentInfo& info = segment(at);
    const PassGroups own = groups(at);
    for (const BlockId b : ids_from_to(info.first_block, info.last_block)) {
      ModelShard::HeldBlock& held = blocks[b];
      held.block = b;
      held.degree = info.tensor_parallel;
      held.position = own.tensor.position;
      held.expert_degree = own.experts.size();
      held.expert_position = own.experts.position;
      held.expert_members = own.expert_members;
      held.sequence = has_sequence(info);
    }
  }
  // The token matrix is the embedding's in programs, and so are its gradients and states.
  const auto head = blocks.find({static_cast<std::int32_t>(program_.header.blocks.size()) - 1});
  if (program_.header.model.tied_embeddings && head != blocks.end() && !blocks.contains({0})) {
    ModelShard::HeldBlock embedding = head->second;
    embedding.block = {0};
    embedding.for_head = true;
    blocks[{0}] = embedding;
  }
  std::vector<ModelShard::HeldBlock> out;
  for (auto& [block, held] : blocks) {
    for (const auto& [key, ranges] : arriving_) {
      if (key.first == block) held.elsewhere[key.second] = ranges;
    }
    held.sharded = gathers_.contains(block);
    out.push_back(std::move(held));
  }
  return out;
}

std::vector<std::string> find_unrunnable(const ir::Program& program) {
  std::vector<std::string> out;
  if (program.header.collapsed) {
    return {"the program is collapsed: lower the plan with one rank for each device"};
  }
  bool crossing = false;
  bool apart = false;
  bool state = false;
  bool redundant = false;
  std::set<std::pair<RankId, RankId>> together;  // Ranks whose passes are one.
  for (const ir::Rendezvous& group : program.op_groups) {
    for (const OpId a : program.members_of(group)) {
      for (const OpId b : program.members_of(group)) {
        together.insert({program.op(a).rank, program.op(b).rank});
      }
    }
  }
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    state = state || op.kind == ir::OpKind::load_state || op.kind == ir::OpKind::save_state;
    redundant = redundant || (ir::is_pass(op.kind) && program.segment_of(op).redundant);
    for (const OpId before : program.dependencies_of({static_cast<std::int32_t>(i)})) {
      const RankId other = program.op(before).rank;
      crossing = crossing || (other != op.rank && !together.contains({other, op.rank}));
    }
    if (ir::is_pass(op.kind) && program.segment_of(op).expert_parallel > 1) {
      const ir::SegmentInfo& info = program.segment_of(op);
      const auto inner = program.inner_of(op);
      const bool dispatches = std::any_of(inner.begin(), inner.end(), [](const auto& one) {
        return one.purpose == ir::Purpose::expert_parallel;
      });
      const std::size_t wanted = as_size(info.tensor_parallel) * as_size(info.expert_parallel);
      apart = apart ||
              (dispatches && (op.match == ir::kNone ||
                              program.members_of(program.op_groups[op.match]).size() != wanted));
    }
  }
  if (apart) {
    out.emplace_back(
        "experts divided among groups that do not meet at each dispatch: of different degrees or "
        "ZeRO "
        "shards, or of several GPUs with different samples");
  } else if (crossing) {
    out.emplace_back("ops that wait for ops of other ranks");
  }
  if (state) out.emplace_back("loading or saving state inside the step");
  if (redundant) out.emplace_back("redundant copies of a stage (redundancy: next_stage)");
  if (gathers_miss(program)) {
    out.emplace_back("ZeRO-3 among ranks whose passes differ in number or order");
  }
  for (const ir::CollectiveShape& shape : program.collective_shapes) {
    if (shape.kind == ir::CollectiveKind::all_to_all) {
      out.emplace_back("all-to-all between ranks");
      break;
    }
  }
  return out;
}

}  // namespace orrery::executor
