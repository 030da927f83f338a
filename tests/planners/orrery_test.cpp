// The Orrery planner with the simulator as its judge, on the generated family of tiny problems:
// against brute force that simulates every plan, its lower bound against what planners find, what
// its limits leave out, and drafts against the plans that they stand for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

#include "models/base/rng.h"
#include "models/base/units.h"
#include "models/check/trainer.h"
#include "models/check/validate.h"
#include "models/cost/mfu.h"
#include "models/cost/pricer.h"
#include "models/lower/lower.h"
#include "models/reshard/reshard_plan.h"
#include "planners/orrery/bound.h"
#include "planners/orrery/costs.h"
#include "planners/orrery/draft.h"
#include "sim/flow/fork.h"
#include "sim/iteration/evaluator.h"
#include "sim/iteration/iteration.h"
#include "tests/planners/family.h"

namespace orrery::planners::orrery_test {
namespace {

/// Runs `work` on a problem with the simulator as its judge, in a process of its own: a process has
/// one simulator.
std::string simulated(const std::function<std::unique_ptr<World>()>& make,
                      const std::function<std::string(const PlannerInput&)>& work) {
  const sim::ForkResult result = sim::run_forked([&] {
    const auto world = make();
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

/// On a problem of the family.
std::string simulated(std::uint64_t number, const std::function<void(models::Job&)>& change,
                      const std::function<std::string(const PlannerInput&)>& work) {
  return simulated(
      [&] {
        auto world = tiny_world(number);
        change(world->job);
        return world;
      },
      work);
}

ir::ModelShape moe_model(int layers, int experts, int ffn) {
  ir::ModelShape shape = small_model(layers);
  shape.vocabulary = 8000;
  shape.ffn = ffn;
  shape.experts = experts;
  shape.top_k = 2;
  return shape;
}

/// Most groups of a stage that share experts.
int most_shared(const ir::Plan& plan) {
  int most = 1;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        most = std::max(most, segment.expert_parallel);
      }
    }
  }
  return most;
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

/// Plans of the planner itself with and without shared experts.
TEST(Orrery, ItsBoundIsBelowEverySimulatedPlanWithExperts) {
  int judged = 0, shared = 0;
  for (std::uint64_t number = 0; number < 24; ++number) {
    const auto make = [&] {
      const auto like = tiny_world(number);
      ir::ModelShape shape = moe_model(2 + static_cast<int>(number % 3), 8, 4096);
      shape.top_k = 1 + static_cast<int>(number % 2);
      auto world = std::make_unique<World>(like->cluster, shape, 8, 512);
      everything(world->job);
      return world;
    };
    const std::string found = simulated(make, [&](const PlannerInput& input) -> std::string {
      const LowerBound bound = lower_bound(input, StageCosts(input));
      std::string broken;
      int plans = 0, with_experts = 0;
      for (const char* without : {"nothing", "experts", "pipelines"}) {
        const PlannerResult result = run_planner(
            "orrery", input, {{"budget", "60"}, {"seeds", "own"}, {"without", without}});
        const double seconds = seconds_of(result, input);
        if (seconds == kNever) continue;
        ++plans;
        with_experts += most_shared(*plan_of(result)) > 1 ? 1 : 0;
        if (seconds < bound.seconds.value) {
          broken += fmt::format("{} s, bound {} s ({})", seconds, bound.seconds.value, bound.what);
        }
      }
      return broken.empty() ? fmt::format("{} {}", plans, with_experts) : "broken " + broken;
    });
    std::istringstream numbers(found);
    int plans = -1, with_experts = -1;
    numbers >> plans >> with_experts;
    ASSERT_GE(plans, 0) << "problem " << number << ": " << found;
    judged += plans;
    shared += with_experts;
  }
  EXPECT_GE(judged, 40);
  EXPECT_GE(shared, 10);
}

/// All GPUs in one stage, with random samples and experts.
TEST(Orrery, ItsBoundIsBelowPlansOfUnlikeSharesOfExperts) {
  int judged = 0;
  for (std::uint64_t number = 0; number < 24; ++number) {
    const auto make = [&] {
      ir::ModelShape shape = moe_model(2, 8, number % 3 == 0 ? 16384 : 1024);
      shape.top_k = 1 + static_cast<int>(number % 2);
      auto world = std::make_unique<World>(tiny_world(number)->cluster, shape, 16, 512);
      everything(world->job);
      return world;
    };
    const std::string found = simulated(make, [&](const PlannerInput& input) -> std::string {
      const LowerBound bound = lower_bound(input, StageCosts(input));
      const int count = static_cast<int>(input.devices.size());
      int plans = 0;
      for (std::uint64_t drawn = 0; drawn < 6; ++drawn) {
        Rng rng = Rng(number).fork(drawn);
        Draft draft;
        DraftPipeline& pipeline = draft.pipelines.emplace_back();
        pipeline.micro_batch_size = 16;
        DraftStage& stage = pipeline.stages.emplace_back();
        stage.chunks = {{2, 0, 0}};
        stage.expert_parallel = count;
        for (const DeviceId device : input.devices) stage.groups.push_back({{device}, 1, 1});
        for (int left = 16 - count; left > 0; --left) {
          ++stage.groups[as_size(rng.integer(0, count - 1))].samples;
        }
        for (int left = 8 - count; left > 0; --left) {
          ++stage.groups[as_size(rng.integer(0, count - 1))].experts;
        }
        const ir::Plan plan = plan_of(draft, input);
        if (!models::validate(plan, input.cluster, input.workload, input.job).empty()) continue;
        ++plans;
        const double seconds = input.evaluator.evaluate(plan).iteration_time.value;
        if (seconds < bound.seconds.value) {
          return fmt::format("broken: {} s, bound {} s ({})", seconds, bound.seconds.value,
                             bound.what);
        }
      }
      return std::to_string(plans);
    });
    EXPECT_EQ(found.find('b'), std::string::npos) << "problem " << number << ": " << found;
    judged += std::atoi(found.c_str());
  }
  EXPECT_GE(judged, 40);
}

/// Every plan of equal pipelines and stages on four alike GPUs, simulated.
TEST(Orrery, IsWithinAPercentOfBruteForceWithExperts) {
  int shared = 0;
  for (const auto& [between, most_tensor_parallel] :
       {std::pair{0.5, 0}, std::pair{12.0, 0}, std::pair{2.0, 1}, std::pair{12.0, 1}}) {
    const auto make = [&] {
      ir::ModelShape shape = moe_model(2, 4, 8192);
      shape.top_k = 1;
      auto world = std::make_unique<World>(make_cluster({{"X", 100, 40, 2, 100, 2}}, between),
                                           shape, 8, 512);
      world->job.allowed.max_tensor_parallel = most_tensor_parallel;
      return world;
    };
    const std::string found = simulated(make, [&](const PlannerInput& input) -> std::string {
      double best = kNever;
      int simulated = 0, best_degree = 0;
      const auto judge = [&](const Draft& draft, int degree) {
        const ir::Plan plan = plan_of(draft, input);
        if (!models::validate(plan, input.cluster, input.workload, input.job).empty()) return;
        const models::Evaluation made = input.evaluator.evaluate(plan);
        ++simulated;
        if (!made.memory.fits() || made.iteration_time.value >= best) return;
        best = made.iteration_time.value;
        best_degree = degree;
      };
      for (const int pipelines : {1, 2, 4}) {
        for (const int stages : {1, 2}) {
          for (const int groups : {1, 2, 4}) {
            const int degree = 4 / pipelines / stages / groups;
            if (pipelines * stages * groups * degree != 4) continue;
            for (int shares = 1; shares <= groups; shares *= 2) {
              for (int size = groups; size * pipelines <= 8; size *= 2) {
                for (const bool across : {false, true}) {
                  Draft draft;
                  int next = 0;
                  for (int p = 0; p < pipelines; ++p) {
                    DraftPipeline& chain = draft.pipelines.emplace_back();
                    chain.micro_batch_size = size;
                    chain.micro_batches = 8 / pipelines / size;
                    for (int s = 0; s < stages; ++s) {
                      DraftStage& stage = chain.stages.emplace_back();
                      stage.chunks = {{2 / stages, 0, 0}};
                      stage.expert_parallel = shares;
                      for (int g = 0; g < groups; ++g) {
                        DraftGroup& group = stage.groups.emplace_back();
                        group.samples = size / groups;
                        for (int d = 0; d < degree; ++d, ++next) {
                          group.devices.push_back({across ? next % 2 * 2 + next / 2 : next});
                        }
                      }
                    }
                  }
                  for (const bool overlap : {false, true}) {
                    draft.overlap = overlap;
                    judge(draft, shares);
                  }
                }
              }
            }
          }
        }
      }
      const PlannerResult own = run_planner("orrery", input, {{"seeds", "own"}});
      return fmt::format("{} {} {} {} {} against {}", best, seconds_of(own, input), best_degree,
                         most_shared(*plan_of(own)), simulated, own.report.chosen);
    });
    std::istringstream numbers(found);
    double brute = 0, own = 0;
    int best_degree = 0, degree = 0, simulated = 0;
    numbers >> brute >> own >> best_degree >> degree >> simulated;
    ASSERT_GT(simulated, 80) << found;
    EXPECT_LE(own, 1.01 * brute) << found;
    shared += best_degree > 1 ? 1 : 0;
  }
  EXPECT_GE(shared, 1) << "brute force never shares experts";
}

/// Four GPUs hold a layer of many experts together, and neither tensor parallelism nor more stages
/// may do it in their place.
TEST(Orrery, SharesExpertsWhereNoDeviceHoldsALayer) {
  World world(make_cluster({{"X", 100, 6, 4, 100, 1}}, 5), moe_model(2, 32, 4096), 16, 512);
  world.job.allowed.max_tensor_parallel = 1;
  world.job.allowed.zero_stages = {0};
  const PlannerResult without =
      run_planner("orrery", world.input(), {{"seeds", "own"}, {"without", "experts"}});
  ASSERT_TRUE(std::holds_alternative<models::Infeasible>(without.outcome));
  EXPECT_EQ(std::get<models::Infeasible>(without.outcome).constraint, "device memory");
  const PlannerResult as_others =
      run_planner("orrery", world.input(), {{"seeds", "own"}, {"allowed", "as_others"}});
  EXPECT_EQ(plan_of(as_others), nullptr);
  const PlannerResult with = run_planner("orrery", world.input(), {{"seeds", "own"}});
  ASSERT_NE(plan_of(with), nullptr);
  EXPECT_EQ(complaint(world, world.input(), with), "");
  EXPECT_GE(most_shared(*plan_of(with)), 2);
  EXPECT_NE(with.report.chosen.find("EP"), std::string::npos) << with.report.chosen;
}

/// No GPU holds the experts of a layer alone, and three quarters of the speed is in half of them.
TEST(Orrery, HoldsUnlikeNumbersOfExpertsOnUnlikeGpus) {
  const auto make = [] {
    auto world = std::make_unique<World>(
        make_cluster({{"X", 300, 6, 2, 400, 1}, {"Y", 100, 6, 2, 400, 1}}, 1000),
        moe_model(2, 32, 4096), 32, 512);
    world->job.allowed.max_tensor_parallel = 1;
    world->job.allowed.zero_stages = {0};
    return world;
  };
  const std::string found = simulated(make, [](const PlannerInput& input) -> std::string {
    const PlannerResult result = run_planner("orrery", input, {{"seeds", "own"}});
    const ir::Plan* plan = plan_of(result);
    if (plan == nullptr) return "none";
    ir::Plan even = *plan;
    std::set<int> held;
    for (ir::Pipeline& pipeline : even.pipelines) {
      for (ir::Stage& stage : pipeline.stages) {
        for (ir::Segment& segment : stage.segments) {
          for (ir::Group& group : segment.groups) held.insert(std::exchange(group.experts, 0));
        }
      }
    }
    return fmt::format("{} {} {}", held.size(), seconds_of(result, input),
                       input.evaluator.evaluate(even).iteration_time.value);
  });
  std::istringstream numbers(found);
  int kinds = 0;
  double unlike = kNever, even = 0;
  numbers >> kinds >> unlike >> even;
  EXPECT_GE(kinds, 2) << found;
  EXPECT_LT(unlike, 0.9 * even) << found;
}

TEST(Orrery, SharesExpertsAsTrainersDo) {
  World world(make_cluster({{"X", 100, 6, 4, 100, 2}}, 5), moe_model(2, 32, 4096), 16, 512);
  world.job.allowed.max_tensor_parallel = 1;
  world.job.allowed.zero_stages = {0};
  for (const auto& [target, trainer] : {std::pair{"megatron", models::Trainer::megatron},
                                        {"flagscale", models::Trainer::flagscale}}) {
    const PlannerResult result = run_planner("orrery", world.input(), {{"target", target}});
    ASSERT_NE(plan_of(result), nullptr) << target;
    EXPECT_GE(most_shared(*plan_of(result)), 2) << target;
    const auto terms =
        models::in_terms_of(trainer, *plan_of(result), world.cluster, world.workload);
    ASSERT_TRUE(std::holds_alternative<models::TrainerPlan>(terms)) << target;
    EXPECT_EQ(std::get<models::TrainerPlan>(terms).expert_parallel, most_shared(*plan_of(result)));
  }
}

/// With even shards no plan of two layers fits: whoever holds one with GPUs of the other type needs
/// more than the small ones have.
TEST(Orrery, WeighsShardsWhereMemoryForbidsEvenOnes) {
  ir::ModelShape shape = small_model(2);
  shape.vocabulary = 1000;
  shape.ffn = 64 * 1024;
  World world(make_cluster({{"X", 300, 3.5, 2, 200, 1}, {"Y", 300, 2.33, 2, 200, 1}}, 25), shape, 8,
              128);
  everything(world.job);
  world.job.allowed.max_tensor_parallel = 1;
  const PlannerResult even = run_planner("orrery", world.input(), {{"allowed", "as_others"}});
  ASSERT_TRUE(std::holds_alternative<models::Infeasible>(even.outcome));
  EXPECT_EQ(std::get<models::Infeasible>(even.outcome).constraint, "device memory");
  const PlannerResult uneven = run_planner("orrery", world.input(), {});
  ASSERT_NE(plan_of(uneven), nullptr);
  EXPECT_EQ(complaint(world, world.input(), uneven), "");
  std::set<int> weights;
  for (const ir::Pipeline& pipeline : plan_of(uneven)->pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      weights.insert(stage.segments.front().groups.front().state_weight);
    }
  }
  EXPECT_GE(weights.size(), 2u);
}

/// Of as few samples as GPUs a replica on each GPU is best, which has room for some of the
/// parameters whole.
TEST(Orrery, GathersNoMoreLayersThanMemoryAsksFor) {
  const auto make = [] {
    ir::ModelShape shape = small_model(12);
    shape.vocabulary = 1000;
    auto world =
        std::make_unique<World>(make_cluster({{"X", 100, 2, 4, 400, 1}}, 5), shape, 4, 4096);
    everything(world->job);
    world->job.allowed.max_tensor_parallel = 1;
    world->job.allowed.recompute = {ir::Recompute::full};
    world->job.allowed.schedules = {ir::ScheduleKind::one_f_one_b};
    return world;
  };
  const std::string wrong = simulated(make, [](const PlannerInput& input) -> std::string {
    const PlannerResult result = run_planner("orrery", input, {{"seeds", "own"}});
    if (plan_of(result) == nullptr) return "no plan";
    const std::optional<Draft> draft = draft_of(*plan_of(result), input);
    if (!draft || draft->zero.stage != 3) return "not under ZeRO-3";
    if (draft->lighter_layers == 0) return "all layers under ZeRO-3";
    Draft whole = *draft, lighter = *draft;
    whole.lighter_layers = 0;
    ++lighter.lighter_layers;
    const auto seconds = [&](const Draft& of) {
      return input.evaluator.evaluate(plan_of(of, input)).iteration_time.value;
    };
    if (seconds(whole) <= seconds(*draft)) return "no faster than with all layers under ZeRO-3";
    if (input.evaluator.evaluate(plan_of(lighter, input)).memory.fits()) return "a layer too few";
    return "";
  });
  EXPECT_EQ(wrong, "");
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
  EXPECT_EQ(most_shared(*plan_of(others)), 1) << "the model has no experts";
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

/// Of a draft of one pipeline: its price over what the simulator says with a rank for each device.
/// 0: a plan of it does not give the draft back.
double price_over_simulated(const World& world, const DraftStage& stage) {
  const sim::ForkResult ratio = sim::run_forked([&] {
    const PlannerInput input = world.input();
    Draft draft;
    draft.pipelines = {{2, 8, {stage}}};
    const ir::Plan plan = plan_of(draft, input);
    const auto again = draft_of(plan, input);
    if (!again || plan_of(*again, input).pipelines != plan.pipelines) return std::string("0");
    const ir::Program program =
        models::lower(plan, world.cluster, world.workload, world.job, {.collapsed = false});
    sim::IterationSimulator simulator(world.cluster, world.topology, false);
    const models::Pricer pricer(world.cluster, world.workload, world.job, world.profile);
    const Seconds simulated = simulator.run(program, pricer, {}).iteration_time;
    return fmt::format("{}", DraftCosts(input).view(draft).seconds / simulated.value);
  });
  return std::holds_alternative<std::string>(ratio) ? std::stod(std::get<std::string>(ratio)) : 0;
}

/// Dispatch, combine and the gradients of parts of the experts, against the simulator with a rank
/// for each device: all sets of groups send over the links between nodes at once.
TEST(OrreryCosts, PriceSharedExperts) {
  const World world(make_cluster({{"X", 300, 80, 4, 100, 2}}, 12), moe_model(4, 8, 4096), 16, 1024);
  for (const bool across : {false, true}) {
    for (const int shares : {1, 2, 4}) {
      DraftStage stage{{}, {{4, 2, 0}}, shares};
      for (int g = 0; g < 8; ++g) {
        stage.groups.push_back({{DeviceId{across ? g % 2 * 4 + g / 2 : g}}, 1});
      }
      EXPECT_NEAR(price_over_simulated(world, stage), 1, 0.05)
          << shares << (across ? " across nodes" : "");
    }
  }
}

/// The longest beside and the longest inside the experts, and exchanges of unlike sizes.
TEST(OrreryCosts, PriceUnlikeSharesOfExperts) {
  const World world(make_cluster({{"X", 300, 80, 2, 100, 1}, {"Y", 100, 80, 2, 100, 1}}, 12),
                    moe_model(4, 8, 4096), 16, 1024);
  for (const std::vector<int>& experts : {std::vector{3, 3, 1, 1}, {0, 0, 0, 0}, {1, 1, 3, 3}}) {
    DraftStage stage{{}, {{4, 2, 0}}, 4};
    for (int g = 0; g < 4; ++g) {
      stage.groups.push_back({{DeviceId{g}}, g < 2 ? 3 : 1, experts[as_size(g)]});
    }
    EXPECT_NEAR(price_over_simulated(world, stage), 1, 0.05) << experts[0];
  }
}

TEST(OrreryDraft, OfAPlanWithSharedExpertsIsThePlan) {
  World world(make_cluster({{"X", 100, 6, 4, 100, 1}}, 5), moe_model(2, 32, 4096), 16, 512);
  world.job.allowed.max_tensor_parallel = 1;
  const PlannerResult result = run_planner("orrery", world.input(), {{"seeds", "own"}});
  ASSERT_NE(plan_of(result), nullptr);
  const auto draft = draft_of(*plan_of(result), world.input());
  ASSERT_TRUE(draft.has_value());
  EXPECT_EQ(plan_of(*draft, world.input()).pipelines, plan_of(result)->pipelines);
  Draft alone = *draft;
  for (DraftStage& stage : alone.pipelines.front().stages) stage.expert_parallel = 1;
  EXPECT_NE(differences(alone, *draft).find("EP"), std::string::npos);
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

/// Two pipelines of one stage, on one GPU of each type.
Draft two_replicas(const std::vector<int>& weights, int zero) {
  Draft draft;
  draft.zero = {zero, 0};
  draft.state_weights = weights;
  for (const int device : {0, 1}) {
    DraftPipeline& pipeline = draft.pipelines.emplace_back();
    pipeline.micro_batches = 4;
    DraftStage& stage = pipeline.stages.emplace_back();
    stage.groups = {{{DeviceId{device}}, 1}};
    stage.chunks = {{4, 0, 0}};
  }
  return draft;
}

TEST(OrreryDraft, SaysShardsThatDifferByGpuType) {
  World world(make_cluster({{"X", 300, 80, 1, 200, 1}, {"Y", 300, 80, 1, 200, 1}}, 5),
              small_model(4), 8, 1024);
  everything(world.job);
  const Draft draft = two_replicas({3, 1}, 2);
  ir::Plan plan = plan_of(draft, world.input());
  EXPECT_EQ(world.defects(plan), "");
  EXPECT_EQ(plan.pipelines[0].stages[0].segments[0].groups[0].state_weight, 3);
  EXPECT_EQ(draft_of(plan, world.input()), draft);
  EXPECT_NE(differences(two_replicas({}, 2), draft).find("shards of 3:1 by GPU type"),
            std::string::npos);
  World alike(make_cluster({{"X", 300, 80, 2, 200, 1}}, 5), small_model(4), 8, 1024);
  everything(alike.job);
  EXPECT_FALSE(draft_of(plan, alike.input())) << "within a type";
}

TEST(OrreryDraft, SaysWhichLayersHaveALighterStageOfZero) {
  World world(make_cluster({{"X", 300, 80, 2, 200, 1}}, 5), small_model(4), 8, 1024);
  everything(world.job);
  Draft draft = two_replicas({}, 3);
  draft.lighter_layers = 1;
  ir::Plan plan = plan_of(draft, world.input());
  EXPECT_EQ(world.defects(plan), "");
  for (ir::Pipeline& pipeline : plan.pipelines) {
    std::vector<ir::Segment>& segments = pipeline.stages[0].segments;
    ASSERT_EQ(segments.size(), 2u);
    EXPECT_EQ(segments[0].zero.stage, 3);
    EXPECT_EQ(segments[1].zero.stage, 2);
    EXPECT_EQ(segments[1].first_block, BlockId{4});
    std::swap(segments[0].zero, segments[1].zero);
  }
  EXPECT_FALSE(draft_of(plan, world.input())) << "the other way around";
  EXPECT_EQ(draft_of(plan_of(draft, world.input()), world.input()), draft);
  EXPECT_EQ(differences(two_replicas({}, 3), draft), "ZeRO-3 of all but 1 layer instead of ZeRO-3");
  world.job.allowed.zero_stages = {0, 1, 3};
  EXPECT_EQ(lighter_zero(world.job), (ir::Zero{1, 0}));
  world.job.allowed.zero_stages = {0, 3};
  EXPECT_FALSE(lighter_zero(world.job));
}

TEST(OrreryCosts, PriceUnevenShards) {
  for (const auto& [zero, lighter] : {std::pair{1, 0}, {2, 0}, {3, 0}, {3, 3}}) {
    for (const std::vector<int>& weights : {std::vector<int>{}, {3, 1}}) {
      const sim::ForkResult ratio = sim::run_forked([&] {
        World world(make_cluster({{"X", 300, 80, 1, 200, 1}, {"Y", 300, 80, 1, 200, 1}}, 0.5),
                    small_model(4), 8, 1024);
        everything(world.job);
        const PlannerInput input = world.input();
        Draft draft = two_replicas(weights, zero);
        draft.lighter_layers = lighter;
        sim::IterationSimulator simulator(world.cluster, world.topology, false);
        const sim::SimulatorEvaluator evaluator(simulator, world.workload, world.job,
                                                world.profile);
        return fmt::format("{}",
                           DraftCosts(input).view(draft).seconds /
                               evaluator.evaluate(plan_of(draft, input)).iteration_time.value);
      });
      ASSERT_TRUE(std::holds_alternative<std::string>(ratio));
      EXPECT_NEAR(std::stod(std::get<std::string>(ratio)), 1, 0.05)
          << "ZeRO-" << zero << (weights.empty() ? "" : ", uneven") << ", lighter " << lighter;
    }
  }
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
  Draft after = before;
  std::swap(after.pipelines[0].stages[0].groups, after.pipelines[0].stages[1].groups);
  EXPECT_EQ(differences(before, after), "groups on other GPUs");
  after.pipelines[0].stages[0].chunks = {{9, 9, 0}};
  after.pipelines[0].stages[1].chunks = {{7, 7, 0}};
  after.pipelines[0].micro_batches = 9;
  EXPECT_EQ(differences(before, after), "layers moved, samples moved");
  after = before;
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
