#include "planners/recovery/parcae/liveput.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "models/base/ids.h"

namespace orrery::planners {
namespace {

/// Numbers of sets can leave the range of double: C(2,000, 1,000) is 1e600.
using Count = long double;

/// Row n of Pascal's triangle up to `most`.
std::vector<Count> binomials(int n, int most) {
  std::vector<Count> row(most + 1, 0);
  row[0] = 1;
  for (int k = 1; k <= std::min(n, most); ++k) {
    row[k] = row[k - 1] * static_cast<Count>(n - k + 1) / k;
  }
  return row;
}

/// Ways to lose j = 0 .. dead instances of all stages, at most `most` of each.
std::vector<Count> ways(const UnitGrid& grid, int dead, int most) {
  const std::vector<Count> one = binomials(grid.pipelines, dead);
  std::vector<Count> all(dead + 1, 0);
  all[0] = 1;
  for (int s = 0; s < grid.stages; ++s) {
    std::vector<Count> next(all.size(), 0);
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (all[j] == 0) continue;
      const std::size_t end = std::min(all.size() - j, as_size(most) + 1);
      for (std::size_t i = 0; i < end; ++i) next[j + i] += all[j] * one[i];
    }
    all = std::move(next);
  }
  return all;
}

/// Probability that no stage loses more than `most`.
double at_most(const UnitGrid& grid, int instances, int dead, int most) {
  if (most < 0) return 0;
  const std::vector<Count> used = ways(grid, dead, most);
  const std::vector<Count> idle = binomials(instances - grid.instances(), dead);
  Count sum = 0;
  for (std::size_t j = 0; j < used.size(); ++j) sum += used[j] * idle[used.size() - 1 - j];
  return static_cast<double>(sum / binomials(instances, dead).back());
}

}  // namespace

Survival survival(const UnitGrid& grid, int instances, int dead, int target) {
  Survival result;
  result.untouched = at_most(grid, instances, dead, 0);
  const double enough = at_most(grid, instances, dead, grid.pipelines - target);
  const double some = at_most(grid, instances, dead, grid.pipelines - 1);
  result.rearranged = std::max(0.0, enough - result.untouched);
  result.short_of = std::max(0.0, some - std::max(enough, result.untouched));
  result.extinct = std::max(0.0, 1 - std::max(some, enough));
  return result;
}

double expected_migration(const UnitGrid& from, const UnitGrid& to, int instances, int dead,
                          const MigrationCosts& costs) {
  if (to.pipelines == 0) return 0;
  if (from.pipelines == 0) return costs.restart;
  if (from.stages != to.stages || to.pipelines > from.pipelines) {
    const double lost = survival(from, instances, dead, 1).extinct;
    return (1 - lost) * costs.rebuild(to) + lost * costs.restart;
  }
  const Survival chance = survival(from, instances, dead, to.pipelines);
  const double keep = from.pipelines == to.pipelines ? 0 : costs.intra(to);
  return chance.untouched * keep + chance.rearranged * costs.intra(to) +
         chance.short_of * costs.inter(to) + chance.extinct * costs.restart;
}

LiveputPlan best_liveput(const LiveputProblem& problem) {
  const std::size_t intervals = problem.instances.size();
  std::vector<UnitGrid> grids = problem.grids;
  grids.push_back({});  // Nothing runs.
  const auto rate = [&](const UnitGrid& grid) {
    return grid.pipelines == 0 ? 0.0 : problem.samples_per_second(grid);
  };
  ExpectedMigrations own;
  ExpectedMigrations& known = problem.known == nullptr ? own : *problem.known;
  const auto migration = [&](const UnitGrid& from, const UnitGrid& to, int now, int next) {
    const auto [entry, fresh] = known.try_emplace({from, to, now, now - next});
    if (fresh) entry->second = expected_migration(from, to, now, now - next, problem.costs);
    return entry->second;
  };
  std::vector<std::vector<std::size_t>> choice(intervals, std::vector<std::size_t>(grids.size()));
  const auto trained = [&](const UnitGrid& grid, double migration) {
    return rate(grid) * std::max(0.0, problem.interval - migration);
  };
  std::vector<double> rest(grids.size(), 0);  // After interval i, having run the grid in it.
  for (std::size_t i = intervals; i-- > 1;) {
    const int now = problem.instances[i - 1];
    const int next = problem.instances[i];
    std::vector<double> before(grids.size(), 0);
    for (std::size_t g = 0; g < grids.size(); ++g) {
      if (grids[g].instances() > now) continue;
      double best = -1;
      for (std::size_t h = 0; h < grids.size(); ++h) {
        if (grids[h].instances() > next) continue;
        // No migration could only be better.
        if (trained(grids[h], 0) + rest[h] <= best) continue;
        const double samples =
            trained(grids[h], migration(grids[g], grids[h], now, next)) + rest[h];
        if (samples <= best) continue;
        best = samples;
        choice[i][g] = h;
      }
      before[g] = best;
    }
    rest = std::move(before);
  }
  LiveputPlan plan;
  if (intervals == 0) return plan;
  std::size_t at = grids.size() - 1;
  plan.samples = -1;
  for (std::size_t g = 0; g < grids.size(); ++g) {
    if (grids[g].instances() > problem.instances.front()) continue;
    const double first = grids[g].pipelines == 0 ? 0 : problem.first(grids[g]);
    const double samples = trained(grids[g], first) + rest[g];
    if (samples <= plan.samples) continue;
    plan.samples = samples;
    at = g;
  }
  plan.grids.push_back(grids[at]);
  for (std::size_t i = 1; i < intervals; ++i) {
    at = choice[i][at];
    plan.grids.push_back(grids[at]);
  }
  return plan;
}

}  // namespace orrery::planners
