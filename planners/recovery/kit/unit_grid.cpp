#include "planners/recovery/kit/unit_grid.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>

namespace orrery::planners {

UnitGrid grid_of(const ir::Plan& plan) {
  if (plan.pipelines.empty()) return {};
  const std::size_t stages = plan.pipelines.front().stages.size();
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    if (pipeline.stages.size() != stages) return {};
  }
  return {static_cast<int>(plan.pipelines.size()), static_cast<int>(stages)};
}

int GridUnits::fewest() const {
  int fewest = grid.pipelines;
  for (int s = 0; s < grid.stages; ++s) {
    const auto left = std::count_if(units.begin(), units.end(),
                                    [&](const auto& row) { return row[s].has_value(); });
    fewest = std::min(fewest, static_cast<int>(left));
  }
  return fewest;
}

GridUnits grid_units(const ir::Plan& plan, const std::vector<Unit>& live) {
  GridUnits survivors;
  const std::set<Unit> known(live.begin(), live.end());
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    auto& row = survivors.units.emplace_back();
    for (const ir::Stage& stage : pipeline.stages) {
      const std::vector<DeviceId> devices = ir::devices_of(stage);
      if (!live.empty() && devices.size() != live.front().size()) return {};
      if (known.contains(devices)) {
        row.emplace_back(devices);
      } else {
        row.emplace_back(std::nullopt);
      }
    }
  }
  survivors.grid = grid_of(plan);
  return survivors;
}

std::vector<std::vector<Unit>> rearrange(const UnitGrid& grid, const GridUnits& survivors,
                                         const std::vector<Unit>& live) {
  const std::size_t pipelines = grid.pipelines;
  const std::size_t stages = grid.stages;
  std::vector<std::vector<std::optional<Unit>>> rows;
  std::set<Unit> left(live.begin(), live.end());
  if (survivors.grid.stages == grid.stages) {
    std::vector<std::size_t> order(survivors.units.size());
    std::iota(order.begin(), order.end(), 0);
    const auto lost = [&](std::size_t p) {
      return std::count(survivors.units[p].begin(), survivors.units[p].end(), std::nullopt);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return lost(a) < lost(b); });
    const std::size_t kept = std::min(order.size(), pipelines);
    std::vector<std::size_t> stay(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept));
    std::sort(stay.begin(), stay.end());
    for (const std::size_t p : stay) rows.push_back(survivors.units[p]);
    for (std::size_t s = 0; s < stages; ++s) {
      std::size_t next = kept;
      for (auto& row : rows) {
        while (!row[s] && next < order.size()) row[s] = survivors.units[order[next++]][s];
        if (row[s]) left.erase(*row[s]);
      }
    }
  }
  rows.resize(pipelines, std::vector<std::optional<Unit>>(stages));
  std::vector<std::vector<Unit>> result;
  for (const auto& row : rows) {
    std::vector<Unit>& out = result.emplace_back();
    for (const std::optional<Unit>& unit : row) {
      out.push_back(unit ? *unit : *left.begin());
      left.erase(out.back());
    }
  }
  return result;
}

}  // namespace orrery::planners
