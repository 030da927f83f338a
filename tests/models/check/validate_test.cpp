#include "models/check/validate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "models/spec/library.h"
#include "tests/models/check/small_case.h"

namespace orrery::models::validate_test {
namespace {

struct World {
  ir::Plan plan = small_plan();
  Cluster cluster = small_cluster();
  Workload workload = small_workload();
  Job job = small_job();

  ir::Stage& stage(std::size_t p, std::size_t s) { return plan.pipelines[p].stages[s]; }
  ir::Segment& segment(std::size_t p, std::size_t s, std::size_t i = 0) {
    return stage(p, s).segments[i];
  }
  ir::Group& group(std::size_t p, std::size_t s, std::size_t g = 0) {
    return segment(p, s).groups[g];
  }
  /// Two groups of the second pipeline.
  void share_eight_experts(const std::vector<std::vector<int>>& devices,
                           const std::vector<int>& held) {
    workload.shape.experts = 8;
    segment(1, 0).expert_parallel = 2;
    segment(1, 0).groups.clear();
    for (std::size_t g = 0; g < devices.size(); ++g) {
      segment(1, 0).groups.push_back(worlds::group(devices[g]));
      segment(1, 0).groups.back().experts = held[g];
    }
  }
  std::string defects() const {
    std::string all;
    for (const PlanDefect& defect : validate(plan, cluster, workload, job)) {
      all += fmt::format("{}: {} ({})\n", defect.path, defect.what, defect.hint);
    }
    return all;
  }
};

TEST(Validate, AcceptsAnAsymmetricPlan) { EXPECT_EQ(World{}.defects(), ""); }

TEST(Validate, EmptyHashesAreNotCompared) {
  World world;
  world.plan.cluster_hash = world.plan.workload_hash = "";
  EXPECT_EQ(world.defects(), "");
}

TEST(Validate, FewerKeyValueHeadsThanMembersAreReplicated) {
  World world;  // the second pipeline has degree 4, the model 2 key-value heads
  EXPECT_EQ(world.defects(), "");
  world.workload.shape.kv_heads = 3;
  EXPECT_NE(world.defects().find("cannot split 3 key-value heads"), std::string::npos);
}

TEST(Validate, UnknownDevicesOfAGroupAreReportedOnce) {
  World world;
  world.group(0, 0).devices = {{1000}, {1001}, {1002}};
  const std::string found = world.defects();
  EXPECT_NE(found.find("unknown device 1000"), std::string::npos) << found;
  EXPECT_EQ(found.find("unknown device 1001"), std::string::npos) << found;
}

TEST(Validate, VocabulariesArePadded) {
  World world;
  world.workload.shape.vocabulary = 7;
  EXPECT_EQ(world.defects(), "");
}

TEST(Validate, GroupsAcrossNodesAreAllowedWithinAVendor) {
  World world;
  world.group(0, 0).devices = {{0}, {4}};
  world.group(1, 0).devices = {{1}, {5}, {6}, {7}};
  EXPECT_EQ(world.defects(), "");
}

/// Two equal pipelines of two stages.
World twins(std::vector<ir::Reroute> reroutes) {
  World world;
  world.plan.pipelines[1] = world.plan.pipelines[0];
  for (ir::Pipeline& pipeline : world.plan.pipelines) pipeline.micro_batches = 4;
  world.group(1, 0).devices = {{4}, {5}};
  world.group(1, 1, 0).devices = {{6}};
  world.group(1, 1, 1).devices = {{7}};
  world.plan.pipelines[0].reroutes = std::move(reroutes);
  world.job.gradient_synchronizations = 2;
  return world;
}

TEST(Validate, ReroutesKeepRoundsOfGradientsInStep) {
  EXPECT_EQ(twins({}).defects(), "");
  EXPECT_EQ(twins({{1, 0, 1}}).defects(), "");
  EXPECT_EQ(twins({{1, 0, 1}, {1, 1, 1}, {1, 2, 1}, {1, 3, 1}}).defects(), "");

  const std::string half = twins({{1, 0, 1}, {1, 1, 1}}).defects();
  EXPECT_NE(half.find("pipelines: gradients are synchronized in 2 rounds, and reroutes leave a "
                      "stage without a micro-batch in some of them"),
            std::string::npos)
      << half;
  World uneven = twins({{1, 0, 1}});
  uneven.plan.pipelines[1].micro_batches = 3;
  uneven.job.global_batch = 14;
  const std::string found = uneven.defects();
  EXPECT_NE(found.find("micro-batches are rerouted between pipelines that have different numbers "
                       "of them (set gradient_synchronizations to 1 in the job)"),
            std::string::npos)
      << found;
  uneven.job.gradient_synchronizations = 1;
  EXPECT_EQ(uneven.defects(), "");
}

struct Case {
  const char* name;
  std::function<void(World&)> breaks;
  const char* expected;
};

class Refusal : public ::testing::TestWithParam<Case> {};

TEST_P(Refusal, NamesPlaceAndReason) {
  World world;
  GetParam().breaks(world);
  const std::string found = world.defects();
  EXPECT_NE(found.find(GetParam().expected), std::string::npos) << found;
}

INSTANTIATE_TEST_SUITE_P(
    All, Refusal,
    ::testing::Values(
        Case{"OtherCluster", [](World& w) { w.plan.cluster_hash = "other"; },
             "cluster_hash: the plan was made for cluster other"},
        Case{"OtherWorkload", [](World& w) { w.plan.workload_hash = "other"; },
             "workload_hash: the plan was made for workload other, this one is workload"},
        Case{"NoPipeline", [](World& w) { w.plan.pipelines.clear(); },
             "pipelines: the plan has no pipeline"},
        Case{"NoStage", [](World& w) { w.plan.pipelines[1].stages.clear(); },
             "pipelines[1]: has no stage"},
        Case{"NoSegment", [](World& w) { w.stage(0, 1).segments.clear(); },
             "pipelines[0].stages[1]: has no segment"},
        Case{"NoGroup", [](World& w) { w.segment(0, 1).groups.clear(); },
             "pipelines[0].stages[1].segments[0]: has no group"},
        Case{"NoMicroBatch", [](World& w) { w.plan.pipelines[0].micro_batches = 0; },
             "pipelines[0]: needs at least one micro-batch"},
        Case{"UnknownDevice", [](World& w) { w.group(0, 0).devices[1] = {10}; },
             "pipelines[0].stages[0].segments[0].groups[0]: unknown device 10 (cluster 'small' has "
             "devices 0 to 9)"},
        Case{"DeviceInTwoPipelines", [](World& w) { w.group(1, 0).devices[0] = {0}; },
             "pipelines[1].stages[0].segments[0].groups[0]: device 0 is already used by "
             "pipelines[0].stages[0].segments[0].groups[0]"},
        Case{"DeviceTwiceInASegment", [](World& w) { w.group(0, 1, 1).devices[0] = {2}; },
             "groups[1]: device 2 appears twice in a segment"},
        Case{"MissingFirstBlock", [](World& w) { w.segment(0, 0).first_block = {1}; },
             "pipelines[0].stages[0].segments[0]: begins at block 1, blocks 0 to 0 are missing"},
        Case{"MissingMiddle", [](World& w) { w.segment(0, 0).last_block = {0}; },
             "pipelines[0].stages[1].segments[0]: begins at block 3, blocks 1 to 2 are missing"},
        Case{"MissingEnd", [](World& w) { w.segment(0, 1).last_block = {4}; },
             "pipelines[0]: blocks 5 to 5 are missing at the end"},
        Case{"DoubledBlock", [](World& w) { w.segment(0, 0).last_block = {3}; },
             "pipelines[0].stages[1].segments[0]: begins at block 3, which an earlier segment"},
        Case{"UnknownBlock", [](World& w) { w.segment(1, 0).last_block = {6}; },
             "blocks 0-6 (the workload has blocks 0 to 5)"},
        Case{"NoBlock", [](World& w) { w.segment(1, 0).first_block = {}; }, "blocks -1-5"},
        Case{"StagesInWrongOrder",
             [](World& w) { std::swap(w.plan.pipelines[0].stages[0], w.plan.pipelines[0].stages[1]); },
             "which an earlier segment holds"},
        Case{"SegmentsOnOtherDevices",
             [](World& w) {
               w.segment(0, 0).last_block = {1};
               w.stage(0, 0).segments.push_back(segment(2, 2, {group({0}, 2)}));
             },
             "pipelines[0].stages[0].segments[1]: is on other devices"},
        Case{"SamplesDoNotAddUp", [](World& w) { w.group(0, 1).samples = 2; },
             "pipelines[0].stages[1].segments[0]: groups take 3 samples of micro-batches of 2"},
        Case{"NoSample", [](World& w) { w.group(0, 1).samples = 0; }, "groups[0]: takes no sample"},
        Case{"WrongBatch", [](World& w) { w.job.global_batch = 17; },
             "pipelines: micro-batches add up to 16 samples, the job's batch is 17"},
        Case{"TooFewDevices", [](World& w) { w.group(0, 0).tensor_parallel = 4; },
             "2 devices for tensor_parallel 4 x sequence_degree 1"},
        Case{"ZeroDegree", [](World& w) { w.group(0, 0).tensor_parallel = 0; },
             "degrees must be at least 1"},
        Case{"HeadsDoNotSplit", [](World& w) { w.workload.shape.heads = 6; },
             "pipelines[1].stages[0].segments[0].groups[0]: tensor_parallel 4 cannot split 6 heads"},
        Case{"FeedForwardDoesNotSplit", [](World& w) { w.workload.shape.ffn = 46; },
             "tensor_parallel 4 cannot split feed-forward width 46"},
        Case{"ChannelsDoNotSplit",
             [](World& w) {
               w.workload.blocks[1].kind = ir::BlockKind::convolution;
               w.workload.blocks[1].parameters.push_back({"conv", 10, 6, false});
             },
             "tensor_parallel 4 cannot split 6 channels of 'conv'"},
        Case{"VendorsInAGroup", [](World& w) { w.group(0, 0).devices[1] = {8}; },
             "vendors x and y have no common library"},
        Case{"SequenceNotAllowed",
             [](World& w) { w.group(0, 0).sequence = ir::SequenceParallelism::megatron; },
             "sequence parallelism is not allowed by the job"},
        Case{"SequenceDegreeWithoutSequence",
             [](World& w) {
               w.group(0, 0).tensor_parallel = 1;
               w.group(0, 0).sequence_degree = 2;
             },
             "sequence_degree 2 with sequence none"},
        Case{"TokensDoNotSplit",
             [](World& w) {
               w.job.allowed.sequence_parallel = true;
               w.workload.sequence_length = 63;
               w.group(0, 0).sequence = ir::SequenceParallelism::megatron;
             },
             "63 tokens cannot be split 2 ways"},
        Case{"UlyssesHeads",
             [](World& w) {
               w.job.allowed.sequence_parallel = true;
               w.workload.shape.heads = 2;
               w.group(1, 0).sequence = ir::SequenceParallelism::ulysses;
               w.group(1, 0).tensor_parallel = 1;
               w.group(1, 0).sequence_degree = 4;
             },
             "2 heads cannot be split 4 ways"},
        Case{"ScheduleNotAllowed", [](World& w) { w.plan.schedule = ir::ScheduleKind::gpipe; },
             "schedule: schedule gpipe is not allowed by the job (allowed: 1f1b)"},
        Case{"MicroBatchesOfDualPipe",
             [](World& w) {
               w.plan.schedule = ir::ScheduleKind::dual_pipe;
               w.plan.virtual_stages = 2;
             },
             "pipelines[0]: dual_pipe needs an even number of micro-batches, at least two for each "
             "of 2 stages, not"},
        Case{"StagesOfDualPipe",
             [](World& w) {
               w.plan.schedule = ir::ScheduleKind::dual_pipe;
               w.plan.virtual_stages = 2;
             },
             "pipelines[1]: dual_pipe needs an even number of stages, not 1"},
        Case{"BlocksOfDualPipe",
             [](World& w) {
               w.plan.schedule = ir::ScheduleKind::dual_pipe;
               w.plan.virtual_stages = 2;
               for (int s = 0; s < 2; ++s) {
                 w.stage(0, s).segments.push_back(w.segment(0, s));
                 w.stage(0, s).segments.back().virtual_stage = 1;
               }
             },
             "pipelines[0].stages[0].segments[1]: block 0 is in the other virtual stage, too (cut "
             "both virtual stages in the same places)"},
        Case{"OffloadNotAllowed",
             [](World& w) {
               w.plan.optimizer_offload = 0.5;
               w.job.allowed.max_optimizer_offload = 0.25;
             },
             "optimizer_offload: 0.5 of the optimizer states in host memory, the job allows 0.25 "
             "(set allowed.max_optimizer_offload in the job)"},
        Case{"OffloadWithoutPcie",
             [](World& w) {
               w.plan.optimizer_offload = 0.5;
               w.job.allowed.max_optimizer_offload = 1;
             },
             "optimizer_offload: the cluster does not say how device 0 of node"},
        Case{"VirtualStagesOfOneFOneB", [](World& w) { w.plan.virtual_stages = 2; },
             "virtual_stages: 1f1b has 1 virtual stage, not 2"},
        Case{"VirtualStagesOfZbV",
             [](World& w) {
               w.job.allowed.schedules.push_back(ir::ScheduleKind::zb_v);
               w.plan.schedule = ir::ScheduleKind::zb_v;
               w.plan.virtual_stages = 3;
             },
             "virtual_stages: zb_v has 2 virtual stages, not 3"},
        Case{"VirtualStageOutOfRange", [](World& w) { w.segment(0, 1).virtual_stage = 1; },
             "pipelines[0].stages[1].segments[0]: virtual stage 1 of 1"},
        Case{"ZeroNotAllowed", [](World& w) { w.segment(0, 0).zero.stage = 1; },
             "ZeRO stage 1 is not allowed by the job (allowed: 0)"},
        Case{"ZeroDiffers",
             [](World& w) {
               w.job.allowed.zero_stages = {0, 1};
               w.segment(1, 0).zero.stage = 1;
             },
             "pipelines[1].stages[0].segments[0]: block 0 has another ZeRO setting"},
        Case{"UnevenShardsWithoutZero", [](World& w) { w.segment(1, 0).groups[0].state_weight = 2; },
             "pipelines[1].stages[0].segments[0].groups[0]: state_weight divides nothing without "
             "ZeRO"},
        Case{"UnevenShardsOfShardGroups",
             [](World& w) {
               w.job.allowed.zero_stages = {0, 1};
               w.segment(1, 0).zero = {1, 2};
               w.segment(1, 0).groups[0].state_weight = 2;
             },
             "uneven shards are over all replicas"},
        Case{"UnevenShardsOfNothing",
             [](World& w) { w.segment(1, 0).groups[0].state_weight = 0; },
             "state_weight 0 is not in 1 ... 1000"},
        Case{"RecomputeNotAllowed",
             [](World& w) { w.segment(0, 0).recompute = ir::Recompute::selective; },
             "recompute selective is not allowed by the job (allowed: none, full)"},
        Case{"TooManySamplesAtOnce", [](World& w) { w.job.allowed.max_micro_batch_size = 1; },
             "takes 2 samples at once, the job allows 1"},
        Case{"TooMuchTensorParallelism", [](World& w) { w.job.allowed.max_tensor_parallel = 2; },
             "pipelines[1].stages[0].segments[0].groups[0]: tensor_parallel 4, the job allows 2"},
        Case{"ExpertsOfADenseModel", [](World& w) { w.segment(0, 1).expert_parallel = 2; },
             "expert_parallel 2 cannot split 0 experts"},
        Case{"ExpertsThatNobodyShares", [](World& w) { w.segment(0, 1).groups[0].experts = 2; },
             "pipelines[0].stages[1].segments[0]: groups name their experts, which none shares "
             "(set expert_parallel)"},
        Case{"ExpertsNamedBySomeGroups",
             [](World& w) { w.share_eight_experts({{4}, {5}}, {3, 0}); },
             "groups[1]: experts 0, where other groups of the segment name theirs"},
        Case{"ExpertsThatDoNotAddUp",
             [](World& w) { w.share_eight_experts({{4}, {5}}, {3, 4}); },
             "groups 0 to 1 hold 7 experts together, of 8"},
        Case{"UnlikeExpertsOfTensorParallelGroups",
             [](World& w) { w.share_eight_experts({{4, 5}, {6, 7}}, {3, 5}); },
             "groups that hold unlike numbers of experts must be single devices"},
        Case{"ExpertsOverOneGroup",
             [](World& w) {
               w.workload.shape.experts = 8;
               w.segment(1, 0).expert_parallel = 2;
             },
             "expert_parallel 2 for 1 groups"},
        Case{"RerouteToItself",
             [](World& w) { w.plan.pipelines[0].reroutes = {{0, 0, 0}}; },
             "pipelines[0].reroutes[0]: to_pipeline 0 is no other pipeline"},
        Case{"RerouteToOtherBlocks",
             [](World& w) { w.plan.pipelines[0].reroutes = {{0, 0, 1}}; },
             "stage 0 holds other blocks in pipeline 1"},
        Case{"RerouteOfUnknownMicroBatch",
             [](World& w) { w.plan.pipelines[0].reroutes = {{0, 3, 1}}; }, "micro-batch 3 of 3"},
        Case{"RerouteOfUnknownStage",
             [](World& w) { w.plan.pipelines[0].reroutes = {{1, 0, 1}}; },
             "no stage 1 in both pipelines"}),
    [](const auto& info) { return info.param.name; });

TEST(Validate, CollectsAllDefects) {
  World world;
  world.plan.cluster_hash = "other";
  world.group(0, 0).devices[1] = {99};
  world.segment(0, 1).last_block = {4};
  world.job.global_batch = 1;
  const std::string found = world.defects();
  EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 4) << found;
}

TEST(Report, PlacesDefectsInThePlansFile) {
  World world;
  world.group(0, 1, 1).samples = 2;
  world.plan.cluster_hash = "other";
  const std::string path =
      fmt::format("{}orrery_{}_defects.yaml", ::testing::TempDir(), ::getpid());
  std::ofstream(path) << dump_plan(world.plan);
  config::Diagnostics problems;
  std::vector<PlanDefect> defects = validate(world.plan, world.cluster, world.workload, world.job);
  defects.push_back({"pipelines[7].stages[0]", "nowhere", ""});
  report(defects, path, problems);
  ASSERT_EQ(problems.problems().size(), 3u);
  EXPECT_EQ(config::to_string(problems.problems()[0].at), path + ":2:15");
  EXPECT_EQ(config::to_string(problems.problems()[1].at), path + ":16:13");
  EXPECT_EQ(problems.problems()[1].what,
            "pipelines[0].stages[1].segments[0]: groups take 3 samples of micro-batches of 2");
  EXPECT_EQ(problems.problems()[2].at.line, 6) << "the innermost place that exists";
}

}  // namespace
}  // namespace orrery::models::validate_test
