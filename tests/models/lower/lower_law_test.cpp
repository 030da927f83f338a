/// Does a lowered program compute what one rank alone would? Random plans, run on real numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/lower/lower.h"
#include "models/schedule/rounds.h"
#include "tests/models/lower/number_machine.h"
#include "tests/models/lower/random_plan.h"
#include "tests/worlds/clusters.h"

namespace orrery::models::lower_law_test {
namespace {

constexpr double kRate = 0.01;

/// Whether the rank has the number, or gathers it in time from a rank that has it (with ZeRO-3, or
/// in front of the next iteration's forward passes).
/// Blocks with equal numbers may replace each other (tied embeddings).
bool has(const MachineResult& result, std::size_t rank, int block, std::size_t parameter,
         std::size_t row, std::size_t i, double wanted) {
  const auto right = [&](std::size_t at) {
    for (const auto& [held, weights] : result.parameters[at]) {
      const std::vector<double>& numbers = weights[parameter][row];
      if (i < numbers.size() && std::abs(numbers[i] - wanted) < 1e-12) return true;
    }
    return false;
  };
  if (right(rank)) return true;
  const auto peers = result.gathers[rank].find(block);
  return peers != result.gathers[rank].end() &&
         std::any_of(peers->second.begin(), peers->second.end(),
                     [&](int peer) { return right(peer); });
}

void expect_reference(const MachineResult& result, const std::vector<BlockNumbers>& reference,
                      std::uint64_t seed) {
  ASSERT_EQ(result.problem, "") << "seed " << seed;
  for (std::size_t r = 0; r < result.parameters.size(); ++r) {
    for (const auto& [block, weights] : result.parameters[r]) {
      for (std::size_t p = 0; p < weights.size(); ++p) {
        for (std::size_t row = 0; row < weights[p].size(); ++row) {
          for (std::size_t i = 0; i < weights[p][row].size(); ++i) {
            const double wanted = reference[block][p][row][i];
            ASSERT_TRUE(has(result, r, block, p, row, i, wanted))
                << "seed " << seed << " rank " << r << " block " << block << " parameter " << p
                << " row " << row << ": " << weights[p][row][i] << " instead of " << wanted;
          }
        }
      }
    }
  }
}

bool has_reroutes(const ir::Plan& plan) {
  return std::any_of(plan.pipelines.begin(), plan.pipelines.end(),
                     [](const ir::Pipeline& pipeline) { return !pipeline.reroutes.empty(); });
}

/// As many micro-batches in each pipeline as in the one with most.
void make_equal(ir::Plan& plan) {
  int most = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) most = std::max(most, pipeline.micro_batches);
  for (ir::Pipeline& pipeline : plan.pipelines) pipeline.micro_batches = most;
}

/// Whether validate() keeps the plan's reroutes from several rounds.
bool refuses_rounds(const RandomPlan& random, const Cluster& cluster, Job job) {
  job.global_batch = ir::global_batch(random.plan);
  const auto defects = validate(random.plan, cluster, random.workload, job);
  return std::any_of(defects.begin(), defects.end(), [](const PlanDefect& defect) {
    return defect.what.rfind("gradients are synchronized in", 0) == 0;
  });
}

void expect_reference_for_random_plans(const Features& features, std::uint64_t seeds,
                                       int gradient_synchronizations = 1,
                                       int* several_rounds = nullptr) {
  Job job;
  job.gradient_synchronizations = gradient_synchronizations;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Features drawn = features;
    drawn.one_way = gradient_synchronizations != 1;
    RandomPlan random = random_plan(seed, drawn);
    const Cluster cluster = worlds::one_node(random.devices);
    if (gradient_synchronizations != 1 && features.reroutes) make_equal(random.plan);
    if (features.reroutes && refuses_rounds(random, cluster, job)) continue;
    if (several_rounds != nullptr && gradient_rounds(random.plan, gradient_synchronizations) > 1 &&
        (!features.reroutes || has_reroutes(random.plan))) {
      ++*several_rounds;
    }
    for (const bool collapsed : {true, false}) {
      LowerOptions options;
      options.collapsed = collapsed;
      const ir::Program program = lower(random.plan, cluster, random.workload, job, options);
      ASSERT_EQ(ir::find_defect(program), "") << "seed " << seed << " collapsed " << collapsed;
      if (collapsed) continue;
      const auto result =
          run_program(program, random.workload, kMachineWidth, kMachineInner, kRate, seed);
      expect_reference(result,
                       reference_step(random.workload, ir::global_batch(random.plan), kMachineWidth,
                                      kMachineInner, kRate),
                       seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Lowering, RandomPlansComputeWhatOneRankComputes) {
  expect_reference_for_random_plans({}, 2000);
}

TEST(Lowering, SequenceParallelPlansComputeWhatOneRankComputes) {
  expect_reference_for_random_plans({.sequence = true}, 500);
}

TEST(Lowering, ExpertParallelPlansComputeWhatOneRankComputes) {
  expect_reference_for_random_plans({.experts = 4}, 1000);
  if (HasFatalFailure()) return;
  expect_reference_for_random_plans({.sequence = true, .experts = 4}, 200);
}

TEST(Lowering, ReroutedMicroBatchesComputeWhatOneRankComputes) {
  expect_reference_for_random_plans({.reroutes = true}, 2000);
  if (HasFatalFailure()) return;
  expect_reference_for_random_plans({.sequence = true, .reroutes = true}, 300);
  if (HasFatalFailure()) return;
  expect_reference_for_random_plans({.tied = true, .reroutes = true}, 500);
}

TEST(Rounds, RandomPlansWithoutAccumulationComputeWhatOneRankComputes) {
  for (const int rounds : {2, kEveryMicroBatch}) {
    for (const Features& features :
         {Features{}, Features{.sequence = true}, Features{.experts = 4}, Features{.tied = true},
          Features{.reroutes = true}, Features{.tied = true, .redundancy = true}}) {
      SCOPED_TRACE(testing::Message()
                   << "sequence " << features.sequence << " experts " << features.experts
                   << " tied " << features.tied << " reroutes " << features.reroutes
                   << " redundancy " << features.redundancy);
      int several = 0;
      expect_reference_for_random_plans(features, 100, rounds, &several);
      if (HasFatalFailure()) return;
      // Rounds of one micro-batch leave a stage without work where one is rerouted: refused.
      if (features.reroutes && rounds != 2) continue;
      EXPECT_GT(several, 25) << "plans of more than one round";
    }
  }
}

TEST(Lowering, TiedEmbeddingsAreSummedOverBothEndsOfRandomPlans) {
  expect_reference_for_random_plans({.tied = true}, 1000);
}

/// Rows that several ranks of one pipeline hold, as originals or copies, are equal to the bit.
void expect_equal_copies(const ir::Program& program, const MachineResult& result,
                         std::uint64_t seed) {
  for (std::size_t a = 0; a < result.parameters.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (program.ranks[a].pipeline != program.ranks[b].pipeline) continue;
      for (const auto& [block, weights] : result.parameters[a]) {
        const auto other = result.parameters[b].find(block);
        if (other == result.parameters[b].end()) continue;
        for (std::size_t p = 0; p < weights.size(); ++p) {
          for (std::size_t row = 0; row < weights[p].size(); ++row) {
            if (weights[p][row].empty() || other->second[p][row].empty()) continue;
            ASSERT_EQ(weights[p][row], other->second[p][row])
                << "seed " << seed << " block " << block << " parameter " << p << " row " << row
                << " of ranks " << b << " and " << a;
          }
        }
      }
    }
  }
}

/// Forward passes over blocks of the next stage, by tensor-parallel group.
int redundant_passes(const ir::Plan& plan) {
  int passes = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      passes += pipeline.micro_batches * static_cast<int>(stage.segments[0].groups.size());
    }
  }
  return passes;
}

void expect_current_copies(const Features& features, std::uint64_t seeds) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const RandomPlan random = random_plan(seed, features);
    ASSERT_TRUE(find_unsupported(random.plan).empty());
    LowerOptions options;
    options.collapsed = false;
    const ir::Program program =
        lower(random.plan, worlds::one_node(random.devices), random.workload, Job{}, options);
    const auto result =
        run_program(program, random.workload, kMachineWidth, kMachineInner, kRate, seed);
    ASSERT_EQ(result.problem, "") << "seed " << seed;
    EXPECT_EQ(result.redundant_passes, redundant_passes(random.plan)) << "seed " << seed;
    expect_equal_copies(program, result, seed);
    // Each rank holds its own blocks and those of the next stage, and no others.
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const auto& stages = random.plan.pipelines[program.ranks[r].pipeline].stages;
      const std::size_t s = program.ranks[r].stage;
      std::set<int> blocks;
      for (const std::size_t held : {s, (s + 1) % stages.size()}) {
        const ir::Segment& segment = stages[held].segments[0];
        for (int b = segment.first_block.value; b <= segment.last_block.value; ++b)
          blocks.insert(b);
      }
      std::set<int> held;
      for (const auto& [block, weights] : result.parameters[r]) held.insert(block);
      EXPECT_EQ(held, blocks) << "seed " << seed << " rank " << r;
    }
    if (testing::Test::HasFailure()) return;
  }
}

/// What folding relies on (PartialProgram::steps).
TEST(Synchronization, StepsAscendAndNoneHasGradientsAndParameters) {
  int several = 0, gathers = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const RandomPlan random = random_plan(seed, {});
    PartialProgram partial;
    const ir::Program program =
        lower(random.plan, worlds::one_node(random.devices), random.workload, Job{}, {}, &partial);
    ASSERT_EQ(partial.steps.size(), program.collectives.size());
    std::int32_t last = -1;
    std::map<std::int32_t, std::set<ir::Purpose>> purposes;
    for (std::size_t k = 0; k < partial.steps.size(); ++k) {
      const ir::Purpose purpose = program.shape_of(program.collectives[k]).purpose;
      if (partial.steps[k] < 0) continue;
      EXPECT_LE(last, partial.steps[k]) << "seed " << seed << ", collective " << k;
      last = std::max(last, partial.steps[k]);
      purposes[partial.steps[k]].insert(purpose);
      gathers += purpose == ir::Purpose::zero;
    }
    for (const auto& [step, all] : purposes) {
      EXPECT_EQ(all.size(), 1u) << "seed " << seed << ", step " << step;
    }
    several += purposes.size() > 2;
  }
  EXPECT_GT(several, 10);
  EXPECT_GT(gathers, 10);
}

TEST(Redundancy, CopiesOfTheNextStageComputeWhatOneRankComputes) {
  expect_reference_for_random_plans({.redundancy = true}, 600);
  if (HasFatalFailure()) return;
  expect_reference_for_random_plans({.sequence = true, .redundancy = true}, 100);
  if (HasFatalFailure()) return;
  expect_reference_for_random_plans({.tied = true, .redundancy = true}, 300);
}

TEST(Redundancy, CopiesEqualTheirOriginalsToTheBitAfterAStep) {
  expect_current_copies({.redundancy = true}, 200);
  if (HasFailure()) return;
  expect_current_copies({.sequence = true, .redundancy = true}, 50);
  if (HasFailure()) return;
  expect_current_copies({.tied = true, .redundancy = true}, 100);
}

/// Two stages of two blocks on groups of 1 and 2 devices.
ir::Plan two_redundant_stages() {
  ir::Plan plan;
  plan.redundancy = ir::Redundancy::next_stage;
  ir::Pipeline pipeline;
  pipeline.micro_batches = 2;
  int device = 0;
  for (const int degree : {1, 2}) {
    ir::Segment segment;
    segment.first_block = {2 * (degree - 1)};
    segment.last_block = {2 * (degree - 1) + 1};
    ir::Group group;
    group.tensor_parallel = degree;
    for (int i = 0; i < degree; ++i) group.devices.push_back({device++});
    segment.groups.push_back(std::move(group));
    pipeline.stages.push_back({{std::move(segment)}});
  }
  plan.pipelines.push_back(std::move(pipeline));
  return plan;
}

TEST(Redundancy, AnOldCopyAndAWrongRedundantPassAreNoticed) {
  const Workload workload = number_workload(4, kMachineWidth, kMachineInner, 2);
  LowerOptions options;
  options.collapsed = false;
  const ir::Program program =
      lower(two_redundant_stages(), worlds::one_node(3), workload, Job{}, options);
  const auto run = [&](const ir::Program& changed) {
    return run_program(changed, workload, kMachineWidth, kMachineInner, kRate, 1);
  };
  const MachineResult right = run(program);
  ASSERT_EQ(right.problem, "");
  EXPECT_EQ(right.redundant_passes, 4);
  EXPECT_EQ(right.parameters[0].at(2)[1][0], right.parameters[1].at(2)[1][0]);

  ir::Program old = program;
  for (const ir::Op& op : old.ops) {
    if (op.kind != ir::OpKind::send || op.purpose != ir::Purpose::state) continue;
    std::erase_if(old.region_sets[op.regions],
                  [](const ir::Region& region) { return region.parameter == 1; });
  }
  const MachineResult left_behind = run(old);
  EXPECT_NE(left_behind.parameters[0].at(2)[1][0], left_behind.parameters[1].at(2)[1][0]);

  ir::Program wrong = program;
  for (std::size_t i = 0; i < wrong.ops.size(); ++i) {
    const ir::Op& op = wrong.ops[i];
    if (op.kind != ir::OpKind::forward || op.rank.value == 0 || op.inner == ir::kNone) continue;
    if (!wrong.segments[op.segment].redundant) continue;
    wrong.inner_sets[op.inner].clear();  // Partial sums stay apart.
  }
  EXPECT_NE(run(wrong).problem, "");
}

TEST(Lowering, ALostSynchronizationIsNoticed) {
  ir::Plan plan;
  for (int p = 0; p < 2; ++p) {
    ir::Segment segment;
    segment.first_block = {0};
    segment.last_block = {1};
    segment.groups = {{{DeviceId{p}}, 1, ir::SequenceParallelism::none, 1, 1}};
    plan.pipelines.push_back({2, 1, std::nullopt, {{{segment}}}, {}});
  }
  const Workload workload = number_workload(2, kMachineWidth, kMachineInner, 2);
  LowerOptions options;
  options.collapsed = false;
  ir::Program program = lower(plan, worlds::one_node(2), workload, Job{}, options);
  ASSERT_FALSE(program.collective_shapes.empty());
  const auto reference = reference_step(workload, 4, kMachineWidth, kMachineInner, kRate);
  const auto wrong = [&](const ir::Program& changed) {
    const auto result = run_program(changed, workload, kMachineWidth, kMachineInner, kRate, 1);
    return std::abs(result.parameters[0].at(0)[0][0][0] - reference[0][0][0][0]) > 1e-9;
  };
  EXPECT_FALSE(wrong(program));
  auto& regions = program.region_sets[program.collective_shapes[0].regions];
  std::erase_if(regions, [](const ir::Region& region) { return region.parameter == 0; });
  EXPECT_TRUE(wrong(program)) << "the gain of block 0 was not synchronized, and nobody saw it";
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
  Workload workload = number_workload(3, kMachineWidth, kMachineInner, 2);
  workload.shape.tied_embeddings = true;
  LowerOptions options;
  options.collapsed = false;
  const ir::Program program = lower(plan, worlds::one_node(device), workload, Job{}, options);
  expect_reference(run_program(program, workload, kMachineWidth, kMachineInner, kRate, 3),
                   reference_step(workload, 4, kMachineWidth, kMachineInner, kRate), 0);
}

}  // namespace
}  // namespace orrery::models::lower_law_test
