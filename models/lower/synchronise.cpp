#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "models/base/check.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/lower/passes.h"
#include "models/sharding/gradient.h"

namespace orrery::models {

std::vector<BlockReplica> replicas_of(const LowerContext& context, BlockId block) {
  std::vector<BlockReplica> out;
  for (std::size_t p = 0; p < context.placement.elements.size(); ++p) {
    const std::vector<Element>& elements = context.placement.elements[p];
    for (std::size_t e = 0; e < elements.size(); ++e) {
      const ir::Segment& segment = *elements[e].segment;
      if (block < segment.first_block || segment.last_block < block) continue;
      for (std::size_t g = 0; g < segment.groups.size(); ++g) {
        out.push_back({static_cast<int>(p), static_cast<int>(e), static_cast<int>(g)});
      }
    }
  }
  return out;
}

namespace {

const ir::Segment& segment_of(const LowerContext& context, const BlockReplica& at) {
  return *context.placement
              .elements[static_cast<std::size_t>(at.pipeline)][static_cast<std::size_t>(at.element)]
              .segment;
}

const ir::Group& group_of(const LowerContext& context, const BlockReplica& at) {
  return segment_of(context, at).groups[static_cast<std::size_t>(at.group)];
}

/// Blocks that the same groups hold, with equal lists of parameters.
struct Run {
  int first = 0;
  int last = 0;
  std::vector<BlockReplica> replicas;
};

bool same_parameters(const Block& a, const Block& b) {
  return std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), [](const Parameter& x, const Parameter& y) {
                      return x.elements == y.elements && x.split_length == y.split_length &&
                             x.expert == y.expert;
                    });
}

/// One replica of a parameter for each set of devices that sees its own tokens: each group, and in
/// it each part of the sequence. Devices of a set in tensor-parallel order.
std::vector<std::vector<int>> token_sets(const ir::Group& group) {
  std::vector<std::vector<int>> sets;
  for (std::size_t i = 0; i < group.devices.size(); ++i) {
    if (i % static_cast<std::size_t>(group.tensor_parallel) == 0) sets.emplace_back();
    sets.back().push_back(group.devices[i].value);
  }
  return sets;
}

/// All communication of one parameter class of a run, by (kind, owners).
struct StepKey {
  int order = 0;  ///< Position in its list of steps: later ones may read what earlier ones wrote.
  StepKind kind = StepKind::all_reduce;
  std::vector<int> owners;
  auto operator<=>(const StepKey&) const = default;
};
struct StepLoad {
  Bytes bytes;
  std::vector<ir::Region> regions;
  std::vector<std::vector<ir::Region>> parts;  ///< By owner; reduce-scatter and all-gather only.
};
using StepTable = std::map<StepKey, StepLoad>;

enum class Phase { reduce, gather };

class Synchroniser {
 public:
  Synchroniser(const LowerContext& context, const std::vector<ComputeOps>& ops, Draft& draft)
      : context_(context),
        draft_(draft),
        last_sync_(context.placement.ranks.size(), kNoOp),
        last_p2p_(context.placement.ranks.size(), kNoOp) {
    for (std::size_t p = 0; p < ops.size(); ++p) {
      for (const ComputeOps::GradientReady& entry : ops[p].ready) {
        const Element& element =
            context.placement.elements[p][static_cast<std::size_t>(entry.element)];
        const RankId rank = element.ranks[static_cast<std::size_t>(entry.group)]
                                         [static_cast<std::size_t>(entry.member)];
        ready_[rank].push_back(entry);
        cuts_.insert(entry.first.value);
      }
    }
  }

  void run() {
    const std::vector<Run> runs = make_runs();
    // From the last block to the first, as backward passes complete them, and equal on all ranks.
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) emit(*run, Phase::reduce);
    if (tied()) emit_tied();
    add_optimizer_steps();
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) emit(*run, Phase::gather);
  }

 private:
  bool tied() const {
    return context_.workload.shape.tied_embeddings && context_.workload.size() > 1;
  }

  std::vector<Run> make_runs() const {
    std::vector<Run> runs;
    for (int b = 0; b < context_.workload.size(); ++b) {
      auto replicas = replicas_of(context_, {b});
      const bool end = tied() && (b == 1 || b + 1 == context_.workload.size());
      if (!runs.empty() && runs.back().replicas == replicas && cuts_.count(b) == 0 && !end &&
          same_parameters(context_.workload.block({b - 1}), context_.workload.block({b}))) {
        runs.back().last = b;
      } else {
        runs.push_back({b, b, std::move(replicas)});
      }
    }
    return runs;
  }

  /// The embedding matrix: the largest parameter of the first and of the last block.
  bool is_tied_parameter(int block, std::size_t parameter) const {
    if (!tied() || (block != 0 && block + 1 != context_.workload.size())) return false;
    const auto& all = context_.workload.block({block}).parameters;
    const auto largest = std::max_element(all.begin(), all.end(),
                                          [](auto& a, auto& b) { return a.elements < b.elements; });
    return static_cast<std::size_t>(largest - all.begin()) == parameter;
  }

  /// How one parameter lies on all replicas; several lists where positions of the groups
  /// synchronise apart from each other.
  struct Layouts {
    std::int64_t length = 1;
    std::vector<Replicas> sets;
  };

  Layouts layouts(const Parameter& parameter, const std::vector<BlockReplica>& replicas) const {
    Layouts out;
    if (parameter.expert) {
      out.length = std::max<std::int64_t>(1, context_.workload.shape.experts) *
                   std::max<std::int64_t>(1, parameter.split_length);
      out.sets.push_back(expert_replicas(parameter, replicas));
    } else if (parameter.split_length > 0) {
      out.length = parameter.split_length;
      Replicas all;
      for (const BlockReplica& at : replicas) {
        for (const auto& owners : token_sets(group_of(context_, at))) {
          all.push_back(split(out.length, owners).pieces);
        }
      }
      out.sets.push_back(std::move(all));
    } else {
      out.sets = replicated_sets(replicas);
    }
    return out;
  }

  /// Norms and biases: whole on every member. With Megatron's sequence parallelism each member saw
  /// other tokens. Else members hold equal gradients, and where all groups are equally wide each
  /// position synchronises on its own.
  std::vector<Replicas> replicated_sets(const std::vector<BlockReplica>& replicas) const {
    Replicas whole;
    std::vector<Replicas> by_position;
    bool uniform = true;
    for (const BlockReplica& at : replicas) {
      const ir::Group& group = group_of(context_, at);
      const bool own_tokens = group.sequence == ir::SequenceParallelism::megatron;
      for (const auto& owners : token_sets(group)) {
        if (own_tokens) {
          for (const int owner : owners) whole.push_back({{owner, {0, 1}}});
          uniform = false;
          continue;
        }
        std::vector<Piece> pieces;
        for (const int owner : owners) pieces.push_back({owner, {0, 1}});
        whole.push_back(std::move(pieces));
        if (by_position.empty()) by_position.resize(owners.size());
        uniform = uniform && by_position.size() == owners.size();
        for (std::size_t i = 0; uniform && i < owners.size(); ++i) {
          by_position[i].push_back({{owners[i], {0, 1}}});
        }
      }
    }
    if (uniform) return by_position;
    return {whole};
  }

  /// `expert_parallel` consecutive groups of a stage hold one copy of the experts together.
  /// Elements are numbered expert by expert, inside an expert along the dimension that is split.
  Replicas expert_replicas(const Parameter& parameter,
                           const std::vector<BlockReplica>& replicas) const {
    const std::int64_t experts = std::max(1, context_.workload.shape.experts);
    const std::int64_t width = std::max<std::int64_t>(1, parameter.split_length);
    Replicas out;
    for (const BlockReplica& at : replicas) {
      const int degree = segment_of(context_, at).expert_parallel;
      const int part = at.group % degree;
      if (part == 0) out.emplace_back();
      for (const auto& owners : token_sets(group_of(context_, at))) {
        for (std::int64_t e = experts * part / degree; e < experts * (part + 1) / degree; ++e) {
          for (const Piece& piece : split(width, owners).pieces) {
            out.back().push_back(
                {piece.owner, {e * width + piece.slice.begin, e * width + piece.slice.end}});
          }
        }
      }
    }
    return out;
  }

  std::vector<Step> steps(std::int64_t length, const Replicas& replicas, const ir::Zero& zero,
                          Phase phase) const {
    if (zero.stage == 0) {
      return phase == Phase::reduce ? synchronise_gradients(length, replicas) : std::vector<Step>{};
    }
    if (phase == Phase::reduce) return scatter_gradients(length, replicas, zero.shard_group);
    // ZeRO-3 gathers parameters inside the passes instead.
    if (zero.stage >= 3) return {};
    return gather_parameters(length, replicas, zero.shard_group);
  }

  void collect(const Run& run, std::size_t parameter_index, Phase phase, StepTable& table) const {
    const Parameter& parameter = context_.workload.block({run.first}).parameters[parameter_index];
    const Layouts layout = layouts(parameter, run.replicas);
    for (const Replicas& replicas : layout.sets) {
      add_steps(run, parameter, static_cast<std::int32_t>(parameter_index), layout.length, replicas,
                phase, table);
    }
  }

  void add_steps(const Run& run, const Parameter& parameter, std::int32_t parameter_index,
                 std::int64_t length, const Replicas& replicas, Phase phase,
                 StepTable& table) const {
    const double per_element = phase == Phase::reduce ? context_.job.state_bytes.gradient
                                                      : context_.job.state_bytes.weight;
    const double bytes_per_unit = static_cast<double>(parameter.elements) * per_element *
                                  (run.last - run.first + 1) / static_cast<double>(length);
    const ir::Zero& zero = segment_of(context_, run.replicas.front()).zero;
    int order = 0;
    StepKind before = StepKind::all_reduce;
    for (const Step& step : steps(length, replicas, zero, phase)) {
      if (order == 0 || step.kind != before) ++order;
      before = step.kind;
      StepLoad& load = table[{order, step.kind, step.group}];
      load.bytes += Bytes{bytes_per_unit * static_cast<double>(elements(step.slices))};
      const auto append = [&](const std::vector<Slice>& slices, std::vector<ir::Region>& to) {
        for (const Slice& slice : slices) {
          to.push_back(
              {phase == Phase::reduce ? ir::TensorKind::gradient : ir::TensorKind::parameter,
               {run.first},
               {run.last},
               parameter_index,
               slice.begin,
               slice.end});
        }
      };
      append(step.slices, load.regions);
      load.parts.resize(step.parts.size());
      for (std::size_t i = 0; i < step.parts.size(); ++i) append(step.parts[i], load.parts[i]);
    }
  }

  void emit(const Run& run, Phase phase) {
    StepTable table;
    const auto& all = context_.workload.block({run.first}).parameters;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!is_tied_parameter(run.first, i)) collect(run, i, phase, table);
    }
    emit(table, run.first, run.last, phase);
  }

  /// Embedding and head share one matrix: its gradient is summed over the holders of both
  /// [Shoeybi et al. 2019, section 3]. A group that holds both has summed them itself.
  void emit_tied() {
    const int last = context_.workload.size() - 1;
    Run run = {0, 0, replicas_of(context_, {0})};
    std::set<std::vector<DeviceId>> known;
    for (const BlockReplica& at : run.replicas) known.insert(group_of(context_, at).devices);
    for (const BlockReplica& at : replicas_of(context_, {last})) {
      if (known.insert(group_of(context_, at).devices).second) run.replicas.push_back(at);
    }
    StepTable table;
    for (std::size_t i = 0; i < context_.workload.block({0}).parameters.size(); ++i) {
      if (is_tied_parameter(0, i)) collect(run, i, Phase::reduce, table);
    }
    emit(table, 0, last, Phase::reduce);
  }

  std::vector<RankId> ranks_of(const std::vector<int>& owners) const {
    std::vector<RankId> ranks;
    for (const int owner : owners) {
      const RankId rank = context_.placement.rank_of[static_cast<std::size_t>(owner)];
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
    }
    return ranks;
  }

  /// Steps of equal kind among the same ranks run side by side: in a collapsed program one for each
  /// position of the tensor-parallel groups.
  void emit(const StepTable& table, int first_block, int last_block, Phase phase) {
    using Key = std::tuple<int, StepKind, std::vector<RankId>>;
    std::map<Key, std::vector<const StepTable::value_type*>> together;
    std::vector<Key> sequence;
    for (const auto& entry : table) {
      const Key key = {entry.first.order, entry.first.kind, ranks_of(entry.first.owners)};
      auto& list = together[key];
      if (list.empty()) sequence.push_back(key);
      list.push_back(&entry);
    }
    for (const Key& key : sequence) {
      const auto& [order, kind, ranks] = key;
      // A send inside a collapsed group is a broadcast to one.
      if (kind == StepKind::send_receive && ranks.size() > 1) {
        for (const auto* entry : together.at(key)) {
          emit_send(*entry, ranks, first_block, last_block, phase);
        }
      } else {
        emit_collective(kind, ranks, together.at(key), first_block, last_block, phase);
      }
    }
  }

  ir::Op op(ir::OpKind kind, ir::Stream stream, RankId rank, Phase phase) const {
    ir::Op op;
    op.kind = kind;
    op.stream = stream;
    op.purpose = phase == Phase::reduce ? ir::Purpose::data_parallel : ir::Purpose::zero;
    op.rank = rank;
    return op;
  }

  void emit_collective(StepKind kind, const std::vector<RankId>& ranks,
                       const std::vector<const StepTable::value_type*>& entries, int first_block,
                       int last_block, Phase phase) {
    ir::CollectiveShape shape;
    shape.kind = kind == StepKind::all_reduce       ? ir::CollectiveKind::all_reduce
                 : kind == StepKind::reduce_scatter ? ir::CollectiveKind::reduce_scatter
                 : kind == StepKind::all_gather     ? ir::CollectiveKind::all_gather
                                                    : ir::CollectiveKind::broadcast;
    shape.purpose = phase == Phase::reduce ? ir::Purpose::data_parallel : ir::Purpose::zero;
    std::vector<ir::Region> regions;
    Bytes total;
    for (const auto* entry : entries) {
      shape.parts.push_back(ring_part(entry->first, entry->second));
      total += entry->second.bytes;
      regions.insert(regions.end(), entry->second.regions.begin(), entry->second.regions.end());
    }
    shape.regions = draft_.region_set(std::move(regions));
    const std::int32_t region_set = shape.regions;
    const std::int32_t index = draft_.collective_shape(std::move(shape));
    std::vector<DraftId> members;
    for (const RankId rank : ranks) {
      ir::Op member = op(ir::OpKind::collective, ir::Stream::collective, rank, phase);
      member.regions = region_set;
      member.bytes = total;
      const DraftId id = draft_.add(member);
      draft_.depends(id, ready(rank, first_block, last_block, phase));
      draft_.depends(id, last_p2p_[rank.index()]);
      last_sync_[rank.index()] = id;
      members.push_back(id);
    }
    draft_.meet(index, members);
  }

  /// A ring that crosses each node boundary once: device ids run node by node. A broadcast keeps
  /// its source in front.
  ir::CollectiveShape::Part ring_part(const StepKey& key, const StepLoad& load) {
    std::vector<std::size_t> order(key.owners.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (key.kind != StepKind::broadcast && key.kind != StepKind::send_receive) {
      std::sort(order.begin(), order.end(),
                [&](std::size_t a, std::size_t b) { return key.owners[a] < key.owners[b]; });
    }
    ir::CollectiveShape::Part part;
    std::vector<DeviceId> devices;
    for (const std::size_t i : order) {
      devices.push_back({key.owners[i]});
      if (!load.parts.empty()) part.member_regions.push_back(load.parts[i]);
    }
    part.group = draft_.group(std::move(devices));
    part.bytes = load.bytes;
    return part;
  }

  void emit_send(const StepTable::value_type& entry, const std::vector<RankId>& ranks,
                 int first_block, int last_block, Phase phase) {
    const std::int32_t transfers = draft_.transfer_set(
        {{{entry.first.owners[0]}, {entry.first.owners[1]}, entry.second.bytes}});
    DraftId ids[2];
    for (const int side : {0, 1}) {
      const RankId rank = ranks[static_cast<std::size_t>(side)];
      ir::Op end =
          op(side == 0 ? ir::OpKind::send : ir::OpKind::recv, ir::Stream::p2p, rank, phase);
      end.transfers = transfers;
      end.bytes = entry.second.bytes;
      end.regions = draft_.region_set(entry.second.regions);
      ids[side] = draft_.add(end);
      draft_.depends(ids[side], ready(rank, first_block, last_block, phase));
      draft_.depends(ids[side], last_sync_[rank.index()]);
      draft_.depends(ids[side], last_p2p_[rank.index()]);
      last_p2p_[rank.index()] = ids[side];
    }
    draft_.match(ids[0], ids[1]);
  }

  DraftId ready(RankId rank, int first_block, int last_block, Phase phase) const {
    return phase == Phase::reduce ? gradients_ready(rank, first_block, last_block)
                                  : optimizer_[rank.index()];
  }

  /// The op of this rank after which its gradients of the blocks are complete; without overlap, its
  /// last backward op.
  DraftId gradients_ready(RankId rank, int first_block, int last_block) const {
    DraftId latest = kNoOp;
    for (const ComputeOps::GradientReady& entry : ready_.at(rank)) {
      const bool holds = entry.first.value <= last_block && first_block <= entry.last.value;
      if (!holds && context_.plan.communication.gradient_overlap) continue;
      if (latest == kNoOp || entry.op > latest) latest = entry.op;
    }
    ORRERY_CHECK(latest != kNoOp, "rank {} has no gradients of blocks {}-{}", rank.value,
                 first_block, last_block);
    return latest;
  }

  void add_optimizer_steps() {
    optimizer_.resize(context_.placement.ranks.size(), kNoOp);
    std::vector<Bytes> states(context_.placement.ranks.size());
    draft_.program.resident.resize(context_.placement.ranks.size());
    for (const std::vector<Element>& elements : context_.placement.elements) {
      for (const Element& element : elements) add_states(element, states);
    }
    for (std::size_t r = 0; r < states.size(); ++r) {
      ir::Op step = op(ir::OpKind::optimizer_step, ir::Stream::compute,
                       {static_cast<std::int32_t>(r)}, Phase::reduce);
      step.bytes = states[r];
      optimizer_[r] = draft_.add(step);
      draft_.depends(optimizer_[r], last_sync_[r]);
      draft_.depends(optimizer_[r], last_p2p_[r]);
    }
  }

  /// Resident buffers of the element's ranks, and the bytes of model state that their optimizer
  /// steps update.
  void add_states(const Element& element, std::vector<Bytes>& states) {
    const ir::Segment& segment = *element.segment;
    const auto replicas = static_cast<int>(replicas_of(context_, segment.first_block).size());
    for (std::size_t g = 0; g < segment.groups.size(); ++g) {
      const SegmentMemory memory =
          segment_memory(segment, segment.groups[g], replicas, context_.workload, context_.job);
      double updated = 0;
      for (int b = segment.first_block.value; b <= segment.last_block.value; ++b) {
        updated +=
            sharded_parameters(context_.workload.block({b}), segment.groups[g].tensor_parallel,
                               segment.expert_parallel, segment.zero, replicas);
      }
      for (const RankId rank : element.ranks[g]) {
        states[rank.index()] += Bytes{updated * context_.job.state_bytes.total()};
        auto& resident = draft_.program.resident[rank.index()];
        const auto add = [&](ir::BufferKind kind, Bytes bytes) {
          if (bytes > 0_B) {
            resident.push_back(
                {kind, ir::BufferEffect::Action::allocate, false, element.infos[g], bytes});
          }
        };
        add(ir::BufferKind::parameters, memory.parameters);
        add(ir::BufferKind::gradients, memory.gradients);
        add(ir::BufferKind::optimizer_states, memory.optimizer_states);
        add(ir::BufferKind::communication, memory.communication);
      }
    }
  }

  const LowerContext& context_;
  Draft& draft_;
  std::map<RankId, std::vector<ComputeOps::GradientReady>> ready_;
  std::set<int> cuts_;              ///< Blocks at which a rank's gradients become complete.
  std::vector<DraftId> last_sync_;  ///< By rank: its last op on the collective stream so far.
  std::vector<DraftId> last_p2p_;   ///< By rank: its last point-to-point step so far.
  std::vector<DraftId> optimizer_;
};

}  // namespace

std::vector<std::vector<DeviceId>> zero_peers(const LowerContext& context, BlockId block) {
  std::vector<std::vector<DeviceId>> out;
  for (const BlockReplica& at : replicas_of(context, block)) {
    const std::vector<DeviceId>& devices = group_of(context, at).devices;
    if (out.empty()) out.resize(devices.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i].push_back(devices[i % devices.size()]);
  }
  for (std::vector<DeviceId>& peers : out) {
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  }
  return out;
}

void add_synchronisation(const LowerContext& context, const std::vector<ComputeOps>& ops,
                         Draft& draft) {
  Synchroniser(context, ops, draft).run();
}

}  // namespace orrery::models
