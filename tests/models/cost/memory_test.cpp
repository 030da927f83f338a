#include "models/cost/memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/schedule/schedule.h"
#include "tests/worlds/clusters.h"
#include "tests/worlds/plans.h"

namespace orrery::models::memory_test {
namespace {

using ir::ScheduleKind;

TEST(InFlight, IsWhatTheScheduleHolds) {
  for (const ScheduleEntry* schedule : schedules()) {
    if (schedule->uses_chunks) continue;
    for (const int stages : {1, 2, 5}) {
      for (const int micro_batches : {1, 3, 8}) {
        for (int stage = 0; stage < stages; ++stage) {
          int held = 0;
          int peak = 0;
          for (const StagePass& pass : schedule->passes({stages, stage, micro_batches, 1})) {
            if (pass.kind == ir::OpKind::forward) peak = std::max(peak, ++held);
            if (pass.kind == ir::OpKind::backward || pass.kind == ir::OpKind::backward_weight)
              --held;
          }
          EXPECT_EQ(micro_batches_in_flight(schedule->kind, stages, stage, micro_batches, 1), peak)
              << schedule->name() << ", stage " << stage << " of " << stages << ", "
              << micro_batches << " micro-batches";
        }
      }
    }
  }
}

TEST(InFlight, GpipeHoldsAllAndOneFOneBTheStagesAhead) {
  EXPECT_EQ(micro_batches_in_flight(ScheduleKind::gpipe, 4, 3, 16, 1), 16);
  EXPECT_EQ(micro_batches_in_flight(ScheduleKind::one_f_one_b, 4, 0, 16, 1), 4);
  EXPECT_EQ(micro_batches_in_flight(ScheduleKind::one_f_one_b, 4, 3, 16, 1), 1);
  EXPECT_EQ(micro_batches_in_flight(ScheduleKind::one_f_one_b, 4, 0, 2, 1), 2);
}

TEST(InFlight, InterleavingHoldsKorthikantisFactorMoreOnTheFirstStage) {
  for (const int stages : {2, 4, 8}) {
    for (const int chunks : {2, 3}) {
      const double held = micro_batches_in_flight(ScheduleKind::interleaved_one_f_one_b, stages, 0,
                                                  8 * stages, chunks);
      EXPECT_DOUBLE_EQ(held / chunks / stages,
                       1 + static_cast<double>(stages - 1) / (stages * chunks));
    }
  }
}

/// Embedding, four layers, head; one sample.
class SegmentMemoryTest : public ::testing::Test {
 protected:
  SegmentMemoryTest() {
    Block layer;
    layer.parameters = {{"matrix", 1000, 4}, {"norm", 10, 0}};
    layer.input_bytes = {100};
    layer.kept_split = {800};
    layer.kept_replicated = {300};
    layer.attention_kept = {200};
    Block embedding;
    embedding.kind = ir::BlockKind::embedding;
    embedding.parameters = {{"token", 4000, 40}};
    embedding.kept_replicated = {50};
    Block head;
    head.kind = ir::BlockKind::head;
    head.parameters = {{"output", 4000, 40}};
    head.input_bytes = {100};
    head.kept_replicated = {70};
    head.logits = {600};
    workload_.shape.vocabulary = 40;
    workload_.blocks = {embedding, layer, layer, layer, layer, head};
  }
  SegmentMemory memory(int first, int last, const ir::Group& group,
                       ir::Recompute recompute = ir::Recompute::none, int zero = 0,
                       int replicas = 1) const {
    ir::Segment segment = worlds::segment(first, last, {group}, recompute);
    segment.zero.stage = zero;
    return segment_memory(segment, group, replicas, workload_, job_);
  }
  /// A plan of two stages on devices 0 and 1.
  ir::Plan plan(ScheduleKind schedule, int micro_batches) const {
    ir::Plan plan;
    plan.schedule = schedule;
    plan.pipelines = {worlds::pipeline({2, 2}, {{0}, {1}}, micro_batches)};
    return plan;
  }
  Cluster cluster(int count) const {
    return worlds::bare_cluster({{0}, std::vector<int>(count - 1, 1)},
                                {worlds::round_gpu("a"), worlds::round_gpu("b")});
  }
  Workload workload_;
  Job job_;
};

TEST_F(SegmentMemoryTest, StatesAreParametersTimesTheirBytes) {
  const SegmentMemory one = memory(1, 2, worlds::group({0}));
  EXPECT_DOUBLE_EQ(one.parameters.value, 2 * 1010 * 2);
  EXPECT_DOUBLE_EQ(one.gradients.value, 2 * 1010 * 2);
  EXPECT_DOUBLE_EQ(one.optimizer_states.value, 2 * 1010 * 12);
  const SegmentMemory pair = memory(1, 2, worlds::group({0, 1}));
  EXPECT_DOUBLE_EQ(pair.parameters.value, 2 * 510 * 2);  // the norm is on both
}

TEST_F(SegmentMemoryTest, UnevenShardsFollowTheWeights) {
  ir::Group heavy = worlds::group({0});
  heavy.state_weight = 3;
  // Of 3 and 1.
  EXPECT_DOUBLE_EQ(memory(1, 2, heavy, ir::Recompute::none, 1, 4).optimizer_states.value,
                   0.75 * 2 * 1010 * 12);
  EXPECT_DOUBLE_EQ(
      memory(1, 2, worlds::group({0}), ir::Recompute::none, 1, 4).optimizer_states.value,
      0.25 * 2 * 1010 * 12);
}

TEST_F(SegmentMemoryTest, ExpertsOfUnlikeSharesAndTheirTokensAreWhereTheyAre) {
  workload_.shape.experts = 4;
  for (int b = 1; b <= 4; ++b) {
    Block& layer = workload_.blocks[as_size(b)];
    layer.parameters.push_back({"experts", 4000, 8, true});
    layer.experts_split = {400};
    layer.experts_replicated = {100};
  }
  ir::Group few = worlds::group({0});
  ir::Group many = worlds::group({1});
  few.samples = 3;
  few.experts = 1;
  many.experts = 3;
  ir::Segment segment = worlds::segment(1, 2, {few, many});
  segment.expert_parallel = 2;
  const SegmentMemory one = segment_memory(segment, few, 1, workload_, job_);
  const SegmentMemory other = segment_memory(segment, many, 1, workload_, job_);
  EXPECT_DOUBLE_EQ(one.parameters.value, 2 * 2 * (1010 + 1000));
  EXPECT_DOUBLE_EQ(other.parameters.value, 2 * 2 * (1010 + 3000));
  // 600 of each own sample, and 500 of each of four times its share.
  EXPECT_DOUBLE_EQ(one.activations_per_micro_batch.value, 2 * (3 * 600 + 4 * 500 / 4));
  EXPECT_DOUBLE_EQ(other.activations_per_micro_batch.value, 2 * (1 * 600 + 4 * 500 * 3 / 4));
}

TEST_F(SegmentMemoryTest, StatesInHostMemoryLeaveTheDevices) {
  ir::Plan two = plan(ScheduleKind::one_f_one_b, 4);
  Cluster where = cluster(2);
  for (Node& node : where.nodes) node.host_memory = Bytes{48000};
  const auto judge = [&](double share) {
    two.optimizer_offload = share;
    return check_memory(two, where, workload_, job_, {});
  };
  const ir::MemoryVerdict all = judge(0);
  EXPECT_FALSE(all.host);
  const double parameters = 4000 + 2 * 1010;  // Of either stage.
  for (const double share : {0.25, 1.0}) {
    const ir::MemoryVerdict less = judge(share);
    for (std::size_t i = 0; i < all.by_gpu_type.size(); ++i) {
      EXPECT_NEAR((all.by_gpu_type[i].need - less.by_gpu_type[i].need).value,
                  share * parameters * 12, 1e-6);
    }
    ASSERT_TRUE(less.host);
    EXPECT_DOUBLE_EQ(less.host->need.value, share * parameters * (12 + 2));
    EXPECT_EQ(less.fits(), share < 1);
  }
  EXPECT_NE(judge(1).explain().find("model states in host memory of node"), std::string::npos);
}

TEST_F(SegmentMemoryTest, ZeroDividesMoreStatesWithEachStage) {
  const auto with = [&](int zero) {
    return memory(1, 1, worlds::group({0}), ir::Recompute::none, zero, 4);
  };
  EXPECT_DOUBLE_EQ(with(1).optimizer_states.value, 1010 * 12 / 4.0);
  EXPECT_DOUBLE_EQ(with(1).gradients.value, 1010 * 2);
  EXPECT_DOUBLE_EQ(with(2).gradients.value, 1010 * 2 / 4.0);
  EXPECT_DOUBLE_EQ(with(2).parameters.value, 1010 * 2);
  EXPECT_DOUBLE_EQ(with(3).parameters.value, 1010 * 2 / 4.0);
  EXPECT_DOUBLE_EQ(with(3).communication.value - with(2).communication.value, 1010 * 2);
}

TEST_F(SegmentMemoryTest, ActivationsFollowKorthikanti) {
  ir::Group pair = worlds::group({0, 1}, 3);
  EXPECT_DOUBLE_EQ(memory(1, 1, pair).activations_per_micro_batch.value, 3 * (800 / 2.0 + 300));
  pair.sequence = ir::SequenceParallelism::megatron;
  EXPECT_DOUBLE_EQ(memory(1, 1, pair).activations_per_micro_batch.value, 3 * (1100 / 2.0));
  ir::Group ring = worlds::group({0, 1}, 2);
  ring.tensor_parallel = 1;
  ring.sequence = ir::SequenceParallelism::ring;
  ring.sequence_degree = 2;
  EXPECT_DOUBLE_EQ(memory(1, 1, ring).activations_per_micro_batch.value, 1100);
}

TEST_F(SegmentMemoryTest, RecomputeMovesActivationsFromKeptToTransient) {
  const ir::Group one = worlds::group({0});
  const SegmentMemory selective = memory(1, 2, one, ir::Recompute::selective);
  EXPECT_DOUBLE_EQ(selective.activations_per_micro_batch.value, 2 * 900);
  EXPECT_DOUBLE_EQ(selective.recomputed.value, 200);
  const SegmentMemory full = memory(1, 2, one, ir::Recompute::full);
  EXPECT_DOUBLE_EQ(full.activations_per_micro_batch.value, 2 * 100);
  EXPECT_DOUBLE_EQ(full.recomputed.value, 1000);
  // Of 800 split and 300 replicated bytes of two layers on two GPUs.
  for (const BlockId layer : {BlockId{1}, BlockId{2}}) {
    workload_.blocks[layer.index()].kind = ir::BlockKind::moe;
    workload_.blocks[layer.index()].experts_split = {400};
    workload_.blocks[layer.index()].experts_replicated = {120};
  }
  const SegmentMemory experts = memory(1, 2, worlds::group({0, 1}), ir::Recompute::experts);
  EXPECT_DOUBLE_EQ(experts.activations_per_micro_batch.value, 2 * (400 / 2.0 + 180));
  EXPECT_DOUBLE_EQ(experts.recomputed.value, 400 / 2.0 + 120);
  const SegmentMemory ends = memory(0, 5, one, ir::Recompute::full);
  EXPECT_DOUBLE_EQ(ends.activations_per_micro_batch.value, 50 + 4 * 100 + 70);
}

TEST_F(SegmentMemoryTest, TiedMatrixIsHeldOnceWhereBothEndsMeet) {
  const double apart = memory(0, 5, worlds::group({0})).parameters.value;
  workload_.shape.tied_embeddings = true;
  EXPECT_DOUBLE_EQ(memory(0, 5, worlds::group({0})).parameters.value, apart - 4000 * 2);
  EXPECT_DOUBLE_EQ(memory(0, 2, worlds::group({0})).parameters.value, (4000 + 2 * 1010) * 2);
}

TEST_F(SegmentMemoryTest, PeakIsStatesActivationsInFlightTransientsAndContext) {
  const ir::Profile profile;
  const ir::MemoryVerdict verdict =
      check_memory(plan(ScheduleKind::one_f_one_b, 8), cluster(2), workload_, job_, profile);
  ASSERT_EQ(verdict.by_gpu_type.size(), 2u);
  EXPECT_EQ(verdict.by_gpu_type[0].gpu, "a");
  EXPECT_EQ(verdict.by_gpu_type[1].stage, 1);
  // Stage 0: embedding and two layers, two micro-batches in flight, sends 100 bytes.
  EXPECT_DOUBLE_EQ(verdict.by_gpu_type[0].need.value,
                   (4000 + 2 * 1010) * 16 + 2 * (50 + 2 * 1100) + 100 + kAssumedContext.value);
  // Stage 1: two layers and head, one in flight, logits, receives 100 bytes.
  EXPECT_DOUBLE_EQ(verdict.by_gpu_type[1].need.value,
                   (4000 + 2 * 1010) * 16 + 2 * 1100 + 70 + 600 + 100 + kAssumedContext.value);
}

TEST_F(SegmentMemoryTest, GpipeNeedsAllMicroBatches) {
  const auto need = [&](ScheduleKind schedule) {
    return check_memory(plan(schedule, 8), cluster(2), workload_, job_, {}).by_gpu_type[0].need;
  };
  EXPECT_DOUBLE_EQ((need(ScheduleKind::gpipe) - need(ScheduleKind::one_f_one_b)).value,
                   6 * (50 + 2 * 1100));
}

TEST_F(SegmentMemoryTest, ProfileGivesContextAndFragmentation) {
  ir::Profile profile;
  ir::MemoryOverhead overhead;
  overhead.gpu = "a";
  overhead.context = {1000};
  overhead.fragmentation = 2;
  profile.memory = {overhead};
  const ir::Plan checked = plan(ScheduleKind::one_f_one_b, 8);
  const auto bare = check_memory(checked, cluster(2), workload_, job_, {});
  const auto verdict = check_memory(checked, cluster(2), workload_, job_, profile);
  EXPECT_DOUBLE_EQ(verdict.by_gpu_type[0].need.value,
                   2 * (bare.by_gpu_type[0].need - kAssumedContext).value + 1000);
  EXPECT_EQ(verdict.by_gpu_type[1].need, bare.by_gpu_type[1].need);
}

TEST_F(SegmentMemoryTest, ZeroCountsReplicasBlockByBlock) {
  // Blocks 0 to 2 have two replicas on one side, blocks 3 to 5 three.
  ir::Plan checked = plan(ScheduleKind::one_f_one_b, 1);
  checked.pipelines.push_back(worlds::pipeline({1, 3}, {{2}, {3}}, 1));
  ir::Segment& wide = checked.pipelines[1].stages[1].segments[0];
  wide.groups.push_back(worlds::group({4}));
  for (ir::Pipeline& pipeline : checked.pipelines) {
    for (ir::Stage& stage : pipeline.stages) stage.segments[0].zero.stage = 1;
  }
  // Blocks 0, 1: 2 replicas; blocks 2 to 5: 3. Stage 0 of pipeline 0 holds blocks 0 to 2.
  const auto verdict = check_memory(checked, cluster(5), workload_, job_, {});
  const double held = (4000 + 2 * 1010) * 4 + 12 * ((4000 + 1010) / 2.0 + 1010 / 3.0);
  EXPECT_DOUBLE_EQ(verdict.by_gpu_type[0].need.value,
                   held + 50 + 2 * 1100 + 100 + kAssumedContext.value);
}

TEST_F(SegmentMemoryTest, RedundancyHoldsTheNextStagesStates) {
  ir::Plan checked = plan(ScheduleKind::one_f_one_b, 8);
  const auto bare = check_memory(checked, cluster(2), workload_, job_, {});
  checked.redundancy = ir::Redundancy::next_stage;
  const auto verdict = check_memory(checked, cluster(2), workload_, job_, {});
  // At the optimizer step the received gradients are there and two micro-batches' activations gone.
  constexpr double kStates = (4000 + 2 * 1010) * 14;
  EXPECT_DOUBLE_EQ((verdict.by_gpu_type[0].need - bare.by_gpu_type[0].need).value,
                   kStates + (4000 + 2 * 1010) * 2 - 2 * (50 + 2 * 1100));
}

TEST_F(SegmentMemoryTest, ARedundantPassHoldsOneMicroBatchOfTheNextStage) {
  ir::Plan checked = plan(ScheduleKind::gpipe, 8);
  const auto bare = check_memory(checked, cluster(2), workload_, job_, {});
  checked.redundancy = ir::Redundancy::next_stage;
  const auto verdict = check_memory(checked, cluster(2), workload_, job_, {});
  EXPECT_DOUBLE_EQ((verdict.by_gpu_type[0].need - bare.by_gpu_type[0].need).value,
                   (4000 + 2 * 1010) * 14 + 2 * 1100 + 70 + 600);
}

TEST_F(SegmentMemoryTest, ReroutedMicroBatchesAreHeldBesidesTheOwn) {
  ir::Plan checked = plan(ScheduleKind::one_f_one_b, 8);
  checked.pipelines.push_back(worlds::pipeline({2, 2}, {{2}, {3}}, 8));
  const auto bare = check_memory(checked, cluster(4), workload_, job_, {});
  checked.pipelines[1].reroutes = {{0, 3, 0}, {0, 4, 0}};
  const auto verdict = check_memory(checked, cluster(4), workload_, job_, {});
  EXPECT_DOUBLE_EQ((verdict.by_gpu_type[0].need - bare.by_gpu_type[0].need).value,
                   2 * (50 + 2 * 1100));
}

TEST(PeakMemory, ReplaysAllocationsFreesAndTransients) {
  using Action = ir::BufferEffect::Action;
  const auto effect = [](Action action, double bytes) {
    ir::BufferEffect result;
    result.action = action;
    result.bytes = {bytes};
    return result;
  };
  ir::Program program;
  program.ranks.resize(1);
  program.resident = {{effect(Action::allocate, 1000)}};
  program.buffer_sets = {{effect(Action::allocate, 10)},
                         {effect(Action::transient, 5), effect(Action::free, 10)}};
  // forward, forward, backward, forward, backward, backward
  for (const int set : {0, 0, 1, 0, 1, 1}) {
    ir::Op op;
    op.rank = {0};
    op.buffers = set;
    program.ops.push_back(op);
  }
  program.stream_begin = {0, 6, 6, 6};
  EXPECT_EQ(peak_memory(program), std::vector<Bytes>{Bytes{1025}});
}

}  // namespace
}  // namespace orrery::models::memory_test
