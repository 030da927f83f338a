#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "models/base/rng.h"
#include "planners/hetu/costs.h"
#include "planners/hetu/programs.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"

namespace orrery::planners::hetu_test {
namespace {

/// All vectors of `count` integers >= 1 that sum to `total`.
std::vector<std::vector<int>> compositions(int total, int count) {
  if (count == 1)
    return total >= 1 ? std::vector<std::vector<int>>{{total}} : std::vector<std::vector<int>>{};
  std::vector<std::vector<int>> all;
  for (int first = 1; first < total; ++first) {
    for (std::vector<int> rest : compositions(total - first, count - 1)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  }
  return all;
}

/// The order of preference that assign_layers() promises.
using LayerKey = std::tuple<double, double, int, std::vector<int>>;

LayerKey layer_key(const std::vector<LayerStage>& stages, const std::vector<int>& layers) {
  double longest = 0;
  std::map<double, int> by_time;  // Sums by speed, so that the order of additions is fixed.
  int squares = 0;
  for (std::size_t j = 0; j < layers.size(); ++j) {
    longest = std::max(longest, stages[j].layer_time * layers[j]);
    by_time[stages[j].layer_time] += layers[j];
    squares += layers[j] * layers[j];
  }
  double sum = 0;
  for (const auto& [time, count] : by_time) sum += time * count;
  return {longest, sum, squares, layers};
}

std::optional<std::vector<int>> brute_layers(int layers, const std::vector<LayerStage>& stages) {
  std::optional<LayerKey> best;
  for (const auto& split : compositions(layers, static_cast<int>(stages.size()))) {
    bool fits = true;
    for (std::size_t j = 0; j < split.size(); ++j) fits = fits && split[j] <= stages[j].most;
    if (!fits) continue;
    const LayerKey key = layer_key(stages, split);
    if (!best || key < *best) best = key;
  }
  if (!best) return std::nullopt;
  return std::get<3>(*best);
}

/// Finishing times in descending order are smallest; of equals, the first pipelines have more.
std::vector<int> brute_shares(int total, const std::vector<double>& periods) {
  std::optional<std::pair<std::vector<double>, std::vector<int>>> best;
  for (const auto& shares : compositions(total, static_cast<int>(periods.size()))) {
    std::vector<double> ends;
    std::vector<int> negative;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      ends.push_back(periods[i] * shares[i]);
      negative.push_back(-shares[i]);
    }
    std::sort(ends.rbegin(), ends.rend());
    const std::pair key{ends, negative};
    if (!best || key < *best) best = key;
  }
  if (!best) return {};
  for (int& m : best->second) m = -m;
  return best->second;
}

TEST(HetuPrograms, LayersEqualBruteForce) {
  Rng rng(7);
  int feasible = 0;
  for (int round = 0; round < 2000; ++round) {
    const int layers = static_cast<int>(rng.integer(1, 12));
    std::vector<LayerStage> stages(rng.integer(1, 5));
    for (LayerStage& s : stages) {
      // Multiples and fractions of each other, so that ties are frequent.
      s.layer_time = static_cast<double>(rng.integer(1, 4)) / (rng.integer(0, 1) == 0 ? 1 : 3);
      s.most = static_cast<int>(rng.integer(0, 12));
    }
    const auto brute = brute_layers(layers, stages);
    EXPECT_EQ(assign_layers(layers, stages), brute) << "round " << round;
    feasible += brute.has_value() ? 1 : 0;
  }
  EXPECT_GT(feasible, 500);
  EXPECT_LT(feasible, 1500);
}

TEST(HetuPrograms, MicroBatchesEqualBruteForce) {
  Rng rng(8);
  for (int round = 0; round < 1000; ++round) {
    std::vector<double> periods(rng.integer(1, 4));
    for (double& o : periods) o = static_cast<double>(rng.integer(1, 9)) / 4;
    const int total = static_cast<int>(rng.integer(1, 14));
    const std::vector<int> ones(periods.size(), 1);
    const auto shares = share_micro_batches(total, periods, ones);
    const std::vector<int> brute = brute_shares(total, periods);
    ASSERT_EQ(shares.has_value(), !brute.empty()) << "round " << round;
    if (shares) {
      EXPECT_EQ(*shares, brute) << "round " << round;
    }
  }
}

TEST(HetuPrograms, MinimaOfMicroBatchesBind) {
  const std::vector<double> periods = {1, 10};
  EXPECT_EQ(share_micro_batches(8, periods, std::vector<int>{2, 5}), (std::vector<int>{3, 5}));
  EXPECT_EQ(share_micro_batches(8, periods, std::vector<int>{4, 5}), std::nullopt);
}

TEST(HetuPrograms, RestsSplitIntoTheFastestRuns) {
  const std::vector<int> sizes = {1, 2, 4};
  using V = std::vector<double>;
  EXPECT_EQ(split_rest(V{1, 1, 1}, sizes, 4, 2), (std::vector<int>{2, 1}));
  EXPECT_EQ(split_rest(V{1, 1}, sizes, 4, 2), (std::vector<int>{2}));
  // A straggler is kept apart: 1/2 + 1/(4 x 3) against 1/4 + 1/(2 x 3).
  EXPECT_EQ(split_rest(V{1, 1, 3}, sizes, 4, 2), (std::vector<int>{2, 1}));
  EXPECT_EQ(split_rest(V{1, 3, 3}, sizes, 4, 2), (std::vector<int>{1, 2}));
  EXPECT_EQ(split_rest(V{1, 9}, sizes, 4, 2), (std::vector<int>{1, 1}));
  // Halves that are worse than half make larger groups lose nothing; better halves win.
  EXPECT_EQ(split_rest(V{1, 1, 1}, sizes, 4, 1.5), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(split_rest(V{}, sizes, 4, 2), std::vector<int>{});
}

TEST(HetuPrograms, RestsEqualBruteForce) {
  Rng rng(9);
  const std::vector<int> sizes = {1, 2, 4, 8};
  for (int round = 0; round < 300; ++round) {
    std::vector<double> slow(rng.integer(1, 7));
    for (double& s : slow) s = static_cast<double>(rng.integer(1, 4));
    std::sort(slow.begin(), slow.end());
    const double alpha = static_cast<double>(rng.integer(3, 6)) / 2;
    const auto value = [&](const std::vector<int>& split) {
      double sum = 0;
      std::size_t i = 0;
      for (const int size : split) {
        i += size;
        sum += 1 / (std::pow(alpha, std::log2(8.0 / size)) * slow[i - 1]);
      }
      return sum;
    };
    double best = 0;
    for (int count = 1; count <= static_cast<int>(slow.size()); ++count) {
      for (const auto& split : compositions(static_cast<int>(slow.size()), count)) {
        const bool powers = std::all_of(split.begin(), split.end(),
                                        [](int s) { return s == 1 || s == 2 || s == 4; });
        if (powers) best = std::max(best, value(split));
      }
    }
    EXPECT_NEAR(value(split_rest(slow, sizes, 8, alpha)), best, 1e-12 * best) << "round " << round;
  }
}

/// Every way to send each group to a pipeline, without order of the pipelines.
std::set<Deal> brute_deals(const std::vector<int>& counts, int pipelines, int fewest, int most) {
  std::set<Deal> deals;
  Deal deal(pipelines, std::vector<int>(counts.size(), 0));
  std::vector<std::size_t> classes;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    classes.insert(classes.end(), counts[c], c);
  }
  const std::function<void(std::size_t)> place = [&](std::size_t g) {
    if (g == classes.size()) {
      for (const auto& taken : deal) {
        const int sum = std::accumulate(taken.begin(), taken.end(), 0);
        if (sum < fewest || sum > most) return;
      }
      Deal sorted = deal;
      std::sort(sorted.rbegin(), sorted.rend());
      deals.insert(sorted);
      return;
    }
    for (auto& taken : deal) {
      ++taken[classes[g]];
      place(g + 1);
      --taken[classes[g]];
    }
  };
  place(0);
  return deals;
}

TEST(HetuPrograms, DealsAreAllDealsOnce) {
  Rng rng(10);
  for (int round = 0; round < 200; ++round) {
    DealQuery query;
    int total = 0;
    for (std::int64_t c = rng.integer(1, 3); c > 0; --c) {
      query.counts.push_back(static_cast<int>(rng.integer(1, 3)));
      query.power.push_back(static_cast<double>(rng.integer(1, 5)));
      total += query.counts.back();
    }
    query.pipelines = static_cast<int>(rng.integer(1, std::min(4, total)));
    query.fewest = std::max(1, total / query.pipelines - 1);
    query.most = (total + query.pipelines - 1) / query.pipelines + 1;
    query.layouts = 100'000;
    const Deals deals = deal_groups(query);
    const std::set<Deal> found(deals.deals.begin(), deals.deals.end());
    EXPECT_EQ(found.size(), deals.deals.size()) << "round " << round;
    EXPECT_EQ(found, brute_deals(query.counts, query.pipelines, query.fewest, query.most))
        << "round " << round;
    EXPECT_TRUE(deals.complete);
  }
}

TEST(HetuPrograms, TheFirstDealIsTheEvenestAndALimitEndsTheDealing) {
  DealQuery query;
  query.counts = {8, 4};
  query.power = {1, 6};
  query.pipelines = 4;
  query.fewest = 2;
  query.most = 4;
  query.layouts = 3;
  const Deals deals = deal_groups(query);
  ASSERT_EQ(deals.deals.size(), 3U);
  EXPECT_EQ(deals.deals.front(), (Deal{{2, 1}, {2, 1}, {2, 1}, {2, 1}}));
  EXPECT_FALSE(deals.complete);
}

std::vector<int> sizes_of(const HetuGroups& groups) {
  std::vector<int> sizes;
  for (const HetuClass& c : groups.classes) {
    sizes.insert(sizes.end(), c.groups.size(), c.size);
  }
  return sizes;
}

TEST(HetuGroups, ThirtyOneGpusMakeSevenGroupsOfFourOneOfTwoAndOneOfOne) {
  const World world(make_cluster({{"X", 148, 96, 8, 400, 4}}, 50), small_model(16), 64, 1024);
  PlannerInput input = world.input();
  input.devices.pop_back();
  const HetuCostSettings settings;
  const HetuCosts costs(input, settings);
  EXPECT_EQ(sizes_of(costs.groups(4, true)), (std::vector<int>{4, 4, 4, 4, 4, 4, 4, 2, 1}));
  const HetuGroups idle = costs.groups(4, false);
  EXPECT_EQ(sizes_of(idle), (std::vector<int>{4, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(idle.idle, 3);
}

TEST(HetuGroups, AStragglerAsATypeOfItsOwnIsKeptApart) {
  // Three GPUs of a node of four; the third works at a fifth of the others' speed.
  models::Cluster cluster =
      make_cluster({{"X", 150, 96, 3, 400, 1}, {"Slow", 30, 96, 1, 400, 1}}, 50);
  cluster.nodes[0].gpu_types[2] = 1;
  models::seal(cluster);
  const World world(std::move(cluster), small_model(8), 16, 1024);
  PlannerInput input = world.input();
  input.devices.pop_back();
  const HetuCostSettings settings;
  const HetuCosts costs(input, settings);
  const HetuGroups groups = costs.groups(4, true);
  ASSERT_EQ(groups.classes.size(), 2U);
  EXPECT_EQ(groups.classes[0].groups, (std::vector<std::vector<DeviceId>>{{DeviceId{2}}}));
  EXPECT_EQ(groups.classes[1].groups,
            (std::vector<std::vector<DeviceId>>{{DeviceId{0}, DeviceId{1}}}));
  EXPECT_GT(groups.classes[0].slowness, 3);
}

// ---- The search against brute force over its own space, under its own costs.

struct Brute {
  double best = kNever;
  int layouts = 0;
};

void try_deal(const HetuCosts& costs, const HetuGroups& groups, const HetuVariant& variant,
              const Deal& deal, int layers, Brute& brute) {
  HetuLayout layout;
  std::vector<double> periods;
  std::vector<std::size_t> next(groups.classes.size(), 0);
  const int pipelines = static_cast<int>(deal.size());
  ++brute.layouts;
  for (const std::vector<int>& taken : deal) {
    HetuChain chain;
    std::vector<LayerStage> stages;
    const int count = std::accumulate(taken.begin(), taken.end(), 0);
    for (std::size_t c = 0; c < taken.size(); ++c) {
      for (int i = 0; i < taken[c]; ++i) {
        const int k = static_cast<int>(c), stage = static_cast<int>(stages.size());
        stages.push_back({costs.layer_time(groups, k, variant).value,
                          costs.most_layers(groups, k, variant, pipelines, stage, count)});
        chain.classes.push_back(k);
        chain.groups.push_back(groups.classes[c].groups[next[c]++]);
      }
    }
    const auto split = brute_layers(layers, stages);
    if (!split) return;
    chain.layers = *split;
    periods.push_back(std::get<0>(layer_key(stages, *split)));
    layout.push_back(chain);
  }
  const std::vector<int> shares = brute_shares(costs.micro_batches(variant), periods);
  if (shares.empty()) return;
  for (std::size_t i = 0; i < layout.size(); ++i) layout[i].micro_batches = shares[i];
  brute.best = std::min(brute.best, costs.estimate(groups, variant, layout).value);
}

Brute brute_force(const World& world, const HetuCostSettings& settings) {
  const PlannerInput input = world.input();
  const HetuCosts costs(input, settings);
  const int layers = count_layers(world.workload);
  Brute brute;
  for (const int tensor : {1, 2, 4}) {
    const bool inside = std::any_of(world.cluster.nodes.begin(), world.cluster.nodes.end(),
                                    [&](const models::Node& node) {
                                      return static_cast<int>(node.gpu_types.size()) >= tensor;
                                    });
    if (!inside) continue;
    for (const bool use_rest : {false, true}) {
      const HetuGroups groups = costs.groups(tensor, use_rest);
      const int total = groups.count();
      std::vector<int> counts;
      for (const HetuClass& c : groups.classes) counts.push_back(static_cast<int>(c.groups.size()));
      for (int pipelines = 1; pipelines <= total; ++pipelines) {
        const int fewest = std::max(1, total / pipelines - 1);
        const int most = std::min(layers, (total + pipelines - 1) / pipelines + 1);
        for (const Deal& deal : brute_deals(counts, pipelines, fewest, most)) {
          for (int size = 1; size <= 8; ++size) {
            if (world.job.global_batch % size != 0) continue;
            for (const auto recompute : world.job.allowed.recompute) {
              for (const int zero : world.job.allowed.zero_stages) {
                try_deal(costs, groups, {size, recompute, zero, ir::ScheduleKind::one_f_one_b},
                         deal, layers, brute);
              }
            }
          }
        }
      }
    }
  }
  return brute;
}

TEST(Hetu, EqualsBruteForceOnTheFamily) {
  const HetuCostSettings settings;
  int feasible = 0, infeasible = 0, uneven = 0;
  for (std::uint64_t number = 0; number < 240; ++number) {
    const auto world = tiny_world(number);
    if (number % 2 == 1) world->job.allowed.zero_stages = {0, 1};
    const Brute brute = brute_force(*world, settings);
    const PlannerResult result = run_planner("hetu", world->input(), {{"layouts", "100000"}});
    const ir::Plan* plan = plan_of(result);
    ASSERT_EQ(plan != nullptr, std::isfinite(brute.best)) << number;
    EXPECT_LE(result.report.plans_examined, brute.layouts) << number;
    if (plan == nullptr) {
      ++infeasible;
      continue;
    }
    ++feasible;
    EXPECT_EQ(complaint(*world, world->input(), result), "") << number;
    EXPECT_NEAR(result.report.estimate->value, brute.best, 1e-9 * brute.best) << number;
    const ir::Pipeline& first = plan->pipelines.front();
    uneven += std::any_of(plan->pipelines.begin(), plan->pipelines.end(), [&](const auto& p) {
      return p.micro_batches != first.micro_batches || p.stages.size() != first.stages.size();
    });
    const PlannerResult usual = run_planner("hetu", world->input());
    EXPECT_EQ(std::get<ir::Plan>(usual.outcome), *plan) << number;  // 64 deals are all there are.
  }
  EXPECT_GT(feasible, 150);
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(uneven, 10);
}

TEST(Hetu, HopsAreOfTheirOwnLayerAndMicroBatchSize) {
  const World world(make_cluster({{"X", 148, 96, 1, 400, 2}}, 1), small_model(4), 1 << 14, 64);
  const PlannerInput input = world.input();
  const HetuCostSettings settings;
  const HetuCosts costs(input, settings);
  const HetuGroups groups = costs.groups(1, true);
  ASSERT_EQ(groups.count(), 2);
  const auto time = [&](const HetuCosts& with, int micro_batch_size, std::vector<int> layers) {
    HetuVariant variant;
    variant.micro_batch_size = micro_batch_size;
    HetuChain chain;
    chain.classes = {0, 0};
    chain.groups = groups.classes.front().groups;
    chain.layers = std::move(layers);
    chain.micro_batches = 2;
    return with.slowest_pipeline(groups, variant, {chain});
  };
  // 1 x 4096 + 8192 = 2 x 4096 + 4096.
  time(costs, 8192, {1, 3});
  EXPECT_EQ(time(costs, 4096, {2, 2}), time(HetuCosts(input, settings), 4096, {2, 2}));
}

TEST(Hetu, LowerBoundsHoldForMoreLayerPassesThanAnInt) {
  constexpr int kLayers = 600;
  constexpr int kBatch = 1 << 22;
  const World world(make_cluster({{"X", 148, 96, 1, 400, 1}}, 50), small_model(kLayers), kBatch,
                    64);
  const PlannerInput input = world.input();
  const HetuCostSettings settings;
  const HetuCosts costs(input, settings);
  const HetuGroups groups = costs.groups(1, true);
  const HetuVariant variant;
  const double all = 1.0 * kLayers * kBatch * costs.layer_time(groups, 0, variant).value;
  EXPECT_NEAR(costs.lower_bound(groups, variant, 1).value, all, 1e-9 * all);
}

TEST(Hetu, NoPlanBeatsItsLowerBound) {
  const HetuCostSettings settings;
  for (std::uint64_t number = 0; number < 40; ++number) {
    const auto world = tiny_world(number);
    const PlannerInput input = world->input();
    const HetuCosts costs(input, settings);
    const HetuGroups groups = costs.groups(1, true);
    DealQuery query;
    for (const HetuClass& c : groups.classes) {
      query.counts.push_back(static_cast<int>(c.groups.size()));
      query.power.push_back(1 / c.layer_time.value);
    }
    query.most = count_layers(world->workload);
    query.layouts = 1000;
    const HetuVariant variant;
    for (query.pipelines = 1; query.pipelines <= groups.count(); ++query.pipelines) {
      for (const Deal& deal : deal_groups(query).deals) {
        const auto layout = costs.solve(groups, variant, deal);
        if (!layout) continue;
        const Seconds pipelines = costs.slowest_pipeline(groups, variant, *layout);
        EXPECT_LE(costs.lower_bound(groups, variant, query.pipelines), pipelines) << number;
        EXPECT_LE(pipelines, costs.estimate(groups, variant, *layout)) << number;
      }
    }
  }
}

}  // namespace
}  // namespace orrery::planners::hetu_test
