/// Steps of mixed lengths in the simulator: do they agree with ordinary programs, closed forms and
/// what the paper says in words?
#include "experiments/study/mixed_length.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/config/document.h"
#include "models/lower/lower.h"
#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/search.h"
#include "tests/experiments/library.h"

namespace orrery::experiments::mixed_length_test {
namespace {

using planners::PipelineKind;
using planners::StrategySet;
using Lengths = std::vector<std::int64_t>;

constexpr auto kMegatron = ir::SequenceParallelism::megatron;

/// One for the process, which has one simulation engine.
struct World {
  World() {
    config::Diagnostics diagnostics;
    cluster = models::load_cluster("hetu_32h20", support::library(), {}, diagnostics);
    shape = models::load_model("hetu_32b", support::library(), {}, diagnostics);
    diagnostics.raise();
    shape.layers = 12;
    topology = std::make_unique<models::Topology>(cluster);
    simulator = std::make_unique<sim::IterationSimulator>(cluster, *topology, false);
    pricer = std::make_unique<models::LengthPricer>(cluster, shape, models::Job{}, ir::Profile{});
  }
  std::unique_ptr<planners::StepPlanner> make(const char* name, const StrategySet& set) const {
    auto made = planners::find_step_planner(name)->make(
        {*pricer, *topology, set.strategies.back().longest, 256, set});
    return std::get<std::unique_ptr<planners::StepPlanner>>(std::move(made));
  }
  double simulate(const ir::Program& program, const models::ProgramPrices& prices) {
    sim::IterationOptions options;
    options.record_spans = options.record_memory = options.record_links = false;
    return simulator->run(program, prices, options).iteration_time.value;
  }

  models::Cluster cluster;
  ir::ModelShape shape;
  std::unique_ptr<models::Topology> topology;
  std::unique_ptr<sim::IterationSimulator> simulator;
  std::unique_ptr<models::LengthPricer> pricer;
};

World& the_world() {
  static World world;
  return world;
}

StrategySet one(std::int64_t longest, std::vector<PipelineKind> kinds, int zero = 1) {
  return {{{longest, std::move(kinds)}}, {ir::Recompute::full}, {zero}};
}

/// TP 4 up to 4096 tokens, TP 8 above.
StrategySet short_and_long() {
  return {{{4096, {{4, 4, 2, kMegatron, 1}}}, {16384, {{2, 8, 2, kMegatron, 1}}}},
          {ir::Recompute::full},
          {1}};
}

TEST(MixedLengths, EqualLengthsSimulateLikeThePlanLoweredAtThatLength) {
  World& world = the_world();
  const std::vector<StrategySet> sets = {
      one(16384, {{2, 8, 2, kMegatron, 1}}),
      one(16384, {{2, 4, 4, ir::SequenceParallelism::none, 1}}),
      one(16384, {{4, 1, 1, ir::SequenceParallelism::ulysses, 8}}),
      one(16384, {{4, 1, 1, ir::SequenceParallelism::ulysses, 8}}, 3),
      one(16384, {{2, 8, 1, ir::SequenceParallelism::ring, 2}}),
      one(16384, {{1, 8, 1, kMegatron, 1}, {3, 4, 2, kMegatron, 1}}),
  };
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const auto planner = world.make("hetu_b", sets[s]);
    const planners::PreparedStrategy& strategy = planner->strategies().front();
    const models::MicroBatchLengths lengths(strategy.pipelines(), Lengths(5, 2048));
    StepSimulator steps(*planner, *world.pricer, *world.topology, *world.simulator);
    const double mixed = steps.phase_time({0, lengths, models::StepEnd::update}).value;
    const ir::Program program =
        models::lower(strategy.plan_for(lengths), world.cluster, world.pricer->workload(2048),
                      world.pricer->job(), {});
    const double plain =
        world.simulate(program, models::ProgramPrices(program, world.pricer->at(2048)));
    EXPECT_NEAR(mixed / plain, 1, 1e-9) << "strategy " << s << ": " << mixed << " and " << plain;
  }
}

TEST(MixedLengths, OneStageTakesTheSumOfItsSequences) {
  World& world = the_world();
  const auto planner = world.make("hetu_b", one(16384, {{1, 8, 1, kMegatron, 1}}));
  StepSimulator steps(*planner, *world.pricer, *world.topology, *world.simulator);
  const auto time = [&](const Lengths& lengths) {
    return steps.phase_time({0, {lengths}, models::StepEnd::update}).value;
  };
  const Lengths lengths = {16384, 4096, 4096, 512, 256};
  const double load = planners::pipeline_load(planner->strategies().front(), 0, lengths).value;
  EXPECT_NEAR((time(lengths) - time({0})) / load, 1, 1e-9);
  EXPECT_NEAR(time({256, 16384, 512, 4096, 4096}) / time(lengths), 1, 1e-9);
}

TEST(MixedLengths, SeveralStagesTakeTheirLoadAndTheirTransfers) {
  World& world = the_world();
  const auto planner = world.make("hetu_b", one(16384, {{1, 4, 4, kMegatron, 1}}));
  StepSimulator steps(*planner, *world.pricer, *world.topology, *world.simulator);
  Rng rng(5);
  for (int trial = 0; trial < 10; ++trial) {
    Lengths lengths;
    for (int i = 0; i < 24; ++i) lengths.push_back(256 * rng.integer(1, 64));
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    const double load = planners::pipeline_load(planner->strategies().front(), 0, lengths).value;
    const double base = steps.phase_time({0, {{0}}, models::StepEnd::update}).value;
    const double time = steps.phase_time({0, {lengths}, models::StepEnd::update}).value - base;
    // Between them lie the transfers between stages.
    EXPECT_GE(time, 0.999 * load);
    EXPECT_LE(time, 1.01 * load);
  }
}

TEST(MixedLengths, ProgramsOfAnyLengthsHaveNoDefect) {
  World& world = the_world();
  const auto planner =
      world.make("hetu_b", one(16384, {{1, 8, 1, kMegatron, 1}, {3, 4, 2, kMegatron, 1}}));
  const planners::PreparedStrategy& strategy = planner->strategies().front();
  Rng rng(6);
  for (int trial = 0; trial < 30; ++trial) {
    models::MicroBatchLengths lengths(4);
    for (Lengths& own : lengths) {
      for (std::int64_t i = rng.integer(1, 6); i > 0; --i) {
        own.push_back(256 * rng.integer(0, 64));
      }
    }
    const ir::Program program = models::with_lengths(
        models::lower(strategy.plan_for(lengths), world.cluster, world.pricer->workload(16384),
                      world.pricer->job(), {}),
        lengths, trial % 2 == 0 ? models::StepEnd::update : models::StepEnd::accumulate);
    EXPECT_EQ(ir::find_defect(program), "");
  }
}

TEST(MixedLengths, AccumulatingIsUpdatingWithoutTheUpdate) {
  World& world = the_world();
  const auto planner = world.make("hetu_b", one(16384, {{4, 4, 2, kMegatron, 1}}));
  StepSimulator steps(*planner, *world.pricer, *world.topology, *world.simulator);
  const models::MicroBatchLengths lengths(4, Lengths(3, 4096));
  EXPECT_LT(steps.phase_time({0, lengths, models::StepEnd::accumulate}).value,
            steps.phase_time({0, lengths, models::StepEnd::update}).value);
}

TEST(MixedLengths, ASwitchIsCountedOnceForEachChange) {
  World& world = the_world();
  const StrategySet set = short_and_long();
  const std::vector<Lengths> steps = {{512}, {1024}, {8192, 512}, {16384}, {512}, {512}};
  const auto switches = [&](const char* name) {
    const auto planner = world.make(name, set);
    StepSimulator simulator(*planner, *world.pricer, *world.topology, *world.simulator);
    std::vector<int> counts;
    for (const Lengths& lengths : steps) {
      const StepOutcome out = simulator.run(lengths);
      counts.push_back(out.switches);
      EXPECT_EQ(out.switches > 0, out.switching.value > 0);
      EXPECT_GT((out.time - out.switching).value, 0);
    }
    return counts;
  };
  EXPECT_EQ(switches("hetu_b"), (std::vector<int>{0, 0, 1, 0, 1, 0}));
  // The update of a step ends in the layout of the short interval; long steps leave and come back.
  EXPECT_EQ(switches("hotspa"), (std::vector<int>{0, 0, 2, 2, 0, 0}));
}

TEST(MixedLengths, ASavedStepSimulatesAsItWasPlanned) {
  World& world = the_world();
  const StrategySet set = short_and_long();
  const SimulatedSteps judge(*world.pricer, *world.topology, *world.simulator, 16384);
  for (const char* name : {"hotspa", "hetu_b"}) {
    const auto planner = world.make(name, set);
    const planners::StepDecision decision =
        planner->plan(Lengths{8192, 512, 1024, 4096, 6144, 256, 256});
    StepSimulator simulator(*planner, *world.pricer, *world.topology, *world.simulator);
    const StepOutcome planned = simulator.run(decision);
    config::Diagnostics problems;
    const auto saved = config::load_text<models::PlannedStep>(
        models::dump_step_plan(planners::to_planned_step(*planner, decision)), "s.yaml", problems);
    ASSERT_TRUE(problems.empty());
    const StepOutcome again = simulate_step(saved, world.pricer->job().state_bytes, judge);
    EXPECT_NEAR(again.time / planned.time, 1, 1e-9) << name;
    EXPECT_NEAR(again.switching.value, planned.switching.value, 1e-9) << name;
    EXPECT_EQ(again.switches, planned.switches) << name;
    EXPECT_EQ(again.computed_tokens, planned.computed_tokens) << name;
    EXPECT_EQ(again.micro_batches, planned.micro_batches) << name;
  }
}

TEST(MixedLengths, TheJudgeOfASearchIsTheSimulator) {
  World& world = the_world();
  const StrategySet set = short_and_long();
  const SimulatedSteps judge(*world.pricer, *world.topology, *world.simulator, 16384);
  const std::vector<Lengths> steps = {{512, 512}, {8192, 512}, {1024}};
  for (const char* name : {"hotspa", "hetu_b"}) {
    const auto planner = world.make(name, set);
    StepSimulator simulator(*planner, *world.pricer, *world.topology, *world.simulator);
    Seconds sum;
    for (const Lengths& lengths : steps) sum += simulator.run(lengths).time;
    const Seconds judged =
        planners::judged_time(*planner, world.pricer->job().state_bytes, steps, judge);
    EXPECT_NEAR(judged / (sum / 3.0), 1, 1e-9) << name;
  }
}

}  // namespace
}  // namespace orrery::experiments::mixed_length_test
