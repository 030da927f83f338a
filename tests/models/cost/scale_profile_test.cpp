#include "models/cost/scale_profile.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/cost/pricer.h"
#include "tests/worlds/clusters.h"

namespace orrery::models::scale_profile_test {
namespace {

using ir::Pass;

ir::Provenance measured() {
  ir::Provenance from;
  from.source = "run 7";
  from.samples = 9;
  from.held_out_error = 0.02;
  return from;
}

/// `slow` has a quarter of the achieved compute and half of the achieved memory bandwidth.
class ScaledProfile : public ::testing::Test {
 protected:
  ScaledProfile() : slow_(worlds::round_gpu("slow")) {
    slow_.peak[ir::Dtype::bf16] = 50_TFLOPS;
    slow_.efficiency = 0.25;
    slow_.memory_efficiency = 0.25;
    for (const Pass pass : {Pass::forward, Pass::optimizer}) {
      ir::BlockTime time;
      time.gpu = "round";
      time.pass = pass;
      time.sequence_length = 128;
      time.time = Seconds{1};
      time.provenance = measured();
      profile_.block_times.push_back(time);
    }
    profile_.optimizers = {{"round", ir::Dtype::bf16, Seconds{1}, Seconds{1e-9}, measured()}};
    profile_.pass_overheads = {{"round", Pass::forward, Seconds{0.5}, measured()}};
    profile_.efficiencies = {
        {"round", ir::Dtype::bf16, {{Flops{1}, 0.2}, {Flops{2}, 0.4}}, measured()}};
    profile_.overlap_losses = {{"round", 0.1, measured()}};
    profile_.exposed_collectives = {{"round", ir::Purpose::tensor_parallel, 0.4, measured()}};
    profile_.memory = {{"round", Bytes{7}, 1.1, measured()}};
  }
  GpuType fast_ = worlds::round_gpu();
  GpuType slow_;
  ir::Profile profile_;
};

TEST_F(ScaledProfile, ComputeGoesByPeakAndMemoryByBandwidth) {
  const ir::Profile out = scale_profile(profile_, fast_, slow_);
  ASSERT_EQ(out.block_times.size(), 4u);
  EXPECT_EQ(out.block_times[2].gpu, "slow");
  EXPECT_DOUBLE_EQ(out.block_times[2].time.value, 4);
  EXPECT_DOUBLE_EQ(out.block_times[3].time.value, 2) << "an optimizer step is bound by memory";
  EXPECT_DOUBLE_EQ(out.optimizers.at(1).per_parameter.value, 2e-9);
  EXPECT_DOUBLE_EQ(out.optimizers.at(1).fixed.value, 1);
  EXPECT_DOUBLE_EQ(out.pass_overheads.at(1).time.value, 0.5);
  EXPECT_DOUBLE_EQ(out.overlap_losses.at(1).share, 0.1);
  EXPECT_DOUBLE_EQ(out.exposed_collectives.at(1).share, 0.4);
  EXPECT_DOUBLE_EQ(out.efficiencies.at(1).points[1].efficiency, 0.2);
  EXPECT_DOUBLE_EQ(out.memory.at(1).fragmentation, 1.1);
}

TEST_F(ScaledProfile, EveryNumberSaysWhereItComesFrom) {
  const ir::Profile out = scale_profile(profile_, fast_, slow_);
  for (const ir::Provenance& from : {out.block_times[2].provenance, out.block_times[3].provenance,
                                     out.optimizers[1].provenance, out.pass_overheads[1].provenance,
                                     out.efficiencies[1].provenance, out.memory[1].provenance}) {
    EXPECT_EQ(from.source, "scaled from round: run 7");
    EXPECT_FALSE(from.held_out_error.has_value()) << "nobody measured the error on the other GPU";
  }
  EXPECT_EQ(out.block_times[0].provenance, measured());
}

TEST_F(ScaledProfile, OwnMeasurementsAreKept) {
  ir::BlockTime own = profile_.block_times[0];
  own.gpu = "slow";
  own.time = Seconds{3};
  profile_.block_times.push_back(own);
  const ir::Profile out = scale_profile(profile_, fast_, slow_);
  const auto count = std::count_if(
      out.block_times.begin(), out.block_times.end(),
      [](const ir::BlockTime& time) { return time.gpu == "slow" && time.pass == Pass::forward; });
  EXPECT_EQ(count, 1);
  EXPECT_EQ(out.block_times[2].time.value, 3);
}

TEST_F(ScaledProfile, ADtypeIsTheOneThatTheOtherGpuComputes) {
  slow_.peak = {{ir::Dtype::fp16, 50_TFLOPS}};
  const ir::Profile out = scale_profile(profile_, fast_, slow_);
  EXPECT_EQ(out.block_times.at(2).dtype, ir::Dtype::fp16);
  EXPECT_DOUBLE_EQ(out.block_times[2].time.value, 4);
  slow_.peak = {{ir::Dtype::fp8, 50_TFLOPS}};
  EXPECT_EQ(scale_profile(profile_, fast_, slow_).block_times.size(), 2u);
}

TEST_F(ScaledProfile, ThePricerSaysThatANumberIsScaled) {
  Workload workload;
  workload.sequence_length = 128;
  workload.blocks.resize(1);
  const Cluster cluster = worlds::bare_cluster({{0}}, {slow_});
  const Pricer pricer(cluster, workload, {}, scale_profile(profile_, fast_, slow_));
  BlockQuery query;
  query.block = {0};
  EXPECT_DOUBLE_EQ(pricer.block(query).value, 4);
  ASSERT_EQ(pricer.used_entries().size(), 1u);
  const std::string line = pricer.used_entries().front();
  EXPECT_NE(line.find(", scaled from round"), std::string::npos) << line;
}

}  // namespace
}  // namespace orrery::models::scale_profile_test
