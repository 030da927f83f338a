// Plans of a toy model by hand: two layers of 1 s forward and 2 s backward, activations of 2048
// bytes over links of 4096 B/s, so that a transfer takes 0.5 s.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "experiments/validation/sailor/data.h"
#include "experiments/validation/sailor/deepspeed.h"
#include "experiments/validation/sailor/predict.h"
#include "experiments/validation/sailor/report.h"
#include "models/lower/lower.h"
#include "tests/calibration/sailor_fixture.h"
#include "tests/experiments/library.h"

namespace orrery::experiments::sailor_test {
namespace {

using orrery::support::SailorFolder;
using support::library;

constexpr double kForward = 1, kBackward = 2, kTransfer = 0.5;

std::string plan_json(const std::string& id, int micro_batches, int replicas, bool two_stages,
                      const std::string& more = "") {
  const auto stage = [&](int first, int last) {
    return fmt::format(
        R"({{"first_layer": {}, "last_layer": {}, "replicas": [{{"gpu": "GH-96", "tp": 1, "count": {}}}]}})",
        first, last, replicas);
  };
  return fmt::format(
      R"({{"id": "{}", "cluster": "gh200", "model": "toy", "micro_batch": 1, "global_batch": {}, "micro_batches_per_pipeline": {}, "nodes": 2, "pipelines": [{{"data_parallel": {}, "stages": [{}]}}]{}}})",
      id, micro_batches * replicas, micro_batches, replicas,
      two_stages ? stage(0, 1) + ", " + stage(2, 3) : stage(0, 3), more);
}

SailorData read(const SailorFolder& folder, const std::string& plans) {
  folder.write("measured.json", "{\"plans\": [" + plans + "]}");
  folder.write("unmeasured_plans.json", "{\"plans\": [" + plan_json("u", 1, 1, false) + "]}");
  config::Diagnostics diagnostics;
  SailorData data = read_sailor_data(folder.path(), diagnostics);
  diagnostics.raise();
  return data;
}

SailorPrediction predict(const SailorFolder& folder, const SailorData& data) {
  const ir::Profile profile = sailor_profile(data, folder.path(), true);
  return predict_sailor(data.plans.front(), data, profile, library());
}

/// Time of the optimizer, the embedding's backward pass and latencies, which are not counted by
/// hand.
constexpr double kSmall = 0.01;

TEST(DeepSpeed, OnePassOfTwoStagesIsForwardsTransfersBackwards) {
  const SailorFolder folder("one");
  const SailorData data = read(folder, plan_json("p", 1, 1, true));
  EXPECT_NEAR(predict(folder, data).iteration.value, 2 * (kForward + kBackward) + 2 * kTransfer,
              kSmall);
}

TEST(DeepSpeed, SendsBlockTheirStage) {
  // Stage 0: F0 S F1 | R S B0 | R B1; its second send and both receives wait for nothing else.
  const SailorFolder folder("block");
  const SailorData data = read(folder, plan_json("p", 2, 1, true));
  const SailorPrediction prediction = predict(folder, data);
  EXPECT_NEAR(prediction.iteration.value, 3 * (kForward + kBackward) + 4 * kTransfer, kSmall);
  EXPECT_LT(prediction.iteration_overlapped.value, prediction.iteration.value - kTransfer / 2);
}

TEST(DeepSpeed, EachFurtherMicroBatchTakesItsPassesAndTwoTransfers) {
  const SailorFolder folder("steady");
  const auto time = [&](int micro_batches) {
    const SailorData data = read(folder, plan_json("p", micro_batches, 1, true));
    return predict(folder, data).iteration.value;
  };
  EXPECT_NEAR(time(6) - time(5), kForward + kBackward + 2 * kTransfer, kSmall);
}

TEST(DeepSpeed, OneStageSendsNothing) {
  const SailorFolder folder("alone");
  const SailorData data = read(folder, plan_json("p", 3, 1, false));
  EXPECT_NEAR(predict(folder, data).iteration.value, 3 * 2 * (kForward + kBackward), kSmall);
}

TEST(DeepSpeed, SlicesAreGatheredOnceForwardAndTwiceBackward) {
  const SailorFolder folder("slices");
  folder.write("layer_times.csv",
               "model,gpu,tp,micro_batch,first_layer,last_layer,forward_s,backward_s\n"
               "toy,GH-96,2,1,0,0,0,2e-06\ntoy,GH-96,2,1,1,2,1,2\ntoy,GH-96,2,1,3,3,0,0\n");
  folder.write("layer_memory.csv",
               "model,tp,first_layer,last_layer,params_per_gpu,params_bytes_per_gpu,input_bytes,"
               "output_bytes,saved_activation_bytes\n"
               "toy,2,0,0,8704,34816,64,2048,1000\ntoy,2,1,2,25088,100352,2048,2048,4000\n"
               "toy,2,3,3,8320,33280,2048,8192,3000\n");
  folder.write("clusters.json",
               R"({"clusters": {"gh200": {"gpu": "GH-96", "gpus_per_node": 2,
 "memory_bytes_per_gpu": 1e11}}})");
  // Each of two GPUs sends 1024 bytes over its own NIC, 0.25 s, and again inside its node, 0.5 s.
  folder.write("network_bandwidth.csv",
               "link,sender_gpu,sender_pairs,receiver_gpu,receiver_pairs,c2,c1,c0,"
               "max_measured_bytes_per_s,fit_positive_from_bytes,same_numbers_as\n"
               "intra_node,GH-96,1,GH-96,1,0,0,2.048e-06,2048,65536,\n"
               "inter_node,GH-96,1,GH-96,1,0,0,4.096e-06,4096,65536,\n");
  std::string plan = plan_json("p", 1, 1, true);
  for (std::size_t at = 0; (at = plan.find("\"tp\": 1", at)) != std::string::npos;) {
    plan.replace(at, 7, "\"tp\": 2");
  }
  const SailorData data = read(folder, plan);
  constexpr double kSlice = 0.25, kGather = 0.5;
  EXPECT_NEAR(predict(folder, data).iteration.value,
              2 * (kForward + kBackward) + 2 * kSlice + 3 * kGather, kSmall);
}

TEST(DeepSpeed, GradientsAreReducedAfterTheLastBackwardPass) {
  const SailorFolder folder("reduce");
  const SailorData data = read(folder, plan_json("p", 1, 2, false));
  const models::Workload workload = sailor_workload(data.plans.front(), data);
  // Two replicas: each sends and receives the whole gradient once.
  const double bytes = 4 * static_cast<double>(models::parameters(workload));
  EXPECT_NEAR(predict(folder, data).iteration.value, 2 * (kForward + kBackward) + bytes / 4096,
              kSmall);
}

TEST(DeepSpeed, KeepsEveryOpAndAddsOneFlatGradientBufferForEachRank) {
  const SailorFolder folder("program");
  const SailorData data = read(folder, plan_json("p", 4, 2, true));
  const SailorPlan& plan = data.plans.front();
  const models::Cluster cluster = sailor_cluster(plan, data, library());
  const models::Workload workload = sailor_workload(plan, data);
  const ir::Program lowered = models::lower(sailor_plan(plan, cluster, workload), cluster, workload,
                                            sailor_job(plan, data), {});
  const ir::Program program = as_deepspeed(lowered);
  ASSERT_EQ(program.ops.size(), lowered.ops.size());
  EXPECT_GT(program.dependencies.size(), lowered.dependencies.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    Bytes before, after, gradients;
    for (const auto& effect : lowered.resident[r]) {
      before += effect.bytes;
      if (effect.kind == ir::BufferKind::gradients) gradients += effect.bytes;
    }
    for (const auto& effect : program.resident[r]) after += effect.bytes;
    EXPECT_GT(gradients.value, 0);
    EXPECT_DOUBLE_EQ((after - before).value, gradients.value);
  }
}

TEST(SailorPrediction, HoldsStatesFlatGradientsActivationsAndStaging) {
  const SailorFolder folder("memory");
  const SailorData data = read(folder, plan_json("p", 3, 1, true));
  // Stage 0: embedding and a layer, two micro-batches in flight, one activation to send.
  const double first = (8704 + 49984) * 20.0 + 2 * (1000 + 7000) + 2048;
  // Stage 1: a layer and the head, one in flight, one activation received, gradient of logits.
  const double second = (49984 + 8320) * 20.0 + (7000 + 3000) + 2048 + 8 * 128 * 4;
  EXPECT_DOUBLE_EQ(predict(folder, data).held.value, std::max(first, second));
}

TEST(SailorWorkload, CountsTheParametersOfTheData) {
  const SailorFolder folder("parameters");
  const SailorData data = read(folder, plan_json("p", 1, 1, false));
  const models::Workload workload = sailor_workload(data.plans.front(), data);
  for (int layer = 0; layer < workload.size(); ++layer) {
    EXPECT_DOUBLE_EQ(static_cast<double>(models::parameters(workload.block({layer}))),
                     layer_memory(data, "toy", 1, layer).parameters)
        << layer;
  }
}

TEST(SailorCluster, HasANodeForEachReplicaOfEachStage) {
  const SailorFolder folder("cluster");
  const SailorData data = read(folder, plan_json("p", 1, 3, true));
  const models::Cluster cluster = sailor_cluster(data.plans.front(), data, library());
  EXPECT_EQ(cluster.nodes.size(), 6U);
  EXPECT_DOUBLE_EQ(cluster.gpu_types.front().memory.value, 1e11);
}

TEST(SailorProfile, AddsAHeadOnlyWhereTheDataHasNone) {
  const SailorFolder folder("head");
  SailorData data = read(folder, plan_json("p", 1, 1, false));
  EXPECT_TRUE(head_is_profiled(data, "toy", 1));
  folder.write("layer_memory.csv",
               "model,tp,first_layer,last_layer,params_per_gpu,params_bytes_per_gpu,input_bytes,"
               "output_bytes,saved_activation_bytes\n"
               "toy,1,0,0,8704,34816,64,2048,1000\n"
               "toy,1,1,2,49984,199936,2048,2048,7000\n"
               "toy,1,3,3,128,512,2048,2048,3000\n");
  data = read(folder, plan_json("p", 1, 1, false));
  ASSERT_FALSE(head_is_profiled(data, "toy", 1));
  const models::Workload workload = sailor_workload(data.plans.front(), data);
  const double ratio = workload.blocks.back().forward_flops / workload.blocks[1].forward_flops;
  const auto head_time = [&](bool add) {
    Seconds sum;
    for (const auto& entry : sailor_profile(data, folder.path(), add).block_times) {
      if (entry.block == ir::BlockKind::head) sum += entry.time;
    }
    return sum.value;
  };
  EXPECT_DOUBLE_EQ(head_time(false), 0);
  EXPECT_NEAR(head_time(true), ratio * (kForward + kBackward), 1e-12);
}

TEST(SailorReport, IsTheSameEachTime) {
  const SailorFolder folder("twice");
  const SailorData data =
      read(folder, plan_json("p", 2, 2, true,
                             R"(, "measured": {"iteration_s": 11.0, "peak_memory_bytes": 2e6})"));
  const auto make = [&] {
    return make_sailor_report(data, folder.path(), library(), [](const SailorPlan&) {});
  };
  const SailorReport once = make(), again = make();
  EXPECT_EQ(predictions_csv(once.predictions), predictions_csv(again.predictions));
  EXPECT_EQ(sailor_notes(once), sailor_notes(again));
  EXPECT_EQ(once.rows.size(), 2U);
}

TEST(SailorData, RefusesPlansThatDoNotFitTogether) {
  const SailorFolder folder("refused");
  std::string text = plan_json("p", 2, 1, true);
  text.replace(text.find("\"last_layer\": 1"), 15, "\"last_layer\": 2");
  folder.write("measured.json", "{\"plans\": [" + text + "]}");
  folder.write("unmeasured_plans.json", "{\"plans\": [" + plan_json("u", 1, 1, false) + "]}");
  config::Diagnostics diagnostics;
  read_sailor_data(folder.path(), diagnostics);
  ASSERT_FALSE(diagnostics.empty());
  const std::string problem = config::to_string(diagnostics.problems().front());
  EXPECT_NE(problem.find("measured.json:1:"), std::string::npos) << problem;
  EXPECT_NE(problem.find("p: layer 3 is missing or twice"), std::string::npos) << problem;
}

}  // namespace
}  // namespace orrery::experiments::sailor_test
