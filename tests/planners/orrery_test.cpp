// The Orrery planner with the simulator as its judge, on the generated family of tiny problems:
// against brute force that simulates every plan, its lower bound against what planners find, what
// its limits leave out, and drafts against the plans that they stand for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <variant>

#include "models/check/trainer.h"
#include "models/cost/mfu.h"
#include "models/reshard/reshard_plan.h"
#include "planners/orrery/bound.h"
#include "planners/orrery/costs.h"
#include "planners/orrery/draft.h"
#include "sim/flow/fork.h"
#include "sim/iteration/evaluator.h"
#include "tests/planners/family.h"

namespace orrery::planners::orrery_test {
namespace {

/// Runs `work` on a problem of the family with the simulator as its judge, in a process of its own:
/// a process has one simulator.
std::string simulated(std::uint64_t number, const std::function<void(models::Job&)>& change,
                      const std::function<std::string(const PlannerInput&)>& work) {
  const sim::ForkResult result = sim::run_forked([&] {
    const auto world = tiny_world(number);
    change(world->job);
    sim::IterationSimulator simulator(world->cluster, world->topology, false);
    const sim::SimulatorEvaluator evaluator(simulator, world->workload, world->job, world->profile);
    const PlannerInput own = world->input();
    const PlannerInput input = {own.cluster, own.topology, own.workload, own.job,
                                own.profile, evaluator,    own.devices,  1,
                                0,           nullptr};
    return work(input);
  });
  if (const auto* failure = std::get_if<sim::ChildFailure>(&result)) return failure->message;
  return std::get<std::string>(result);
}

void everything(models::Job& job) {
  job.allowed.zero_stages = {0, 1, 2, 3};
  job.allowed.sequence_parallel = true;
  job.allowed.recompute = {ir::Recompute::none, ir::Recompute::selective, ir::Recompute::full};
  job.allowed.schedules = {ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b,
                           ir::ScheduleKind::interleaved_one_f_one_b,
                           ir::ScheduleKind::zero_bubble};
}

/// Seconds of the simulated plan; kNever without one.
double seconds_of(const PlannerResult& result, const PlannerInput& input) {
  const ir::Plan* plan = plan_of(result);
  return plan == nullptr ? kNever : input.evaluator.evaluate(*plan).iteration_time.value;
}

// Balancing asks what one more layer would take, also of a stage that has them all.
TEST(Orrery, NoStageHasMoreLayersThanTheModel) {
  int held = 0;
  for (std::uint64_t number = 0; number < 16; ++number) {
    const auto world = tiny_world(number);
    const PlannerInput input = world->input();
    const DraftCosts costs(input);
    Draft draft;
    draft.pipelines = {{1, 1, {DraftStage{{DraftGroup{{input.devices.front()}}}, {DraftChunk{}}}}}};
    const DraftCosts::Place place = costs.place(draft, draft.pipelines.front(), 0, 1);
    if (costs.fit(draft, place, costs.layers()).seconds < kNever) ++held;
    EXPECT_EQ(costs.fit(draft, place, costs.layers() + 1).seconds, kNever) << number;
  }
  EXPECT_GT(held, 0);
}

TEST(Orrery, IsWithinAPercentOfBruteForceUnderTheSimulator) {
  constexpr std::int64_t kMostPlans = 800;
  int compared = 0;
  for (std::uint64_t number = 0; number < 400 && compared < 8; ++number) {
    if (tiny_world(number)->cluster.size() > 3) continue;
    const std::string found = simulated(
        number, [](models::Job&) {},
        [&](const PlannerInput& input) -> std::string {
          const PlannerResult counted =
              run_planner("exhaustive", input, {{"most_plans", "3000"}, {"evaluate_top", "1"}});
          if (!counted.report.complete || counted.report.plans_examined > kMostPlans)
            return "large";
          const PlannerResult brute = run_planner("exhaustive", input, {{"evaluate_top", "0"}});
          // Stages of the embedding or the head alone are none of a draft's.
          if (plan_of(brute) != nullptr && !draft_of(*plan_of(brute), input)) return "large";
          const PlannerResult own =
              run_planner("orrery", input, {{"seeds", "own"}, {"without", "transfer"}});
          return fmt::format("{} {} {} against {}", seconds_of(brute, input),
                             seconds_of(own, input), own.report.chosen, brute.report.chosen);
        });
    if (found == "large") continue;
    std::istringstream numbers(found);
    std::string brute, own;
    numbers >> brute >> own;
    ASSERT_FALSE(own.empty()) << found;
    if (brute == "inf") {
      EXPECT_EQ(own, "inf") << number;
      continue;
    }
    EXPECT_LE(std::stod(own), 1.01 * std::stod(brute)) << "problem " << number << ": " << found;
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

TEST(Orrery, ItsBoundIsBelowEverySimulatedPlan) {
  int judged = 0;
  for (std::uint64_t number = 0; number < 16; ++number) {
    const std::string found =
        simulated(number, everything, [&](const PlannerInput& input) -> std::string {
          const LowerBound bound = lower_bound(input, StageCosts(input));
          std::string broken;
          int plans = 0;
          for (const char* name : {"orrery", "megatron_grid", "hethub", "hexiscale", "deepspeed"}) {
            Options options;
            if (name == std::string("orrery")) options = {{"budget", "60"}, {"seeds", "own"}};
            const double seconds = seconds_of(run_planner(name, input, options), input);
            if (seconds == kNever) continue;
            ++plans;
            if (seconds < bound.seconds.value) {
              broken += fmt::format("{} takes {} s, bound {} s ({})\n", name, seconds,
                                    bound.seconds.value, bound.what);
            }
          }
          return broken.empty() ? std::to_string(plans) : broken;
        });
    EXPECT_EQ(found.find('s'), std::string::npos) << "problem " << number << ": " << found;
    judged += std::atoi(found.c_str());
  }
  EXPECT_GE(judged, 55);
}

TEST(Orrery, FindsWhatOthersFindAndMore) {
  int faster = 0;
  for (std::uint64_t number = 0; number < 6; ++number) {
    const std::string found =
        simulated(number, everything, [&](const PlannerInput& input) -> std::string {
          const double own = seconds_of(
              run_planner("orrery", input, {{"seeds", "all"}, {"budget", "100"}}), input);
          double best = kNever;
          for (const char* name : {"megatron_grid", "hethub", "hexiscale", "hetu", "alpa"}) {
            best = std::min(best,
                            seconds_of(run_planner(name, input, {{"evaluate_top", "8"}}), input));
          }
          return own > best * (1 + 1e-9) ? fmt::format("{} s against {} s", own, best)
                 : own < 0.98 * best     ? "faster"
                                         : "";
        });
    EXPECT_EQ(found.find("against"), std::string::npos) << "problem " << number << ": " << found;
    faster += found == "faster" ? 1 : 0;
  }
  EXPECT_GE(faster, 2);
}

TEST(Orrery, KeepsToWhatATargetRuns) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 2}, {"Y", 100, 40, 2, 32, 2}}, 5),
              small_model(16), 32, 1024);
  everything(world.job);
  const PlannerResult megatron =
      run_planner("orrery", world.input(), {{"target", "megatron"}, {"budget", "60"}});
  const ir::Plan* plan = plan_of(megatron);
  ASSERT_NE(plan, nullptr);
  const ir::Pipeline& first = plan->pipelines.front();
  const int degree = first.stages.front().segments.front().groups.front().tensor_parallel;
  for (const ir::Pipeline& pipeline : plan->pipelines) {
    EXPECT_EQ(pipeline.micro_batches, first.micro_batches);
    EXPECT_EQ(pipeline.micro_batch_size, first.micro_batch_size);
    for (const ir::Stage& stage : pipeline.stages) {
      EXPECT_EQ(stage.segments.front().groups.front().tensor_parallel, degree);
      EXPECT_EQ(stage.segments.front().recompute, first.stages.front().segments.front().recompute);
      EXPECT_LE(stage.segments.front().zero.stage, 1);
    }
  }
  for (const auto& [target, trainer] : {std::pair{"megatron", models::Trainer::megatron},
                                        {"flagscale", models::Trainer::flagscale}}) {
    const PlannerResult result =
        run_planner("orrery", world.input(), {{"target", target}, {"budget", "60"}});
    ASSERT_NE(plan_of(result), nullptr) << target;
    const auto terms =
        models::in_terms_of(trainer, *plan_of(result), world.cluster, world.workload);
    EXPECT_TRUE(std::holds_alternative<models::TrainerPlan>(terms)) << target;
  }
  const PlannerResult executor =
      run_planner("orrery", world.input(), {{"target", "executor"}, {"budget", "60"}});
  plan = plan_of(executor);
  ASSERT_NE(plan, nullptr);
  for (const ir::Pipeline& pipeline : plan->pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      const ir::SequenceParallelism sequence = stage.segments.front().groups.front().sequence;
      EXPECT_TRUE(sequence == ir::SequenceParallelism::none ||
                  sequence == ir::SequenceParallelism::megatron);
    }
  }
  const PlannerResult others =
      run_planner("orrery", world.input(), {{"allowed", "as_others"}, {"budget", "60"}});
  ASSERT_NE(plan_of(others), nullptr);
  EXPECT_FALSE(plan_of(others)->communication.parameter_overlap);
  EXPECT_EQ(plan_of(others)->communication.bucket, Bytes{});
  EXPECT_EQ(plan_of(others)->virtual_stages, 1);
  world.job.allowed.schedules = {ir::ScheduleKind::interleaved_one_f_one_b};
  const PlannerResult none = run_planner("orrery", world.input(), {{"allowed", "as_others"}});
  ASSERT_TRUE(std::holds_alternative<models::Infeasible>(none.outcome));
  EXPECT_EQ(std::get<models::Infeasible>(none.outcome).constraint, "schedule");
}

/// Fastest and cheapest plans differ where slow GPUs are dear.
TEST(Orrery, ItsFrontierIsOfPlansThatNoneBeatsInTimeAndDollars) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 1}, {"Y", 60, 80, 4, 32, 1}}, 5),
              small_model(16), 32, 1024);
  everything(world.job);
  const PlannerInput input = world.input();
  EXPECT_TRUE(std::holds_alternative<models::Infeasible>(
      run_planner("orrery", input, {{"objective", "dollars"}}).outcome))
      << "GPUs without a price";
  for (models::GpuType& gpu : world.cluster.gpu_types) gpu.price = DollarsPerSecond(1e-3);
  const auto run = [&](const char* objective) {
    return run_planner("orrery", input,
                       {{"objective", objective}, {"budget", "80"}, {"seeds", "own"}});
  };
  const PlannerResult result = run("frontier");
  ASSERT_NE(plan_of(result), nullptr);
  const std::vector<FrontierPlan>& front = result.report.frontier;
  ASSERT_GE(front.size(), 2u);
  EXPECT_EQ(front.front().what, result.report.chosen);
  for (std::size_t i = 1; i < front.size(); ++i) {
    EXPECT_GT(front[i].evaluated, front[i - 1].evaluated);
    EXPECT_LT(*front[i].dollars_per_million_tokens, *front[i - 1].dollars_per_million_tokens);
  }
  EXPECT_LT(front.back().devices, front.front().devices);
  const PlannerResult cheap = run("dollars");
  ASSERT_NE(plan_of(cheap), nullptr);
  const auto dollars = [&](const ir::Plan& plan) {
    const Seconds seconds = input.evaluator.evaluate(plan).iteration_time;
    return models::dollars_per_million_tokens(plan, input.cluster, input.workload, seconds)->value;
  };
  EXPECT_LT(dollars(*plan_of(cheap)), dollars(*plan_of(run("time"))));
  EXPECT_TRUE(run("time").report.frontier.empty());
}

/// The slow GPUs draw so much that a plan without them takes less energy, and cost so little that
/// one of them alone is cheapest.
TEST(Orrery, MinimizesEnergyAndItsFrontierHasThreeGoals) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 1}, {"Y", 60, 80, 4, 32, 1}}, 5),
              small_model(16), 32, 1024);
  everything(world.job);
  world.cluster.gpu_types[0].power = Watts{400};
  const PlannerInput input = world.input();
  const auto run = [&](const char* objective) {
    return run_planner("orrery", input,
                       {{"objective", objective}, {"budget", "90"}, {"seeds", "own"}});
  };
  const PlannerResult unknown = run("energy");
  const auto* refused = std::get_if<models::Infeasible>(&unknown.outcome);
  ASSERT_NE(refused, nullptr) << "GPUs without power";
  EXPECT_EQ(refused->witness, "GPU Y has none; --power Y=\"400 W\" sets it");
  world.cluster.gpu_types[1].power = Watts{400};
  const auto joules = [&](const PlannerResult& result) {
    const ir::Plan& plan = *plan_of(result);
    const Seconds seconds = input.evaluator.evaluate(plan).iteration_time;
    return models::joules_per_token(plan, input.cluster, input.workload, seconds)->value;
  };
  const PlannerResult frugal = run("energy");
  ASSERT_NE(plan_of(frugal), nullptr);
  EXPECT_LT(joules(frugal), joules(run("time")));
  world.cluster.gpu_types[0].price = DollarsPerSecond(1e-3);
  world.cluster.gpu_types[1].price = DollarsPerSecond(1e-5);
  const std::vector<FrontierPlan> front = run("frontier").report.frontier;
  ASSERT_GE(front.size(), 3u);
  for (const FrontierPlan& one : front) {
    ASSERT_TRUE(one.dollars_per_million_tokens && one.joules_per_token);
    for (const FrontierPlan& other : front) {
      if (&one == &other) continue;
      EXPECT_TRUE(one.evaluated < other.evaluated ||
                  *one.dollars_per_million_tokens < *other.dollars_per_million_tokens ||
                  *one.joules_per_token < *other.joules_per_token)
          << one.what << " is beaten by " << other.what;
    }
  }
}

TEST(Orrery, ALongerSearchIsNeverWorse) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 2}, {"Y", 100, 40, 2, 32, 2}}, 5),
              small_model(16), 32, 1024);
  everything(world.job);
  int better = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    PlannerInput input = world.input();
    input.seed = seed;
    double before = kNever;
    for (const char* budget : {"40", "120"}) {
      const double seconds =
          seconds_of(run_planner("orrery", input, {{"budget", budget}, {"seeds", "own"}}), input);
      EXPECT_LE(seconds, before) << "seed " << seed << ", " << budget << " simulations";
      better += seconds < before && before < kNever ? 1 : 0;
      before = seconds;
    }
  }
  EXPECT_GE(better, 1);
}

TEST(Orrery, NextStepsArePlansThatItDidNotTake) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 2}, {"Y", 100, 40, 2, 32, 2}}, 5),
              small_model(16), 32, 1024);
  everything(world.job);
  const PlannerResult result =
      run_planner("orrery", world.input(), {{"budget", "60"}, {"seeds", "own"}});
  ASSERT_GE(result.report.next_steps.size(), 4u);
  for (std::size_t i = 0; i < result.report.next_steps.size(); ++i) {
    const NextStep& step = result.report.next_steps[i];
    EXPECT_FALSE(step.what.empty());
    EXPECT_LT(step.estimate.value, kNever);
    const NextStep& before = result.report.next_steps[i > 0 ? i - 1 : 0];
    EXPECT_GE(step.estimate, before.estimate);
  }
}

/// Bytes of state that a switch moves.
double moved_bytes(const ir::Plan& from, const ir::Plan& to, const PlannerInput& input) {
  models::ReshardOptions options;
  options.bytes = models::weight_bytes(input.job);
  return models::sum(
             models::plan_reshard(from, to, input.cluster, input.topology, input.workload, options)
                 .moved)
      .value;
}

TEST(Orrery, KeepsNearAPlanWithinTheShareThatItMayLose) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 2}, {"Y", 100, 40, 2, 32, 2}}, 5),
              small_model(16), 32, 1024);
  const PlannerInput free = world.input();
  const PlannerResult megatron = run_planner("megatron_grid", free);
  ASSERT_NE(plan_of(megatron), nullptr);
  const ir::Plan& today = *plan_of(megatron);
  const Options options = {{"budget", "60"}, {"seeds", "own"}};
  const PlannerResult best = run_planner("orrery", free, options);
  ASSERT_NE(plan_of(best), nullptr);
  const double fastest = seconds_of(best, free);
  double before = moved_bytes(today, *plan_of(best), free);
  EXPECT_GT(before, 0);
  for (const double within : {0.02, 0.2, 10.0}) {
    const PlannerInput input{.cluster = free.cluster,
                             .topology = free.topology,
                             .workload = free.workload,
                             .job = free.job,
                             .profile = free.profile,
                             .evaluator = free.evaluator,
                             .devices = free.devices,
                             .seed = free.seed,
                             .near = NearPlan{today, within}};
    const PlannerResult result = run_planner("orrery", input, options);
    ASSERT_NE(plan_of(result), nullptr);
    EXPECT_LE(seconds_of(result, input), (1 + within) * fastest * (1 + 1e-9));
    const double moved = moved_bytes(today, *plan_of(result), input);
    EXPECT_LE(moved, before) << within;
    before = moved;
  }
  EXPECT_EQ(before, 0) << "within any share today's plan itself is the nearest";
}

/// Pipelines that are alike send at the same moments: over one port their transfers take as many
/// times as long, of which an average of the port's use says nothing.
TEST(OrreryCosts, SeesWhereAlikePipelinesMeet) {
  for (const int pipelines : {1, 2, 4}) {
    const sim::ForkResult result = sim::run_forked([&]() -> std::string {
      World world(make_cluster({{"X", 300, 80, 4, 200, 2}}, 0.5), small_model(16), 8 * pipelines,
                  1024);
      Draft draft;
      for (int p = 0; p < pipelines; ++p) {
        DraftPipeline pipeline;
        pipeline.micro_batches = 8;
        for (const int node : {0, 1}) {
          DraftStage stage;
          stage.groups = {{{DeviceId{4 * node + p}}, 1}};
          stage.chunks = {{8, 0, 0}};
          pipeline.stages.push_back(stage);
        }
        draft.pipelines.push_back(pipeline);
      }
      const PlannerInput own = world.input();
      sim::IterationSimulator simulator(world.cluster, world.topology, false);
      const sim::SimulatorEvaluator evaluator(simulator, world.workload, world.job, world.profile);
      const double price = DraftCosts(own).view(draft).seconds;
      return fmt::format("{}",
                         price / evaluator.evaluate(plan_of(draft, own)).iteration_time.value);
    });
    ASSERT_TRUE(std::holds_alternative<std::string>(result));
    EXPECT_NEAR(std::stod(std::get<std::string>(result)), 1, 0.05) << pipelines << " pipelines";
  }
}

TEST(OrreryDraft, OfAPlanIsThePlan) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 2}, {"Y", 100, 40, 2, 32, 2}}, 5),
              small_model(16), 32, 1024);
  everything(world.job);
  int drafted = 0;
  for (const char* name : {"megatron_grid", "hetu", "hexiscale", "autohet", "whale", "orrery"}) {
    Options options;
    if (name == std::string("orrery")) options = {{"budget", "40"}, {"seeds", "own"}};
    const PlannerResult result = run_planner(name, world.input(), options);
    ASSERT_NE(plan_of(result), nullptr) << name;
    ir::Plan sent_in_pieces = *plan_of(result);
    sent_in_pieces.communication.gradient_overlap = true;
    sent_in_pieces.communication.bucket = 25_MiB;
    const ir::Plan* plan = &sent_in_pieces;
    const auto draft = draft_of(*plan, world.input());
    if (!draft) continue;
    ++drafted;
    const ir::Plan again = plan_of(*draft, world.input());
    EXPECT_EQ(world.defects(again), "") << name;
    ASSERT_EQ(again.pipelines.size(), plan->pipelines.size()) << name;
    EXPECT_EQ(draft_of(again, world.input()), draft) << name;
    EXPECT_EQ(again.communication, plan->communication) << name;
    EXPECT_EQ(ir::devices_of(again), ir::devices_of(*plan)) << name;
    EXPECT_EQ(ir::global_batch(again), ir::global_batch(*plan)) << name;
    for (std::size_t p = 0; p < again.pipelines.size(); ++p) {
      for (std::size_t s = 0; s < again.pipelines[p].stages.size(); ++s) {
        EXPECT_EQ(again.pipelines[p].stages[s].segments.front().first_block,
                  plan->pipelines[p].stages[s].segments.front().first_block)
            << name;
      }
    }
  }
  EXPECT_GE(drafted, 5);
}

TEST(OrreryDraft, IsNoneOfAPlanWithUnevenShards) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 1}}, 5), small_model(16), 32, 1024);
  ir::Plan plan = *plan_of(run_planner("megatron_grid", world.input()));
  ASSERT_TRUE(draft_of(plan, world.input()));
  plan.pipelines[0].stages[0].segments[0].groups[0].state_weight = 2;
  EXPECT_FALSE(draft_of(plan, world.input()));
}

TEST(OrreryDraft, DifferencesAreSaidInWords) {
  Draft before;
  DraftPipeline pipeline;
  pipeline.micro_batches = 8;
  DraftStage stage;
  stage.groups = {{{DeviceId{0}, DeviceId{1}}, 1}};
  stage.chunks = {{8, 8, 0}};
  pipeline.stages = {stage};
  stage.groups = {{{DeviceId{2}, DeviceId{3}}, 1}};
  pipeline.stages.push_back(stage);
  before.pipelines = {pipeline};
  EXPECT_EQ(differences(before, before), "other layers, batches or places");
  Draft after = before;
  after.zero.stage = 1;
  after.overlap = true;
  after.pipelines[0].micro_batch_size = 2;
  after.pipelines[0].stages.pop_back();
  after.pipelines[0].stages[0].chunks = {{16, 4, 0}};
  EXPECT_EQ(differences(before, after),
            "1 stage instead of 2 stages, micro-batches of 2 samples instead of micro-batches of 1 "
            "sample, ZeRO-1 instead of ZeRO-0, 2 GPUs instead of 4 GPUs, 25 % of the layers "
            "recomputed instead of 100 % of the layers recomputed, gradients sent during the "
            "backward pass");
}

}  // namespace
}  // namespace orrery::planners::orrery_test
