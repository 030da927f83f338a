// Are the chances of survival those of counting all sets, is the dynamic program as good as all
// sequences, and do survivors stay where they were?
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "planners/recovery/kit/unit_grid.h"
#include "planners/recovery/parcae/liveput.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::parcae_test {
namespace {

/// Instances are numbered stage by stage; the idle ones come last.
Survival by_counting(const UnitGrid& grid, int instances, int dead, int target) {
  Survival result;
  int sets = 0;
  for (std::uint32_t set = 0; set < (1U << instances); ++set) {
    if (std::popcount(set) != dead) continue;
    ++sets;
    int fewest = grid.pipelines;
    int used = 0;
    for (int s = 0; s < grid.stages; ++s) {
      const std::uint32_t stage = ((1U << grid.pipelines) - 1) << (s * grid.pipelines);
      used += std::popcount(set & stage);
      fewest = std::min(fewest, grid.pipelines - std::popcount(set & stage));
    }
    if (used == 0) {
      ++result.untouched;
    } else if (fewest >= target) {
      ++result.rearranged;
    } else if (fewest > 0) {
      ++result.short_of;
    } else {
      ++result.extinct;
    }
  }
  for (double* part : {&result.untouched, &result.rearranged, &result.short_of, &result.extinct}) {
    *part /= sets;
  }
  return result;
}

TEST(ParcaeSurvival, IsThatOfCountingAllSets) {
  for (const UnitGrid& grid : {UnitGrid{1, 3}, {2, 2}, {3, 2}, {2, 4}, {4, 2}}) {
    for (int instances = grid.instances(); instances <= grid.instances() + 2; ++instances) {
      for (int dead = 0; dead <= std::min(instances, 5); ++dead) {
        for (int target = 1; target <= grid.pipelines; ++target) {
          const Survival a = survival(grid, instances, dead, target);
          const Survival b = by_counting(grid, instances, dead, target);
          EXPECT_NEAR(a.untouched, b.untouched, 1e-12);
          EXPECT_NEAR(a.rearranged, b.rearranged, 1e-12)
              << grid.pipelines << " x " << grid.stages << " of " << instances << ", " << dead
              << " dead, " << target << " wanted";
          EXPECT_NEAR(a.short_of, b.short_of, 1e-12);
          EXPECT_NEAR(a.extinct, b.extinct, 1e-12);
        }
      }
    }
  }
}

TEST(ParcaeSurvival, ManyInstancesStayFinite) {
  const Survival s = survival({60, 32}, 2000, 900, 20);
  const double sum = s.untouched + s.rearranged + s.short_of + s.extinct;
  EXPECT_NEAR(sum, 1, 1e-9);
}

LiveputProblem random_problem(Rng& rng) {
  LiveputProblem problem;
  const int most = static_cast<int>(rng.integer(3, 7));
  int now = most;
  for (int i = 0; i < rng.integer(1, 4); ++i) {
    problem.instances.push_back(now);
    now = std::max(1, now - static_cast<int>(rng.integer(0, 2)));
  }
  for (int d = 1; d <= most; ++d) {
    for (int p = 1; d * p <= most; ++p) {
      if (rng.bernoulli(0.6)) problem.grids.push_back({d, p});
    }
  }
  const double depth = rng.uniform();
  const double slow = 5 + 30 * rng.uniform();
  problem.samples_per_second = [depth](const UnitGrid& g) {
    return g.pipelines * std::pow(g.stages, depth);
  };
  problem.first = [slow](const UnitGrid& g) { return slow * (g.stages % 2); };
  problem.costs = {[slow](const UnitGrid&) { return 0.2 * slow; },
                   [slow](const UnitGrid&) { return slow; },
                   [slow](const UnitGrid&) { return 1.5 * slow; }, 2 * slow};
  return problem;
}

double best_by_enumeration(const LiveputProblem& problem) {
  std::vector<UnitGrid> grids = problem.grids;
  grids.push_back({});
  double best = 0;
  const std::function<void(std::size_t, const UnitGrid&, double)> extend =
      [&](std::size_t i, const UnitGrid& before, double samples) {
        if (i == problem.instances.size()) {
          best = std::max(best, samples);
          return;
        }
        for (const UnitGrid& grid : grids) {
          if (grid.instances() > problem.instances[i]) continue;
          double migration = 0;
          if (i > 0) {
            migration =
                expected_migration(before, grid, problem.instances[i - 1],
                                   problem.instances[i - 1] - problem.instances[i], problem.costs);
          } else if (grid.pipelines > 0) {
            migration = problem.first(grid);
          }
          const double rate = grid.pipelines == 0 ? 0 : problem.samples_per_second(grid);
          extend(i + 1, grid, samples + rate * std::max(0.0, problem.interval - migration));
        }
      };
  extend(0, {}, 0);
  return best;
}

TEST(Liveput, DynamicProgramIsAsGoodAsAllSequences) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    const LiveputProblem problem = random_problem(rng);
    const LiveputPlan plan = best_liveput(problem);
    EXPECT_NEAR(plan.samples, best_by_enumeration(problem), 1e-9) << "round " << round;
    ASSERT_EQ(plan.grids.size(), problem.instances.size());
    for (std::size_t i = 0; i < plan.grids.size(); ++i) {
      EXPECT_LE(plan.grids[i].instances(), problem.instances[i]);
    }
  }
}

TEST(Liveput, ShortPipelinesWinWhenInstancesVanish) {
  // 2 x 3 and 3 x 2 train alike. When one of six vanishes, 3 x 2 becomes 2 x 2 without a copy,
  // 2 x 3 has to change its depth.
  LiveputProblem problem;
  problem.grids = {{2, 3}, {3, 2}};
  problem.samples_per_second = [](const UnitGrid&) { return 1.0; };
  problem.first = [](const UnitGrid&) { return 0.0; };
  problem.costs = {[](const UnitGrid&) { return 1.0; }, [](const UnitGrid&) { return 30.0; },
                   [](const UnitGrid&) { return 40.0; }, 50};
  problem.grids.push_back({2, 2});
  problem.instances = {6, 5};
  EXPECT_EQ(best_liveput(problem).grids.front(), (UnitGrid{3, 2}));
}

TEST(GridUnits, SurvivorsStayInTheirStageAndHolesAreFilledFromIt) {
  const auto world = std::make_unique<World>(
      with_storage(make_cluster({{"A", 100, 24, 1, 100, 10}}, 5)), small_model(8), 12, 512);
  const ir::Plan plan = uniform_plan(*world, 3, 2, 1);  // 0 1 | 2 3 | 4 5, idle: 6 to 9.
  std::vector<Unit> live;
  for (const int d : {1, 2, 4, 5, 8}) live.push_back({DeviceId{d}});
  const GridUnits survivors = grid_units(plan, live);
  EXPECT_EQ(survivors.grid, (UnitGrid{3, 2}));
  EXPECT_EQ(survivors.fewest(), 2);
  const auto two = rearrange({2, 2}, survivors, live);
  // Pipeline 2 is whole; 0 stays as the first of the damaged ones, with stage 0 of pipeline 1.
  EXPECT_EQ(two, (std::vector<std::vector<Unit>>{{{{2}}, {{1}}}, {{{4}}, {{5}}}}));
  std::set<Unit> used;
  for (const auto& row : rearrange({1, 4}, survivors, live)) used.insert(row.begin(), row.end());
  EXPECT_EQ(used.size(), 4U);
}

class ParcaeLife : public PolicyLife {};

TEST_F(ParcaeLife, ALossKeepsTheIterationAndAReturnIsUsedAtTheEndOfOne) {
  start("parcae", equal_nodes({9, 240, 1, 2.9}));
  const UnitGrid before = grid_of(*life->state().plan);
  ASSERT_GT(before.stages, 1) << "memory asks for pipelines";
  ASSERT_GT(before.pipelines, 1);
  ASSERT_EQ(life->fire(device_event(ir::EventKind::leave, 0)), "");
  EXPECT_EQ(life->decision().resume_iteration, 100);
  life->train(10);
  ASSERT_EQ(life->fire(device_event(ir::EventKind::join, 0)), "");
  if (life->decision().action == models::RecoveryDecision::Action::resume) {
    EXPECT_EQ(life->decision().run_on, Nanoseconds{0});
  }
  EXPECT_GE(grid_of(*life->state().plan).instances(), before.instances() - 1);
}

}  // namespace
}  // namespace orrery::planners::parcae_test
