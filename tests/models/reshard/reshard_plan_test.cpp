// Does a switch move what one can count by hand?
#include "models/reshard/reshard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "models/check/validate.h"
#include "models/spec/library.h"

namespace orrery::models::reshard_plan_test {
namespace {

constexpr double kHidden = 6656;
constexpr double kFfn = 17920;
constexpr double kVocabulary = 30592;
constexpr double kBytesPerParameter = 6;
/// Parameters of a layer that tensor parallelism splits; the two norm gains are not.
constexpr double kSplit = 4 * kHidden * kHidden + 3 * kHidden * kFfn;

class HetuSwitch : public ::testing::Test {
 protected:
  explicit HetuSwitch(const char* name = "hetu_32h20") {
    config::Diagnostics diagnostics;
    const Library library = load_library(default_library_root(), diagnostics);
    job.global_batch = 64;
    job.sequence_length = 4096;
    job.allowed.zero_stages = {0, 1};
    job.allowed.sequence_parallel = true;
    cluster = load_cluster(name, library, {}, diagnostics);
    workload = load_workload("hetu_32b", job, library, {}, diagnostics);
    diagnostics.raise();
  }

  ir::Plan plan(const std::string& name) const {
    config::Diagnostics diagnostics;
    ir::Plan out = load_plan("experiments/hetu/plans/" + name + ".yaml", diagnostics);
    diagnostics.raise();
    EXPECT_TRUE(validate(out, cluster, workload, job).empty()) << name;
    return out;
  }

  static std::vector<DeviceId> range(int first, int last) {
    std::vector<DeviceId> out;
    for (int d = first; d <= last; ++d) out.push_back({d});
    return out;
  }

  ReshardPlan to(const ir::Plan& before, const ir::Plan& after, std::vector<DeviceId> lost,
                 ReshardVariant variant = ReshardVariant::fused) const {
    return plan_reshard(before, after, cluster, Topology(cluster), workload,
                        {weight_bytes(job), variant, std::move(lost)});
  }

  Cluster cluster;
  Workload workload;
  Job job;
};

class HetuMixedSwitch : public HetuSwitch {
 protected:
  HetuMixedSwitch() : HetuSwitch("hetu") {}
};

double received(const ReshardPlan& plan, int device) {
  for (const DeviceTraffic& traffic : plan.devices) {
    if (traffic.device.value == device) return sum(traffic.received).value;
  }
  return 0;
}

double sent_over_network(const ReshardPlan& plan, int device) {
  for (const DeviceTraffic& traffic : plan.devices) {
    if (traffic.device.value != device) continue;
    return traffic.sent[PathClass::network].value;
  }
  return 0;
}

// C1 -> C2 by hand. Pipeline 0 (ranks 0-15) stays. Ranks 16-19, 20-23, 24-27 get 1, 2 and 3 layers
// more, of which nobody among them had a part: each quarter of the split parameters, and the norm
// gains whole. Ranks 28 and 29 had quarters 0 and 1 of layers 45-59 and get halves of 48-55: rank
// 28 lacks a quarter, rank 29 two. Rank 30 had quarter 2 and gets 56-59 and the head whole: it
// lacks three. Norm gains of these layers they have.
TEST_F(HetuSwitch, C1ToC2MovesWhatTheNewSlicesNeed) {
  const ReshardPlan plan = to(this->plan("c1"), this->plan("c2"), range(31, 31));
  const double norms = 2 * kHidden;
  const double head = kVocabulary * kHidden;
  const std::map<int, double> expected = {{16, kSplit / 4 + norms},
                                          {19, kSplit / 4 + norms},
                                          {20, 2 * (kSplit / 4 + norms)},
                                          {23, 2 * (kSplit / 4 + norms)},
                                          {24, 3 * (kSplit / 4 + norms)},
                                          {27, 3 * (kSplit / 4 + norms)},
                                          {28, 8 * kSplit / 4},
                                          {29, 8 * kSplit / 2},
                                          {30, 4 * kSplit * 3 / 4 + 0.75 * head},
                                          {0, 0},
                                          {15, 0},
                                          {31, 0}};
  for (const auto& [device, parameters] : expected) {
    EXPECT_DOUBLE_EQ(received(plan, device), kBytesPerParameter * parameters) << device;
  }
  const double total = 15 * kSplit + 0.75 * head + 4 * 6 * norms;
  EXPECT_DOUBLE_EQ(sum(plan.moved).value, kBytesPerParameter * total);
  EXPECT_TRUE(plan.lost.empty());
}

TEST_F(HetuSwitch, VariantsMoveEqualVolumes) {
  const ir::Plan before = plan("c1");
  const ir::Plan after = plan("c2");
  const ReshardPlan fused = to(before, after, range(31, 31));
  const ReshardPlan unfused = to(before, after, range(31, 31), ReshardVariant::unfused);
  const ReshardPlan plain = to(before, after, range(31, 31), ReshardVariant::no_heuristics);
  EXPECT_DOUBLE_EQ(sum(fused.moved).value, sum(unfused.moved).value);
  EXPECT_DOUBLE_EQ(sum(fused.moved).value, sum(plain.moved).value);
  for (const DeviceTraffic& device : fused.devices) {
    EXPECT_DOUBLE_EQ(received(unfused, device.device.value), sum(device.received).value);
    EXPECT_DOUBLE_EQ(received(plain, device.device.value), sum(device.received).value);
  }
  EXPECT_LT(fused.messages.size(), unfused.messages.size());
}

/// Most that one of the ranks sends over the network.
double busiest(const ReshardPlan& plan, const std::vector<DeviceId>& ranks) {
  double most = 0;
  for (const DeviceTraffic& traffic : plan.devices) {
    if (std::find(ranks.begin(), ranks.end(), traffic.device) == ranks.end()) continue;
    most = std::max(most, traffic.sent[PathClass::network].value);
  }
  return most;
}

// Section 8: the heuristics "better leverage high-bandwidth NVLink connections".
TEST_F(HetuSwitch, HeuristicsUseNvlinkInsteadOfTheNetwork) {
  const ReshardPlan fused = to(plan("c1"), plan("c2"), range(31, 31));
  const ReshardPlan plain =
      to(plan("c1"), plan("c2"), range(31, 31), ReshardVariant::no_heuristics);
  EXPECT_GT(fused.moved[PathClass::nvlink].value, plain.moved[PathClass::nvlink].value);
  EXPECT_LT(fused.moved[PathClass::network].value, plain.moved[PathClass::network].value);
}

// Section 8: they "distribute traffic more evenly across ranks". Ranks 8-11 and 24-27 hold the
// layers that ranks 20-23 lack; tensor by tensor the same one is chosen each time.
TEST_F(HetuSwitch, FusingSpreadsWhatTwoPipelinesHold) {
  std::vector<DeviceId> ranks = range(8, 11);
  for (const DeviceId rank : range(24, 27)) ranks.push_back(rank);
  const ReshardPlan fused = to(plan("c1"), plan("c2"), range(31, 31));
  const ReshardPlan unfused = to(plan("c1"), plan("c2"), range(31, 31), ReshardVariant::unfused);
  EXPECT_LT(busiest(fused, ranks), 0.6 * busiest(unfused, ranks));
}

// Eight layers' slices are missing in each of ranks 20-23, and eight ranks hold them: whole slices
// of a layer leave all with the same load, slices of tensors with loads a tenth off.
TEST_F(HetuSwitch, EachRankSendsTheSameNumberOfWholeLayers) {
  const ReshardPlan fused = to(plan("c1"), plan("c2"), range(31, 31));
  const ReshardPlan by_tensor =
      to(plan("c1"), plan("c2"), range(31, 31), ReshardVariant::fused_by_tensor);
  double least = 1e30, most = 0;
  for (const int rank : {8, 9, 10, 11, 24, 25, 26, 27}) {
    EXPECT_NEAR(sent_over_network(fused, rank), kBytesPerParameter * kSplit / 4,
                kBytesPerParameter * 8 * kHidden)
        << rank;
    least = std::min(least, sent_over_network(by_tensor, rank));
    most = std::max(most, sent_over_network(by_tensor, rank));
  }
  EXPECT_GT(most, 1.05 * least);
}

// "a failure on one pipeline won't cause permanent loss of any weight" (A.3).
TEST_F(HetuSwitch, HomogeneousSwitchesLoseNothing) {
  EXPECT_TRUE(to(plan("c1"), plan("c2"), range(31, 31)).lost.empty());
  EXPECT_TRUE(to(plan("c2"), plan("c3"), range(24, 31)).lost.empty());
}

TEST_F(HetuMixedSwitch, HeterogeneousSwitchesLoseNothing) {
  EXPECT_TRUE(to(plan("c4"), plan("c5"), range(40, 47)).lost.empty());
  EXPECT_TRUE(to(plan("c5"), plan("c6"), range(15, 15)).lost.empty());
  EXPECT_TRUE(to(plan("c6"), plan("c7"), range(8, 15)).lost.empty());
}

// With ZeRO-1 "there must be data loss upon GPU failures" (7.2): the shards of the lost GPU. Half
// of its quarter of layers 45-59, as whole heads and columns; weights it shares with rank 15.
TEST_F(HetuSwitch, WithZeroTheShardsOfALostDeviceAreLost) {
  ir::Plan before = plan("c1");
  for (ir::Pipeline& pipeline : before.pipelines) {
    for (ir::Stage& stage : pipeline.stages) stage.segments[0].zero.stage = 1;
  }
  const ReshardPlan switched = to(before, plan("c2"), range(31, 31));
  ASSERT_FALSE(switched.lost.empty());
  double bytes = 0;
  for (const LostState& lost : switched.lost) {
    const StateRow& row = switched.rows[lost.row];
    EXPECT_EQ(row.part, StatePart::optimizer);
    EXPECT_GE(row.block.value, 46);
    EXPECT_EQ(lost.held_by, range(31, 31));
    bytes += row.bytes.value;
  }
  // 16 of 64 heads, 4,480 columns and 7,648 words on rank 31 and its peer 15: halves.
  const double attention = 4 * kHidden * kHidden / 8;
  const double feed_forward = 3 * kHidden * kFfn / 8;
  const double head = kVocabulary * kHidden / 8;
  EXPECT_DOUBLE_EQ(bytes, 4 * (15 * (attention + feed_forward) + head));
}

TEST_F(HetuSwitch, LosingBothCopiesOfALayerNamesIt) {
  std::vector<DeviceId> lost = range(15, 15);
  lost.push_back({31});
  ir::Plan after = plan("c3");  // Uses rank 15: as rank 24.
  for (ir::Pipeline& pipeline : after.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (DeviceId& device : stage.segments[0].groups[0].devices) {
        if (device.value == 15) device = {24};
      }
    }
  }
  const ReshardPlan switched = to(plan("c1"), after, lost);
  ASSERT_FALSE(switched.lost.empty());
  double bytes = 0;
  for (const LostState& state : switched.lost) {
    EXPECT_EQ(state.held_by, lost);
    bytes += switched.rows[state.row].bytes.value;
  }
  EXPECT_DOUBLE_EQ(bytes, kBytesPerParameter * (15 * kSplit / 4 + kVocabulary * kHidden / 4));
}

TEST_F(HetuSwitch, StatesToMoveAreCountedByTheJob) {
  EXPECT_EQ(weight_bytes(job).weight + weight_bytes(job).optimizer(), 6);
  EXPECT_EQ(all_state_bytes(job).weight + all_state_bytes(job).optimizer(), 14);
}

TEST_F(HetuSwitch, ProblemsNameTheirPlace) {
  ir::Plan redundant = plan("c1");
  redundant.redundancy = ir::Redundancy::next_stage;
  redundant.pipelines[0].stages[0].segments[0].zero.stage = 1;
  const auto problems =
      find_problems(redundant, plan("c2"), cluster, {{}, ReshardVariant::fused, {{30}, {99}}});
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].where, ReshardProblem::Where::lost);
  EXPECT_EQ(problems[0].what, "device 30 is lost, but the new plan uses it");
  EXPECT_EQ(problems[1].what, "no device 99: the cluster has 0 to 31");
  EXPECT_EQ(problems[2].where, ReshardProblem::Where::from);
  EXPECT_EQ(problems[2].what.rfind("pipelines[0].stages[0].segments[0].zero: redundancy", 0), 0u)
      << problems[2].what;
}

TEST_F(HetuMixedSwitch, AllPublishedPlansAreValid) {
  for (const char* name : {"c4", "c5", "c6", "c7", "table5_32b_16h800_16h20",
                           "table5_32b_16h800_24h20", "table5_32b_16h800_32h20"}) {
    plan(name);
  }
}

}  // namespace
}  // namespace orrery::models::reshard_plan_test
