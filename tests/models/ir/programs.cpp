#include "tests/models/ir/programs.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "models/base/ids.h"

namespace orrery::ir {
namespace {

std::int32_t length(const auto& table) { return static_cast<std::int32_t>(table.size()); }

/// Adds the ops of a pipelined program rank by rank, so that indices are known beforehand:
/// F0..Fm-1, Bm-1..B0, optimizer step; then sends and recvs by micro-batch; then the all-reduce.
class Pipelined {
 public:
  Pipelined(int pipelines, int stages, int micro_batches)
      : pipelines_(pipelines), stages_(stages), batches_(micro_batches) {}

  Program run() {
    add_tables();
    for (int p = 0; p < pipelines_; ++p) {
      for (int s = 0; s < stages_; ++s) begin_.push_back({rank(p, s), 0});
    }
    std::int32_t next = 0;
    for (auto& [r, begin] : begin_) {
      begin = next;
      next += ops_of(r % stages_);
    }
    for (int p = 0; p < pipelines_; ++p) {
      for (int s = 0; s < stages_; ++s) add_rank(p, s);
    }
    out_.stream_begin.push_back(static_cast<std::uint32_t>(out_.ops.size()));
    out_.dependency_begin.push_back(static_cast<std::uint32_t>(out_.dependencies.size()));
    for (int s = 0; s < stages_; ++s) {
      const auto first = static_cast<std::uint32_t>(out_.members.size());
      for (int p = 0; p < pipelines_; ++p) out_.members.push_back({sync(p, s)});
      out_.collectives.push_back({s, {first, static_cast<std::uint32_t>(pipelines_)}});
    }
    return std::move(out_);
  }

 private:
  int rank(int p, int s) const { return p * stages_ + s; }
  int ends(int s) const { return (s > 0 ? 1 : 0) + (s + 1 < stages_ ? 1 : 0); }
  std::int32_t ops_of(int s) const { return 2 * batches_ + 1 + 2 * batches_ * ends(s) + 1; }
  std::int32_t first(int p, int s) const { return begin_[rank(p, s)].second; }
  std::int32_t forward(int p, int s, int m) const { return first(p, s) + m; }
  std::int32_t backward(int p, int s, int m) const { return first(p, s) + 2 * batches_ - 1 - m; }
  /// p2p ops of a micro-batch: activations in, gradients out, activations out, gradients in.
  std::int32_t p2p(int p, int s, int m, int which) const {
    const int base = first(p, s) + 2 * batches_ + 1 + m * 2 * ends(s);
    return base + which - (s == 0 ? 2 : 0);
  }
  std::int32_t sync(int p, int s) const { return first(p, s) + ops_of(s) - 1; }

  void add_tables() {
    out_.header.model.name = "tiny";
    out_.header.blocks.assign(as_size(2 * stages_), BlockKind::transformer);
    out_.region_sets = {{{TensorKind::activation, {0}, {0}, 0, 0, 8}},
                        {{TensorKind::activation_gradient, {0}, {0}, 0, 0, 8}},
                        {{TensorKind::gradient, {0}, {1}, 0, 0, 64}}};
    for (int p = 0; p < pipelines_; ++p) out_.pipelines.push_back({p * batches_, batches_, 1});
    for (int s = 0; s < stages_; ++s) {
      std::vector<DeviceId> devices;
      for (int p = 0; p < pipelines_; ++p) devices.push_back({rank(p, s)});
      out_.groups.push_back({devices});
      out_.collective_shapes.push_back(
          {CollectiveKind::all_reduce, Purpose::data_parallel, {{s, Bytes{256}, {}}}, 2});
    }
  }

  void add(OpKind kind, Stream stream, int p, int s, int m, std::vector<std::int32_t> after) {
    op_ = {};
    op_.kind = kind;
    op_.stream = stream;
    op_.rank = {rank(p, s)};
    op_.micro_batch = {m};
    out_.dependency_begin.push_back(static_cast<std::uint32_t>(out_.dependencies.size()));
    for (const std::int32_t id : after) out_.dependencies.push_back({id});
  }

  void add_rank(int p, int s) {
    const auto segment = length(out_.segments);
    out_.ranks.push_back({{rank(p, s)}, {{rank(p, s)}}, p, s, 0, 0, 1});
    out_.segments.push_back({p, s, 0, 0, 0, 1, {2 * s}, {2 * s + 1}, 1, 1, {}, 1, {}, {}});
    using Action = BufferEffect::Action;
    out_.buffer_sets.push_back(
        {{BufferKind::activations, Action::allocate, true, segment, Bytes{100}}});
    out_.buffer_sets.push_back({{BufferKind::activations, Action::free, true, segment, Bytes{100}},
                                {BufferKind::logits, Action::transient, false, segment, Bytes{9}}});
    out_.resident.push_back(
        {{BufferKind::parameters, Action::allocate, false, segment, Bytes{1000}}});

    begin_stream();
    for (int m = 0; m < batches_; ++m) {
      add(OpKind::forward, Stream::compute, p, s, m, {});
      if (s > 0) depend(p2p(p, s, m, 0));
      push(segment, 2 * segment);
    }
    for (int m = batches_ - 1; m >= 0; --m) {
      add(OpKind::backward, Stream::compute, p, s, m, {});
      if (s + 1 < stages_) depend(p2p(p, s, m, 3));
      push(segment, 2 * segment + 1);
    }
    add(OpKind::optimizer_step, Stream::compute, p, s, kNone, {sync(p, s)});
    push(segment, kNone);

    begin_stream();
    for (int m = 0; m < batches_; ++m) {
      if (s > 0) {
        transfer(OpKind::recv, p, s, m, s - 1, s, p2p(p, s - 1, m, 2), kNone, 0);
        transfer(OpKind::send, p, s, m, s, s - 1, p2p(p, s - 1, m, 3), backward(p, s, m), 1);
      }
      if (s + 1 < stages_) {
        transfer(OpKind::send, p, s, m, s, s + 1, p2p(p, s + 1, m, 0), forward(p, s, m), 0);
        transfer(OpKind::recv, p, s, m, s + 1, s, p2p(p, s + 1, m, 1), kNone, 1);
      }
    }
    begin_stream();
    add(OpKind::collective, Stream::collective, p, s, kNone, {backward(p, s, 0)});
    op_.purpose = Purpose::data_parallel;
    op_.match = s;
    op_.regions = 2;
    op_.bytes = Bytes{256};
    out_.ops.push_back(op_);
  }

  void begin_stream() { out_.stream_begin.push_back(static_cast<std::uint32_t>(out_.ops.size())); }
  void depend(std::int32_t before) { out_.dependencies.push_back({before}); }
  void push(std::int32_t segment, std::int32_t buffers) {
    op_.segment = segment;
    op_.buffers = buffers;
    out_.ops.push_back(op_);
  }

  void transfer(OpKind kind, int p, int s, int m, int from, int to, std::int32_t match,
                std::int32_t after, std::int32_t regions) {
    add(kind, Stream::p2p, p, s, m, {});
    if (after != kNone) depend(after);
    const std::pair<int, int> path(rank(p, from), rank(p, to));
    // Each path is written once, by the op that comes first; the two of them find it by search.
    std::int32_t set = kNone;
    for (std::int32_t i = std::max(0, length(out_.transfer_sets) - 4);
         i < length(out_.transfer_sets); ++i) {
      const Transfer& t = out_.transfer_sets[i].front();
      if (t.source.value == path.first && t.destination.value == path.second) set = i;
    }
    if (set == kNone) {
      set = length(out_.transfer_sets);
      out_.transfer_sets.push_back({{{path.first}, {path.second}, Bytes{16}}});
    }
    op_.match = match;
    op_.transfers = set;
    op_.regions = regions;
    op_.bytes = Bytes{16};
    out_.ops.push_back(op_);
  }

  int pipelines_;
  int stages_;
  int batches_;
  Program out_;
  Op op_;
  std::vector<std::pair<int, std::int32_t>> begin_;  ///< By rank: (rank, first op).
};

/// Random values of the types that programs are made of; small and extreme ones alike.
struct Dice {
  Rng& rng;
  template <class Int>
  Int integer() {
    using Limits = std::numeric_limits<Int>;
    const auto kind = rng.integer(0, 9);
    if (kind == 0) return Limits::min();
    if (kind == 1) return Limits::max();
    return static_cast<Int>(rng.integer(-1, 40));
  }
  std::int32_t i32() { return integer<std::int32_t>(); }
  std::int64_t i64() { return integer<std::int64_t>(); }
  std::uint32_t u32() { return integer<std::uint32_t>(); }
  double real() {
    constexpr double kSpecial[] = {0.0,    -0.0, 1e-300,
                                   -1e300, 0.1,  std::numeric_limits<double>::infinity()};
    return rng.bernoulli(0.3) ? kSpecial[rng.integer(0, 5)] : rng.normal() * 1e9;
  }
  bool flip() { return rng.bernoulli(0.5); }
  template <class E>
  E one_of(E last) {
    return static_cast<E>(rng.integer(0, static_cast<std::int64_t>(last)));
  }
  std::string text() {
    std::string out;
    for (auto n = rng.integer(0, 6); n > 0; --n) {
      out += static_cast<char>(static_cast<unsigned char>(rng.integer(0, 255)));
    }
    return out;
  }
  template <class T, class Make>
  void fill(std::vector<T>& list, Make make) {
    for (auto n = rng.bernoulli(0.2) ? 0 : rng.integer(0, 5); n > 0; --n) list.push_back(make());
  }

  Region region() {
    return {one_of(TensorKind::second_moment), {i32()}, {i32()}, i32(), i64(), i64()};
  }
  BufferEffect effect() {
    return {one_of(BufferKind::context), one_of(BufferEffect::Action::transient), flip(), i32(),
            Bytes{real()}};
  }
  Op op() {
    Op op;
    op.kind = one_of(OpKind::save_state);
    op.stream = one_of(Stream::collective);
    op.location = one_of(Location::cloud);
    op.purpose = one_of(Purpose::state);
    op.rank = {i32()};
    op.micro_batch = {i32()};
    for (std::int32_t* field : {&op.segment, &op.samples, &op.inner, &op.buffers, &op.regions,
                                &op.match, &op.transfers}) {
      *field = i32();
    }
    op.bytes = Bytes{real()};
    return op;
  }
};

void random_header(Dice& dice, ProgramHeader& header) {
  ModelShape& model = header.model;
  header.schema = dice.i32();
  model.name = dice.text();
  for (int* field :
       {&model.layers, &model.hidden, &model.heads, &model.kv_heads, &model.head_dim, &model.ffn,
        &model.vocabulary, &model.positions, &model.experts, &model.top_k}) {
    *field = dice.i32();
  }
  model.normalization = dice.one_of(Normalization::rms_norm);
  model.activation = dice.one_of(Activation::swiglu);
  model.causal = dice.flip();
  model.biases = dice.flip();
  model.tied_embeddings = dice.flip();
  model.capacity_factor = dice.real();
  model.expert_imbalance = dice.real();
  for (int* field : {&model.shared_ffn, &model.dense_layers, &model.moe_interval, &model.dense_ffn,
                     &model.window, &model.global_interval, &model.mtp_layers, &model.kv_rank,
                     &model.query_rank, &model.rotary_dim, &model.value_dim}) {
    *field = dice.i32();
  }
  dice.fill(header.blocks, [&] { return dice.one_of(BlockKind::convolution); });
  header.sequence_length = dice.i64();
  header.global_batch = dice.i64();
  header.dtype = dice.one_of(Dtype::fp64);
  header.optimizer = dice.one_of(Optimizer::sgd);
  header.seed = dice.rng();
  header.schedule = dice.one_of(ScheduleKind::zero_bubble);
  header.optimizer_start = dice.one_of(OptimizerStart::staggered);
  header.optimizer_offload = dice.real();
  header.collapsed = dice.flip();
  header.plan_hash = dice.text();
  header.cluster_hash = dice.text();
  header.workload_hash = dice.text();
}

}  // namespace

Program pipelined_program(int pipelines, int stages, int micro_batches) {
  return Pipelined(pipelines, stages, micro_batches).run();
}

Program op_group_program() {
  Program program;
  program.header.blocks = {BlockKind::transformer};
  program.pipelines = {{0, 1, 1}};
  program.groups = {{{{0}, {1}}}};
  program.inner_sets = {
      {{CollectiveKind::all_reduce, Purpose::tensor_parallel, {0}, 2, Bytes{64}, {}}}};
  program.segments = {{0, 0, 0, 0, 0, 1, {0}, {0}, 2, 1, {}, 1, {}, {}}};
  program.op_groups = {{0, 2}};
  program.members = {{0}, {1}};
  for (int r = 0; r < 2; ++r) {
    program.ranks.push_back({{r}, {{r}}, 0, 0, 0, r, 2});
    Op op;
    op.rank = {r};
    op.micro_batch = {0};
    op.segment = 0;
    op.samples = 1;
    op.inner = 0;
    op.match = 0;
    program.ops.push_back(op);
  }
  program.stream_begin = {0, 1, 1, 1, 2, 2, 2};
  program.dependency_begin = {0, 0, 0};
  return program;
}

Program random_program(Rng& rng) {
  Dice dice{rng};
  Program p;
  random_header(dice, p.header);
  dice.fill(p.pipelines, [&] { return PipelineInfo{dice.i64(), dice.i32(), dice.i32()}; });
  dice.fill(p.ranks, [&] {
    Rank rank;
    rank.device = {dice.i32()};
    dice.fill(rank.devices, [&] { return DeviceId{dice.i32()}; });
    for (std::int32_t* field :
         {&rank.pipeline, &rank.stage, &rank.group, &rank.position, &rank.tensor_parallel}) {
      *field = dice.i32();
    }
    return rank;
  });
  dice.fill(p.segments, [&] {
    SegmentInfo s;
    for (std::int32_t* field :
         {&s.pipeline, &s.stage, &s.virtual_stage, &s.group, &s.first_sample, &s.samples,
          &s.first_block.value, &s.last_block.value, &s.tensor_parallel, &s.sequence_degree,
          &s.expert_parallel, &s.zero.stage, &s.zero.shard_group, &s.state_weight, &s.experts,
          &s.expert_samples}) {
      *field = dice.i32();
    }
    s.sequence = dice.one_of(SequenceParallelism::ring);
    s.recompute = dice.one_of(Recompute::full);
    s.redundant = s.zero.stage % 2 == 0;
    if (s.state_weight == 0) s.state_weight = 1;  // None has 0: absent means 1.
    return s;
  });
  const auto devices = [&] {
    CommunicationGroup group;
    dice.fill(group.devices, [&] { return DeviceId{dice.i32()}; });
    return group;
  };
  const auto regions = [&] {
    std::vector<Region> list;
    dice.fill(list, [&] { return dice.region(); });
    return list;
  };
  const auto rendezvous = [&] { return Rendezvous{dice.u32(), dice.u32()}; };
  dice.fill(p.groups, devices);
  dice.fill(p.collective_shapes, [&] {
    CollectiveShape shape;
    shape.kind = dice.one_of(CollectiveKind::all_to_all);
    shape.purpose = dice.one_of(Purpose::state);
    shape.regions = dice.i32();
    dice.fill(shape.parts, [&] {
      CollectiveShape::Part part{dice.i32(), Bytes{dice.real()}, {}};
      dice.fill(part.member_regions, regions);
      return part;
    });
    return shape;
  });
  dice.fill(p.collectives, [&] { return Collective{dice.i32(), rendezvous()}; });
  dice.fill(p.op_groups, rendezvous);
  dice.fill(p.members, [&] { return OpId{dice.i32()}; });
  dice.fill(p.transfer_sets, [&] {
    std::vector<Transfer> set;
    dice.fill(set, [&] { return Transfer{{dice.i32()}, {dice.i32()}, Bytes{dice.real()}}; });
    return set;
  });
  dice.fill(p.inner_sets, [&] {
    std::vector<InnerCollective> set;
    dice.fill(set, [&] {
      InnerCollective inner;
      inner.kind = dice.one_of(CollectiveKind::all_to_all);
      inner.purpose = dice.one_of(Purpose::state);
      dice.fill(inner.groups, [&] { return dice.i32(); });
      inner.count = dice.i32();
      inner.bytes = Bytes{dice.real()};
      dice.fill(inner.bytes_per_peer, [&] { return dice.real(); });
      return inner;
    });
    return set;
  });
  const auto effects = [&] {
    std::vector<BufferEffect> set;
    dice.fill(set, [&] { return dice.effect(); });
    return set;
  };
  dice.fill(p.buffer_sets, effects);
  dice.fill(p.region_sets, regions);
  dice.fill(p.resident, effects);
  dice.fill(p.ops, [&] { return dice.op(); });
  dice.fill(p.stream_begin, [&] { return dice.u32(); });
  dice.fill(p.dependency_begin, [&] { return dice.u32(); });
  dice.fill(p.dependencies, [&] { return OpId{dice.i32()}; });
  return p;
}

RunLog random_log(Rng& rng) {
  Dice dice{rng};
  RunLog log;
  log.schema = dice.i32();
  log.program_hash = dice.text();
  log.source = dice.text();
  log.generation = dice.i32();
  const auto at = [&] { return Instant{dice.i64()}; };
  dice.fill(log.spans, [&] {
    return Span{{dice.i32()}, {dice.i32()},       at(),        at(),
                {dice.i64()}, Bytes{dice.real()}, {dice.i64()}};
  });
  dice.fill(log.iterations, [&] { return IterationMark{dice.i64(), at(), at()}; });
  dice.fill(log.memory, [&] { return MemorySample{{dice.i32()}, at(), Bytes{dice.real()}}; });
  dice.fill(log.links, [&] {
    return LinkUse{dice.text(), BytesPerSecond{dice.real()}, Bytes{dice.real()}};
  });
  dice.fill(log.events, [&] { return LogEvent{at(), dice.text(), dice.text()}; });
  dice.fill(log.clocks, [&] { return ClockOffset{{dice.i32()}, {dice.i64()}, {dice.i64()}}; });
  return log;
}

RunLog plain_log(const Program& program) {
  RunLog log;
  log.source = "simulator";
  std::int64_t now = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const OpId id = {static_cast<std::int32_t>(i)};
    // Both ends of a transfer take as long as the later of them.
    const bool moves = op.kind == OpKind::send || op.kind == OpKind::recv;
    const std::int64_t length = moves ? 3000 : 1000;
    const auto begin = moves ? 1000 * std::int64_t{std::min(id.value, op.match)} : now;
    log.spans.push_back({op.rank, id, {begin}, {begin + length}, {0}, op.bytes});
    if (!moves) now += length;
  }
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank = {static_cast<std::int32_t>(r)};
    log.memory.push_back({rank, {0}, Bytes{1000}});
    log.memory.push_back({rank, {500}, Bytes{1100}});
  }
  log.iterations = {{0, {0}, {now}}};
  log.events = {{{10}, "checkpoint", "to \"host\" memory"}};
  return log;
}

const char* difference(const Program& a, const Program& b) {
  const ProgramHeader& x = a.header;
  const ProgramHeader& y = b.header;
  if (x.schema != y.schema || x.model != y.model || x.blocks != y.blocks ||
      x.sequence_length != y.sequence_length || x.global_batch != y.global_batch ||
      x.dtype != y.dtype || x.optimizer != y.optimizer || x.seed != y.seed ||
      x.schedule != y.schedule || x.optimizer_start != y.optimizer_start ||
      x.optimizer_offload != y.optimizer_offload || x.collapsed != y.collapsed ||
      x.plan_hash != y.plan_hash || x.cluster_hash != y.cluster_hash ||
      x.workload_hash != y.workload_hash) {
    return "header";
  }
  if (a.pipelines != b.pipelines) return "pipelines";
  if (a.ranks != b.ranks) return "ranks";
  if (a.segments != b.segments) return "segments";
  if (a.groups != b.groups) return "groups";
  if (a.collective_shapes != b.collective_shapes) return "collective_shapes";
  if (a.collectives != b.collectives) return "collectives";
  if (a.op_groups != b.op_groups) return "op_groups";
  if (a.members != b.members) return "members";
  if (a.transfer_sets != b.transfer_sets) return "transfer_sets";
  if (a.inner_sets != b.inner_sets) return "inner_sets";
  if (a.buffer_sets != b.buffer_sets) return "buffer_sets";
  if (a.region_sets != b.region_sets) return "region_sets";
  if (a.resident != b.resident) return "resident";
  if (a.ops != b.ops) return "ops";
  if (a.stream_begin != b.stream_begin) return "stream_begin";
  if (a.dependency_begin != b.dependency_begin) return "dependency_begin";
  if (a.dependencies != b.dependencies) return "dependencies";
  return "";
}

const char* difference(const RunLog& a, const RunLog& b) {
  if (a.schema != b.schema || a.program_hash != b.program_hash || a.source != b.source ||
      a.generation != b.generation) {
    return "header";
  }
  if (a.spans != b.spans) return "spans";
  if (a.iterations != b.iterations) return "iterations";
  if (a.memory != b.memory) return "memory";
  if (a.links != b.links) return "links";
  if (a.events != b.events) return "events";
  if (a.clocks != b.clocks) return "clocks";
  return "";
}

}  // namespace orrery::ir
