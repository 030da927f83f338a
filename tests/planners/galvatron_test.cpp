// Galvatron: its layer program against enumeration, its costs by hand, its search against brute
// force on the tiny family, and the plan that HexiScale's Appendix C quotes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "models/base/rng.h"
#include "models/cost/memory.h"
#include "models/lower/lower.h"
#include "models/spec/library.h"
#include "planners/galvatron/costs.h"
#include "planners/galvatron/layers.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "tests/planners/family.h"

namespace orrery::planners::galvatron_test {
namespace {

/// Calls with every sequence of `length` numbers from 0 to `values` - 1.
void for_each_sequence(int length, int values,
                       const std::function<void(const std::vector<int>&)>& f) {
  std::vector<int> sequence(length, 0);
  for (;;) {
    f(sequence);
    int place = length - 1;
    while (place >= 0 && ++sequence[place] == values) sequence[place--] = 0;
    if (place < 0) return;
  }
}

// --------------------------------------------------------------------------------------------
// The layer program.

LayerChoices random_choices(Rng& rng) {
  LayerChoices choices;
  const auto layers = static_cast<int>(rng.integer(1, 5));
  const auto strategies = static_cast<int>(rng.integer(1, 4));
  const auto layouts = static_cast<int>(rng.integer(1, strategies));
  for (int s = 0; s < strategies; ++s) choices.layout.push_back(std::min(s, layouts - 1));
  for (int l = 0; l < layers; ++l) {
    choices.time.emplace_back();
    choices.memory.emplace_back();
    for (int s = 0; s < strategies; ++s) {
      choices.time.back().push_back(static_cast<double>(rng.integer(1, 9)));
      choices.memory.back().push_back(static_cast<double>(rng.integer(0, 9)));
    }
    choices.moved.push_back(rng.uniform());
  }
  for (int a = 0; a < layouts; ++a) {
    choices.change.emplace_back();
    for (int b = 0; b < layouts; ++b) choices.change.back().push_back(a == b ? 0 : rng.uniform());
  }
  choices.any_change = rng.bernoulli(0.5) ? 1e-3 : 0;
  choices.budget = static_cast<double>(rng.integer(1, 25));
  choices.steps = static_cast<int>(rng.integer(1, 40));
  return choices;
}

struct Outcome {
  double time = 0;
  int steps = 0;
};

Outcome by_hand(const LayerChoices& choices, const std::vector<int>& strategy) {
  Outcome result;
  for (std::size_t l = 0; l < strategy.size(); ++l) {
    const std::size_t s = strategy[l];
    result.time += choices.time[l][s];
    result.steps +=
        static_cast<int>(std::ceil(choices.memory[l][s] * choices.steps / choices.budget - 1e-9));
    if (l == 0 || strategy[l] == strategy[l - 1]) continue;
    result.time +=
        choices.any_change +
        choices.moved[l] * choices.change[choices.layout[strategy[l - 1]]][choices.layout[s]];
  }
  return result;
}

TEST(LayerProgram, EqualsEnumeration) {
  Rng rng(3);
  int none = 0;
  for (int n = 0; n < 500; ++n) {
    const LayerChoices choices = random_choices(rng);
    double least = kNever;
    for_each_sequence(static_cast<int>(choices.time.size()),
                      static_cast<int>(choices.layout.size()), [&](const std::vector<int>& s) {
                        const Outcome outcome = by_hand(choices, s);
                        if (outcome.steps <= choices.steps) least = std::min(least, outcome.time);
                      });
    const auto found = choose_strategies(choices);
    ASSERT_EQ(found.has_value(), least < kNever) << n;
    if (!found) {
      ++none;
      continue;
    }
    EXPECT_NEAR(found->time, least, 1e-9) << n;
    const Outcome outcome = by_hand(choices, found->strategy);
    EXPECT_NEAR(outcome.time, found->time, 1e-9) << n;
    EXPECT_LE(outcome.steps, choices.steps) << n;
  }
  EXPECT_GT(none, 50);
}

TEST(LayerProgram, NothingFitsIntoNothing) {
  LayerChoices choices;
  choices.layout = {0};
  choices.time = {{1}};
  choices.memory = {{0}};
  choices.change = {{0}};
  choices.moved = {0};
  choices.steps = 16;
  choices.budget = -1;
  EXPECT_FALSE(choose_strategies(choices).has_value());
  choices.budget = 1;
  EXPECT_TRUE(choose_strategies(choices).has_value());
  EXPECT_EQ(memory_steps(1, 0, 16), 17);
  EXPECT_EQ(memory_steps(0.5, 1, 16), 8);
  EXPECT_EQ(memory_steps(0.51, 1, 16), 9);
  EXPECT_EQ(memory_steps(1e300, 1, 16), 17);
}

// --------------------------------------------------------------------------------------------
// Costs.

TEST(GalvatronCosts, OverlapSlowsBothDown) {
  // 3 s of computation overlap 1 s of communication: 1.3 s together, then 2 s alone.
  EXPECT_DOUBLE_EQ(overlapped(3, 1, 1.3), 1.3 + 2);
  EXPECT_DOUBLE_EQ(overlapped(1, 3, 1.3), 1.3 + 2);
  EXPECT_DOUBLE_EQ(overlapped(2, 2, 1.3), 2.6);
  EXPECT_DOUBLE_EQ(overlapped(2, 0, 1.3), 2);
}

TEST(GalvatronCosts, AnIterationIsTheLongestStagePlusWhatReductionIsLeft) {
  const GalvatronTime stages[] = {{2, 3}, {4, 9}};
  // 4 x (5 - 1 + 2) + max(0, 3 - 2, 9 - 2 - 4).
  EXPECT_DOUBLE_EQ(galvatron_iteration(stages, 5), 24 + 3);
  const GalvatronTime one[] = {{2, 3}};
  EXPECT_DOUBLE_EQ(galvatron_iteration(one, 5), 10 + 1);
}

TEST(GalvatronCosts, ALayerByHand) {
  // Two nodes of two GPUs, 100 TFLOPS and 50; 10 GB/s inside, 2 between.
  const World world(make_cluster({{"A", 100, 40, 2, 10, 1}, {"B", 50, 40, 2, 10, 1}}, 2),
                    small_model(6), 8, 512);
  const PlannerInput input = world.input();
  const GalvatronCosts costs(input, input.devices, {});
  const StageCosts priced(input);
  StageShape shape;
  shape.first = 2;  // Neither embedding nor head.
  const double forward =
      (priced.compute(0, shape).forward.value + priced.compute(1, shape).forward.value) / 2;
  const double activation = 512 * 1024 * 2;
  const double parameters =
      static_cast<double>(models::parameters(world.workload.block(BlockId{3})));

  // All four devices, one stage: TP 2 x DP 2, full recomputation, 8 samples, 4 for each replica.
  const double compute = forward * 4 / 2;
  const double reduces = 6 * (2.0 * 1 / 2) * 4 * activation / 10e9;
  const GalvatronTime both = costs.layer(2, {2, 2, 0, ir::Recompute::full}, 1, 8);
  EXPECT_NEAR(both.compute, 4 * compute + reduces, 1e-12);
  const double reduction = 2.0 * 1 / 2 * parameters / 2 * 2 / 2e9;
  EXPECT_NEAR(both.total - both.compute, overlapped(1.5 * compute, reduction, 1.3) - 1.5 * compute,
              1e-12);

  // Two stages of two: DP 2, sharded; 2 samples, 1 for each replica; a sixth of two hops.
  const double gather = 1.0 / 2 * parameters * 2 / 10e9;
  const double hop = 2.0 * 2 * activation / 2e9 / 6;
  const GalvatronTime sharded = costs.layer(2, {1, 2, 3, ir::Recompute::none}, 2, 2);
  EXPECT_NEAR(sharded.compute, 3 * forward + gather + hop, 1e-12);
  EXPECT_NEAR(sharded.total - sharded.compute,
              overlapped(2 * forward, 2 * gather, 1.3) - 2 * forward, 1e-12);
}

TEST(GalvatronCosts, ShardingTakesThePublishedRatios) {
  const World world(make_cluster({{"A", 100, 40, 8, 10, 1}}, 2), small_model(6), 8, 512);
  const PlannerInput input = world.input();
  const GalvatronCosts costs(input, input.devices, {});
  const double parameters =
      static_cast<double>(models::parameters(world.workload.block(BlockId{3})));
  const double states = 16 * parameters;
  const auto memory = [&](int replicas, int zero) {
    return costs.memory(2, {1, replicas, zero, ir::Recompute::none}, replicas, 0);
  };
  const double ratio = 1.0 / 8 + 0.003;
  EXPECT_NEAR(memory(8, 0), states, 1e-3);
  EXPECT_NEAR(memory(8, 2), states * (7.0 / 8 * ratio + 1.0 / 8), 1e-3);
  EXPECT_NEAR(memory(8, 3), states * ratio, 1e-3);
  EXPECT_NEAR(memory(1, 3), states, 1e-3);
  // 1,024 MB of context, or the profile's.
  EXPECT_NEAR(costs.budget(), 39 * 0x1p30, 1);
  const GalvatronCosts profiled(input, input.devices, {1.3, Bytes{0}});
  EXPECT_NEAR(profiled.budget(), 40 * 0x1p30 - models::kAssumedContext.value, 1);
}

// --------------------------------------------------------------------------------------------
// The search.

/// Every assignment of strategies to layers under GalvatronCosts; no program, no pruning.
class BruteForce {
 public:
  BruteForce(const World& world, int steps)
      : world_(world),
        input_(world.input()),
        costs_(input_, input_.devices, {1.3, Bytes{0}}),
        layers_(count_layers(world.workload)),
        steps_(steps) {
    std::map<NodeId, int> counts;
    for (const models::Device& d : world.cluster.devices) ++counts[d.node];
    for (const auto& [node, count] : counts) common_ = std::gcd(common_, count);
    const int devices = world.cluster.size();
    for (int stages = 1; stages <= std::min(devices, layers_); ++stages) {
      if (devices % stages != 0) continue;
      for (int m = 1; m <= world.job.global_batch; ++m) {
        if (world.job.global_batch % m == 0) try_shape(stages, m);
      }
    }
  }

  double best = kNever;
  int stages_of_best = 0;

 private:
  void try_shape(int stages, int m) {
    stages_ = stages;
    m_ = m;
    batch_ = static_cast<int>(world_.job.global_batch) / m;
    const int per_stage = world_.cluster.size() / stages;
    std::vector<GalvatronStrategy> strategies;
    for (const int tensor : tensor_degrees(world_.workload, world_.job, common_)) {
      if (common_ % tensor != 0 || per_stage % tensor != 0) continue;
      const int replicas = per_stage / tensor;
      if (batch_ % replicas != 0 || batch_ / replicas > 8) continue;
      for (const int zero : world_.job.allowed.zero_stages) {
        if (replicas == 1 && zero > 0) continue;
        for (const ir::Recompute r : {ir::Recompute::none, ir::Recompute::full}) {
          strategies.push_back({tensor, replicas, zero, r});
        }
      }
    }
    if (strategies.empty()) return;
    first_ = {0};
    for (int s = 0; s < stages; ++s) {
      first_.push_back(first_.back() + layers_ / stages + (s >= stages - layers_ % stages));
    }
    fill(strategies);
    for_each_sequence(layers_, static_cast<int>(strategies.size()),
                      [&](const std::vector<int>& chosen) { judge(chosen); });
  }

  /// Tables, so that an assignment is a few look-ups.
  void fill(const std::vector<GalvatronStrategy>& strategies) {
    const std::size_t count = strategies.size();
    time_.assign(layers_, std::vector<GalvatronTime>(count));
    need_.assign(layers_, std::vector<int>(count));
    change_.assign(layers_, std::vector<std::vector<double>>(count, std::vector<double>(count)));
    for (int stage = 0; stage < stages_; ++stage) {
      const int in_flight = std::min(m_, stages_ - stage);
      double reserve = 0;
      for (int l = first_[stage]; l < first_[stage + 1]; ++l) {
        for (const auto& s : strategies) reserve = std::max(reserve, costs_.reserve(l, s, batch_));
      }
      for (int l = first_[stage]; l < first_[stage + 1]; ++l) {
        for (std::size_t s = 0; s < count; ++s) {
          time_[l][s] = costs_.layer(l, strategies[s], stages_, batch_);
          need_[l][s] = memory_steps(costs_.memory(l, strategies[s], batch_, in_flight),
                                     costs_.budget() - reserve, steps_);
          for (std::size_t from = 0; from < count; ++from) {
            change_[l][from][s] =
                l == first_[stage] || from == s ? 0 : change(l, strategies[from], strategies[s]);
          }
        }
      }
    }
  }

  double change(int layer, const GalvatronStrategy& a, const GalvatronStrategy& b) const {
    const int larger = std::max(a.tensor, b.tensor);
    const double share = 1 - static_cast<double>(std::min(a.tensor, b.tensor)) / larger;
    const double samples = static_cast<double>(batch_) * larger / (a.tensor * a.replicas);
    return 1e-9 + share * samples * costs_.activation(layer) * costs_.tensor_link(larger);
  }

  void judge(const std::vector<int>& chosen) {
    std::vector<GalvatronTime> stages;
    for (int stage = 0; stage < stages_; ++stage) {
      GalvatronTime& sum = stages.emplace_back();
      int steps = 0;
      for (int l = first_[stage]; l < first_[stage + 1]; ++l) {
        const std::size_t s = chosen[l];
        const double moved = l > 0 ? change_[l][chosen[l - 1]][s] : 0;
        steps += need_[l][s];
        sum.compute += time_[l][s].compute + moved;
        sum.total += time_[l][s].total + moved;
      }
      if (steps > steps_) return;
    }
    const double time = galvatron_iteration(stages, m_);
    if (time >= best) return;
    best = time;
    stages_of_best = stages_;
  }

  const World& world_;
  PlannerInput input_;
  GalvatronCosts costs_;
  int layers_;
  int steps_;
  int common_ = 0;
  int stages_ = 1;
  int m_ = 1;
  int batch_ = 1;
  std::vector<int> first_;
  std::vector<std::vector<GalvatronTime>> time_;
  std::vector<std::vector<int>> need_;
  std::vector<std::vector<std::vector<double>>> change_;
};

const Options kTiny = {{"context_mib", "0"}, {"memory_steps", "64"}};

/// Mean and largest gap to what brute force finds, over the family.
struct Gap {
  double mean = 0;
  double most = 0;
  int feasible = 0;
  int infeasible = 0;
};

Gap measure_gap(const std::vector<int>& zero_stages, int most_layers) {
  Gap gap;
  for (std::uint64_t n = 0; n < 80; ++n) {
    const auto world = tiny_world(n);
    if (count_layers(world->workload) > most_layers) continue;
    world->job.allowed.zero_stages = zero_stages;
    const BruteForce wanted(*world, 64);
    const PlannerResult result = run_planner("galvatron", world->input(), kTiny);
    EXPECT_EQ(plan_of(result) != nullptr, wanted.best < kNever) << n;
    EXPECT_EQ(complaint(*world, world->input(), result), "") << n;
    ++(plan_of(result) != nullptr ? gap.feasible : gap.infeasible);
    if (plan_of(result) == nullptr) continue;
    const double found = estimate_of(result);
    EXPECT_GE(found, wanted.best * (1 - 1e-9)) << n;
    if (wanted.stages_of_best == 1) {
      EXPECT_NEAR(found, wanted.best, 1e-9 * wanted.best) << n;
    }
    gap.mean += found / wanted.best - 1;
    gap.most = std::max(gap.most, found / wanted.best - 1);
  }
  gap.mean /= gap.feasible;
  return gap;
}

// The program weighs the layers of each stage alone, so that a pipeline may be worse than brute
// force; one stage is exact. The gaps are printed by
//   planners_galvatron_test --gtest_filter=Galvatron.IsExact*:Galvatron.HoldsWith*
TEST(Galvatron, IsExactForOneStageAndNeverBetterThanBruteForceOnTheTinyFamily) {
  const Gap gap = measure_gap({0}, 6);
  std::printf("gap without ZeRO: mean %.3e, largest %.3e over %d\n", gap.mean, gap.most,
              gap.feasible);
  EXPECT_GT(gap.feasible, 50);
  EXPECT_GT(gap.infeasible, 0);
  EXPECT_NEAR(gap.mean, 8.444e-04, 1e-6);
  EXPECT_NEAR(gap.most, 1.806e-02, 1e-5);
}

TEST(Galvatron, HoldsWithShardingToo) {
  const Gap gap = measure_gap({0, 2, 3}, 4);
  std::printf("gap with ZeRO: mean %.3e, largest %.3e over %d\n", gap.mean, gap.most, gap.feasible);
  EXPECT_GT(gap.feasible, 20);
  EXPECT_NEAR(gap.mean, 6.453e-03, 1e-6);
  EXPECT_NEAR(gap.most, 2.3114e-01, 1e-5);
}

/// One pipeline of the quoted degrees, evenly divided; all layers with one strategy.
ir::Plan uniform_plan(const World& world, int stages, int tensor, int replicas, int samples,
                      ir::Recompute recompute, int zero) {
  const int layers = count_layers(world.workload);
  ir::Plan plan;
  ir::Pipeline chain;
  chain.micro_batch_size = samples * replicas;
  chain.micro_batches = static_cast<int>(world.job.global_batch) / chain.micro_batch_size;
  int first = 0;
  int next = 0;
  for (int s = 0; s < stages; ++s) {
    const int held = layers / stages + (s >= stages - layers % stages ? 1 : 0);
    std::vector<DeviceId> devices;
    for (int d = 0; d < tensor * replicas; ++d) devices.push_back(DeviceId{next++});
    chain.stages.push_back(stage_of_layers(
        world.workload, first, held, tensor_groups(devices, tensor, samples), recompute, zero));
    first += held;
  }
  plan.pipelines = {chain};
  return plan;
}

/// HexiScale's heterogeneous setting 3 with Llama (30B); 16 bytes per parameter.
struct SettingThree {
  SettingThree()
      : library(models::load_library(models::default_library_root(), problems)),
        world(models::load_cluster("hexiscale_setting3", library, {}, problems),
              models::load_model("llama_30b", library, {}, problems), 1024) {}
  config::Diagnostics problems;
  models::Library library;
  World world;
};

// HexiScale, Appendix C.2: (D_dp, D_tp, D_pp) = (4, 2, 7), "fine-tuned".
TEST(GalvatronPaper, ThePlanThatHexiscaleQuotesIsFoundWhereDataParallelismShardsGradients) {
  SettingThree three;
  three.world.job.allowed.zero_stages = {0, 2, 3};
  const PlannerResult result = run_planner("galvatron", three.world.input());
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  const auto& plan = std::get<ir::Plan>(result.outcome);
  std::printf("found: %s\n", result.report.chosen.c_str());
  ASSERT_EQ(plan.pipelines.size(), 1U);
  EXPECT_EQ(plan.pipelines.front().stages.size(), 7U);
  for (const ir::Stage& stage : plan.pipelines.front().stages) {
    for (const ir::Segment& segment : stage.segments) {
      EXPECT_EQ(segment.groups.size(), 4U);
      EXPECT_EQ(segment.groups.front().tensor_parallel, 2);
      EXPECT_EQ(segment.zero.stage, 2);
    }
  }
}

TEST(GalvatronPaper, ThePlanThatHexiscaleQuotesDoesNotFitWithSixteenBytesAParameterAndNoSharding) {
  SettingThree three;
  const ir::Plan quoted = uniform_plan(three.world, 7, 2, 4, 1, ir::Recompute::full, 0);
  ASSERT_EQ(three.world.defects(quoted), "");
  const ir::MemoryVerdict verdict = three.world.verdict(quoted);
  EXPECT_FALSE(verdict.fits());
  // 32.5 G parameters / (2 x 7) x 16 bytes are 34.6 GiB alone; the RTX 3090 and 4090 have 24.
  EXPECT_NE(verdict.explain().find("has 24.0 GiB"), std::string::npos) << verdict.explain();
  // What fits has half of the replicas.
  const PlannerResult result = run_planner("galvatron", three.world.input());
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  std::printf("found: %s\n", result.report.chosen.c_str());
  const auto& plan = std::get<ir::Plan>(result.outcome);
  EXPECT_EQ(plan.pipelines.front().stages.size(), 7U);
  EXPECT_EQ(plan.pipelines.front().stages.front().segments.front().groups.size(), 2U);
}

// --------------------------------------------------------------------------------------------
// Plans and options.

/// Memory for a few layers of the fast strategy only.
World tight() {
  return {make_cluster({{"X", 100, 5.5, 4, 100, 2}}, 20), small_model(24), 16, 2048};
}

TEST(Galvatron, StrategiesChangeInsideAStageAndThePlanCanBeLowered) {
  const World world = tight();
  const PlannerResult result = run_planner("galvatron", world.input());
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  const auto& plan = std::get<ir::Plan>(result.outcome);
  std::size_t segments = 0;
  for (const ir::Stage& stage : plan.pipelines.front().stages) segments += stage.segments.size();
  EXPECT_GT(segments, plan.pipelines.front().stages.size()) << result.report.chosen;
  EXPECT_EQ(world.defects(plan), "");
  EXPECT_TRUE(models::find_unsupported(plan).empty());
  const ir::Program program =
      models::lower(plan, world.cluster, world.workload, world.job, {true, 0});
  EXPECT_FALSE(program.ops.empty());
  const PlannerResult coarse = run_planner("galvatron", world.input(), {{"granularity", "model"}});
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(coarse.outcome));
  EXPECT_LT(*result.report.estimate, *coarse.report.estimate);
  for (const ir::Stage& stage : std::get<ir::Plan>(coarse.outcome).pipelines.front().stages) {
    EXPECT_EQ(stage.segments.size(), 1U);
  }
}

TEST(Galvatron, AStageWhoseDegreeChangesNeedsTheSumOfItsSegmentsOnEachDevice) {
  const World world(make_cluster({{"X", 100, 40, 2, 100, 1}}, 20), small_model(6), 8, 512);
  ir::Plan plan = uniform_plan(world, 1, 1, 2, 1, ir::Recompute::none, 0);
  const ir::Plan halves = uniform_plan(world, 1, 2, 1, 2, ir::Recompute::none, 0);
  std::vector<ir::Segment>& segments = plan.pipelines.front().stages.front().segments;
  segments.push_back(halves.pipelines.front().stages.front().segments.front());
  segments[0].last_block = BlockId{3};
  segments[1].first_block = BlockId{4};
  for (const bool swapped : {false, true}) {
    if (swapped) {  // One group first, then two.
      std::swap(segments[0].groups, segments[1].groups);
    }
    ASSERT_EQ(world.defects(plan), "");
    EXPECT_FALSE(models::lower(plan, world.cluster, world.workload, world.job, {}).ops.empty());
    double held = 0, transient = 0, staging = 0;
    for (const ir::Segment& segment : segments) {
      const models::SegmentMemory memory = models::segment_memory(
          segment, segment.groups.front(), static_cast<int>(segment.groups.size()), world.workload,
          world.job);
      held += (memory.states() + memory.activations_per_micro_batch).value;
      transient = std::max(transient, (memory.recomputed + memory.logits).value);
      staging = std::max(staging, memory.communication.value);
    }
    EXPECT_NEAR(world.verdict(plan).by_gpu_type.front().need.value,
                held + transient + staging + models::kAssumedContext.value, 1);
    EXPECT_GT(world.input().evaluator.evaluate(plan).iteration_time.value, 0);
  }
}

TEST(Galvatron, TheLimitedSpacesOfThePaperHoldTheirPlans) {
  World world(make_cluster({{"X", 100, 80, 4, 100, 2}}, 20), small_model(8), 16, 512);
  world.job.allowed.zero_stages = {0, 2, 3};
  const auto full = run_planner("galvatron", world.input());
  for (const char* space : {"dp_tp", "dp_pp"}) {
    const auto result = run_planner("galvatron", world.input(), {{"space", space}});
    const auto& plan = std::get<ir::Plan>(result.outcome);
    EXPECT_GE(*result.report.estimate, *full.report.estimate);
    const bool pipelines = std::string(space) == "dp_pp";
    EXPECT_TRUE(pipelines || plan.pipelines.front().stages.size() == 1);
    for (const ir::Stage& stage : plan.pipelines.front().stages) {
      for (const ir::Segment& segment : stage.segments) {
        EXPECT_EQ(segment.zero.stage, 0);
        EXPECT_TRUE(!pipelines || segment.groups.front().tensor_parallel == 1);
      }
    }
  }
}

TEST(Galvatron, ThePublishedDivisionGivesTheRemainderToTheLastStage) {
  const auto layers_of = [](const World& world, const char* mode) {
    const auto result = run_planner("galvatron", world.input(), {{"mode", mode}});
    std::vector<int> layers;
    for (const ir::Stage& stage : std::get<ir::Plan>(result.outcome).pipelines.front().stages) {
      int blocks = 0;
      for (const ir::Segment& s : stage.segments) {
        blocks += s.last_block.value - s.first_block.value + 1;
      }
      layers.push_back(blocks);
    }
    return layers;
  };
  // A batch of one sample on nodes of one GPU: only a pipeline of four stages.
  World world(make_cluster({{"X", 100, 40, 1, 100, 4}}, 20), llama2_13b(11), 1, 512);
  EXPECT_EQ(layers_of(world, "fixed"), (std::vector<int>{3, 3, 3, 4}));  // With both ends.
  EXPECT_EQ(layers_of(world, "as_published"), (std::vector<int>{3, 2, 2, 6}));
}

}  // namespace
}  // namespace orrery::planners::galvatron_test
