#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/ir/op_traits.h"
#include "models/lower/inner.h"
#include "models/lower/passes.h"
#include "models/schedule/rounds.h"
#include "models/schedule/schedule.h"

namespace orrery::models {

ComputeOps::ComputeOps(const std::vector<const PlacedSegment*>& elements, int micro_batches) {
  std::size_t total = 0;
  for (const PlacedSegment* element : elements) {
    element_begin_.push_back(total);
    std::vector<int>& begins = group_begin_.emplace_back();
    int members = 0;
    for (const std::vector<RankId>& ranks : element->ranks) {
      begins.push_back(members);
      members += static_cast<int>(ranks.size());
    }
    members_.push_back(members);
    total += as_size(members) * as_size(micro_batches);
  }
  forward_.resize(total);
  backward_.resize(total);
}

ComputeOps::Pass& ComputeOps::at(bool backward, int element, int micro_batch, int group,
                                 int member) {
  const std::size_t e = element;
  const int offset = micro_batch * members_[e] + group_begin_[e][group];
  return (backward ? backward_ : forward_)[element_begin_[e] + (offset + member)];
}

namespace {

/// One op of a pass; a pass that overlaps with synchronization has several.
struct Part {
  std::int32_t info = 0;
  BlockId first;
  BlockId last;
  std::int32_t inner = ir::kNone;
  std::int32_t buffers = ir::kNone;
  /// Consecutive groups that run the inner collectives together: 1, or those that hold the experts
  /// together.
  int groups = 1;
  bool joint = false;  ///< Has inner collectives that several ranks run together.
};

/// All that repeats from micro-batch to micro-batch in one group of one element, by ir::OpKind.
struct PassTemplates {
  std::array<std::vector<Part>, ir::kOpTraits.size()> usual;
  std::vector<Part> last;   ///< Of a pass that completes the gradients of a round.
  std::vector<Part> first;  ///< Of the first forward pass of a chunk.
};

/// A redundant forward pass of the groups of one stage.
using ShadowPass = std::vector<Part>;

/// The compute ops of one pipeline, wherever they run.
class PipelineCompute {
 public:
  PipelineCompute(const LowerContext& context, int pipeline, const ZeroGathers& gathers,
                  ProgramBuilder& builder)
      : context_(context),
        gathers_(gathers),
        index_(pipeline),
        pipeline_(context.plan.pipelines[pipeline]),
        elements_(elements_of(context.placement, pipeline)),
        builder_(builder),
        ops_(elements_, context.builds(pipeline) ? pipeline_.micro_batches : 0) {
    if (!context.builds(pipeline)) return;
    // The passes of one micro-batch on a single stage are one of each kind.
    for (const StagePass& pass : schedule_entry(context_.plan.schedule).passes({})) {
      kinds_.push_back(pass.kind);
    }
    for (std::size_t e = 0; e < elements_.size(); ++e) {
      std::vector<PassTemplates>& of_groups = templates_.emplace_back();
      for (std::size_t g = 0; g < elements_[e]->infos.size(); ++g) {
        of_groups.push_back(make_templates(*elements_[e], g));
      }
    }
    for (const PlacedSegment& shadow : shadows()) {
      ShadowPass& pass = shadow_passes_.emplace_back();
      for (std::size_t g = 0; g < shadow.infos.size(); ++g) {
        pass.push_back(make_part(shadow, g, shadow.segment->first_block, shadow.segment->last_block,
                                 ir::OpKind::forward, false));
      }
    }
    for (int m = 0; m < pipeline_.micro_batches; ++m) {
      routes_.push_back(context.placement.route(context.plan, pipeline, m));
    }
  }

  /// What is synchronized around a pass.
  struct Rounds {
    std::optional<int> ends;     ///< Whose last pass of the stage for the chunk it is.
    std::optional<int> follows;  ///< Whose first successor of the stage for the chunk it is.
    bool opens = false;          ///< First forward pass of the stage for the chunk (gathers first).
  };

  /// Adds the pass of `pass` through the elements of the stage that `on` pipeline holds, if this
  /// pipeline's micro-batch passes there.
  void add(const StagePass& pass, int stage, int on, const Rounds& rounds) {
    if (!passes(pass.micro_batch, stage, on)) return;
    const std::vector<int>& route = routes_[pass.micro_batch];
    const auto count = static_cast<int>(route.size());
    for (int i = 0; i < count; ++i) {
      const int at = pass.kind == ir::OpKind::forward ? i : count - 1 - i;
      const int e = route[at];
      const PlacedSegment& element = *elements_[e];
      if (element.stage != stage || element.segment->virtual_stage != pass.chunk) continue;
      for (std::size_t g = 0; g < element.ranks.size(); ++g) {
        add_pass(e, static_cast<int>(g), pass.micro_batch, pass.kind, rounds);
      }
    }
    if (pass.kind == ir::OpKind::forward && !shadow_passes_.empty()) {
      add_shadow_pass(stage, pass.micro_batch);
    }
  }

  /// The micro-batch exists and passes the stage on that pipeline's ranks.
  bool passes(int micro_batch, int stage, int on) const {
    if (micro_batch >= pipeline_.micro_batches) return false;
    for (const int e : routes_[micro_batch]) {
      const PlacedSegment& element = *elements_[e];
      if (element.stage != stage || element.ranks.front().empty()) continue;
      const RankId rank = element.ranks.front().front();
      return context_.placement.ranks[rank.index()].pipeline == on;
    }
    return false;
  }

  int micro_batches() const { return pipeline_.micro_batches; }
  /// Round to which the gradients of the micro-batch belong.
  int round_of(int micro_batch) const {
    int round = 0;
    while (micro_batch >= round_end(context_.plan, pipeline_, round, context_.rounds)) ++round;
    return round;
  }
  ComputeOps take() { return std::move(ops_); }

 private:
  static std::vector<const PlacedSegment*> elements_of(const Placement& placement, int pipeline) {
    std::vector<const PlacedSegment*> all;
    const std::size_t shadows = placement.shadows[pipeline].size();
    for (int e = 0; e < placement.count(pipeline) - static_cast<int>(shadows); ++e) {
      all.push_back(&placement.element(pipeline, e));
    }
    return all;
  }

  const std::vector<PlacedSegment>& shadows() const { return context_.placement.shadows[index_]; }

  /// Cuts the segment from the top into runs of at least `bucket` bytes of gradient; without a
  /// limit, where the holders of its blocks change.
  std::vector<std::pair<BlockId, BlockId>> buckets(const ir::Segment& segment,
                                                   const ir::Group& group) const {
    std::vector<std::pair<BlockId, BlockId>> runs;
    const double limit = context_.plan.communication.bucket.value;
    int last = segment.last_block.value;
    double bytes = 0;
    for (int b = last; b >= segment.first_block.value; --b) {
      bytes += device_parameters(context_.workload.block({b}), group.tensor_parallel,
                                 segment.expert_parallel) *
               context_.job.state_bytes.gradient;
      const bool bottom = b == segment.first_block.value;
      const bool full = limit > 0
                            ? bytes >= limit
                            : !bottom && context_.replicas.of({b - 1}) != context_.replicas.of({b});
      if (full || bottom) {
        runs.push_back({{b}, {last}});
        last = b - 1;
        bytes = 0;
      }
    }
    return runs;
  }

  Part make_part(const PlacedSegment& element, std::size_t g, BlockId first, BlockId last,
                 ir::OpKind kind, bool bounds) {
    const ir::Segment& segment = *element.segment;
    const ir::Group& group = segment.groups[g];
    Part part;
    part.info = element.infos[g];
    part.first = first;
    part.last = last;
    if (first != segment.first_block || last != segment.last_block) {
      ir::SegmentInfo info = builder_.program.segments[part.info];
      info.first_block = first;
      info.last_block = last;
      part.info = static_cast<std::int32_t>(builder_.program.segments.size());
      builder_.program.segments.push_back(info);
    }
    // The weights' gradients need what the input's half has brought together, and nothing more.
    if (ir::crosses_blocks(kind)) {
      const InnerQuery query = {&segment, static_cast<int>(g), first, last, ir::is_backward(kind)};
      part.inner = joint_set(query);
      if (part.inner != ir::kNone) {
        part.groups = segment.expert_parallel;
      } else {
        part.inner =
            builder_.inner_set(inner_collectives(query, context_.workload, gathers_, builder_));
      }
    }
    part.joint = part.inner != ir::kNone && (element.ranks[g].size() > 1 || part.groups > 1);
    const bool redundant = context_.placement.segments[element.infos[g]].redundant;
    part.buffers = redundant ? shadow_buffers(segment, group, element.infos[g])
                             : buffers(segment, group, element.infos[g], kind, bounds);
    return part;
  }

  /// The set of joint_collectives(), made once for all groups that share it.
  std::int32_t joint_set(const InnerQuery& query) {
    const int degree = query.segment->expert_parallel;
    if (degree < 2) return ir::kNone;
    const auto [place, fresh] = joint_sets_.try_emplace(
        {query.segment, query.group / degree, query.first.value, query.last.value, query.backward},
        ir::kNone);
    if (fresh) {
      place->second =
          builder_.inner_set(joint_collectives(query, context_.workload, gathers_, builder_));
    }
    return place->second;
  }

  /// `bounds`: of a pass that is cut, the part that takes or gives back what outlives the pass.
  std::int32_t buffers(const ir::Segment& segment, const ir::Group& group, std::int32_t info,
                       ir::OpKind kind, bool bounds) {
    using Action = ir::BufferEffect::Action;
    // What an op allocates and frees does not depend on the number of replicas.
    const SegmentMemory memory = segment_memory(segment, group, 1, context_.workload, context_.job);
    std::vector<ir::BufferEffect> effects;
    const auto add = [&](ir::BufferKind buffer, Action action, bool per_micro_batch, Bytes bytes) {
      if (bytes > 0_B) effects.push_back({buffer, action, per_micro_batch, info, bytes});
    };
    const ir::OpTraits& makes = ir::traits(kind);
    if (kind == ir::OpKind::forward) {
      if (bounds) {
        add(ir::BufferKind::activations, Action::allocate, true,
            memory.activations_per_micro_batch);
      }
    } else if (!makes.is_half()) {
      add(ir::BufferKind::recomputed, Action::transient, false, memory.recomputed);
    } else if (makes.input_gradients) {
      add(ir::BufferKind::recomputed, Action::allocate, true, memory.recomputed_kept);
    }
    if (ir::crosses_blocks(kind)) {
      add(ir::BufferKind::logits, Action::transient, false, memory.logits);
    }
    if (bounds && makes.weight_gradients) {
      add(ir::BufferKind::activations, Action::free, true, memory.activations_per_micro_batch);
      if (makes.is_half()) {
        add(ir::BufferKind::recomputed, Action::free, true, memory.recomputed_kept);
      }
    }
    return builder_.buffer_set(std::move(effects));
  }

  /// What a redundant pass computes is there until it ends.
  std::int32_t shadow_buffers(const ir::Segment& segment, const ir::Group& group,
                              std::int32_t info) {
    const SegmentMemory memory = segment_memory(segment, group, 1, context_.workload, context_.job);
    std::vector<ir::BufferEffect> effects;
    for (const auto& [kind, bytes] :
         {std::pair(ir::BufferKind::activations, memory.activations_per_micro_batch),
          std::pair(ir::BufferKind::logits, memory.logits)}) {
      if (bytes > 0_B) {
        effects.push_back({kind, ir::BufferEffect::Action::transient, false, info, bytes});
      }
    }
    return builder_.buffer_set(std::move(effects));
  }

  PassTemplates make_templates(const PlacedSegment& element, std::size_t g) {
    const ir::Segment& segment = *element.segment;
    PassTemplates out;
    ir::OpKind completes = ir::OpKind::backward;
    for (const ir::OpKind kind : kinds_) {
      out.usual[index_of(kind)] = {
          make_part(element, g, segment.first_block, segment.last_block, kind, true)};
      if (ir::traits(kind).weight_gradients) completes = kind;
    }
    out.last = out.usual[index_of(completes)];
    out.first = out.usual[index_of(ir::OpKind::forward)];
    if (context_.plan.communication.gradient_overlap) {
      const auto runs = buckets(segment, segment.groups[g]);
      if (runs.size() > 1) {
        out.last.clear();
        for (std::size_t i = 0; i < runs.size(); ++i) {
          out.last.push_back(make_part(element, g, runs[i].first, runs[i].second, completes,
                                       i + 1 == runs.size()));
        }
        if (context_.gathers_first(segment)) {
          out.first.clear();
          for (std::size_t i = runs.size(); i-- > 0;) {
            out.first.push_back(make_part(element, g, runs[i].first, runs[i].second,
                                          ir::OpKind::forward, i + 1 == runs.size()));
          }
        }
      }
    }
    return out;
  }

  void add_pass(int e, int g, int micro_batch, ir::OpKind kind, const Rounds& rounds) {
    const PlacedSegment& element = *elements_[e];
    const std::vector<RankId>& ranks = element.ranks[g];
    const PassTemplates& templates = templates_[e][g];
    const std::vector<Part>& parts = rounds.ends    ? templates.last
                                     : rounds.opens ? templates.first
                                                    : templates.usual[index_of(kind)];
    if (g == 0) open_groups_.clear();
    open_groups_.resize(std::max(open_groups_.size(), parts.size()));
    std::vector<PendingOp> added(ranks.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ir::Op op = pass_op(parts[i], kind, micro_batch);
      op.samples = element.segment->groups[g].samples;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        op.rank = ranks[r];
        added[r] = builder_.add(op);
        // Transfers hang on the pass that makes what is sent: not on the weights' gradients.
        if (ir::crosses_blocks(kind)) {
          ComputeOps::Pass& pass =
              ops_.at(ir::is_backward(kind), e, micro_batch, g, static_cast<int>(r));
          if (i == 0) pass.first = added[r];
          pass.last = added[r];
        }
        const auto note = [&](int round, std::vector<ComputeOps::PartOp>& list) {
          list.push_back(
              {e, g, static_cast<int>(r), parts[i].first, parts[i].last, added[r], round});
        };
        if (rounds.ends) note(*rounds.ends, ops_.ready);
        if (rounds.follows) note(*rounds.follows, ops_.next);
        if (rounds.opens) note(0, ops_.opening);
      }
      if (!parts[i].joint) continue;
      std::vector<PendingOp>& op_group = open_groups_[i];
      op_group.insert(op_group.end(), added.begin(), added.end());
      if ((g + 1) % parts[i].groups > 0) continue;  // The next group joins in.
      builder_.add_op_group(op_group);
      op_group.clear();
    }
  }

  /// The pass of a stage's own groups over the next stage's blocks. Its input is what the own pass
  /// has just left on the same devices, or for the first stage's blocks the tokens.
  void add_shadow_pass(std::size_t stage, int micro_batch) {
    const PlacedSegment& shadow = shadows()[stage];
    for (std::size_t g = 0; g < shadow.ranks.size(); ++g) {
      const Part& part = shadow_passes_[stage][g];
      ir::Op op = pass_op(part, ir::OpKind::forward, micro_batch);
      op.samples = shadow.segment->groups[g].samples;
      std::vector<PendingOp> op_group;
      for (const RankId rank : shadow.ranks[g]) {
        op.rank = rank;
        op_group.push_back(builder_.add(op));
      }
      if (part.joint) builder_.add_op_group(op_group);
    }
  }

  static ir::Op pass_op(const Part& part, ir::OpKind kind, int micro_batch) {
    ir::Op op;
    op.kind = kind;
    op.stream = ir::Stream::compute;
    op.purpose = ir::Purpose::tensor_parallel;
    op.micro_batch = {micro_batch};
    op.segment = part.info;
    op.inner = part.inner;
    op.buffers = part.buffers;
    return op;
  }

  const LowerContext& context_;
  const ZeroGathers& gathers_;
  int index_;
  const ir::Pipeline& pipeline_;
  std::vector<const PlacedSegment*> elements_;  ///< Chain and detours.
  ProgramBuilder& builder_;
  ComputeOps ops_;
  std::vector<ir::OpKind> kinds_;                      ///< That the schedule uses.
  std::vector<std::vector<PassTemplates>> templates_;  ///< By element, group.
  std::vector<ShadowPass> shadow_passes_;              ///< By stage; none without redundancy.
  std::vector<std::vector<int>> routes_;               ///< By micro-batch: elements passed.
  /// Segment, set of groups, first and last block, backward -> inner set.
  std::map<std::tuple<const ir::Segment*, int, int, int, bool>, std::int32_t> joint_sets_;
  std::vector<std::vector<PendingOp>>
      open_groups_;  ///< By part of a pass: ops that wait for more groups.
};

/// Pipelines with micro-batches on a stage of `pipeline`: its own first.
std::vector<int> visitors(const ir::Plan& plan, int pipeline, int stage) {
  std::vector<int> all = {pipeline};
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    for (const ir::Reroute& reroute : plan.pipelines[p].reroutes) {
      if (reroute.stage != stage || reroute.to_pipeline != pipeline) continue;
      all.push_back(static_cast<int>(p));
      break;
    }
  }
  return all;
}

void add_stage(const ir::Plan& plan, const ScheduleEntry& schedule, int pipeline, int stage,
               std::vector<PipelineCompute>& pipelines) {
  const std::vector<int> guests = visitors(plan, pipeline, stage);
  int micro_batches = 0;
  for (const int p : guests) {
    micro_batches = std::max(micro_batches, pipelines[p].micro_batches());
  }
  const auto stages = static_cast<int>(plan.pipelines[pipeline].stages.size());
  const std::vector<StagePass> passes =
      schedule.passes({stages, stage, micro_batches, plan.virtual_stages});
  // The last pass of each chunk and round that makes gradients, as (pass, guest).
  std::map<std::pair<int, int>, std::pair<std::size_t, int>> last;
  const auto passes_here = [&](std::size_t t, int p) {
    return ir::traits(passes[t].kind).weight_gradients &&
           pipelines[p].passes(passes[t].micro_batch, stage, pipeline);
  };
  for (std::size_t t = 0; t < passes.size(); ++t) {
    for (const int p : guests) {
      if (!passes_here(t, p)) continue;
      const int round = pipelines[p].round_of(passes[t].micro_batch);
      last[{passes[t].chunk, round}] = {t, p};
    }
  }
  std::map<int, std::optional<int>> ended;  // By chunk: a round that its last pass ended.
  std::set<int> opened;                     // Chunks that had a forward pass.
  for (std::size_t t = 0; t < passes.size(); ++t) {
    for (const int p : guests) {
      PipelineCompute::Rounds rounds;
      if (passes_here(t, p)) {
        rounds.follows = std::exchange(ended[passes[t].chunk], std::nullopt);
        const int round = pipelines[p].round_of(passes[t].micro_batch);
        if (last.at({passes[t].chunk, round}) == std::pair(t, p)) {
          rounds.ends = ended[passes[t].chunk] = round;
        }
      }
      rounds.opens = plan.communication.parameter_overlap &&
                     passes[t].kind == ir::OpKind::forward && !opened.contains(passes[t].chunk) &&
                     pipelines[p].passes(passes[t].micro_batch, stage, pipeline);
      if (rounds.opens) opened.insert(passes[t].chunk);
      pipelines[p].add(passes[t], stage, pipeline, rounds);
    }
  }
}

}  // namespace

std::vector<ComputeOps> add_compute(const LowerContext& context, const ZeroGathers& gathers,
                                    ProgramBuilder& builder) {
  const ir::Plan& plan = context.plan;
  const ScheduleEntry& schedule = schedule_entry(plan.schedule);
  std::vector<PipelineCompute> pipelines;
  const auto count = static_cast<int>(plan.pipelines.size());
  for (int p = 0; p < count; ++p) pipelines.emplace_back(context, p, gathers, builder);
  for (int p = 0; p < count; ++p) {
    if (!context.builds(p)) continue;
    const auto stages = static_cast<int>(plan.pipelines[p].stages.size());
    for (int stage = 0; stage < stages; ++stage) {
      add_stage(plan, schedule, p, stage, pipelines);
    }
  }
  std::vector<ComputeOps> ops;
  for (PipelineCompute& pipeline : pipelines) ops.push_back(pipeline.take());
  return ops;
}

}  // namespace orrery::models
