/// The whole planner against brute force over its own space under its own cost: all set partitions
/// of the units, all divisions of the layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "models/base/ids.h"
#include "planners/autohet/mapping.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/stage_costs.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"

namespace orrery::planners::autohet_brute_force_test {
namespace {

/// One TP dimension and recompute mode of a tiny problem, where each node is of a type of its own.
class BruteForce {
 public:
  BruteForce(const World& world, int tensor, ir::Recompute recompute)
      : world_(world), input_(world.input()), costs_(input_), tensor_(tensor) {
    layers_ = costs_.layers();
    shape_.tensor_parallel = tensor;
    shape_.recompute = recompute;
    std::map<int, double> seconds;
    for (std::size_t d = 0; d < input_.devices.size(); d += tensor) {
      AutohetUnit unit;
      for (int i = 0; i < tensor; ++i) {
        unit.devices.push_back(input_.devices[d + as_size(i)]);
      }
      unit.node = world.cluster.device(unit.devices[0]).node;
      seconds[unit.node.value] = time(unit, 0, layers_) - ends(unit);
      units_.push_back(unit);
    }
    std::vector<std::pair<double, int>> order;  // Weakest first; the node's number is its type's.
    for (const auto& [node, t] : seconds) order.emplace_back(layers_ / t, node);
    std::sort(order.begin(), order.end());
    for (std::size_t k = 0; k < order.size(); ++k) {
      power_.push_back(order[k].first);
      for (AutohetUnit& unit : units_) {
        if (unit.node.value == order[k].second) unit.kind = static_cast<int>(k);
      }
    }
  }

  /// The best estimate over all groupings that are best by Eq. 3, and that best.
  std::optional<double> best() {
    std::vector<int> group_of;
    partitions(group_of, 0);
    std::optional<double> least;
    for (const auto& groups : best_) {
      const double estimate = price(groups);
      if (!least || estimate < *least) least = estimate;
    }
    return least;
  }
  double objective() const { return objective_; }

 private:
  double ends(const AutohetUnit& unit) const {
    StageShape shape = shape_;
    shape.first = 0;
    shape.layers = 1;
    const double first = costs_.passes(unit.devices, shape).both().value;
    shape.first = layers_ - 1;
    const double last = costs_.passes(unit.devices, shape).both().value;
    // first + last = embedding + head + two layers; all layers are equal.
    const double all = time(unit, 0, layers_);
    return (layers_ * (first + last) - 2 * all) / (layers_ - 2.0);
  }
  double time(const AutohetUnit& unit, int first, int layers) const {
    StageShape shape = shape_;
    shape.first = first;
    shape.layers = layers;
    return costs_.passes(unit.devices, shape).both().value;
  }
  int micro_batches(int number, int replicas) const {
    const int total = static_cast<int>(world_.job.global_batch);
    return total / replicas + (number < total % replicas ? 1 : 0);
  }
  bool fits(const std::vector<int>& kinds, const std::vector<int>& layers, int k) const {
    int first = 0;
    for (std::size_t s = 0; s < kinds.size(); ++s) {
      StageShape shape = shape_;
      shape.first = first;
      shape.layers = layers[s];
      shape.in_flight = std::min(k, static_cast<int>(kinds.size() - s));
      const auto unit = std::find_if(units_.begin(), units_.end(),
                                     [&](const AutohetUnit& u) { return u.kind == kinds[s]; });
      if (!costs_.fits(unit->devices, shape)) return false;
      first += layers[s];
    }
    return true;
  }
  void partitions(std::vector<int>& group_of, int groups) {
    if (group_of.size() < units_.size()) {
      for (int g = 0; g <= groups; ++g) {
        group_of.push_back(g);
        partitions(group_of, std::max(groups, g + 1));
        group_of.pop_back();
      }
      return;
    }
    if (groups > world_.job.global_batch) return;
    std::vector<UnitCounts> counts(groups, UnitCounts(power_.size()));
    for (std::size_t u = 0; u < units_.size(); ++u) {
      ++counts[group_of[u]][units_[u].kind];
    }
    double least = 1e300;
    for (const UnitCounts& group : counts) {
      std::vector<int> kinds;
      for (std::size_t k = 0; k < group.size(); ++k) {
        kinds.insert(kinds.end(), group[k], static_cast<int>(k));
      }
      bool possible = false;
      for_each_composition(layers_, static_cast<int>(kinds.size()), 1, [&](const auto& layers) {
        possible = possible || fits(kinds, layers, micro_batches(0, groups));
        return !possible;
      });
      if (!possible) return;
      least = std::min(least, effective(group));
    }
    const double value = groups * least;
    if (value > objective_ * (1 + 1e-11)) best_.clear();
    if (value < objective_ * (1 - 1e-11)) return;
    objective_ = std::max(objective_, value);
    std::sort(counts.begin(), counts.end(), [&](const UnitCounts& a, const UnitCounts& b) {
      return effective(a) != effective(b) ? effective(a) > effective(b) : a > b;
    });
    best_.insert(counts);
  }
  double effective(const UnitCounts& group) const {
    const double power = std::inner_product(group.begin(), group.end(), power_.begin(), 0.0);
    const int stages = std::accumulate(group.begin(), group.end(), 0);
    const auto k = static_cast<double>(world_.job.global_batch);
    return power * k / (k + stages - 1);
  }
  /// Eq. 4 and Eq. 1.
  double price(const std::vector<UnitCounts>& groups) const {
    double longest = 0;
    std::vector<std::vector<int>> all_layers;
    const auto chains = map_groups(units_, groups, true);
    for (std::size_t g = 0; g < chains.size(); ++g) {
      const int k = micro_batches(static_cast<int>(g), static_cast<int>(chains.size()));
      std::vector<int> kinds;
      for (const int u : chains[g]) kinds.push_back(units_[u].kind);
      std::pair<double, double> best{1e300, 1e300};
      std::vector<int> chosen;
      for_each_composition(layers_, static_cast<int>(kinds.size()), 1, [&](const auto& layers) {
        if (!fits(kinds, layers, k)) return true;
        double sum = 0;
        double most = 0;
        int first = 0;
        for (std::size_t s = 0; s < kinds.size(); ++s) {
          const AutohetUnit& unit = units_[chains[g][s]];
          double t = time(unit, first, layers[s]);
          first += layers[s];
          if (s + 1 < kinds.size()) {
            const AutohetUnit& next = units_[chains[g][s + 1]];
            const auto sliced = ir::ActivationTransfer::sliced;
            t += costs_.hop(unit.devices, next.devices, first, 1, sliced).value +
                 costs_.hop(next.devices, unit.devices, first, 1, sliced).value;
          }
          sum += t;
          most = std::max(most, t);
        }
        if (most < best.first * (1 - 1e-12) ||
            (most < best.first * (1 + 1e-12) && sum < best.second)) {
          best = {most, sum};
          chosen = layers;
        }
        return true;
      });
      longest = std::max(longest, best.second + (k - 1) * best.first);
      all_layers.push_back(chosen);
    }
    return longest + synchronization(chains, all_layers);
  }
  double synchronization(const std::vector<std::vector<int>>& chains,
                         const std::vector<std::vector<int>>& layers) const {
    const std::size_t d = chains.size();
    if (d == 1) return 0;
    double most = 0;
    double bandwidth = 1e300;
    for (int layer = 0; layer < layers_; ++layer) {
      for (int rank = 0; rank < tensor_; ++rank) {
        std::map<NodeId, std::vector<DeviceId>> by_node;
        std::vector<NodeId> nodes;
        for (std::size_t g = 0; g < d; ++g) {
          int first = 0;
          std::size_t s = 0;
          while (first + layers[g][s] <= layer) first += layers[g][s++];
          most = std::max(most, costs_.gradients(first, layers[g][s]).value / tensor_);
          const AutohetUnit& unit = units_[chains[g][s]];
          if (by_node.count(unit.node) == 0) nodes.push_back(unit.node);
          by_node[unit.node].push_back(unit.devices[rank]);
        }
        std::vector<DeviceId> ring;
        for (const NodeId node : nodes) {
          ring.insert(ring.end(), by_node[node].begin(), by_node[node].end());
        }
        for (std::size_t i = 0; i < d; ++i) {
          bandwidth =
              std::min(bandwidth, world_.topology.path(ring[i], ring[(i + 1) % d]).bandwidth.value);
        }
      }
    }
    return 2.0 * (static_cast<double>(d) - 1) / static_cast<double>(d) * most / bandwidth;
  }

  const World& world_;
  PlannerInput input_;
  StageCosts costs_;
  int tensor_;
  int layers_ = 0;
  StageShape shape_;
  std::vector<AutohetUnit> units_;
  std::vector<double> power_;
  double objective_ = 0;
  std::set<std::vector<UnitCounts>> best_;
};

TEST(Autohet, EqualsBruteForceOverItsOwnSpace) {
  int feasible = 0;
  int infeasible = 0;
  int uneven = 0;
  for (std::uint64_t n = 0; n < 200; ++n) {
    const auto world = tiny_world(n);
    if (count_layers(world->workload) < 3) continue;  // The reference tells ends from layers.
    std::optional<double> expected;
    for (const int tensor : {1, 2, 4}) {
      const auto divides = [&](const models::Node& node) {
        return node.gpu_types.size() % tensor == 0;
      };
      if (!std::all_of(world->cluster.nodes.begin(), world->cluster.nodes.end(), divides)) continue;
      for (const ir::Recompute mode : world->job.allowed.recompute) {
        const std::optional<double> one = BruteForce(*world, tensor, mode).best();
        if (one && (!expected || *one < *expected)) expected = one;
      }
    }
    const PlannerResult result = run_planner("autohet", world->input());
    const ir::Plan* plan = plan_of(result);
    ASSERT_EQ(plan != nullptr, expected.has_value()) << n;
    EXPECT_TRUE(result.report.complete) << n;
    if (plan == nullptr) {
      ++infeasible;
      EXPECT_NE(std::get<models::Infeasible>(result.outcome).witness, "") << n;
      continue;
    }
    ++feasible;
    EXPECT_NEAR(result.report.estimate->value, *expected, 1e-9 * *expected) << n;
    EXPECT_EQ(world->defects(*plan), "") << n;
    EXPECT_TRUE(world->verdict(*plan).fits()) << n;
    EXPECT_EQ(devices_of(*plan).size(), world->cluster.devices.size()) << n << ": Eq. 3e";
    std::set<std::size_t> lengths;
    for (const ir::Pipeline& p : plan->pipelines) lengths.insert(p.stages.size());
    uneven += lengths.size() > 1;
  }
  EXPECT_GT(feasible, 60);
  EXPECT_GT(infeasible, 1);
  EXPECT_GT(uneven, 5);
}

}  // namespace
}  // namespace orrery::planners::autohet_brute_force_test
