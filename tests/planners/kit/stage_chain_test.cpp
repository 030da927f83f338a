#include "planners/kit/stage_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "models/base/rng.h"
#include "planners/kit/integers.h"

namespace orrery::planners::stage_chain_test {
namespace {

/// A random chain and everything known of it.
struct Case {
  int layers = 1;
  int devices = 1;
  int load = 1;
  std::vector<StageChoice> choices;
  std::map<std::tuple<int, int, int>, std::vector<StageStep>> steps;

  StageChain chain() const {
    return StageChain(layers, choices, devices, load, [&](int first, int last, int choice) {
      return steps.at({first, last, choice});
    });
  }
  double cost(int first, int last, int choice, int load_here) const {
    double best = kNever;
    for (const StageStep& step : steps.at({first, last, choice})) {
      if (step.most >= load_here) best = std::min(best, step.cost);
    }
    return best;
  }
};

Case any_case(Rng& rng) {
  const auto draw = [&](int low, int high) { return static_cast<int>(rng.integer(low, high)); };
  Case c;
  c.layers = draw(1, 7);
  c.devices = draw(1, 8);
  c.load = draw(1, 7);
  const int choices = draw(1, 3);
  for (int i = 0; i < choices; ++i) {
    c.choices.push_back({draw(1, 3), draw(1, 3)});
  }
  for (int first = 0; first < c.layers; ++first) {
    for (int last = first; last < c.layers; ++last) {
      for (int choice = 0; choice < choices; ++choice) {
        const int taken = c.choices[choice].devices;
        auto& own = c.steps[{first, last, choice}];
        const int count = draw(0, 5) == 0 ? 0 : draw(1, 2);
        for (int i = 0; i < count; ++i) {
          // More layers cost more on the whole, so that the front of (largest, sum) has many
          // points.
          const double cost = draw(1, 40) + draw(10, 30) * (last - first + 1) / taken;
          own.push_back({draw(0, 9), cost, i});
        }
      }
    }
  }
  return c;
}

using Visit = std::function<void(double sum, double largest, int devices)>;

/// All chains: `load` is what the degrees from layer `first` on add up to.
void for_each_chain(const Case& c, int first, int load, double sum, double largest, int devices,
                    const Visit& visit) {
  if (first == c.layers) {
    if (load == 0) visit(sum, largest, devices);
    return;
  }
  for (int last = first; last < c.layers; ++last) {
    for (int choice = 0; choice < static_cast<int>(c.choices.size()); ++choice) {
      const StageChoice& taken = c.choices[choice];
      if (taken.degree > load || devices + taken.devices > c.devices) continue;
      const double cost = c.cost(first, last, choice, load);
      if (cost == kNever) continue;
      for_each_chain(c, last + 1, load - taken.degree, sum + cost, std::max(largest, cost),
                     devices + taken.devices, visit);
    }
  }
}

void for_each_chain(const Case& c, const Visit& visit) {
  for (int load = 1; load <= c.load; ++load) for_each_chain(c, 0, load, 0, 0, 0, visit);
}

constexpr std::uint64_t kCases = 2000;

const Proceed kGoOn = [] { return true; };

TEST(StageChain, PipelineTimeEqualsBruteForce) {
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Rng rng(seed);
    const Case c = any_case(rng);
    const int micro_batches = static_cast<int>(rng.integer(1, 6));
    StageChain chain = c.chain();
    std::map<int, double> best;  // By devices.
    for_each_chain(c, [&](double sum, double largest, int devices) {
      const double time = sum + (micro_batches - 1) * largest;
      const auto [place, added] = best.try_emplace(devices, time);
      place->second = std::min(place->second, time);
    });
    ASSERT_TRUE(chain.most_devices(1) == (best.empty() ? 0 : best.rbegin()->first));
    for (int devices = 1; devices <= c.devices; ++devices) {
      const ChainSearch found =
          least_pipeline_time(chain, devices, micro_batches, 0, kGoOn, [](const ChainPick&) {});
      ASSERT_TRUE(found.complete);
      ASSERT_TRUE(found.best.has_value() == best.contains(devices));
      if (!found.best) continue;
      ASSERT_TRUE(found.best->devices == devices);
      ASSERT_TRUE(found.best->sum + (micro_batches - 1) * found.best->largest == best.at(devices));
    }
  }
}

TEST(StageChain, AGapCostsAtMostItsTimeOnEachMicroBatch) {
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Rng rng(seed);
    const Case c = any_case(rng);
    const int micro_batches = static_cast<int>(rng.integer(1, 6));
    const double gap = static_cast<double>(rng.integer(0, 5));
    StageChain chain = c.chain();
    const auto time = [&](double with_gap) {
      const auto found = least_pipeline_time(chain, c.devices, micro_batches, with_gap, kGoOn,
                                             [](const ChainPick&) {});
      return found.best ? found.best->sum + (micro_batches - 1) * found.best->largest : 0;
    };
    ASSERT_TRUE(time(gap) >= time(0));
    ASSERT_TRUE(time(gap) <= time(0) + gap * micro_batches);
  }
}

TEST(StageChain, BottleneckEqualsBruteForceAndTakesFewestDevices) {
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Rng rng(seed);
    const Case c = any_case(rng);
    std::pair<double, int> best{kNever, 0};
    for_each_chain(c, [&](double, double largest, int devices) {
      best = std::min(best, std::pair(largest, devices));
    });
    const ChainSearch found = least_bottleneck(c.chain(), kGoOn);
    ASSERT_TRUE(found.best.has_value() == (best.first < kNever));
    if (!found.best) continue;
    ASSERT_TRUE(found.best->largest == best.first);
    ASSERT_TRUE(found.best->devices == best.second);
  }
}

TEST(StageChain, PicksCoverAllLayersAtTheirCosts) {
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Rng rng(seed);
    const Case c = any_case(rng);
    const ChainSearch found = least_bottleneck(c.chain(), kGoOn);
    if (!found.best) continue;
    int load = 0;
    for (const StagePick& stage : found.best->stages) {
      load += c.choices[stage.choice].degree;
    }
    int next = 0;
    for (const StagePick& stage : found.best->stages) {
      ASSERT_TRUE(stage.first == next);
      next = stage.last + 1;
      ASSERT_TRUE(stage.cost == c.cost(stage.first, stage.last, stage.choice, load));
      load -= c.choices[stage.choice].degree;
    }
    ASSERT_TRUE(next == c.layers);
  }
}

TEST(StageChain, AnEndedSearchKeepsItsBest) {
  const auto one = [](int first, int last, int choice) {
    return std::vector<StageStep>{{9, (last - first + 1.0) / (choice + 1), 0}};
  };
  StageChain chain(6, {{1, 1}, {2, 1}}, 4, 6, one);
  int asked = 0;
  const Proceed twice = [&] { return ++asked <= 2; };
  const ChainSearch found = least_pipeline_time(chain, 4, 10, 0, twice, [](const ChainPick&) {});
  EXPECT_FALSE(found.complete);
  EXPECT_TRUE(found.best.has_value());
}

}  // namespace
}  // namespace orrery::planners::stage_chain_test
