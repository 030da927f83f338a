#include "models/cost/pricer.h"

#include <gtest/gtest.h>

#include "models/cost/device_share.h"
#include "tests/worlds/clusters.h"
#include "tests/worlds/plans.h"

namespace orrery::models::pricer_test {
namespace {

using ir::Pass;
using ::testing::Test;

/// Embedding, two layers, head. A layer: 50e12 FLOPs (1 s on round_gpu), 1e11 parameters in one
/// split matrix (0.4 s to read), 200 GB of traffic (0.4 s).
class RoundNumbers : public Test {
 protected:
  RoundNumbers() {
    workload_.shape.name = "toy";
    workload_.sequence_length = 128;
    Block layer;
    layer.forward_flops = {50e12};
    layer.attention_flops = {5e12};
    layer.parameters = {{"matrix", 100'000'000'000, 8}};
    layer.memory_traffic = {200e9};
    Block embedding;
    embedding.kind = ir::BlockKind::embedding;
    embedding.parameters = {{"token", 1'000'000'000'000, 8}};
    embedding.memory_traffic = {50e9};
    Block head = layer;
    head.kind = ir::BlockKind::head;
    workload_.blocks = {embedding, layer, layer, head};
  }
  Pricer pricer() const { return {cluster_, workload_, job_, profile_}; }
  double price(BlockQuery query) const { return pricer().block(query).value; }
  static BlockQuery layer(Pass pass = Pass::forward) {
    BlockQuery query;
    query.block = {1};
    query.pass = pass;
    return query;
  }
  void measure(Pass pass, int samples, double seconds, const std::string& model = "") {
    ir::BlockTime entry;
    entry.gpu = "round";
    entry.model = model;
    entry.pass = pass;
    entry.micro_batch_size = samples;
    entry.sequence_length = 128;
    entry.time = {seconds};
    profile_.block_times.push_back(entry);
  }

  Cluster cluster_ = worlds::bare_cluster({{0, 0, 0, 0}}, {worlds::round_gpu()});
  Workload workload_;
  Job job_;
  ir::Profile profile_;
};

TEST_F(RoundNumbers, ComputeBoundBlockTakesFlopsOverAchievedPeak) {
  EXPECT_DOUBLE_EQ(price(layer()), 1.0);
  cluster_.gpu_types[0].launch = {0.25};
  EXPECT_DOUBLE_EQ(price(layer()), 1.25);
}

TEST_F(RoundNumbers, MemoryBoundBlockTakesBytesOverAchievedBandwidth) {
  workload_.blocks[1].forward_flops = {1};
  EXPECT_DOUBLE_EQ(price(layer()), 0.4 + 0.4);
  BlockQuery two = layer();
  two.samples = 2;
  EXPECT_DOUBLE_EQ(price(two), 0.4 + 2 * 0.4);  // weights are read once
  two.tensor_parallel = 2;
  EXPECT_DOUBLE_EQ(price(two), 0.2 + 0.4);
  two.sequence_degree = 2;
  EXPECT_DOUBLE_EQ(price(two), 0.2 + 0.2);  // weights are not split along the sequence
}

TEST_F(RoundNumbers, EmbeddingReadsRowsAndNotItsTable) {
  BlockQuery query;
  query.block = {0};
  EXPECT_DOUBLE_EQ(price(query), 0.1);
}

TEST_F(RoundNumbers, TensorAndSequenceParallelismDivideFlops) {
  BlockQuery query = layer();
  query.tensor_parallel = 2;
  query.sequence_degree = 2;
  query.samples = 8;
  EXPECT_DOUBLE_EQ(price(query), 2.0);
}

TEST_F(RoundNumbers, BackwardIsTwiceTheForwardAndItsHalvesOneEach) {
  EXPECT_DOUBLE_EQ(price(layer(Pass::backward)), 2.0);
  EXPECT_DOUBLE_EQ(price(layer(Pass::backward_input)), 1.0);
  EXPECT_DOUBLE_EQ(price(layer(Pass::backward_weight)), 1.0);
}

TEST_F(RoundNumbers, RecomputeRepeatsForwardOrAttentionOfLayers) {
  BlockQuery query = layer(Pass::backward);
  query.recompute = ir::Recompute::full;
  EXPECT_DOUBLE_EQ(price(query), 3.0);
  query.recompute = ir::Recompute::selective;
  EXPECT_DOUBLE_EQ(price(query), 2.1);
  query.recompute = ir::Recompute::experts;  // the layer has none
  EXPECT_DOUBLE_EQ(price(query), 2.0);
  workload_.blocks[1].expert_flops = {20e12};
  EXPECT_DOUBLE_EQ(price(query), 2.4);
  query.pass = Pass::backward_weight;
  EXPECT_DOUBLE_EQ(price(query), 1.0);
  query.pass = Pass::backward;
  query.block = {3};  // the head keeps what it needs
  EXPECT_DOUBLE_EQ(price(query), 2.0);
}

TEST_F(RoundNumbers, EfficiencyCurveIsLinearInTheLogarithmOfWork) {
  ir::EfficiencyCurve curve;
  curve.gpu = "round";
  curve.points = {{{5e12}, 0.2}, {{500e12}, 0.4}};
  profile_.efficiencies = {curve};
  EXPECT_NEAR(price(layer()), 50e12 / (100e12 * 0.3), 1e-9);  // the middle
  BlockQuery large = layer();
  large.samples = 100;
  EXPECT_NEAR(price(large), 5000e12 / (100e12 * 0.4), 1e-9);  // beyond the last point
}

TEST_F(RoundNumbers, MissingDtypeIsReplacedAndReported) {
  GpuType& gpu = cluster_.gpu_types[0];
  gpu.peak = {{ir::Dtype::fp16, 200_TFLOPS}, {ir::Dtype::fp32, 10_TFLOPS}};
  const Pricer prices = pricer();
  BlockQuery query = layer();
  query.samples = 4;
  EXPECT_DOUBLE_EQ(prices.block(query).value, 2.0);
  ASSERT_EQ(prices.used_entries().size(), 1u);
  EXPECT_EQ(prices.used_entries()[0],
            "roofline: round transformer forward fp16 in place of bf16, efficiency declared 0.5, "
            "memory 0.5");
}

TEST_F(RoundNumbers, Fp8IsForProductsOfLayersAndStoresBf16) {
  cluster_.gpu_types[0].peak[ir::Dtype::fp8] = 200_TFLOPS;
  workload_.blocks[1].memory_traffic = {};
  workload_.blocks[3].memory_traffic = {};
  const double bf16 = price(layer());
  workload_.dtype = ir::Dtype::fp8;
  EXPECT_DOUBLE_EQ(bf16, 1.0);
  EXPECT_DOUBLE_EQ(price(layer()), 0.45 + 0.1);  // attention as before
  BlockQuery head = layer();
  head.block = {3};
  EXPECT_DOUBLE_EQ(price(head), 1.0);
  workload_.blocks[1].forward_flops = {1};
  EXPECT_DOUBLE_EQ(price(layer()), 0.4);  // weights of two bytes
  cluster_.gpu_types[0].peak.erase(ir::Dtype::fp8);
  EXPECT_DOUBLE_EQ(price(head), 1.0);
}

TEST_F(RoundNumbers, ImbalanceSlowsTheExpertsOfAMoeBlock) {
  Block& block = workload_.blocks[1];
  block.kind = ir::BlockKind::moe;
  workload_.shape.hidden = 1000;
  workload_.shape.ffn = 1000;
  workload_.shape.experts = 4;
  workload_.shape.top_k = 2;
  // 2 x 3 matrices x 128 tokens x 10^6 x top 2 = 1.536e9 FLOPs
  block.forward_flops = {2 * 1.536e9};
  block.expert_flops = {1.536e9};
  block.memory_traffic = {};
  block.parameters.clear();
  const double even = price(layer());
  workload_.shape.expert_imbalance = 1.5;
  EXPECT_NEAR(price(layer()), 1.25 * even, 1e-12);
}

TEST_F(RoundNumbers, ExpertsOfUnlikeSharesComputeForTheSamplesOfAllGroups) {
  Block& block = workload_.blocks[1];
  block.kind = ir::BlockKind::moe;
  block.forward_flops = {50e12};  // 0.2 s around experts, 0.8 s in them, of a sample
  block.expert_flops = {40e12};
  block.memory_traffic = {};
  block.parameters.clear();
  workload_.shape.experts = 4;
  BlockQuery query = layer();
  query.expert_parallel = 2;
  query.samples = 3;
  EXPECT_DOUBLE_EQ(price(query), 3);
  query.expert_samples = 4;
  query.experts = 1;
  const BlockParts few = pricer().block_parts(query);
  EXPECT_DOUBLE_EQ(few.all.value, 3 * 0.2 + 4 * 0.8 / 4);
  EXPECT_DOUBLE_EQ(few.experts.value, 4 * 0.8 / 4);
  query.samples = 1;
  query.experts = 3;
  EXPECT_DOUBLE_EQ(price(query), 0.2 + 4 * 0.8 * 3 / 4);
  query.recompute = ir::Recompute::experts;
  query.pass = Pass::backward;
  EXPECT_DOUBLE_EQ(price(query), 2 * (0.2 + 2.4) + 2.4);
  // 2.6 s of a GPU that would take 1 s: what was measured stretches likewise.
  measure(Pass::forward, 1, 5);
  profile_.block_times.back().block = ir::BlockKind::moe;
  query = {.block = {1}, .expert_parallel = 2, .experts = 3, .expert_samples = 4};
  EXPECT_DOUBLE_EQ(price(query), 5 * 2.6);
}

TEST_F(RoundNumbers, MeasuredTimeComesBeforeTheRoofline) {
  measure(Pass::forward, 1, 7);
  const Pricer prices = pricer();
  EXPECT_DOUBLE_EQ(prices.block(layer()).value, 7);
  ASSERT_EQ(prices.used_entries().size(), 1u);
  EXPECT_EQ(prices.used_entries()[0],
            "profile: round transformer forward tp 1 samples 1 sequence 128 bf16");
  BlockQuery other = layer();
  other.tensor_parallel = 2;  // not measured
  EXPECT_DOUBLE_EQ(prices.block(other).value, 0.5);
  EXPECT_EQ(prices.used_entries().size(), 2u);
}

TEST_F(RoundNumbers, OwnModelIsPreferredToAnyModel) {
  measure(Pass::forward, 1, 7);
  measure(Pass::forward, 1, 8, "toy");
  measure(Pass::forward, 1, 9, "other");
  EXPECT_DOUBLE_EQ(price(layer()), 8);
}

TEST_F(RoundNumbers, TimesBetweenTwoMicroBatchSizesAreLinear) {
  measure(Pass::forward, 2, 10);
  measure(Pass::forward, 6, 18);
  measure(Pass::forward, 20, 1000);
  const Pricer prices = pricer();
  BlockQuery query = layer();
  query.samples = 3;
  EXPECT_DOUBLE_EQ(prices.block(query).value, 12);
  EXPECT_NE(prices.used_entries()[0].find("linear between samples 2 and 6"), std::string::npos);
  query.samples = 1;  // outside: roofline
  EXPECT_DOUBLE_EQ(prices.block(query).value, 1);
}

TEST_F(RoundNumbers, HalvesOfTheBackwardPassMakeTheWholeAndBack) {
  measure(Pass::backward, 1, 6);
  EXPECT_DOUBLE_EQ(price(layer(Pass::backward_input)), 3);
  profile_.block_times.clear();
  measure(Pass::backward_input, 1, 4);
  measure(Pass::backward_weight, 1, 5);
  EXPECT_DOUBLE_EQ(price(layer(Pass::backward)), 9);
}

TEST_F(RoundNumbers, OptimizerReadsAndWritesItsStates) {
  // 2 + 2 + 2 * (4 + 8) = 28 bytes per parameter at 500 GB/s
  EXPECT_DOUBLE_EQ(pricer().optimizer(0, 1e9).value, 28e9 / 500e9);
}

/// Two pipelines of one stage (blocks 0 to 3 each), tensor-parallel pairs.
class SmallProgram : public RoundNumbers {
 protected:
  SmallProgram() {
    for (int p = 0; p < 2; ++p) {
      ir::SegmentInfo segment;
      segment.pipeline = p;
      segment.first_block = {0};
      segment.last_block = {3};
      segment.tensor_parallel = 2;
      program_.segments.push_back(segment);
      ir::Rank rank;
      rank.pipeline = p;
      rank.device = {2 * p};
      rank.devices = worlds::devices({2 * p, 2 * p + 1});
      program_.ranks.push_back(rank);
    }
    ir::SegmentInfo part = program_.segments[0];  // a bucket of the first one's backward pass
    part.last_block = {1};
    program_.segments.push_back(part);
    for (int p = 0; p < 2; ++p) {
      add(ir::OpKind::forward, p, p);
      add(ir::OpKind::backward, p, p);
      add(ir::OpKind::send, p, p);
      add(ir::OpKind::optimizer_step, p, ir::kNone);
    }
  }
  void add(ir::OpKind kind, int rank, int segment) {
    ir::Op op;
    op.kind = kind;
    op.rank = {rank};
    op.segment = segment;
    op.samples = 2;
    program_.ops.push_back(op);
  }
  double compute(int op) const { return pricer().compute(program_, program_.ops[op]).value; }
  ir::Program program_;
};

TEST_F(SmallProgram, OpIsTheSumOfItsBlocks) {
  EXPECT_DOUBLE_EQ(compute(0), 0.1 + 1 + 1 + 1);  // 2 samples on 2 devices
  EXPECT_DOUBLE_EQ(compute(1), 0.2 + 2 + 2 + 2);
  EXPECT_DOUBLE_EQ(compute(2), 0);
}

TEST_F(SmallProgram, OptimizerUpdatesEachBlockOfTheRankOnce) {
  EXPECT_DOUBLE_EQ(compute(3), 28 * 0.5 * (1e12 + 3e11) / 500e9);
  const double whole = compute(3);
  for (ir::SegmentInfo& segment : program_.segments) segment.zero.stage = 1;
  EXPECT_DOUBLE_EQ(compute(3), whole / 2);  // two replicas share the states
  EXPECT_DOUBLE_EQ(compute(7), whole / 2);
}

TEST_F(SmallProgram, PartsOfASequenceShareTheStatesToo) {
  const double whole = compute(3);
  for (ir::SegmentInfo& segment : program_.segments) {
    segment.zero.stage = 1;
    if (segment.pipeline == 1) segment.sequence_degree = 3;
  }
  EXPECT_DOUBLE_EQ(compute(3), whole / 4);
}

TEST_F(SmallProgram, WhatOthersComputeForAPipelineIsNoReplicaOfItsOwn) {
  const double whole = compute(3);
  ir::SegmentInfo detour = program_.segments[0];  // to a stage of two groups
  program_.segments.push_back(detour);
  detour.group = 1;
  program_.segments.push_back(detour);
  for (ir::SegmentInfo& segment : program_.segments) segment.zero.stage = 1;
  EXPECT_DOUBLE_EQ(compute(3), whole / 2);
}

TEST_F(SmallProgram, TheMatrixOfTiedEmbeddingsIsSteppedOnce) {
  workload_.shape.vocabulary = 8;
  const double apart = compute(3);
  workload_.shape.tied_embeddings = true;
  EXPECT_DOUBLE_EQ(apart - compute(3), 28 * 0.5 * 1e12 / 500e9);
  for (ir::SegmentInfo& segment : program_.segments) segment.zero.stage = 1;
  EXPECT_DOUBLE_EQ(apart / 2 - compute(3), 28 * 0.25 * 1e12 / 500e9);
  program_.segments[0].first_block = {1};
  program_.segments[2].first_block = {1};
  EXPECT_DOUBLE_EQ(compute(3), 28 * 0.5 * 3e11 / 2 / 500e9) << "one end alone";
}

TEST_F(SmallProgram, DeviceAndHostStepTheirPartsSideBySide) {
  cluster_.links["slot"] = {"slot", BytesPerSecond{10e9}, {}, 1, false, ""};
  cluster_.nodes[0].pcie = {{{0, 1, 2, 3}, "slot", ""}};
  cluster_.nodes[0].host_memory = 1_GiB;
  cluster_.nodes[0].host_memory_bandwidth = BytesPerSecond{4 * 1e9};
  const double device = compute(3);
  const double host = 0.5 * (1e12 + 3e11) * 2 * (2 + 2 + 12) / 1e9;
  program_.header.optimizer_offload = 1e-6;  // The CPU has hardly anything to do.
  EXPECT_DOUBLE_EQ(compute(3), (1 - 1e-6) * device);
  program_.header.optimizer_offload = 0.25;
  EXPECT_DOUBLE_EQ(compute(3), 0.25 * host);
  EXPECT_DOUBLE_EQ(ProgramPrices(program_, pricer()).compute({3}).value, 0.25 * host);
  program_.header.optimizer_offload = 1;
  EXPECT_DOUBLE_EQ(compute(3), host);
}

TEST_F(SmallProgram, SlowestDeviceOfARankDecides) {
  GpuType slow = worlds::round_gpu("slow");
  slow.peak[ir::Dtype::bf16] = 50_TFLOPS;
  cluster_.gpu_types.push_back(slow);
  cluster_.devices[1].gpu_type = 1;
  EXPECT_DOUBLE_EQ(compute(0), 0.1 + 2 + 2 + 2);
  EXPECT_DOUBLE_EQ(compute(4), 0.1 + 1 + 1 + 1);
}

TEST_F(SmallProgram, TableGivesEveryOpThePriceOfThePricer) {
  cluster_.gpu_types.push_back(worlds::round_gpu("other"));
  cluster_.gpu_types[1].peak[ir::Dtype::bf16] = 10_TFLOPS;
  cluster_.devices[3].gpu_type = 1;
  const Pricer prices = pricer();
  const ProgramPrices table(program_, prices);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    EXPECT_EQ(table.compute({static_cast<std::int32_t>(i)}),
              prices.compute(program_, program_.ops[i]))
        << "op " << i;
  }
}

TEST(DeviceShare, UnevenSlicesCountTheLargest) {
  Block block;
  block.parameters = {{"heads", 3000, 3}, {"norm", 7, 0}, {"experts", 800, 8, true}};
  EXPECT_DOUBLE_EQ(device_parameters(block, 1, 1), 3807);
  EXPECT_DOUBLE_EQ(device_parameters(block, 2, 1), 2000 + 7 + 400);
  EXPECT_DOUBLE_EQ(device_parameters(block, 2, 4), 2000 + 7 + 100);
}

TEST(DeviceShare, ShardGroupsBoundTheShards) {
  EXPECT_EQ(shard_count({0, 0}, 8), 1);
  EXPECT_EQ(shard_count({1, 0}, 8), 8);
  EXPECT_EQ(shard_count({1, 4}, 8), 4);
  EXPECT_EQ(shard_count({1, 16}, 8), 8);
}

TEST(DeviceShare, ExpertsHaveFewerCopiesToShareStates) {
  Block block;
  block.parameters = {{"dense", 800, 8}, {"experts", 800, 8, true}};
  EXPECT_DOUBLE_EQ(sharded_parameters(block, 1, 4, {1, 0}, 8), 100 + 800.0 / 4 / 2);
}

}  // namespace
}  // namespace orrery::models::pricer_test
