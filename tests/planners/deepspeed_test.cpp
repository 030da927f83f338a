#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/spec/library.h"
#include "planners/kit/data_parallel.h"
#include "planners/kit/estimate.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"

namespace orrery::planners::deepspeed_test {
namespace {

struct Brute {
  double best = kNever;
  int examined = 0;
};

/// All degrees over exactly `used` devices.
Brute brute_force(const World& world, int used) {
  const PlannerInput input = world.input();
  const DataParallel plans(input, true);
  const int devices = world.cluster.size();
  Brute brute;
  for (int data = 1; data <= devices; ++data) {
    for (int sequence = 1; data * sequence <= devices; ++sequence) {
      if (data * sequence != used) continue;
      if (16 % sequence != 0 || 512 % sequence != 0) continue;  // Heads and tokens of the family.
      if (sequence > 1 && !world.job.allowed.sequence_parallel) continue;
      for (int size = 1; size <= world.job.allowed.max_micro_batch_size; ++size) {
        if (world.job.global_batch % (data * size) != 0) continue;
        for (const int zero : world.job.allowed.zero_stages) {
          for (const auto recompute : world.job.allowed.recompute) {
            const DataParallelSetting setting = {data, sequence, size, zero, 0, recompute};
            ++brute.examined;
            const ir::Plan plan = plans.build(setting);
            EXPECT_EQ(world.defects(plan), "");
            if (!world.verdict(plan).fits()) continue;
            brute.best = std::min(brute.best, plans.estimate(setting).value);
          }
        }
      }
    }
  }
  return brute;
}

TEST(Deepspeed, EqualsBruteForceOnTheFamily) {
  int all = 0, some = 0, none = 0;
  for (std::uint64_t number = 0; number < 240; ++number) {
    const auto world = tiny_world(number);
    world->job.allowed.zero_stages = {0, 1, 2, 3};
    world->job.allowed.sequence_parallel = number % 3 != 0;
    Brute brute;
    int examined = 0;
    int used = world->cluster.size() + 1;
    while (used > 1 && !std::isfinite(brute.best)) {
      brute = brute_force(*world, --used);
      examined += brute.examined;
    }
    const PlannerResult result = run_planner("deepspeed", world->input());
    const ir::Plan* plan = plan_of(result);
    ASSERT_EQ(plan != nullptr, std::isfinite(brute.best)) << number;
    EXPECT_EQ(result.report.plans_examined, examined) << number;
    if (plan == nullptr) {
      ++none;
      continue;
    }
    ++(used == world->cluster.size() ? all : some);
    EXPECT_EQ(std::ssize(ir::devices_of(*plan)), used) << number;
    EXPECT_EQ(complaint(*world, world->input(), result), "") << number;
    EXPECT_NEAR(result.report.estimate->value, brute.best, 1e-9 * brute.best) << number;
  }
  EXPECT_GT(all, 60);
  EXPECT_GT(some, 15);
  EXPECT_GT(all + some, 180);
}

/// 16 fast GPUs and some slow ones, eight a node; a batch of 64.
PlannerResult on_fast_and_slow(int slow_nodes, const Options& options) {
  const World world(
      make_cluster({{"Fast", 800, 80, 8, 400, 2}, {"Slow", 100, 80, 8, 400, slow_nodes}}, 100),
      small_model(12), 64, 512);
  return run_planner("deepspeed", world.input(), options);
}

TEST(Deepspeed, MoreSlowDevicesNeverMeanFewerInUse) {
  // 32 of 32, 40 and 48 devices: 40 and 48 replicas do not divide 64.
  Seconds before;
  for (const int slow_nodes : {2, 3, 4}) {
    const PlannerResult result = on_fast_and_slow(slow_nodes, {});
    const auto& plan = std::get<ir::Plan>(result.outcome);
    const auto devices = ir::devices_of(plan);
    EXPECT_EQ(devices.size(), 32u) << slow_nodes;
    EXPECT_EQ(devices.back(), DeviceId{31}) << slow_nodes;
    if (slow_nodes > 2) {
      EXPECT_EQ(*result.report.estimate, before) << slow_nodes;
    }
    before = *result.report.estimate;
    EXPECT_EQ(result.report.notes.empty(), slow_nodes == 2) << slow_nodes;
  }
}

TEST(Deepspeed, TheEstimateMayIdleSlowDevicesOnlyWhereAsked) {
  for (const int slow_nodes : {2, 3, 4}) {
    const PlannerResult result = on_fast_and_slow(slow_nodes, {{"use_all", "no"}});
    const auto& plan = std::get<ir::Plan>(result.outcome);
    EXPECT_EQ(ir::devices_of(plan).size(), 16u) << slow_nodes;
    EXPECT_LT(*result.report.estimate, *on_fast_and_slow(slow_nodes, {}).report.estimate);
  }
}

TEST(Deepspeed, PlainDataParallelismCostsWhatTheSharedEstimatorSays) {
  for (std::uint64_t number = 0; number < 40; ++number) {
    const auto world = tiny_world(number);
    const PlannerInput input = world->input();
    const DataParallel plans(input, false);
    const PlanEstimator estimator(input);
    for (const DataParallelSetting& setting : plans.legal(true, {})) {
      const double expected = estimator.estimate(plans.build(setting)).value;
      EXPECT_NEAR(plans.estimate(setting).value, expected, 1e-9 * expected) << number;
    }
  }
}

TEST(Deepspeed, UlyssesCostsFourAllToAllsInEachDirection) {
  // Two GPUs share each sequence: half of the activation stays, of the rest each sends a half.
  World world(make_cluster({{"X", 100, 24, 2, 10, 1}}, 5), small_model(6), 4, 512);
  world.job.allowed.sequence_parallel = true;
  const PlannerInput input = world.input();
  const DataParallel plans(input, true);
  DataParallelSetting two;
  two.sequence_degree = 2;
  StageCosts costs(input);
  StageShape shape;
  shape.layers = 6;
  shape.sequence_degree = 2;
  shape.sequence = ir::SequenceParallelism::ulysses;
  const double activation = 512.0 * 1024 * 2;
  const double exchange = 6 * 8 * (activation / 4 / 10e9 + 3e-6);
  const double gradients = costs.all_reduce(input.devices, costs.gradients(0, 6)).value;
  const double expected = 4 * (costs.compute(0, shape).both().value + exchange) + gradients +
                          costs.optimizer(0, shape).value;
  EXPECT_NEAR(plans.estimate(two).value, expected, 1e-6 * expected);
}

TEST(Deepspeed, EveryZeroStageNeedsNoMoreMemoryThanTheOneBefore) {
  World world(make_cluster({{"X", 100, 24, 4, 100, 2}}, 5), small_model(6), 16, 512);
  world.job.allowed.zero_stages = {0, 1, 2, 3};
  Bytes before{kNever};
  for (const char* stage : {"0", "1", "2", "3"}) {
    const PlannerResult result =
        run_planner("deepspeed", world.input(),
                    {{"zero_stage", stage}, {"micro_batch_size", "1"}, {"recompute", "none"}});
    const auto& plan = std::get<ir::Plan>(result.outcome);
    EXPECT_EQ(std::to_string(plan.pipelines[0].stages[0].segments[0].zero.stage), stage);
    EXPECT_LT(plan.predicted->peak_memory, before) << stage;
    before = plan.predicted->peak_memory;
  }
}

TEST(Deepspeed, IncompleteNodesIdleFirst) {
  World world(make_cluster({{"X", 100, 24, 4, 100, 3}}, 5), small_model(6), 8, 512);
  PlannerInput input = world.input();
  input.devices.erase(input.devices.begin() + 1);
  const PlannerResult result = run_planner("deepspeed", input, {{"data_parallel", "8"}});
  const auto devices = ir::devices_of(std::get<ir::Plan>(result.outcome));
  ASSERT_EQ(devices.size(), 8U);
  EXPECT_EQ(devices.front(), DeviceId{4});
}

// ---- The settings of Hetu v2's Tables 4, 6 and 9. [Hetu v2, A.2-A.4]

struct Row {
  const char* name;
  const char* cluster;
  const char* model;
  int data;
  int sequence;
  int size;
  const char* why;  ///< Part of the answer; "" where the setting is legal.
  const char* nearest = "";
  int without = 0;  ///< First of the missing ranks ...
  int until = 0;    ///< ... and one past the last.
};

TEST(DeepspeedTables, SettingsThatDoNotDivideAreAnsweredWithTheNearestThatDo) {
  const Row rows[] = {
      {"32B, 16 H800", "hetu_16h800", "hetu_32b", 8, 2, 2, ""},
      {"32B, 16 H20", "hetu_16h20", "hetu_32b", 8, 2, 2, ""},
      {"32B, 16+16", "hetu_16h800_16h20", "hetu_32b", 16, 2, 2, ""},
      {"32B, 16+24", "hetu_16h800_24h20", "hetu_32b", 20, 2, 4, "DP 20 x micro-batch 4 does not",
       "DP16 SP2, micro-batch 4"},
      {"32B, 16+32", "hetu", "hetu_32b", 24, 2, 1, "DP 24 x micro-batch 1 does not",
       "DP16 SP2, micro-batch 1"},
      {"70B, 16+16", "hetu_16h800_16h20", "llama2_70b", 16, 2, 1, ""},
      {"70B, 16+24", "hetu_16h800_24h20", "llama2_70b", 20, 2, 2, "DP 20 x micro-batch 2 does not",
       "DP16 SP2, micro-batch 2"},
      {"70B, 16+32", "hetu", "llama2_70b", 24, 2, 1, "DP 24 x micro-batch 1 does not",
       "DP16 SP2, micro-batch 1"},
      {"C1", "hetu_32h20", "hetu_32b", 16, 2, 2, ""},
      {"C2", "hetu_32h20", "hetu_32b", 12, 2, 2, "DP 12 x micro-batch 2 does not",
       "DP8 SP2, micro-batch 2", 31, 32},
      {"C3", "hetu_32h20", "hetu_32b", 12, 2, 2, "DP 12 x micro-batch 2 does not",
       "DP8 SP2, micro-batch 2", 24, 32},
      {"C4", "hetu", "hetu_32b", 24, 2, 1, "DP 24 x micro-batch 1 does not",
       "DP16 SP2, micro-batch 1"},
      {"C5", "hetu_16h800_24h20", "hetu_32b", 20, 2, 2, "DP 20 x micro-batch 2 does not",
       "DP16 SP2, micro-batch 2"},
      {"C6", "hetu_16h800_24h20", "hetu_32b", 16, 2, 2, "", "", 15, 16},
      {"C7", "hetu_16h800_24h20", "hetu_32b", 16, 2, 2, "", "", 8, 16},
      {"Table 9, 32K", "hetu_32h20", "hetu_32b", 4, 8, 1, ""},
      {"Not of the paper: 52 heads", "hetu_32h20", "llama_30b", 4, 8, 1,
       "SP 8 does not divide 52 heads", "DP4 SP4, micro-batch 1"},
      {"Table 9, 16K", "hetu_32h20", "hetu_32b", 8, 4, 1, ""},
  };
  config::Diagnostics diagnostics;
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  for (const Row& row : rows) {
    World world(models::load_cluster(row.cluster, library, {}, diagnostics),
                models::load_model(row.model, library, {}, diagnostics), 64, 4096);
    diagnostics.raise();
    world.job.allowed.sequence_parallel = true;
    world.job.allowed.zero_stages = {3};
    PlannerInput input = world.input();
    input.devices.erase(
        std::remove_if(input.devices.begin(), input.devices.end(),
                       [&](DeviceId d) { return d.value >= row.without && d.value < row.until; }),
        input.devices.end());
    const PlannerResult result = run_planner("deepspeed", input,
                                             {{"data_parallel", std::to_string(row.data)},
                                              {"sequence_degree", std::to_string(row.sequence)},
                                              {"micro_batch_size", std::to_string(row.size)},
                                              {"recompute", "full"}});
    if (std::string(row.why).empty()) {
      const ir::Plan* plan = plan_of(result);
      ASSERT_NE(plan, nullptr) << row.name;
      EXPECT_EQ(world.defects(*plan), "") << row.name;
      EXPECT_EQ(static_cast<int>(plan->pipelines.size()), row.data) << row.name;
      continue;
    }
    ASSERT_TRUE(std::holds_alternative<models::Infeasible>(result.outcome)) << row.name;
    const auto& no = std::get<models::Infeasible>(result.outcome);
    EXPECT_EQ(no.constraint, "not expressible") << row.name;
    EXPECT_NE(no.witness.find(row.why), std::string::npos) << row.name << ": " << no.witness;
    EXPECT_NE(no.witness.find(std::string("nearest legal: ") + row.nearest), std::string::npos)
        << row.name << ": " << no.witness;
  }
}

TEST(DeepspeedTables, NearestIsNearestOverAllLegalSettings) {
  for (std::uint64_t number = 0; number < 60; ++number) {
    const auto world = tiny_world(number);
    world->job.allowed.sequence_parallel = true;
    const PlannerInput input = world->input();
    const DataParallel plans(input, true);
    const ForcedDegrees forced = {5, 3, 7};
    double nearest = kNever;
    std::string names;
    for (int data = 1; data <= world->cluster.size(); ++data) {
      for (int sequence = 1; data * sequence <= world->cluster.size(); sequence *= 2) {
        for (int size = 1; size <= 8; ++size) {
          if (world->job.global_batch % (data * size) != 0) continue;
          const double apart = std::abs(std::log2(data / 5.0)) +
                               std::abs(std::log2(sequence / 3.0)) +
                               std::abs(std::log2(size / 7.0));
          if (apart > nearest + 1e-9) continue;
          if (apart < nearest - 1e-9) names.clear();
          nearest = std::min(nearest, apart);
          names += "nearest legal: DP" + std::to_string(data) +
                   (sequence > 1 ? " SP" + std::to_string(sequence) : "") + ", micro-batch " +
                   std::to_string(size) + " on|";
        }
      }
    }
    const std::string witness = plans.not_expressible(forced).witness;
    const std::string answer = witness.substr(witness.find("nearest legal"));
    EXPECT_NE(names.find(answer.substr(0, answer.find(" on") + 3)), std::string::npos)
        << number << ": " << answer << " not among " << names;
  }
}

}  // namespace
}  // namespace orrery::planners::deepspeed_test
