/// Does a lowered program compute what one rank alone would? Random plans, run on real numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/base/rng.h"
#include "models/lower/lower.h"
#include "tests/models_lower/number_machine.h"

namespace orrery::models {
namespace {

constexpr int kWidth = 3;
constexpr int kInner = 12;
constexpr double kRate = 0.01;

Cluster plain_cluster(int devices) {
  Cluster cluster;
  cluster.gpu_types.resize(1);
  cluster.nodes.resize(1);
  for (int i = 0; i < devices; ++i) cluster.devices.push_back({{i}, {0}, i, 0});
  return cluster;
}

/// Cuts `total` into `parts` positive integers.
std::vector<int> cut(int total, int parts, Rng& rng) {
  std::vector<int> out(static_cast<std::size_t>(parts), 1);
  for (int i = 0; i < total - parts; ++i) {
    ++out[static_cast<std::size_t>(rng.integer(0, parts - 1))];
  }
  return out;
}

struct RandomPlan {
  ir::Plan plan;
  int devices = 0;
  int blocks = 0;
};

ir::Stage random_stage(int first, int count, int samples, int zero, int& next_device, Rng& rng) {
  ir::Segment segment;
  segment.first_block = {first};
  segment.last_block = {first + count - 1};
  segment.zero.stage = zero;
  const int groups = static_cast<int>(rng.integer(1, std::min(2, samples)));
  for (const int share : cut(samples, groups, rng)) {
    ir::Group group;
    constexpr int kDegrees[] = {1, 2, 3, 4};
    group.tensor_parallel = kDegrees[rng.integer(0, 3)];
    group.samples = share;
    for (int i = 0; i < group.tensor_parallel; ++i) group.devices.push_back({next_device++});
    segment.groups.push_back(std::move(group));
  }
  ir::Stage stage;
  stage.segments.push_back(segment);
  if (count > 1 && rng.bernoulli(0.3)) {  // Two segments on the same devices, one after the other.
    ir::Segment second = segment;
    stage.segments.front().last_block = {first};
    second.first_block = {first + 1};
    stage.segments.push_back(std::move(second));
  }
  return stage;
}

RandomPlan random_plan(std::uint64_t seed) {
  Rng rng(seed);
  RandomPlan out;
  out.blocks = static_cast<int>(rng.integer(1, 5));
  out.plan.schedule = rng.bernoulli(0.5) ? ir::ScheduleKind::gpipe : ir::ScheduleKind::one_f_one_b;
  out.plan.communication.activation_transfer = rng.bernoulli(0.5)
                                                   ? ir::ActivationTransfer::leader_broadcast
                                                   : ir::ActivationTransfer::sliced;
  out.plan.communication.gradient_overlap = rng.bernoulli(0.5);
  if (rng.bernoulli(0.5)) out.plan.communication.bucket = Bytes{100};
  const int zero = static_cast<int>(rng.integer(0, 2));
  const int pipelines = static_cast<int>(rng.integer(1, 3));
  for (int p = 0; p < pipelines; ++p) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = static_cast<int>(rng.integer(1, 4));
    pipeline.micro_batch_size = static_cast<int>(rng.integer(1, 3));
    const int stages = static_cast<int>(rng.integer(1, std::min(3, out.blocks)));
    int first = 0;
    for (const int count : cut(out.blocks, stages, rng)) {
      pipeline.stages.push_back(
          random_stage(first, count, pipeline.micro_batch_size, zero, out.devices, rng));
      first += count;
    }
    out.plan.pipelines.push_back(std::move(pipeline));
  }
  return out;
}

void expect_reference(const MachineResult& result, const std::vector<BlockNumbers>& reference,
                      std::uint64_t seed) {
  ASSERT_EQ(result.problem, "") << "seed " << seed;
  for (std::size_t r = 0; r < result.parameters.size(); ++r) {
    for (const auto& [block, weights] : result.parameters[r]) {
      for (std::size_t p = 0; p < weights.size(); ++p) {
        for (std::size_t row = 0; row < weights[p].size(); ++row) {
          for (std::size_t i = 0; i < weights[p][row].size(); ++i) {
            ASSERT_NEAR(weights[p][row][i], reference[static_cast<std::size_t>(block)][p][row][i],
                        1e-12)
                << "seed " << seed << " rank " << r << " block " << block << " parameter " << p
                << " row " << row;
          }
        }
      }
    }
  }
}

TEST(Lowering, RandomPlansComputeWhatOneRankComputes) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const RandomPlan random = random_plan(seed);
    const Workload workload = number_workload(random.blocks, kWidth, kInner, 2);
    const Cluster cluster = plain_cluster(random.devices);
    LowerOptions options;
    options.collapsed = false;
    const ir::Program program = lower(random.plan, cluster, workload, Job{}, options);
    const auto result = run_program(program, workload, kWidth, kInner, kRate, seed);
    expect_reference(result,
                     reference_step(workload, ir::global_batch(random.plan), kWidth, kInner, kRate),
                     seed);
    if (HasFatalFailure()) return;
  }
}

TEST(Lowering, ALostSynchronisationIsNoticed) {
  ir::Plan plan;
  for (int p = 0; p < 2; ++p) {
    ir::Segment segment;
    segment.first_block = {0};
    segment.last_block = {1};
    segment.groups = {{{DeviceId{p}}, 1, ir::SequenceParallelism::none, 1, 1}};
    plan.pipelines.push_back({2, 1, std::nullopt, {{{segment}}}, {}});
  }
  const Workload workload = number_workload(2, kWidth, kInner, 2);
  LowerOptions options;
  options.collapsed = false;
  ir::Program program = lower(plan, plain_cluster(2), workload, Job{}, options);
  ASSERT_FALSE(program.collective_shapes.empty());
  const auto reference = reference_step(workload, 4, kWidth, kInner, kRate);
  const auto wrong = [&](const ir::Program& changed) {
    const auto result = run_program(changed, workload, kWidth, kInner, kRate, 1);
    return std::abs(result.parameters[0].at(0)[0][0][0] - reference[0][0][0][0]) > 1e-9;
  };
  EXPECT_FALSE(wrong(program));
  auto& regions =
      program.region_sets[static_cast<std::size_t>(program.collective_shapes[0].regions)];
  std::erase_if(regions, [](const ir::Region& region) { return region.parameter == 0; });
  EXPECT_TRUE(wrong(program)) << "the gain of block 0 was not synchronised, and nobody saw it";
}

TEST(Lowering, TiedEmbeddingsAreSummedOverBothEnds) {
  ir::Plan plan;
  int device = 0;
  for (const int degree : {1, 2}) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = 2;
    for (int stage = 0; stage < 2; ++stage) {
      ir::Segment segment;
      segment.first_block = {stage == 0 ? 0 : 2};
      segment.last_block = {stage == 0 ? 1 : 2};
      ir::Group group;
      group.tensor_parallel = degree;
      for (int i = 0; i < degree; ++i) group.devices.push_back({device++});
      segment.groups.push_back(std::move(group));
      pipeline.stages.push_back({{std::move(segment)}});
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  Workload workload = number_workload(3, kWidth, kInner, 2);
  workload.shape.tied_embeddings = true;
  LowerOptions options;
  options.collapsed = false;
  const ir::Program program = lower(plan, plain_cluster(device), workload, Job{}, options);
  expect_reference(run_program(program, workload, kWidth, kInner, kRate, 3),
                   reference_step(workload, 4, kWidth, kInner, kRate), 0);
}

}  // namespace
}  // namespace orrery::models
