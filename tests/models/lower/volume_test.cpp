/// Does a lowered program move the bytes that the papers count, no more and no less?
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/ir/names.h"
#include "models/lower/lower.h"
#include "models/schedule/rounds.h"
#include "tests/models/lower/number_model.h"
#include "tests/models/lower/random_plan.h"
#include "tests/worlds/clusters.h"

namespace orrery::models::volume_test {
namespace {

using ir::CollectiveKind;
using ir::Purpose;

/// What a member of a ring among n sends, of a tensor of size 1; a broadcast's mean.
double ring_share(CollectiveKind kind, std::size_t n) {
  const double share = (static_cast<double>(n) - 1) / static_cast<double>(n);
  return kind == CollectiveKind::all_reduce ? 2 * share : share;
}

using Traffic = std::map<Purpose, double>;

/// Bytes that leave the devices of an op inside its pass.
void add_inner(const ir::Program& program, const ir::Op& op, Traffic& traffic) {
  if (op.inner == ir::kNone) return;
  const auto& own = program.rank_of(op).devices;
  for (const auto& inner : program.inner_sets[op.inner]) {
    for (const std::int32_t g : inner.groups) {
      const auto& devices = program.group(g).devices;
      for (std::size_t i = 0; i < devices.size(); ++i) {
        if (std::find(own.begin(), own.end(), devices[i]) == own.end()) continue;
        double bytes = inner.bytes.value * ring_share(inner.kind, devices.size());
        if (inner.kind == CollectiveKind::all_to_all) {
          const auto row =
              inner.bytes_per_peer.begin() + static_cast<std::ptrdiff_t>(i * devices.size());
          bytes = 0;
          for (std::size_t j = 0; j < devices.size(); ++j) {
            bytes += *(row + static_cast<std::ptrdiff_t>(j));
          }
        }
        traffic[inner.purpose] += inner.count * bytes;
      }
    }
  }
}

/// Bytes that all devices send in one iteration, by purpose.
Traffic traffic_of(const ir::Program& program) {
  Traffic traffic;
  for (const ir::Op& op : program.ops) {
    add_inner(program, op, traffic);
    if (op.kind == ir::OpKind::send) traffic[op.purpose] += op.bytes.value;
  }
  for (const ir::Collective& collective : program.collectives) {
    const auto& shape = program.shape_of(collective);
    for (const auto& part : shape.parts) {
      const auto n = program.group(part.group).devices.size();
      traffic[shape.purpose] +=
          part.bytes.value * ring_share(shape.kind, n) * static_cast<double>(n);
    }
  }
  return traffic;
}

ir::ModelShape small_model() {
  ir::ModelShape shape;
  shape.name = "small";
  shape.layers = 4;
  shape.hidden = 64;
  shape.heads = 8;
  shape.kv_heads = 2;
  shape.head_dim = 8;
  shape.ffn = 128;
  shape.vocabulary = 96;
  return shape;
}

constexpr std::int64_t kTokens = 32;

/// One stage of `groups` equal groups that takes all blocks.
ir::Plan one_stage(int groups, const ir::Group& like) {
  ir::Plan plan;
  ir::Segment segment;
  segment.first_block = {0};
  segment.last_block = {5};
  int device = 0;
  for (int g = 0; g < groups; ++g) {
    ir::Group group = like;
    for (int i = 0; i < group.tensor_parallel * group.sequence_degree; ++i) {
      group.devices.push_back({device++});
    }
    segment.groups.push_back(std::move(group));
  }
  ir::Pipeline pipeline;
  pipeline.micro_batch_size = groups * like.samples;
  pipeline.stages = {{{segment}}};
  plan.pipelines = {pipeline};
  return plan;
}

ir::Segment& segment_of(ir::Plan& plan) { return plan.pipelines[0].stages[0].segments[0]; }

ir::Program lowered(const ir::Plan& plan, const Workload& workload, bool collapsed,
                    int gradient_synchronizations = 1) {
  LowerOptions options;
  options.collapsed = collapsed;
  Job job;
  job.gradient_synchronizations = gradient_synchronizations;
  return lower(plan, worlds::one_node(64), workload, job, options);
}

/// Bytes of one sample's activation between layers.
double activation(const Workload& workload) { return workload.block({1}).output_bytes.value; }

/// Bytes that the vocabulary-parallel loss reduces for one sample: three fp32 numbers a token.
constexpr double kLossNumbers = 3.0 * 4 * kTokens;

void expect_traffic(const ir::Plan& plan, const Workload& workload, Purpose purpose,
                    double wanted) {
  for (const bool collapsed : {true, false}) {
    const ir::Program program = lowered(plan, workload, collapsed);
    ASSERT_EQ(ir::find_defect(program), "");
    EXPECT_NEAR(traffic_of(program)[purpose] / wanted, 1, 1e-12) << "collapsed " << collapsed;
  }
}

TEST(InnerVolume, ALayerReducesTwiceForwardAndTwiceBackward) {
  const Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  constexpr int kDegree = 4;
  constexpr int kSamples = 3;
  for (const auto sequence : {ir::SequenceParallelism::none, ir::SequenceParallelism::megatron}) {
    for (const bool recompute : {false, true}) {
      ir::Group group;
      group.tensor_parallel = kDegree;
      group.sequence = sequence;
      group.samples = kSamples;
      ir::Plan plan = one_stage(1, group);
      if (recompute) segment_of(plan).recompute = ir::Recompute::full;
      // All-reduce, or reduce-scatter and all-gather: 2 (t - 1) times the activation over all
      // members [Korthikanti et al. 2022, 4.2.2]. One forward at the embedding, one backward at
      // the head.
      const double reductions = 4 * (recompute ? 6 : 4) + 2;
      expect_traffic(
          plan, workload, Purpose::tensor_parallel,
          2 * (kDegree - 1) * kSamples * (reductions * activation(workload) + kLossNumbers));
    }
  }
}

TEST(InnerVolume, MegatronSumsNormGradientsOverTheTensorParallelGroup) {
  ir::ModelShape shape = small_model();
  shape.kv_heads = shape.heads;
  const Workload workload = build_workload(shape, kTokens, ir::Dtype::bf16);
  ir::Group group;
  group.tensor_parallel = 4;
  group.sequence = ir::SequenceParallelism::megatron;
  // Two norms a layer and one at the head, in bf16; nothing else is replicated.
  const double norms = (4 * 2 + 1) * 64 * 2;
  expect_traffic(one_stage(1, group), workload, Purpose::data_parallel, 2 * 3 * norms);
}

TEST(InnerVolume, UlyssesExchangesFourTimesRingOncePlusGradients) {
  const Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  constexpr int kDegree = 4;
  constexpr double kKeyValueShare = 2.0 / 8;
  for (const int tensor : {1, 2}) {
    for (const bool recompute : {false, true}) {
      ir::Group group;
      group.tensor_parallel = tensor;
      group.sequence_degree = kDegree;
      group.sequence = ir::SequenceParallelism::ulysses;
      ir::Plan plan = one_stage(1, group);
      if (recompute) segment_of(plan).recompute = ir::Recompute::full;
      const double passes = 4 * (recompute ? 3 : 2);
      // Q, K, V and the output; a member keeps 1/d of what it has [Jacobs et al. 2023, 3.2].
      expect_traffic(
          plan, workload, Purpose::sequence_parallel,
          passes * (2 + 2 * kKeyValueShare) * (kDegree - 1) / kDegree * activation(workload));
      segment_of(plan).groups[0].sequence = ir::SequenceParallelism::ring;
      // Keys and values forward; with their gradients backward [Liu et al. 2023, 3].
      const double trips = 4 * (recompute ? 2 + 2 + 4 : 2 + 4);
      expect_traffic(plan, workload, Purpose::sequence_parallel,
                     trips * kKeyValueShare * (kDegree - 1) * activation(workload));
    }
  }
}

/// Four in each layer, two for each token.
Workload workload_of_experts() {
  ir::ModelShape shape = small_model();
  shape.experts = 4;
  shape.top_k = 2;
  return build_workload(shape, kTokens, ir::Dtype::bf16);
}

/// Bytes of gradients: of experts, and of all else.
std::pair<double, double> gradients_of(const Workload& workload) {
  double experts = 0, rest = 0;
  for (const Block& block : workload.blocks) {
    for (const Parameter& one : block.parameters) {
      (one.expert ? experts : rest) += 2.0 * static_cast<double>(one.elements);
    }
  }
  return {experts, rest};
}

TEST(InnerVolume, ExpertsDispatchAndCombineOncePerPass) {
  ir::ModelShape shape = small_model();
  shape.experts = 4;
  shape.top_k = 2;
  shape.capacity_factor = 1.25;
  const Workload workload = build_workload(shape, kTokens, ir::Dtype::bf16);
  for (const bool megatron : {false, true}) {
    for (const auto recompute :
         {ir::Recompute::none, ir::Recompute::full, ir::Recompute::experts}) {
      ir::Group group;
      group.tensor_parallel = 2;
      if (megatron) group.sequence = ir::SequenceParallelism::megatron;
      ir::Plan plan = one_stage(4, group);
      segment_of(plan).expert_parallel = 4;
      segment_of(plan).recompute = recompute;
      const double passes = 4 * (recompute == ir::Recompute::none ? 2 : 3);
      const double senders = megatron ? 4 : 8;  // Members that send a sample's tokens.
      // [Lepikhin et al. 2021, 3.2]: top_k x capacity rows per token, 3/4 of them to others.
      expect_traffic(plan, workload, Purpose::expert_parallel,
                     passes * 2 * senders * 2 * 1.25 * activation(workload) * 3 / 4);
    }
  }
}

TEST(Experts, GradientsWaitForAllGroupsThatSendTokens) {
  const Workload workload = workload_of_experts();
  ir::Plan plan = one_stage(4, ir::Group{});
  segment_of(plan).expert_parallel = 4;
  const ir::Program program = lowered(plan, workload, false);
  std::set<RankId> all;
  for (std::int32_t r = 0; r < 4; ++r) all.insert({r});
  int steps = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != ir::OpKind::optimizer_step) continue;
    ++steps;
    // What ends before the step, over the streams and dependencies of all ranks.
    std::set<RankId> waited;
    for (const OpId before : program.dependencies_of({static_cast<std::int32_t>(i)})) {
      if (program.op(before).kind == ir::OpKind::backward) waited.insert(program.op(before).rank);
    }
    waited.insert(program.ops[i].rank);  // Its own backward pass comes before it.
    EXPECT_EQ(waited, all);
  }
  EXPECT_EQ(steps, 4);
}

TEST(Experts, GroupsThatHoldThemTogetherMeetInEachPass) {
  const Workload workload = workload_of_experts();
  for (const bool collapsed : {true, false}) {
    ir::Group group;
    group.tensor_parallel = 2;
    ir::Plan plan = one_stage(4, group);
    segment_of(plan).expert_parallel = 2;
    const auto team_sizes = [&](const ir::Plan& of) {
      const ir::Program program = lowered(of, workload, collapsed);
      EXPECT_EQ(ir::find_defect(program), "");
      std::map<std::size_t, int> sizes;  // How many op groups have how many members.
      for (const ir::Rendezvous& op_group : program.op_groups) ++sizes[op_group.member_count];
      return sizes;
    };
    // Forward and backward of two pairs of groups.
    const std::size_t ranks = collapsed ? 2 : 4;
    EXPECT_EQ(team_sizes(plan), (std::map<std::size_t, int>{{ranks, 4}}))
        << "collapsed " << collapsed;
    // Groups with other shares of the micro-batch meet when gradients synchronize only.
    segment_of(plan).groups[0].samples = 2;
    plan.pipelines[0].micro_batch_size += 1;
    std::map<std::size_t, int> sizes = {{ranks, 2}};
    if (!collapsed) sizes[2] = 4;
    EXPECT_EQ(team_sizes(plan), sizes) << "collapsed " << collapsed;
    // Single devices exchange nothing else, so that they can wait for each other.
    ir::Plan single = one_stage(4, ir::Group{});
    segment_of(single).expert_parallel = 2;
    segment_of(single).groups[0].samples = 2;
    single.pipelines[0].micro_batch_size += 1;
    EXPECT_EQ(team_sizes(single), (std::map<std::size_t, int>{{2, 4}})) << collapsed;
  }
}

TEST(Experts, UnlikeSharesMoveTheTokensOfEachGroupToTheHolders) {
  const Workload workload = workload_of_experts();
  ir::Plan plan = one_stage(2, ir::Group{});
  ir::Segment& segment = segment_of(plan);
  segment.expert_parallel = 2;
  segment.groups[0].samples = 3;
  segment.groups[0].experts = 1;
  segment.groups[1].experts = 3;
  plan.pipelines[0].micro_batch_size = 4;
  // Three samples send three quarters of their rows, one sends a quarter; all come back. Twice, on
  // the way back with gradients.
  const double rows = 3 * 3.0 / 4 + 1 * 1.0 / 4;
  expect_traffic(plan, workload, Purpose::expert_parallel,
                 4 * 2 * 2 * 2 * rows * activation(workload));
  // Only one of them holds each expert: nothing of experts is summed.
  expect_traffic(plan, workload, Purpose::data_parallel, 2 * gradients_of(workload).second);
}

TEST(Experts, EachIsSummedAmongItsHoldersHoweverCopiesAreCut) {
  const Workload workload = workload_of_experts();
  ir::Plan plan = one_stage(4, ir::Group{});
  ir::Segment& segment = segment_of(plan);
  segment.expert_parallel = 2;
  for (const auto& [group, experts] : std::map<int, int>{{0, 1}, {1, 3}, {2, 2}, {3, 2}}) {
    segment.groups[as_size(group)].experts = experts;
  }
  const auto [experts, rest] = gradients_of(workload);
  // Rings of four for the rest, of two for each expert.
  expect_traffic(plan, workload, Purpose::data_parallel, 2 * 3 * rest + 2 * 1 * experts);
}

TEST(ZeroVolume, StageThreeMovesThreeTimesTheParameters) {
  const Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  constexpr int kReplicas = 4;
  for (const int shard_group : {0, 2}) {
    ir::Plan plan = one_stage(kReplicas, ir::Group{});
    segment_of(plan).zero = {3, shard_group};
    const double bytes = 2.0 * static_cast<double>(parameters(workload));
    const double members = shard_group == 0 ? kReplicas : shard_group;
    // Gathered forward and backward, scattered once [Rajbhandari et al. 2020, 7.2.2].
    const double gathers = 2 * kReplicas * (members - 1) / members * bytes;
    expect_traffic(plan, workload, Purpose::zero, gathers);
    const double scatter = kReplicas * (members - 1) / members * bytes;
    // Shards are summed between the shard groups.
    const double between = shard_group == 0 ? 0 : 2 * bytes;
    expect_traffic(plan, workload, Purpose::data_parallel, scatter + between);
  }
}

TEST(ZeroVolume, UnevenShardsGoAroundAsIfAllWereTheLongest) {
  Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  for (Block& block : workload.blocks) {  // Norms are too short to be cut.
    std::erase_if(block.parameters, [](const Parameter& one) { return one.split_length == 0; });
  }
  ir::Plan plan = one_stage(4, ir::Group{});
  segment_of(plan).zero = {3, 0};
  const double bytes = 2.0 * static_cast<double>(parameters(workload));
  expect_traffic(plan, workload, Purpose::zero, 2 * 3 * bytes);
  segment_of(plan).groups[2].state_weight = 5;  // Of 8: an even shard is 2.
  expect_traffic(plan, workload, Purpose::zero, 2.5 * 2 * 3 * bytes);
  expect_traffic(plan, workload, Purpose::data_parallel, 2.5 * 3 * bytes);
}

TEST(ZeroVolume, FullRecomputeGathersLayersOnceMore) {
  const Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  ir::Plan plan = one_stage(4, ir::Group{});
  segment_of(plan).zero = {3, 0};
  segment_of(plan).recompute = ir::Recompute::full;
  // [Rajbhandari et al. 2021, 4.1]
  const auto layers = static_cast<double>(parameters(workload, {1}, {4}));
  const auto all = static_cast<double>(parameters(workload));
  expect_traffic(plan, workload, Purpose::zero, 3 * 2.0 * (2 * all + layers));
}

TEST(ZeroVolume, UnequalDegreesGatherEachSliceFromItsOwners) {
  const Workload workload = number_workload(3, kMachineWidth, kMachineInner, 2);
  ir::Plan plan = one_stage(1, ir::Group{});
  ir::Segment& segment = segment_of(plan);
  segment.last_block = {2};
  segment.zero = {3, 0};
  ir::Group wide;
  wide.tensor_parallel = 3;
  wide.devices = {{1}, {2}, {3}};
  segment.groups.push_back(wide);
  plan.pipelines[0].micro_batch_size = 2;
  // Three pairs hold a third each; the gain goes to one member of each group, which hands it on.
  const double split = 3 * 2 * 2 * 36;
  const double gain = 3 * 2 * 3;
  const ir::Program program = lowered(plan, workload, false);
  ASSERT_EQ(ir::find_defect(program), "");
  EXPECT_NEAR(traffic_of(program)[Purpose::zero] / (2 * (split + gain + 2 * gain)), 1, 1e-12);
}

/// Copies of a block that see tokens of their own.
int copies(const ir::Plan& plan, int block) {
  int count = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (block < segment.first_block.value || segment.last_block.value < block) continue;
        for (const ir::Group& group : segment.groups) count += group.sequence_degree;
      }
    }
  }
  return count;
}

TEST(Conservation, EveryGradientGoesAroundItsRingOnceReducedOnceSpread) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    RandomPlan random = random_plan(seed, {.sequence = seed % 2 == 0});
    for (Block& block : random.workload.blocks) block.parameters.erase(block.parameters.begin());
    int zero = 0;
    for (ir::Pipeline& pipeline : random.plan.pipelines) {
      for (ir::Stage& stage : pipeline.stages) {
        for (ir::Segment& segment : stage.segments) {
          segment.zero.shard_group = 0;
          for (ir::Group& group : segment.groups) group.state_weight = 1;
          zero = segment.zero.stage;
        }
      }
    }
    double once = 0;
    for (int b = 0; b < random.workload.size(); ++b) {
      once += (copies(random.plan, b) - 1) * 2.0 *
              static_cast<double>(parameters(random.workload.block({b})));
    }
    Traffic traffic = traffic_of(lowered(random.plan, random.workload, false));
    const double tolerance = 1e-9 * once;
    EXPECT_NEAR(traffic[Purpose::data_parallel], zero == 0 ? 2 * once : once, tolerance) << seed;
    if (zero == 1 || zero == 2) {
      EXPECT_NEAR(traffic[Purpose::zero], once, tolerance) << seed;
    }
  }
}

TEST(Conservation, CollapsedAndExpandedProgramsMoveTheSameBytes) {
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    const Features features = {
        .sequence = seed % 4 == 1, .experts = seed % 4 == 2 ? 4 : 0, .redundancy = seed % 4 == 3};
    const RandomPlan random = random_plan(seed, features);
    const Traffic collapsed = traffic_of(lowered(random.plan, random.workload, true));
    const Traffic expanded = traffic_of(lowered(random.plan, random.workload, false));
    ASSERT_EQ(collapsed.size(), expanded.size()) << seed;
    for (const auto& [purpose, bytes] : expanded) {
      EXPECT_NEAR(collapsed.at(purpose), bytes, 1e-9 * bytes)
          << "seed " << seed << " " << ir::name_of(purpose);
    }
  }
}

TEST(Conservation, ASendCarriesItsRegions) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const RandomPlan random =
        random_plan(seed, {.sequence = seed % 2 == 0, .redundancy = seed % 3 == 0});
    const ir::Program program = lowered(random.plan, random.workload, seed % 4 < 2);
    for (const ir::Op& op : program.ops) {
      if (op.kind != ir::OpKind::send && op.kind != ir::OpKind::recv) continue;
      double bytes = 0;
      for (const auto& region : program.region_sets[op.regions]) {
        const auto length = static_cast<double>(region.end - region.begin);
        const Block& block = random.workload.block(region.first_block);
        if (op.purpose == Purpose::pipeline) {
          bytes += length / static_cast<double>(random.workload.sequence_length) *
                   block.output_bytes.value;
        } else {
          const Parameter& one = block.parameters[region.parameter];
          bytes += (region.last_block.value - region.first_block.value + 1) * 2.0 * length *
                   static_cast<double>(one.elements) /
                   static_cast<double>(std::max<std::int64_t>(1, one.split_length));
        }
      }
      ASSERT_NEAR(op.bytes.value, bytes, 1e-9 * bytes) << seed;
      double transfers = 0;
      for (const auto& path : program.transfer_sets[op.transfers]) {
        transfers += path.bytes.value;
      }
      ASSERT_NEAR(transfers, bytes, 1e-9 * bytes) << seed;
    }
  }
}

// The leader of a tensor-parallel group is sent what it has computed as a member of another one: it
// arrives where its own pass writes, so that one must wait for the other.
TEST(Conservation, ARankReceivesWhatItComputesItselfAfterItsOwnPass) {
  const Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  ir::Group pair;
  pair.tensor_parallel = 2;
  ir::Plan plan = one_stage(2, pair);
  std::vector<ir::Segment>& segments = plan.pipelines[0].stages[0].segments;
  segments.push_back(segments.front());
  segments[0].last_block = {2};
  segments[1].first_block = {3};
  segments[1].groups[0].devices = {{1}, {2}};
  segments[1].groups[1].devices = {{3}, {0}};
  const ir::Program program = lowered(plan, workload, false);
  ASSERT_EQ(ir::find_defect(program), "");
  std::set<int> after_own, others;  // Devices that receive.
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    if (op.kind != ir::OpKind::recv ||
        program.region_sets[op.regions].front().tensor != ir::TensorKind::activation) {
      continue;
    }
    const auto before = program.dependencies_of({static_cast<std::int32_t>(i)});
    const bool waits = std::any_of(before.begin(), before.end(), [&](OpId id) {
      return program.op(id).kind == ir::OpKind::forward && program.op(id).rank == op.rank;
    });
    (waits ? after_own : others).insert(program.rank_of(op).devices.front().value);
  }
  EXPECT_EQ(after_own, (std::set<int>{1, 3}));  // The leaders of the second half.
  EXPECT_EQ(others, (std::set<int>{0, 2}));     // Their members, from them.
}

TEST(Conservation, EqualPipelinesHaveTheOpsOfTheClosedForm) {
  const Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  for (const int tensor : {1, 2}) {
    for (const int stages : {1, 2, 3}) {
      ir::Plan plan;
      constexpr int kPipelines = 2;
      constexpr int kMicroBatches = 5;
      int device = 0;
      for (int p = 0; p < kPipelines; ++p) {
        ir::Pipeline pipeline;
        pipeline.micro_batches = kMicroBatches;
        for (int s = 0; s < stages; ++s) {
          ir::Segment segment;
          segment.first_block = {6 * s / stages};
          segment.last_block = {6 * (s + 1) / stages - 1};
          ir::Group group;
          group.tensor_parallel = tensor;
          for (int i = 0; i < tensor; ++i) group.devices.push_back({device++});
          segment.groups = {group};
          pipeline.stages.push_back({{segment}});
        }
        plan.pipelines.push_back(pipeline);
      }
      const ir::Program program = lowered(plan, workload, true);
      std::map<ir::OpKind, int> count;
      for (const ir::Op& op : program.ops) {
        if (op.kind != ir::OpKind::collective || op.purpose == Purpose::pipeline) ++count[op.kind];
      }
      const int passes = kPipelines * stages * kMicroBatches;
      const int crossings = 2 * kPipelines * (stages - 1) * kMicroBatches;
      EXPECT_EQ(count[ir::OpKind::forward], passes);
      EXPECT_EQ(count[ir::OpKind::backward], passes);
      EXPECT_EQ(count[ir::OpKind::send], crossings);
      EXPECT_EQ(count[ir::OpKind::recv], crossings);
      EXPECT_EQ(count[ir::OpKind::collective], tensor > 1 ? crossings : 0);
      EXPECT_EQ(count[ir::OpKind::optimizer_step], kPipelines * stages);
    }
  }
}

testing::AssertionResult collectives_in_one_order(const ir::Program& program) {
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    std::int32_t last = -1;
    for (const ir::Op& op :
         program.stream_ops({static_cast<std::int32_t>(r)}, ir::Stream::collective)) {
      if (op.match <= last) return testing::AssertionFailure() << "rank " << r;
      last = op.match;
    }
  }
  return testing::AssertionSuccess();
}

TEST(Conservation, RanksSeeTheirCollectivesInOneOrder) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const RandomPlan random = random_plan(seed, {.sequence = seed % 2 == 0});
    const ir::Program program = lowered(random.plan, random.workload, seed % 4 < 2);
    ASSERT_TRUE(collectives_in_one_order(program)) << "seed " << seed;
  }
}

TEST(RoundVolumes, EachMovesAllGradientsOnceAndParametersAreGatheredOnce) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomPlan random = random_plan(seed, {});
    const int rounds = gradient_rounds(random.plan, kEveryMicroBatch);
    Traffic once = traffic_of(lowered(random.plan, random.workload, false));
    const ir::Program program = lowered(random.plan, random.workload, false, kEveryMicroBatch);
    Traffic often = traffic_of(program);
    ASSERT_NEAR(often[Purpose::data_parallel], rounds * once[Purpose::data_parallel],
                1e-9 * often[Purpose::data_parallel])
        << "seed " << seed;
    for (const Purpose same : {Purpose::zero, Purpose::pipeline, Purpose::tensor_parallel}) {
      ASSERT_NEAR(often[same], once[same], 1e-9 * once[same]) << "seed " << seed;
    }
    ASSERT_TRUE(collectives_in_one_order(program)) << "seed " << seed;
  }
}

TEST(RoundVolumes, TheTiedMatrixOfPipelinesIsSummedOnceAndThatOfSingleStagesInEachRound) {
  Workload workload = number_workload(4, kMachineWidth, kMachineInner, 2);
  workload.shape.tied_embeddings = true;
  for (const int stages : {1, 2}) {
    ir::Plan plan;
    int device = 0;
    for (int p = 0; p < 2; ++p) {
      ir::Pipeline pipeline;
      pipeline.micro_batches = 3;
      for (int s = 0; s < stages; ++s) {
        ir::Segment segment;
        segment.first_block = {4 * s / stages};
        segment.last_block = {4 * (s + 1) / stages - 1};
        segment.groups = {{{{device++}}}};
        pipeline.stages.push_back({{segment}});
      }
      plan.pipelines.push_back(pipeline);
    }
    const ir::Program program = lowered(plan, workload, false, 3);
    int sums = 0;
    for (const ir::Op& op : program.ops) {
      if (op.kind != ir::OpKind::collective || op.rank.value != 0) continue;
      const auto& moved = program.region_sets[op.regions];
      sums += std::any_of(moved.begin(), moved.end(), [](const ir::Region& region) {
        return region.first_block.value == 0 && region.parameter == 1;
      });
    }
    EXPECT_EQ(sums, stages == 1 ? 3 : 1) << stages << " stages";
  }
}

/// Two replicas of two stages of one device, two blocks in each.
ir::Plan two_replicas(int micro_batches) {
  ir::Plan plan;
  int device = 0;
  for (int p = 0; p < 2; ++p) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = micro_batches;
    for (int s = 0; s < 2; ++s) {
      ir::Segment segment;
      segment.first_block = {2 * s};
      segment.last_block = {2 * s + 1};
      segment.groups = {{{{device++}}}};
      pipeline.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

TEST(RoundVolumes, BackwardPassesWaitForTheRoundBeforeAndForwardPassesDoNot) {
  const Workload workload = number_workload(4, kMachineWidth, kMachineInner, 2);
  const ir::Program program = lowered(two_replicas(6), workload, false, 3);
  // Device 0, 1F1B: F0 F1 B0 F2 B1 | F3 B2 F4 B3 | F5 B4 B5 | optimizer.
  std::map<std::int32_t, int> syncs;  // Op that a collective waits for -> collectives.
  int waiting_passes = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    if (op.rank.value != 0) continue;
    for (const OpId before : program.dependencies_of({static_cast<std::int32_t>(i)})) {
      const ir::Op& source = program.op(before);
      if (op.purpose == Purpose::data_parallel && op.kind == ir::OpKind::collective) {
        if (source.kind == ir::OpKind::backward) ++syncs[source.micro_batch.value];
      } else if (source.purpose == Purpose::data_parallel &&
                 source.kind == ir::OpKind::collective && op.stream == ir::Stream::compute &&
                 op.kind != ir::OpKind::optimizer_step) {
        EXPECT_EQ(op.kind, ir::OpKind::backward);
        EXPECT_TRUE(op.micro_batch.value == 2 || op.micro_batch.value == 4) << op.micro_batch.value;
        ++waiting_passes;
      }
    }
  }
  EXPECT_EQ(waiting_passes, 2);
  ASSERT_EQ(syncs.size(), 3u);
  EXPECT_EQ(syncs[1], syncs[3]);
  EXPECT_EQ(syncs[1], syncs[5]);
}

TEST(RoundVolumes, WithOverlapBackwardIsCutAtTheEndOfEachRound) {
  const Workload workload = number_workload(4, kMachineWidth, kMachineInner, 2);
  ir::Plan plan = two_replicas(4);
  plan.communication.gradient_overlap = true;
  plan.communication.bucket = Bytes{1};  // Every block.
  const ir::Program program = lowered(plan, workload, false, 2);
  std::map<std::int32_t, int> parts;  // Micro-batch -> ops of its backward pass.
  for (const ir::Op& op : program.stream_ops({0}, ir::Stream::compute)) {
    if (op.kind == ir::OpKind::backward) ++parts[op.micro_batch.value];
  }
  EXPECT_EQ(parts, (std::map<std::int32_t, int>{{0, 1}, {1, 2}, {2, 1}, {3, 2}}));
}

TEST(KeyValueHeads, FewerHeadsThanMembersAreSummedOverTheirCopies) {
  const Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  ir::Group group;
  group.tensor_parallel = 8;
  // 2 key-value heads on 8 members: four copies of each of two matrices a layer. No other gradient
  // is shared by the members of one group.
  const double matrices = 4 * 2 * 64 * 16 * 2;
  expect_traffic(one_stage(1, group), workload, Purpose::data_parallel, 2 * 3 * matrices);
}

TEST(Overlap, WithoutABucketSizeBackwardIsCutWhereOwnersChange) {
  const Workload workload = number_workload(4, kMachineWidth, kMachineInner, 2);
  ir::Plan plan;
  plan.communication.gradient_overlap = true;
  int device = 0;
  for (const int stages : {1, 2}) {
    ir::Pipeline pipeline;
    for (int s = 0; s < stages; ++s) {
      ir::Segment segment;
      segment.first_block = {4 * s / stages};
      segment.last_block = {4 * (s + 1) / stages - 1};
      ir::Group group;
      group.devices = {{device++}};
      segment.groups = {group};
      pipeline.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(pipeline);
  }
  const ir::Program program = lowered(plan, workload, true);
  const auto ops = program.stream_ops({0}, ir::Stream::compute);
  ASSERT_EQ(ops.size(), 4u) << "forward, two halves of backward, optimizer";
  const auto& upper = program.segments[ops[1].segment];
  EXPECT_EQ(upper.first_block.value, 2);
  EXPECT_EQ(upper.last_block.value, 3);
}

/// Bytes of gradients that the devices of a stage need for their copy of the next one.
double copied_gradients(const ir::Plan& plan, const Workload& workload) {
  double bytes = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const ir::Segment& next = pipeline.stages[(s + 1) % pipeline.stages.size()].segments.front();
      for (const ir::Group& group : pipeline.stages[s].segments.front().groups) {
        for (int b = next.first_block.value; b <= next.last_block.value; ++b) {
          for (const Parameter& parameter : workload.block({b}).parameters) {
            const int copies = parameter.split_length > 0
                                   ? group.sequence_degree
                                   : group.sequence_degree * group.tensor_parallel;
            bytes += copies * 2.0 * static_cast<double>(parameter.elements);
          }
        }
      }
    }
  }
  return bytes;
}

TEST(RedundancyVolumes, AddsTheNextStagesGradientsAndForwardPassesAndNothingElse) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const RandomPlan random = random_plan(seed, {.sequence = seed % 2 == 0, .redundancy = true});
    ir::Plan bare = random.plan;
    bare.redundancy = ir::Redundancy::none;
    for (const bool collapsed : {true, false}) {
      Traffic with = traffic_of(lowered(random.plan, random.workload, collapsed));
      Traffic without = traffic_of(lowered(bare, random.workload, collapsed));
      const double wanted = copied_gradients(random.plan, random.workload);
      EXPECT_NEAR(with[Purpose::state], wanted, 1e-9 * wanted) << seed;
      EXPECT_EQ(with[Purpose::pipeline], without[Purpose::pipeline]) << seed;
      EXPECT_EQ(with[Purpose::data_parallel], without[Purpose::data_parallel]) << seed;
      EXPECT_GE(with[Purpose::tensor_parallel], without[Purpose::tensor_parallel]) << seed;
    }
  }
}

TEST(RedundancyVolumes, ACopyRunsTheForwardCollectivesOfTheNextStageOnItsOwnGroup) {
  const Workload workload = build_workload(small_model(), kTokens, ir::Dtype::bf16);
  ir::Plan plan;
  ir::Pipeline pipeline;
  pipeline.micro_batches = 3;
  int device = 0;
  for (const int degree : {2, 4}) {
    ir::Segment segment;
    segment.first_block = {3 * (degree / 2 - 1)};
    segment.last_block = {3 * (degree / 2) - 1};
    ir::Group group;
    group.tensor_parallel = degree;
    for (int i = 0; i < degree; ++i) group.devices.push_back({device++});
    segment.groups = {group};
    pipeline.stages.push_back({{segment}});
  }
  plan.pipelines = {pipeline};
  // All-reduces of the activation, 2 (t - 1) times its bytes over the members: two per layer and
  // pass, one at the embedding in forward, one at the head in backward; and those of the loss.
  const double one = 3 * 2 * activation(workload);
  const double loss = 3 * 2 * kLossNumbers;
  expect_traffic(plan, workload, Purpose::tensor_parallel, one * (9 * 1 + 9 * 3) + loss * 3);
  plan.redundancy = ir::Redundancy::next_stage;
  expect_traffic(plan, workload, Purpose::tensor_parallel,
                 one * ((9 + 4) * 1 + (9 + 5) * 3) + loss * (1 + 3));
}

TEST(Unsupported, NamesLostShards) {
  ir::Plan plan = one_stage(1, ir::Group{});
  EXPECT_TRUE(find_unsupported(plan).empty());
  plan.pipelines.push_back(plan.pipelines[0]);
  for (int m = 0; m < plan.pipelines[1].micro_batches; ++m) {
    plan.pipelines[1].reroutes.push_back({0, m, 0});
  }
  plan.pipelines[1].stages[0].segments[0].zero.stage = 1;
  const std::vector<PlanDefect> defects = find_unsupported(plan);
  ASSERT_EQ(defects.size(), 1u);
  EXPECT_EQ(defects[0].path, "pipelines[1].stages[0]");
  EXPECT_FALSE(defects[0].hint.empty());
}

TEST(Unsupported, NamesWhatRedundancyHasNoPlaceFor) {
  ir::Plan plan = random_plan(1, {.redundancy = true}).plan;
  plan.pipelines.resize(1);
  plan.virtual_stages = 1;
  ASSERT_TRUE(find_unsupported(plan).empty());
  const auto paths = [](const ir::Plan& changed) {
    std::vector<std::string> out;
    for (const PlanDefect& defect : find_unsupported(changed)) {
      EXPECT_FALSE(defect.hint.empty()) << defect.path;
      EXPECT_EQ(defect.what.rfind("redundancy next_stage ", 0), 0u) << defect.what;
      out.push_back(defect.path);
    }
    return out;
  };
  using Paths = std::vector<std::string>;
  ir::Plan changed = plan;
  changed.pipelines[0].stages.resize(1);
  EXPECT_EQ(paths(changed), Paths{"pipelines[0]"});
  changed = plan;
  changed.pipelines[0].stages[1].segments[0].zero.stage = 1;
  EXPECT_EQ(paths(changed), Paths{"pipelines[0].stages[1].segments[0].zero"});
  changed = plan;
  changed.pipelines[0].stages[0].segments[0].expert_parallel = 2;
  EXPECT_EQ(paths(changed), Paths{"pipelines[0].stages[0].segments[0].expert_parallel"});
  changed = plan;
  changed.pipelines[0].stages[0].segments.push_back(plan.pipelines[0].stages[0].segments[0]);
  EXPECT_EQ(paths(changed), Paths{"pipelines[0].stages[0]"});
  changed = plan;
  changed.virtual_stages = 2;
  EXPECT_EQ(paths(changed), Paths{"virtual_stages"});
  changed = plan;
  changed.pipelines[0].reroutes.push_back({0, 0, 0});
  EXPECT_EQ(paths(changed), Paths{"pipelines[0].reroutes"});
  const Workload workload = number_workload(5, kMachineWidth, kMachineInner, 2);
  EXPECT_DEATH(lowered(changed, workload, true), "redundancy");
}

}  // namespace
}  // namespace orrery::models::volume_test
