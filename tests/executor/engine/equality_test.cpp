// Do plans mean what they say? Every plan trains to the same losses, gradients and weights as one
// device does, and what only reorders work does so bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "models/schedule/rounds.h"
#include "models/schedule/schedule.h"
#include "models/spec/job.h"
#include "tests/executor/engine/equality_checks.h"

namespace orrery::executor::equality_test {
namespace {

constexpr int kPlans = 60;
constexpr int kSteps = 20;
/// Each precision has plans of its own: these are their first seeds.
constexpr std::uint64_t kDoubleSeeds = 0;
constexpr std::uint64_t kSingleSeeds = 200;
constexpr std::uint64_t kRoundSeeds = 400;
constexpr std::uint64_t kGptSeeds = 600;
constexpr std::uint64_t kOptSeeds = 700;
constexpr std::uint64_t kSequenceSeeds = 800;
constexpr std::uint64_t kExpertSeeds = 900;
constexpr TinyModel kTinyExperts = {.experts = 4};

TEST(Equality, RandomPlansTrainAsOneDeviceDoesInDoublePrecision) {
  expect_plans_equal(training(Precision::fp64, kSteps), {}, kDoubleSeeds, kPlans);
}

TEST(Equality, RandomPlansTrainAsOneDeviceDoesInSinglePrecision) {
  expect_plans_equal(training(Precision::fp32, kSteps), {ir::Activation::gelu}, kSingleSeeds,
                     kPlans);
}

TEST(Equality, RandomPlansTrainGptAsOneDeviceDoes) {
  expect_plans_equal(training(Precision::fp64, 6), kTinyGpt, kGptSeeds, kPlans);
}

/// The same with ReLU. [Zhang et al. 2022]
TEST(Equality, RandomPlansTrainOptAsOneDeviceDoesInSinglePrecision) {
  TinyModel opt = kTinyGpt;
  opt.activation = ir::Activation::relu;
  expect_plans_equal(training(Precision::fp32, 6), opt, kOptSeeds, kPlans / 3);
}

TEST(Equality, RandomPlansInPartsOfTheSequenceTrainAsOneDeviceDoes) {
  expect_plans_equal(training(Precision::fp64, 3), {}, kSequenceSeeds, kPlans / 2,
                     divided_training_plan);
  expect_plans_equal(training(Precision::fp32, 3), kTinyGpt, kSequenceSeeds + kPlans, kPlans / 3,
                     divided_training_plan);
}

TEST(Equality, RandomPlansTrainExpertsAsOneDeviceDoes) {
  expect_plans_equal(training(Precision::fp64, 3), kTinyExperts, kExpertSeeds, kPlans,
                     divided_training_plan);
}

TEST(Equality, RandomPlansTrainExpertsOfGptAsOneDeviceDoesInSinglePrecision) {
  TinyModel model = kTinyGpt;
  model.experts = 4;
  expect_plans_equal(training(Precision::fp32, 3), model, kExpertSeeds + kPlans, kPlans / 3,
                     divided_training_plan);
}

TEST(Equality, DividedPlansHavePartsOfTheSequenceAndOfTheExperts) {
  const models::Workload workload = tiny_workload(kTinyExperts);
  int sequence = 0, experts = 0, zero = 0;
  for (std::uint64_t seed = kExpertSeeds; seed < kExpertSeeds + kPlans; ++seed) {
    const ir::Plan plan = divided_training_plan(seed, workload);
    const ir::Program program = lower_for_executor(plan, workload);
    EXPECT_TRUE(find_unsupported(program).empty()) << seed;
    EXPECT_TRUE(find_unrunnable(program).empty()) << seed;
    for (const ir::SegmentInfo& segment : program.segments) {
      const bool parts = segment.sequence == ir::SequenceParallelism::megatron;
      sequence += parts;
      experts += segment.expert_parallel > 1;
      zero += segment.expert_parallel > 1 && segment.zero.stage > 0;
    }
  }
  EXPECT_GT(sequence, 50);
  EXPECT_GT(experts, 10);
  EXPECT_GT(zero, 3);
}

/// How a tied matrix lies in a plan: at both ends of a rank, or at ends of several.
TEST(Equality, MostGptPlansRunAndTheirEndsLieTogetherAndApart) {
  const models::Workload workload = tiny_workload(kTinyGpt);
  int run = 0, together = 0, apart = 0, zero = 0;
  for (std::uint64_t seed = kGptSeeds; seed < kGptSeeds + kPlans; ++seed) {
    const ir::Plan plan = random_training_plan(seed, workload);
    if (!find_unsupported(lower_for_executor(plan, workload)).empty()) continue;
    ++run;
    for (const ir::Pipeline& pipeline : plan.pipelines) {
      ++(pipeline.stages.size() == 1 ? together : apart);
      zero += pipeline.stages.front().segments.front().zero.stage > 0;
    }
  }
  EXPECT_GT(run, 9 * kPlans / 10);
  EXPECT_GT(together, 5);
  EXPECT_GT(apart, 20);
  EXPECT_GT(zero, 10);
}

/// Plans with reroutes may have one round only.
bool has_reroutes(const ir::Plan& plan) {
  return std::any_of(plan.pipelines.begin(), plan.pipelines.end(),
                     [](const ir::Pipeline& pipeline) { return !pipeline.reroutes.empty(); });
}

TEST(Rounds, RandomPlansOfGptWithoutAccumulationTrainAsOneDeviceDoes) {
  const models::Workload workload = tiny_workload(kTinyGpt);
  const TrainingRun expected = reference(workload, Precision::fp64, 2);
  for (std::uint64_t seed = kGptSeeds; seed < kGptSeeds + kPlans; ++seed) {
    const ir::Plan plan = random_training_plan(seed, workload);
    if (has_reroutes(plan) || models::schedule_entry(plan.schedule).both_ways) continue;
    const ir::Program program = lower_for_executor(plan, workload, 5, models::kEveryMicroBatch);
    if (!find_unsupported(program).empty()) continue;
    expect_equal(train(program, training(Precision::fp64, 2)), expected, Precision::fp64,
                 "plan " + std::to_string(seed));
  }
}

TEST(Equality, SchedulesAndPipelinesDoNotChangeABit) {
  const models::Workload workload = tiny_workload();
  TrainingOptions options = training(Precision::fp32, 5);
  const TrainingRun expected =
      train(lower_for_executor(single_device_plan(workload, 2), workload), options);
  using Kind = ir::ScheduleKind;
  for (const models::ScheduleEntry* schedule : models::schedules()) {
    const Kind kind = schedule->kind;
    if (schedule->both_ways) continue;  // Two holders' gradients are added up in another order.
    for (const int stages : {1, 2, 3}) {
      const int chunks = schedule->uses_chunks ? 2 : 1;
      const ir::Program program =
          lower_for_executor(pipeline_plan(workload, stages, kind, chunks), workload);
      const TrainingRun run = train(program, options);
      EXPECT_EQ(run.losses, expected.losses) << static_cast<int>(kind) << " x " << stages;
      EXPECT_EQ(run.gradients, expected.gradients) << static_cast<int>(kind) << " x " << stages;
      EXPECT_EQ(run.weights, expected.weights) << static_cast<int>(kind) << " x " << stages;
    }
  }
}

/// As many replicas as `devices`, with `stages` stages each and ZeRO-3 in shard groups.
ir::Plan fully_sharded(const models::Workload& workload, int replicas, int stages,
                       int shard_group) {
  ir::Plan plan = pipeline_plan(workload, stages, ir::ScheduleKind::one_f_one_b);
  const ir::Pipeline first = plan.pipelines.front();
  plan.pipelines.clear();
  for (int r = 0; r < replicas; ++r) {
    ir::Pipeline pipeline = first;
    pipeline.micro_batches = kTinyBatch / 2 / replicas;
    for (ir::Stage& stage : pipeline.stages) {
      ir::Segment& segment = stage.segments.front();
      segment.zero = {3, shard_group};
      segment.recompute = r == 0 ? ir::Recompute::full : ir::Recompute::none;
      segment.groups.front().devices.front().value += r * stages;
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

TEST(Equality, FullyShardedParametersTrainAsWholeOnesDo) {
  const models::Workload workload = tiny_workload();
  for (const Precision precision : {Precision::fp64, Precision::fp32}) {
    const TrainingRun expected = reference(workload, precision, kSteps);
    for (const auto& [replicas, stages, group] :
         {std::tuple(2, 1, 0), std::tuple(3, 1, 0), std::tuple(6, 1, 2), std::tuple(3, 2, 0)}) {
      TrainingOptions options = training(precision, kSteps);
      options.transport = replicas == 3 ? "tcp" : "threads";
      const ir::Plan plan = fully_sharded(workload, replicas, stages, group);
      expect_equal(train(lower_for_executor(plan, workload), options), expected, precision,
                   std::to_string(replicas) + " x " + std::to_string(stages));
    }
  }
}

/// Two pipelines with stages of two tensor-parallel groups of two devices; one stage or two.
ir::Plan grid(const models::Workload& workload, int stages, bool sequence, int expert_parallel,
              int zero) {
  ir::Plan plan = pipeline_plan(workload, stages, ir::ScheduleKind::one_f_one_b);
  const int pipelines = 2 / stages;
  const ir::Pipeline first = plan.pipelines.front();
  plan.pipelines.clear();
  std::int32_t device = 0;
  for (int p = 0; p < pipelines; ++p) {
    ir::Pipeline pipeline = first;
    pipeline.micro_batches = kTinyBatch / 2 / pipelines;
    for (ir::Stage& stage : pipeline.stages) {
      ir::Segment& segment = stage.segments.front();
      segment.zero.stage = zero;
      segment.expert_parallel = expert_parallel;
      segment.groups.assign(2, {});
      for (ir::Group& group : segment.groups) {
        group.devices = {{device}, {device + 1}};
        group.tensor_parallel = 2;
        group.samples = 1;
        if (sequence) group.sequence = ir::SequenceParallelism::megatron;
        device += 2;
      }
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

TEST(Equality, PartsOfTensorsSequencesExpertsAndStatesGoTogether) {
  const TinyModel biased = {.activation = ir::Activation::gelu, .gpt = true, .experts = 4};
  for (const TinyModel& model : {TinyModel{}, kTinyExperts, biased}) {
    const models::Workload workload = tiny_workload(model);
    const TrainingRun expected = reference(workload, Precision::fp64, 2);
    for (const int zero : {0, 1, 2, 3}) {
      for (const bool sequence : {false, true}) {
        for (const int stages : {1, 2}) {
          for (const int expert_parallel : {1, 2}) {
            if (expert_parallel > std::max(1, model.experts)) continue;
            TrainingOptions options = training(Precision::fp64, 2);
            options.transport = "tcp";
            const ir::Plan plan = grid(workload, stages, sequence, expert_parallel, zero);
            expect_equal(train(lower_for_executor(plan, workload), options), expected,
                         Precision::fp64,
                         fmt::format("{} experts over {}, ZeRO {}, {} stages{}", model.experts,
                                     expert_parallel, zero, stages, sequence ? ", sequence" : ""));
          }
        }
      }
    }
  }
}

TEST(Equality, ExpertsAmongGroupsThatDifferAreRefused) {
  const models::Workload workload = tiny_workload(kTinyExperts);
  ir::Plan plan = grid(workload, 1, false, 2, 0);
  plan.pipelines[0].stages[0].segments[0].groups[1].sequence = ir::SequenceParallelism::megatron;
  const auto problems = find_unrunnable(lower_for_executor(plan, workload));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0],
            "experts divided among groups that do not meet at each dispatch: of different degrees "
            "or ZeRO shards, or of several GPUs with different samples");
}

/// One stage of single ranks, each with its samples and experts.
ir::Pipeline unlike_pipeline(const models::Workload& workload, const std::vector<int>& samples,
                             const std::vector<int>& experts, const ir::Segment& like,
                             std::int32_t& device) {
  ir::Segment segment = like;
  segment.first_block = {0};
  segment.last_block = {workload.size() - 1};
  segment.expert_parallel = static_cast<int>(samples.size());
  ir::Pipeline pipeline;
  pipeline.micro_batch_size = 0;
  for (std::size_t g = 0; g < samples.size(); ++g) {
    ir::Group group;
    group.devices = {{device++}};
    group.samples = samples[g];
    group.experts = experts[g];
    pipeline.micro_batch_size += samples[g];
    segment.groups.push_back(group);
  }
  pipeline.stages = {{{segment}}};
  return pipeline;
}

/// Two pipelines that cut the experts otherwise.
TEST(Equality, UnlikeSharesOfExpertsTrainAsOneDeviceDoes) {
  const TinyModel biased = {.activation = ir::Activation::gelu, .gpt = true, .experts = 4};
  for (const TinyModel& model : {kTinyExperts, biased}) {
    const models::Workload workload = tiny_workload(model);
    const TrainingRun expected = reference(workload, Precision::fp64, 2);
    for (const int zero : {0, 1, 2}) {
      for (const auto recompute : {ir::Recompute::none, ir::Recompute::full}) {
        for (const bool named : {true, false}) {
          ir::Segment like;
          like.zero.stage = zero;
          like.recompute = recompute;
          ir::Plan plan;
          std::int32_t device = 0;
          plan.pipelines = {named ? unlike_pipeline(workload, {2, 1, 1}, {1, 2, 1}, like, device)
                                  : unlike_pipeline(workload, {3, 1}, {0, 0}, like, device),
                            unlike_pipeline(workload, {1, 3}, {3, 1}, like, device)};
          plan.pipelines[1].micro_batches = kTinyBatch / 4 - 1;
          const ir::Program program = lower_for_executor(plan, workload);
          ASSERT_EQ(find_unrunnable(program), std::vector<std::string>{});
          TrainingOptions options = training(Precision::fp64, 2);
          options.transport = "tcp";
          expect_equal(train(program, options), expected, Precision::fp64,
                       fmt::format("ZeRO {}, recompute {}, {}", zero, static_cast<int>(recompute),
                                   named ? "named" : "samples"));
        }
      }
    }
  }
}

TEST(Equality, FullyShardedParametersOfUnequalReplicasAreRefused) {
  const models::Workload workload = tiny_workload();
  ir::Plan plan = fully_sharded(workload, 2, 1, 0);
  plan.pipelines[0].micro_batches = 2;
  plan.pipelines[1].micro_batches = 4;
  const auto problems = find_unrunnable(lower_for_executor(plan, workload));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("ZeRO-3 among ranks whose passes differ"), std::string::npos);
}

TEST(Rounds, RandomPlansWithoutAccumulationTrainAsOneDeviceDoes) {
  const models::Workload workload = tiny_workload();
  constexpr int kFewSteps = 3;
  const TrainingRun expected = reference(workload, Precision::fp64, kFewSteps);
  int several = 0;
  for (std::uint64_t seed = kRoundSeeds; seed < kRoundSeeds + kPlans; ++seed) {
    const ir::Plan plan = random_training_plan(seed, workload);
    if (has_reroutes(plan)) continue;
    several += models::most_rounds(plan) > 2;
    for (const int asked : {2, models::kEveryMicroBatch}) {
      TrainingOptions options = training(Precision::fp64, kFewSteps);
      const ir::Program program = lower_for_executor(plan, workload, 5, asked);
      expect_equal(train(program, options), expected, Precision::fp64,
                   "plan " + std::to_string(seed) + ", asked for " + std::to_string(asked));
    }
  }
  EXPECT_GT(several, 5) << "plans of more than two rounds";
}

TEST(Rounds, FullyShardedParametersTrainAsWholeOnesDo) {
  const models::Workload workload = tiny_workload();
  const TrainingRun expected = reference(workload, Precision::fp64, 3);
  TrainingOptions options = training(Precision::fp64, 3);
  const ir::Plan plan = fully_sharded(workload, 3, 2, 0);
  ASSERT_EQ(models::most_rounds(plan), 2);
  expect_equal(train(lower_for_executor(plan, workload, 5, 2), options), expected, Precision::fp64,
               "ZeRO-3");
}

TEST(Equality, TransportsDoNotChangeABit) {
  const models::Workload workload = tiny_workload();
  for (const std::uint64_t seed : {3u, 8u, 21u}) {
    const ir::Program program = lower_for_executor(random_training_plan(seed, workload), workload);
    TrainingOptions options;
    options.steps = 2;
    const TrainingRun threads = train(program, options);
    options.transport = "tcp";
    const TrainingRun tcp = train(program, options);
    EXPECT_EQ(threads.losses, tcp.losses);
    EXPECT_EQ(threads.weights, tcp.weights);
  }
}

/// Two replicas of one device each, 8 and 4 samples.
ir::Plan two_replicas(const models::Workload& workload, bool zero) {
  ir::Plan plan = single_device_plan(workload, 2);
  plan.pipelines.push_back(plan.pipelines[0]);
  plan.pipelines[0].micro_batches = 4;
  plan.pipelines[1].micro_batches = 2;
  plan.pipelines[1].stages[0].segments[0].groups[0].devices = {{1}};
  for (ir::Pipeline& pipeline : plan.pipelines) {
    pipeline.stages[0].segments[0].zero.stage = zero ? 1 : 0;
  }
  return plan;
}

TEST(Mutation, AnUnsynchronizedNormGainIsNoticed) {
  const models::Workload workload = tiny_workload();
  const TrainingRun expected = reference(workload, Precision::fp64, 1);
  TrainingOptions options;
  // The gain of the first norm of the second block stays out of the gradients' all-reduce.
  options.spoil = [](ir::Program& program) {
    for (auto& regions : program.region_sets) {
      std::erase_if(regions, [](const ir::Region& region) {
        return region.tensor == ir::TensorKind::gradient && region.parameter == 0 &&
               region.first_block.value == 1;
      });
    }
  };
  const TrainingRun run =
      train(lower_for_executor(two_replicas(workload, false), workload), options);
  EXPECT_GT(relative_distance(run.gradients, expected.gradients), 1e-3);
  EXPECT_NE(run.disagreement, "");
}

TEST(Mutation, ARoundThatIsSummedTwiceIsNoticed) {
  const models::Workload workload = tiny_workload();
  const TrainingRun expected = reference(workload, Precision::fp64, 1);
  const auto distance = [&](bool spoil) {
    TrainingOptions options;
    // Under another name nobody sees that a round of gradients has ended.
    options.spoil = [&](ir::Program& program) {
      for (ir::Op& op : program.ops) {
        if (spoil && op.purpose == ir::Purpose::data_parallel &&
            op.kind == ir::OpKind::collective) {
          op.purpose = ir::Purpose::state;
        }
      }
    };
    const ir::Program program =
        lower_for_executor(two_replicas(workload, false), workload, 5, models::kEveryMicroBatch);
    return relative_distance(train(program, options).gradients, expected.gradients);
  };
  EXPECT_LE(distance(false), 1e-12);
  EXPECT_GT(distance(true), 1e-3);
}

TEST(Mutation, AWrongWeightOfAReplicaIsNoticed) {
  const models::Workload workload = tiny_workload();
  const TrainingRun expected = reference(workload, Precision::fp64, 1);
  TrainingOptions options;
  options.spoil = [](ir::Program& program) { program.pipelines[1].first_sample = 0; };
  const TrainingRun run =
      train(lower_for_executor(two_replicas(workload, false), workload), options);
  EXPECT_GT(relative_distance(run.gradients, expected.gradients), 1e-3);
}

TEST(Mutation, ASwappedSliceIsNoticed) {
  const models::Workload workload = tiny_workload();
  const TrainingRun expected = reference(workload, Precision::fp64, 2);
  TrainingOptions options;
  options.steps = 2;
  // The first member of a ZeRO-1 gather brings what the second should, and the other way round.
  options.spoil = [](ir::Program& program) {
    bool swapped = false;
    for (auto& shape : program.collective_shapes) {
      auto& members = shape.parts.front().member_regions;
      if (shape.kind != ir::CollectiveKind::all_gather || members.size() < 2) continue;
      std::swap(members[0], members[1]);
      swapped = true;
    }
    ASSERT_TRUE(swapped);
  };
  const TrainingRun run =
      train(lower_for_executor(two_replicas(workload, true), workload), options);
  EXPECT_GT(std::abs(run.losses[1] / expected.losses[1] - 1), 1e-9);
}

class Family : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Family, ::testing::Values(kDoubleSeeds, kSingleSeeds));

TEST_P(Family, CoversSchedulesDegreesAndAsymmetry) {
  const models::Workload workload = tiny_workload();
  std::set<int> schedules;
  std::set<int> degrees;
  std::set<std::size_t> depths;
  std::set<std::size_t> replicas;
  int zero = 0;
  int zero_two = 0;
  int recompute = 0;
  int uneven = 0;
  for (std::uint64_t seed = GetParam(); seed < GetParam() + kPlans; ++seed) {
    const ir::Plan plan = random_training_plan(seed, workload);
    schedules.insert(static_cast<int>(plan.schedule));
    replicas.insert(plan.pipelines.size());
    for (const ir::Pipeline& pipeline : plan.pipelines) {
      depths.insert(pipeline.stages.size());
      uneven += pipeline.micro_batches != plan.pipelines.front().micro_batches;
      for (const ir::Stage& stage : pipeline.stages) {
        const ir::Segment& segment = stage.segments.front();
        zero += segment.zero.stage == 1;
        zero_two += segment.zero.stage == 2;
        recompute += segment.recompute != ir::Recompute::none;
        for (const ir::Group& group : segment.groups) degrees.insert(group.tensor_parallel);
      }
    }
  }
  EXPECT_EQ(schedules.size(), models::schedules().size());
  EXPECT_EQ(degrees, (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(depths, (std::set<std::size_t>{1, 2, 3, 4}));
  EXPECT_EQ(replicas, (std::set<std::size_t>{1, 2, 3}));
  EXPECT_GT(zero, 5);
  EXPECT_GT(zero_two, 5);
  EXPECT_GT(recompute, 10);
  EXPECT_GT(uneven, 5);
}

}  // namespace
}  // namespace orrery::executor::equality_test
