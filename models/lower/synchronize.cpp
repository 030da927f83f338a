#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/check.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/lower/passes.h"
#include "models/lower/shadows.h"

namespace orrery::models {

namespace {

/// Blocks that the same groups hold, with equal lists of parameters.
struct Run {
  int first = 0;
  int last = 0;
  int like = 0;          ///< First block of the first run with the same holders.
  bool repeats = false;  ///< So does another run have.
};

/// All communication of a run's parameters, by (kind, owners).
struct StepKey {
  int order = 0;  ///< ParameterStep::order.
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
/// By split_length and expert.
using KnownSteps = std::map<std::pair<std::int64_t, bool>, std::vector<ParameterStep>>;

/// Deviation: with ZeRO-2 and ZeRO-3 gradients are scattered once a round (of which there is one
/// unless the job asks for more), though their memory counts as sharded all along; [Rajbhandari et
/// al. 2020, 7.2] have one micro-batch.
class Synchronizer {
 public:
  Synchronizer(const LowerContext& context, const std::vector<ComputeOps>& ops,
               ProgramBuilder& builder, PartialProgram& partial)
      : context_(context),
        builder_(builder),
        partial_(partial),
        seen_(context.placement.ranks.size(), 0),
        last_sync_(context.placement.ranks.size(), kNoOp),
        last_p2p_(context.placement.ranks.size(), kNoOp) {
    for (std::size_t p = 0; p < ops.size(); ++p) {
      const auto rank_of = [&](const ComputeOps::PartOp& entry) {
        const PlacedSegment& element =
            context.placement.element(static_cast<int>(p), entry.element);
        return element.ranks[entry.group][entry.member];
      };
      for (const ComputeOps::PartOp& entry : ops[p].ready) {
        ready_[{rank_of(entry), entry.round}].push_back(entry);
        cuts_.insert(entry.first.value);
      }
      for (const ComputeOps::PartOp& entry : ops[p].next) {
        next_[entry.round].emplace_back(rank_of(entry), entry);
      }
      for (const ComputeOps::PartOp& entry : ops[p].opening) {
        opening_[rank_of(entry)].push_back(entry);
      }
    }
  }

  void run() {
    find_expert_peers();
    std::vector<Run> runs = in_order(make_runs());
    find_repeats(runs);
    const bool gathers_first = context_.plan.communication.parameter_overlap;
    if (gathers_first) {
      if (context_.replicas.tied()) emit_tied(SyncPhase::gather);
      for (auto run = runs.rbegin(); run != runs.rend(); ++run) emit(*run, SyncPhase::gather);
    }
    for (round_ = 0; round_ < context_.rounds; ++round_) {
      moved_.clear();
      for (const Run& run : runs) emit(run, SyncPhase::reduce);
      if (context_.replicas.tied() && ties_now()) emit_tied(SyncPhase::reduce);
      hold_back();
    }
    round_ = context_.rounds - 1;
    feed_shadows(runs);
    add_optimizer_steps();
    if (!gathers_first) {
      for (const Run& run : runs) emit(run, SyncPhase::gather);
      if (context_.replicas.tied()) emit_tied(SyncPhase::gather);
    }
    partial_.steps.resize(builder_.program.collectives.size(), -1);
    partial_.missing.assign(missing_.begin(), missing_.end());
  }

 private:
  /// An op of a round that moves gradients of blocks.
  struct Moved {
    int first = 0;
    int last = 0;
    PendingOp op = kNoOp;
  };

  /// Whether the tied matrix takes part in this round.
  bool ties_now() const {
    return round_ + 1 == context_.rounds ||
           std::all_of(context_.plan.pipelines.begin(), context_.plan.pipelines.end(),
                       [](const ir::Pipeline& pipeline) { return pipeline.stages.size() == 1; });
  }

  /// The next passes that add to the gradients of this round wait until those have been moved.
  /// Passes add to experts of their peers, too.
  void hold_back() {
    for (const auto& [rank, entry] : next_[round_]) {
      const auto wait_for_moves = [&, id = entry.op, first = entry.first.value,
                                   last = entry.last.value](RankId of) {
        // Ops of one stream end in order.
        std::map<ir::Stream, PendingOp> latest;
        for (const Moved& moved : moved_[of]) {
          const bool holds = moved.first <= last && first <= moved.last;
          if (holds) latest[builder_.op(moved.op).stream] = moved.op;
        }
        for (const auto& [stream, op] : latest) builder_.depends(id, op);
      };
      wait_for_moves(rank);
      const auto peers = expert_peers_.find(rank);
      if (peers == expert_peers_.end()) continue;
      for (const RankId peer : peers->second) wait_for_moves(peer);
    }
  }

  std::vector<Run> make_runs() const {
    std::vector<Run> runs;
    for (int b = 0; b < context_.workload.size(); ++b) {
      const bool end = context_.replicas.tied() && (b == 1 || b + 1 == context_.workload.size());
      if (!runs.empty() && cuts_.count(b) == 0 && !end && context_.replicas.alike({b - 1}, {b})) {
        runs.back().last = b;
      } else {
        runs.push_back({b, b});
      }
    }
    return runs;
  }

  void find_repeats(std::vector<Run>& runs) const {
    std::vector<Run*> different;
    for (Run& run : runs) {
      const auto same = std::find_if(different.begin(), different.end(), [&](const Run* other) {
        return context_.replicas.same_holders({other->first}, {run.first});
      });
      if (same == different.end()) {
        run.like = run.first;
        different.push_back(&run);
      } else {
        run.like = (*same)->first;
        run.repeats = (*same)->repeats = true;
      }
    }
  }

  /// The order in which every rank walks the runs; one order for all, so that none can wait for
  /// each other. With overlap from the last block to the first, as backward passes complete them.
  /// Else in rounds of runs that have no rank in common: where stage borders of pipelines differ,
  /// in block order each run would wait for its neighbor through the ranks that hold both, all
  /// along the model.
  std::vector<Run> in_order(std::vector<Run> runs) const {
    std::reverse(runs.begin(), runs.end());
    if (context_.plan.communication.gradient_overlap) return runs;
    std::vector<std::pair<std::size_t, Run>> by_round;
    std::vector<std::vector<bool>> busy;  // by round and rank
    for (const Run& run : runs) {
      const std::vector<RankId> ranks = holders_of(run);
      std::size_t round = 0;
      while (round < busy.size() && std::any_of(ranks.begin(), ranks.end(), [&](RankId rank) {
               return busy[round][rank.index()];
             })) {
        ++round;
      }
      if (round == busy.size()) busy.emplace_back(context_.placement.ranks.size(), false);
      for (const RankId rank : ranks) busy[round][rank.index()] = true;
      by_round.emplace_back(round, run);
    }
    std::stable_sort(by_round.begin(), by_round.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::transform(by_round.begin(), by_round.end(), runs.begin(),
                   [](const auto& entry) { return entry.second; });
    return runs;
  }

  std::vector<RankId> holders_of(const Run& run) const {
    std::vector<RankId> all;
    for (const BlockReplica& at : context_.replicas.of({run.first})) {
      const PlacedSegment& element = context_.placement.elements[at.pipeline][at.element];
      const std::vector<RankId>& ranks = element.ranks[at.group];
      all.insert(all.end(), ranks.begin(), ranks.end());
    }
    return all;
  }

  /// Adds the steps of one parameter of all blocks of the run to the table.
  void collect(const Run& run, std::size_t parameter, SyncPhase phase,
               const std::vector<ParameterStep>& steps, StepTable& table) const {
    const bool with_regions = context_.builds_all();
    const StateBytes& state = context_.job.state_bytes;
    const auto elements =
        static_cast<double>(context_.workload.block({run.first}).parameters[parameter].elements);
    const Bytes whole{(run.last - run.first + 1) * elements *
                      (phase == SyncPhase::reduce ? state.gradient : state.weight)};
    const auto append = [&](const std::vector<Slice>& slices, std::vector<ir::Region>& to) {
      for (const Slice& slice : slices) {
        to.push_back(
            {phase == SyncPhase::reduce ? ir::TensorKind::gradient : ir::TensorKind::parameter,
             {run.first},
             {run.last},
             static_cast<std::int32_t>(parameter),
             slice.begin,
             slice.end});
      }
    };
    for (const ParameterStep& one : steps) {
      StepLoad& load = table[{one.order, one.step.kind, one.step.group}];
      load.bytes += one.share * whole;
      if (!with_regions) continue;
      append(one.step.slices, load.regions);
      load.parts.resize(one.step.parts.size());
      for (std::size_t i = 0; i < one.step.parts.size(); ++i) {
        append(one.step.parts[i], load.parts[i]);
      }
    }
  }

  /// What is gathered in front of passes moves as one buffer, whose shards do not follow the
  /// borders of parameters (Megatron-LM's buckets): also what is too short to be cut.
  std::vector<ParameterStep> steps_of(int block, std::size_t parameter, SyncPhase phase) const {
    return context_.replicas.steps({block}, parameter, phase,
                                   context_.plan.communication.parameter_overlap
                                       ? ShortSlices::all_gather
                                       : ShortSlices::broadcast);
  }

  /// ZeRO-3 gathers parameters inside the passes instead.
  bool gathers_inside(int block, SyncPhase phase) const {
    return phase == SyncPhase::gather && context_.replicas.zero({block}).shards_parameters();
  }

  void emit(const Run& run, SyncPhase phase) {
    if (gathers_inside(run.first, phase)) return;
    StepTable table;
    KnownSteps own;
    KnownSteps& known = run.repeats ? repeated_[{run.like, phase}] : own;
    const std::vector<Parameter>& parameters = context_.workload.block({run.first}).parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (context_.replicas.is_tied({run.first}, i)) continue;
      const auto [steps, fresh] =
          known.try_emplace({parameters[i].split_length, parameters[i].expert});
      if (fresh) steps->second = steps_of(run.first, i, phase);
      collect(run, i, phase, steps->second, table);
    }
    emit(table, run.first, run.last, phase);
  }

  /// The matrix of embedding and head is complete when both have run their last backward pass.
  void emit_tied(SyncPhase phase) {
    if (gathers_inside(0, phase)) return;
    StepTable table;
    for (std::size_t i = 0; i < context_.workload.blocks.front().parameters.size(); ++i) {
      if (!context_.replicas.is_tied({0}, i)) continue;
      collect({0, 0}, i, phase, steps_of(0, i, phase), table);
    }
    emit(table, 0, context_.workload.size() - 1, phase);
  }

  void feed_shadows(const std::vector<Run>& runs) {
    std::vector<std::pair<BlockId, BlockId>> alike;
    for (const Run& run : runs) alike.push_back({{run.first}, {run.last}});
    const auto wait = [this](PendingOp send, RankId rank, const ir::Segment& copied) {
      builder_.depends(send,
                       gradients_ready(rank, copied.first_block.value, copied.last_block.value));
      builder_.depends(send, last_sync_[rank.index()]);
      builder_.depends(send, last_p2p_[rank.index()]);
    };
    fed_ = add_shadow_gradients(context_, alike, wait, builder_);
  }

  /// Each once, in order.
  std::vector<RankId> ranks_of(const std::vector<int>& owners) {
    std::vector<RankId> ranks;
    ++asked_;
    for (const int owner : owners) {
      const RankId rank = context_.placement.rank_of[{owner}];
      if (std::exchange(seen_[rank], asked_) != asked_) ranks.push_back(rank);
    }
    return ranks;
  }

  /// Steps of equal kind among the same ranks run side by side: in a collapsed program one for each
  /// position of the tensor-parallel groups.
  void emit(const StepTable& table, int first_block, int last_block, SyncPhase phase) {
    const int first_step = step_ + 1;
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
      step_ = std::max(step_, first_step + order);
      if (kind == StepKind::send_receive && ranks.size() > 1) {
        for (const auto* entry : together.at(key)) {
          emit_send(*entry, ranks, first_block, last_block, phase);
        }
      } else {
        emit_collective(kind, ranks, together.at(key), first_block, last_block, phase,
                        first_step + order);
      }
    }
  }

  ir::Op op(ir::OpKind kind, ir::Stream stream, RankId rank, SyncPhase phase) const {
    ir::Op op;
    op.kind = kind;
    op.stream = stream;
    op.purpose = phase == SyncPhase::reduce ? ir::Purpose::data_parallel : ir::Purpose::zero;
    op.rank = rank;
    return op;
  }

  void emit_collective(StepKind kind, const std::vector<RankId>& ranks,
                       const std::vector<const StepTable::value_type*>& entries, int first_block,
                       int last_block, SyncPhase phase, int step) {
    ir::CollectiveShape shape;
    shape.kind = collective_kind(kind);
    shape.purpose = phase == SyncPhase::reduce ? ir::Purpose::data_parallel : ir::Purpose::zero;
    std::vector<ir::Region> regions;
    Bytes total;
    for (const auto* entry : entries) {
      shape.parts.push_back(ring_part(entry->first, entry->second));
      total += entry->second.bytes;
      regions.insert(regions.end(), entry->second.regions.begin(), entry->second.regions.end());
    }
    shape.regions = builder_.region_set(std::move(regions));
    const std::int32_t region_set = shape.regions;
    const std::int32_t index = builder_.collective_shape(std::move(shape));
    std::vector<PendingOp> members;
    for (const RankId rank : ranks) {
      if (!builds(rank)) continue;
      ir::Op member = op(ir::OpKind::collective, ir::Stream::collective, rank, phase);
      member.regions = region_set;
      member.bytes = total;
      const PendingOp id = builder_.add(member);
      wait_for(id, rank, first_block, last_block, phase);
      builder_.depends(id, last_p2p_[rank.index()]);
      last_sync_[rank.index()] = id;
      note_move(rank, first_block, last_block, id, phase);
      members.push_back(id);
    }
    partial_.steps.resize(builder_.program.collectives.size(), -1);
    partial_.steps.push_back(step);
    builder_.add_collective(index, members);
  }

  int pipeline_of(RankId rank) const { return context_.placement.ranks[rank.index()].pipeline; }
  bool builds(RankId rank) const { return context_.builds(pipeline_of(rank)); }

  /// A ring that crosses each node boundary once: device ids run node by node. A broadcast keeps
  /// its source in front.
  ir::CollectiveShape::Part ring_part(const StepKey& key, const StepLoad& load) {
    std::vector<std::size_t> order(key.owners.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (key.kind != StepKind::broadcast && key.kind != StepKind::send_receive &&
        !std::is_sorted(key.owners.begin(), key.owners.end())) {
      std::sort(order.begin(), order.end(),
                [&](std::size_t a, std::size_t b) { return key.owners[a] < key.owners[b]; });
    }
    ir::CollectiveShape::Part part;
    std::vector<DeviceId> devices;
    for (const std::size_t i : order) {
      devices.push_back({key.owners[i]});
      if (!load.parts.empty()) part.member_regions.push_back(load.parts[i]);
    }
    part.group = builder_.group(std::move(devices));
    part.bytes = load.bytes;
    return part;
  }

  void emit_send(const StepTable::value_type& entry, const std::vector<RankId>& ranks,
                 int first_block, int last_block, SyncPhase phase) {
    const int ends[] = {pipeline_of(ranks[0]), pipeline_of(ranks[1])};
    if (ends[0] == ends[1]) {
      const std::size_t before = builder_.program.collectives.size();
      partial_.messages.push_back({ends[0],
                                   static_cast<std::int32_t>(before),
                                   {entry.first.owners[0]},
                                   {entry.first.owners[1]},
                                   entry.second.bytes});
    }
    if (!builds(ranks[0]) || !builds(ranks[1])) {
      if (ends[0] != ends[1]) missing_.insert(std::begin(ends), std::end(ends));
      return;
    }
    const std::int32_t transfers = builder_.transfer_set(
        {{{entry.first.owners[0]}, {entry.first.owners[1]}, entry.second.bytes}});
    PendingOp ids[2];
    for (const int side : {0, 1}) {
      const RankId rank = ranks[side];
      ir::Op end =
          op(side == 0 ? ir::OpKind::send : ir::OpKind::recv, ir::Stream::p2p, rank, phase);
      end.transfers = transfers;
      end.bytes = entry.second.bytes;
      end.regions = builder_.region_set(entry.second.regions);
      ids[side] = builder_.add(end);
      wait_for(ids[side], rank, first_block, last_block, phase);
      builder_.depends(ids[side], last_sync_[rank.index()]);
      builder_.depends(ids[side], last_p2p_[rank.index()]);
      last_p2p_[rank.index()] = ids[side];
      note_move(rank, first_block, last_block, ids[side], phase);
    }
    builder_.match(ids[0], ids[1]);
  }

  void note_move(RankId rank, int first_block, int last_block, PendingOp id, SyncPhase phase) {
    if (phase == SyncPhase::reduce && context_.rounds > 1) {
      moved_[rank].push_back({first_block, last_block, id});
    }
  }

  /// The op waits until what it moves is there. Gradients of experts are complete when all groups
  /// that send tokens to them have ended their passes.
  void wait_for(PendingOp id, RankId rank, int first_block, int last_block, SyncPhase phase) {
    if (phase == SyncPhase::gather && context_.plan.communication.parameter_overlap) {
      return hold_passes(id, rank, first_block, last_block);
    }
    if (phase == SyncPhase::gather) return builder_.depends(id, optimizer_[rank.index()]);
    builder_.depends(id, gradients_ready(rank, first_block, last_block));
    const auto peers = expert_peers_.find(rank);
    if (peers == expert_peers_.end()) return;
    for (const RankId peer : peers->second) {
      builder_.depends(id, gradients_ready(peer, first_block, last_block));
    }
  }

  /// The first forward passes over the blocks wait until the step has ended, on both of its sides.
  void hold_passes(PendingOp id, RankId rank, int first_block, int last_block) {
    const auto passes = opening_.find(rank);
    if (passes == opening_.end()) return;
    for (const ComputeOps::PartOp& entry : passes->second) {
      const bool uses = entry.first.value <= last_block && first_block <= entry.last.value;
      if (uses) builder_.depends(entry.op, id);
    }
  }

  /// Ranks of the groups that hold the experts of a segment together, without the own group.
  void find_expert_peers() {
    for (const std::vector<PlacedSegment>& elements : context_.placement.elements) {
      for (const PlacedSegment& element : elements) {
        if (!context_.builds(element.pipeline)) continue;
        const std::size_t degree = element.segment->expert_parallel;
        for (std::size_t g = 0; degree > 1 && g < element.ranks.size(); ++g) {
          for (std::size_t other = g / degree * degree; other < (g / degree + 1) * degree;
               ++other) {
            if (other == g) continue;
            for (const RankId rank : element.ranks[g]) {
              std::set<RankId>& peers = expert_peers_[rank];
              peers.insert(element.ranks[other].begin(), element.ranks[other].end());
            }
          }
        }
      }
    }
  }

  /// The op of this rank after which its gradients of the blocks are complete for this round;
  /// without overlap, the round's last backward op.
  PendingOp gradients_ready(RankId rank, int first_block, int last_block) const {
    PendingOp latest = kNoOp;
    for (const ComputeOps::PartOp& entry : ready_.at({rank, round_})) {
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
    builder_.program.resident.resize(context_.placement.ranks.size());
    for (const std::vector<PlacedSegment>& elements : context_.placement.elements) {
      for (const PlacedSegment& element : elements) {
        if (context_.builds(element.pipeline)) add_states(element, states);
      }
    }
    const auto received = add_shadow_states(context_, states, builder_);
    for (std::size_t r = 0; r < states.size(); ++r) {
      if (!builds({static_cast<std::int32_t>(r)})) continue;
      ir::Op step = op(ir::OpKind::optimizer_step, ir::Stream::compute,
                       {static_cast<std::int32_t>(r)}, SyncPhase::reduce);
      step.bytes = states[r];
      if (const auto gradients = received.find(step.rank); gradients != received.end()) {
        step.buffers = builder_.buffer_set({gradients->second});
      }
      optimizer_[r] = builder_.add(step);
      for (const PendingOp recv : fed_[step.rank]) builder_.depends(optimizer_[r], recv);
      builder_.depends(optimizer_[r], last_sync_[r]);
      const auto peers = expert_peers_.find({static_cast<std::int32_t>(r)});
      if (peers != expert_peers_.end()) {
        for (const RankId peer : peers->second) {
          builder_.depends(optimizer_[r], gradients_ready(peer, 0, context_.workload.size() - 1));
        }
      }
      builder_.depends(optimizer_[r], last_p2p_[r]);
    }
  }

  /// Resident buffers of the element's ranks, and the bytes of model state that their optimizer
  /// steps update.
  void add_states(const PlacedSegment& element, std::vector<Bytes>& states) {
    const ir::Segment& segment = *element.segment;
    for (std::size_t g = 0; g < segment.groups.size(); ++g) {
      const SegmentMemory memory = segment_memory(
          segment, segment.groups[g], [&](BlockId b) { return context_.replicas.weight(b); },
          context_.workload, context_.job);
      double updated = 0;
      const ExpertParts experts =
          expert_share(segment, segment.groups[g]).parts(context_.workload.shape.experts);
      for (int b = segment.first_block.value; b <= segment.last_block.value; ++b) {
        const double replicas = context_.replicas.weight({b});
        updated +=
            sharded_parameters(context_.workload.block({b}), segment.groups[g].tensor_parallel,
                               experts, segment.zero, replicas / segment.groups[g].state_weight);
      }
      updated -= tied_parameters(context_.workload, segment.first_block, segment.last_block,
                                 segment.groups[g].tensor_parallel) /
                 shard_count(segment.zero, context_.replicas.weight(segment.first_block) /
                                               segment.groups[g].state_weight);
      for (const RankId rank : element.ranks[g]) {
        states[rank.index()] += Bytes{updated * context_.job.state_bytes.total()};
        auto& resident = builder_.program.resident[rank.index()];
        const auto add = [&](ir::BufferKind kind, Bytes bytes) {
          if (bytes > 0_B) {
            resident.push_back(
                {kind, ir::BufferEffect::Action::allocate, false, element.infos[g], bytes});
          }
        };
        add(ir::BufferKind::parameters, memory.parameters);
        add(ir::BufferKind::gradients, memory.gradients);
        add(ir::BufferKind::optimizer_states,
            (1 - context_.plan.optimizer_offload) * memory.optimizer_states);
        add(ir::BufferKind::communication, memory.communication);
      }
    }
  }

  const LowerContext& context_;
  ProgramBuilder& builder_;
  PartialProgram& partial_;
  int step_ = -1;          ///< PartialProgram::steps.
  std::set<int> missing_;  ///< PartialProgram::missing.
  /// By rank and round.
  std::map<std::pair<RankId, int>, std::vector<ComputeOps::PartOp>> ready_;
  /// By round: with their ranks.
  std::map<int, std::vector<std::pair<RankId, ComputeOps::PartOp>>> next_;
  std::map<RankId, std::vector<ComputeOps::PartOp>> opening_;  ///< By rank.
  std::map<RankId, std::vector<Moved>> moved_;                 ///< In this round, by rank.
  int round_ = 0;
  std::map<RankId, std::set<RankId>> expert_peers_;
  IdVector<RankId, int> seen_;  ///< The last call of ranks_of() that met a rank.
  int asked_ = 0;
  std::map<std::pair<int, SyncPhase>, KnownSteps> repeated_;  ///< By Run::like.
  std::set<int> cuts_;                ///< Blocks at which a rank's gradients become complete.
  std::vector<PendingOp> last_sync_;  ///< By rank: its last op on the collective stream so far.
  std::vector<PendingOp> last_p2p_;   ///< By rank: its last point-to-point step so far.
  std::vector<PendingOp> optimizer_;
  ShadowRecvs fed_;
};

}  // namespace

void add_synchronization(const LowerContext& context, const std::vector<ComputeOps>& ops,
                         ProgramBuilder& builder, PartialProgram& partial) {
  Synchronizer(context, ops, builder, partial).run();
}

}  // namespace orrery::models
