/// The search of strategies: does it find what trying everything finds, and only what runs?
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "models/base/rng.h"
#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/candidates.h"
#include "planners/mixed_length/search.h"
#include "tests/planners/mixed_length_world.h"

namespace orrery::planners::mixed_length_search_test {
namespace {

using Steps = std::vector<Lengths>;

constexpr std::int64_t kContext = 16384;

/// Passes as balance() sees them, a share for gradients that differs by strategy and by whether it
/// updates, and switches that cost more the more the strategies differ.
class PlainJudge final : public StepJudge {
 public:
  explicit PlainJudge(double switch_cost) : switch_cost_(switch_cost) {}
  Seconds phase_time(const PreparedStrategy& strategy, const models::MicroBatchLengths& lengths,
                     models::StepEnd end) const override {
    const double update = end == models::StepEnd::update ? 3e-5 : 1e-5;
    return longest_load(strategy, lengths) + Seconds{update * strategy.pipelines()};
  }
  Seconds switch_time(const ir::Plan& from, const ir::Plan& to,
                      const models::ReshardBytes& bytes) const override {
    const auto a = static_cast<double>(from.pipelines.size());
    const auto b = static_cast<double>(to.pipelines.size());
    return Seconds{switch_cost_ * (bytes.weight + bytes.optimizer()) *
                   (1 + std::abs(a - b) + (from.pipelines == to.pipelines ? -1 : 0))};
  }

 private:
  double switch_cost_;
};

Steps draw_steps(std::uint64_t seed, int count) {
  Rng rng(seed);
  Steps steps;
  for (int s = 0; s < count; ++s) {
    steps.emplace_back();
    const std::int64_t most = rng.bernoulli(0.5) ? kContext : 4096;
    for (std::int64_t i = rng.integer(8, 40); i > 0; --i) {
      steps.back().push_back(256 * rng.integer(1, rng.bernoulli(0.7) ? 8 : most / 256));
    }
  }
  return steps;
}

StrategySet searched(StrategySearch search) {
  StrategySet set;
  set.recompute = {ir::Recompute::none};
  search.sample_steps = 3;
  search.finalists = 1;
  search.balanced = std::numeric_limits<int>::max();
  set.search = std::move(search);
  return set;
}

/// Least mean step time over all chains of borders and candidates.
Seconds best_of_all(const MixedLengthWorld& world, const StrategySet& set, const char* name,
                    const Steps& steps, const StepJudge& judge, int max_kinds) {
  const auto* entry = find_step_planner(name);
  const auto borders = search_borders(set.search, kContext, 256);
  const auto candidates =
      candidate_pipelines(world.cluster.size(), world.shape.layers, set.search, max_kinds);
  Seconds best{std::numeric_limits<double>::infinity()};
  StrategySet given = set;
  const std::function<void(std::size_t)> extend = [&](std::size_t first) {
    if (!given.strategies.empty() && given.strategies.back().longest == kContext) {
      const auto made = entry->make(world.input(given, kContext));
      const auto* planner = std::get_if<std::unique_ptr<StepPlanner>>(&made);
      if (planner == nullptr) return;
      best = std::min(best, judged_time(**planner, models::StateBytes{}, steps, judge));
      return;
    }
    if (std::ssize(given.strategies) == set.search.max_strategies) return;
    for (std::size_t b = first; b < borders.size(); ++b) {
      for (const auto& pipelines : candidates) {
        given.strategies.push_back({borders[b], pipelines});
        extend(b + 1);
        given.strategies.pop_back();
      }
    }
  };
  extend(0);
  return best;
}

FoundStrategies found(const MixedLengthWorld& world, const StrategySet& set, const char* name,
                      const Steps& steps, const StepJudge& judge) {
  const MixedLengthInput input = world.input(set, kContext);
  auto result = find_step_planner(name)->search({input, steps, judge});
  EXPECT_TRUE(std::holds_alternative<FoundStrategies>(result));
  return std::get<FoundStrategies>(std::move(result));
}

TEST(StrategySearch, IntervalWiseSetsAreAsGoodAsTryingAll) {
  const MixedLengthWorld world(60);
  std::set<std::size_t> sizes;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    const StrategySet set = searched({.borders = {4096}, .max_strategies = 2, .max_stages = 2});
    const Steps steps = draw_steps(seed, 3);
    const PlainJudge judge(seed % 2 == 0 ? 1e-9 : 2e-3);
    const FoundStrategies best = found(world, set, "hotspa", steps, judge);
    const Seconds all = best_of_all(world, set, "hotspa", steps, judge, 1);
    EXPECT_NEAR(best.simulated / all, 1, 1e-12) << seed;
    EXPECT_NEAR(best.modeled / best.simulated, 1, 1e-9) << seed;
    sizes.insert(best.set.strategies.size());
  }
  EXPECT_EQ(sizes, (std::set<std::size_t>{1, 2}));  // Dear switches: one strategy.
}

TEST(StrategySearch, HeterogeneousSetsAreAsGoodAsTryingAll) {
  const MixedLengthWorld world(20);
  // Few kinds: pairs of pairs are many.
  const StrategySet few = searched({.borders = {8192},
                                    .max_strategies = 2,
                                    .max_kinds = 2,
                                    .max_tensor_parallel = 2,
                                    .max_stages = 1});
  // One sequence that only TP 2 holds, and work for all devices.
  Steps steps = {{kContext}, {}};
  Rng rng(0);
  for (Lengths& lengths : steps) {
    for (int i = 0; i < 100; ++i) lengths.push_back(256 * rng.integer(8, 24));
  }
  const PlainJudge judge(1e-9);
  const FoundStrategies best = found(world, few, "hetu_b", steps, judge);
  const Seconds all = best_of_all(world, few, "hetu_b", steps, judge, 2);
  EXPECT_NEAR(best.simulated / all, 1, 1e-12);
  EXPECT_EQ(best.set.strategies.back().pipelines.size(), 2U);  // TP 2 and TP 1.
}

TEST(StrategySearch, LookingAtFewCandidatesIsNeverBetterAndStaysValid) {
  const MixedLengthWorld world(20);
  const Steps steps = draw_steps(3, 3);
  const PlainJudge judge(1e-9);
  StrategySet set = searched({.borders = {4096}, .max_strategies = 2, .max_stages = 2});
  const Seconds all = found(world, set, "hotspa", steps, judge).simulated;
  set.search.balanced = 2;
  set.search.finalists = 3;
  const FoundStrategies few = found(world, set, "hotspa", steps, judge);
  EXPECT_GE(few.simulated.value, all.value * (1 - 1e-12));
  EXPECT_FALSE(few.set.searched());
  EXPECT_EQ(few.set.strategies.back().longest, kContext);
  EXPECT_TRUE(std::holds_alternative<std::unique_ptr<StepPlanner>>(
      find_step_planner("hotspa")->make(world.input(few.set, kContext))));
}

/// All degrees of DP x SP and of DP x TP x CP x PP that fill the devices, made in other words than
/// the search makes them.
std::vector<PipelineKind> packing_kinds(const std::string& name, int devices, int most_stages) {
  std::vector<PipelineKind> kinds;
  for (int tp = 1; tp <= (name == "packed_deepspeed" ? 1 : devices); tp *= 2) {
    for (int split = 1; split <= devices; split *= 2) {
      for (int stages = 1; stages <= (name == "packed_deepspeed" ? 1 : most_stages); stages *= 2) {
        if (devices % (tp * split * stages) != 0) continue;
        using enum ir::SequenceParallelism;
        const auto sequence = split > 1 ? (name == "packed_deepspeed" ? ulysses : ring)
                              : tp > 1  ? megatron
                                        : none;
        kinds.push_back({devices / (tp * split * stages), tp, stages, sequence, split});
      }
    }
  }
  return kinds;
}

TEST(StrategySearch, PackingIsAsGoodAsTryingAllDegrees) {
  const MixedLengthWorld world(60);
  for (const char* name : {"packed_deepspeed", "packed_megatron"}) {
    StrategySet set = searched({.borders = {}, .max_stages = 4});
    set.recompute = {ir::Recompute::none, ir::Recompute::full};
    set.zero_stages = {1, 3};
    const Steps steps = draw_steps(5, 3);
    const PlainJudge judge(0);
    const FoundStrategies best = found(world, set, name, steps, judge);
    Seconds least{std::numeric_limits<double>::infinity()};
    int feasible = 0;
    for (const PipelineKind& kind : packing_kinds(name, world.cluster.size(), 4)) {
      StrategySet given = set;
      given.strategies = {{kContext, {kind}}};
      const auto made = find_step_planner(name)->make(world.input(given, kContext));
      const auto* planner = std::get_if<std::unique_ptr<StepPlanner>>(&made);
      if (planner == nullptr) continue;
      ++feasible;
      least = std::min(least, judged_time(**planner, models::StateBytes{}, steps, judge));
    }
    EXPECT_GT(feasible, 1) << name;
    EXPECT_NEAR(best.simulated / least, 1, 1e-12) << name;
    EXPECT_NEAR(best.modeled / best.simulated, 1, 1e-9) << name;
    ASSERT_EQ(best.set.strategies.size(), 1U) << name;
    EXPECT_EQ(best.set.strategies.front().longest, kContext) << name;
  }
}

TEST(StrategySearch, PackingTriesTheStrategiesOfTableNine) {
  std::set<std::string> seen;
  for (const auto& pipelines : ulysses_candidates(32, 60, {})) seen.insert(in_words(pipelines));
  EXPECT_EQ(seen.size(), 6U);  // SP 1 to 32.
  EXPECT_TRUE(seen.contains("4 x TP1 ulysses 8"));
  EXPECT_TRUE(seen.contains("8 x TP1 ulysses 4"));
  seen.clear();
  for (const auto& pipelines : ring_candidates(32, 60, {})) {
    EXPECT_TRUE(seen.insert(in_words(pipelines)).second) << in_words(pipelines);
  }
  EXPECT_TRUE(seen.contains("2 x TP8 ring 2"));
  EXPECT_TRUE(seen.contains("1 x TP8 PP4"));
}

TEST(StrategySearch, WhatFitsNowhereIsInfeasible) {
  const MixedLengthWorld world(60);
  StrategySet set = searched({.borders = {}, .max_tensor_parallel = 1, .max_stages = 1});
  const PlainJudge judge(0);
  const MixedLengthInput input = world.input(set, kContext);
  const Steps steps = draw_steps(1, 1);
  const auto result = find_step_planner("hotspa")->search({input, steps, judge});
  ASSERT_TRUE(std::holds_alternative<models::Infeasible>(result));
  EXPECT_EQ(std::get<models::Infeasible>(result).constraint, "device memory");
}

TEST(StrategySearch, CandidatesFillTheClusterAndAreDistinct) {
  for (const int devices : {8, 24, 31, 32}) {
    for (int kinds = 1; kinds <= 3; ++kinds) {
      std::set<std::string> seen;
      for (const auto& pipelines : candidate_pipelines(devices, 60, {}, kinds)) {
        int used = 0;
        int before = devices + 1;
        for (const PipelineKind& kind : pipelines) {
          const int each = kind.tensor_parallel * kind.stages;
          EXPECT_GE(kind.count, 1);
          EXPECT_LE(each, before);
          before = each;
          used += kind.count * each;
        }
        EXPECT_LE(used, devices);
        EXPECT_LT(devices - used, before) << in_words(pipelines);
        EXPECT_LE(static_cast<int>(pipelines.size()), kinds);
        EXPECT_TRUE(seen.insert(in_words(pipelines)).second) << in_words(pipelines);
      }
      if (devices == 32 && kinds == 2) {  // Tables 11 and 12.
        EXPECT_TRUE(seen.contains("1 x TP16, 4 x TP4"));
      }
    }
  }
}

TEST(StrategySearch, BordersEndAtTheContext) {
  EXPECT_EQ(search_borders({}, 32768, 256), (Lengths{2048, 4096, 8192, 16384, 32768}));
  EXPECT_EQ(search_borders({.borders = {100, 4100, 40000}}, 32768, 256), (Lengths{4096, 32768}));
  EXPECT_EQ(search_borders({}, 512, 256), (Lengths{256, 512}));
}

}  // namespace
}  // namespace orrery::planners::mixed_length_search_test
