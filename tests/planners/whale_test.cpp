#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>

#include "models/base/rng.h"
#include "planners/kit/estimate.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/whale/balance.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"

namespace orrery::planners::whale_test {
namespace {

// --------------------------------------------------------------------------------------------
// The balancer alone.

/// Devices with linear memory: `fixed + load * per_unit` of a memory of 1.
struct Devices {
  std::vector<double> compute;
  std::vector<double> fixed;
  std::vector<double> per_unit;
  int total = 0;

  double memory(std::size_t i, int load) const { return fixed[i] + load * per_unit[i]; }
};

Devices any_devices(std::uint64_t number) {
  Rng rng(0xa1e + number);
  Devices result;
  const auto count = rng.integer(1, 4);
  for (int i = 0; i < count; ++i) {
    result.compute.push_back(static_cast<double>(rng.integer(1, 8)));
    result.fixed.push_back(0.1 * static_cast<double>(rng.integer(0, 7)));
    result.per_unit.push_back(0.05 * static_cast<double>(rng.integer(0, 8)));
  }
  result.total = static_cast<int>(rng.integer(count, 12));
  return result;
}

/// The longest load / compute of the best loads that fit; infinite without any.
double best_loads(const Devices& devices, std::size_t i, int left, double longest) {
  if (i == devices.compute.size()) return left == 0 ? longest : kNever;
  double best = kNever;
  for (int load = 1; load <= left; ++load) {
    if (devices.memory(i, load) > 1) break;
    best = std::min(best, best_loads(devices, i + 1, left - load,
                                     std::max(longest, load / devices.compute[i])));
  }
  return best;
}

TEST(WhaleBalance, FitsExactlyWhereBruteForceDoesAndIsNeverBetter) {
  int feasible = 0;
  int best = 0;
  double sum = 0;
  double worst = 0;
  for (std::uint64_t number = 0; number < 500; ++number) {
    const Devices devices = any_devices(number);
    const WhaleLoads found =
        whale_balance(devices.total, devices.compute,
                      [&](std::size_t i, int load) { return devices.memory(i, load); });
    EXPECT_EQ(std::accumulate(found.loads.begin(), found.loads.end(), 0), devices.total);
    EXPECT_GE(*std::min_element(found.loads.begin(), found.loads.end()), 1);
    const double least = best_loads(devices, 0, devices.total, 0);
    ASSERT_EQ(found.fits, least < kNever) << number;
    if (!found.fits) continue;
    double longest = 0;
    for (std::size_t i = 0; i < found.loads.size(); ++i) {
      EXPECT_LE(devices.memory(i, found.loads[i]), 1) << number;
      longest = std::max(longest, found.loads[i] / devices.compute[i]);
    }
    EXPECT_GE(longest, least) << number;
    ++feasible;
    best += longest == least;
    sum += longest / least - 1;
    worst = std::max(worst, longest / least - 1);
  }
  // The heuristic's gap to the best loads; the line shows the values that stand below it.
  std::printf("%d of %d best, mean gap %.4f, largest %.4f\n", best, feasible, sum / feasible,
              worst);
  EXPECT_EQ(feasible, 333);
  EXPECT_EQ(best, 314);
  EXPECT_NEAR(sum / feasible, 0.0129, 5e-5);
  EXPECT_NEAR(worst, 0.5, 1e-12);
}

TEST(WhaleBalance, IsProportionalWithAmpleMemory) {
  const auto free = [](std::size_t, int) { return 0.0; };
  EXPECT_EQ(whale_balance(12, {1, 2, 3}, free).loads, (std::vector<int>{2, 4, 6}));
  EXPECT_EQ(whale_balance(3, {100, 1, 1}, free).loads, (std::vector<int>{1, 1, 1}));
}

TEST(WhaleBalance, MovesFromThePeakToTheLeastBusy) {
  // Device 0 holds 4 units only; 2 has the shortest load / compute after rounding.
  const auto memory = [](std::size_t i, int load) { return i == 0 ? load / 4.0 : 0.0; };
  const WhaleLoads found = whale_balance(10, {6, 2, 2}, memory);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.loads, (std::vector<int>{4, 3, 3}));
}

TEST(WhaleBalance, SaysWhereNothingFits) {
  EXPECT_FALSE(whale_balance(4, {1, 1}, [](std::size_t, int load) { return load / 1.5; }).fits);
  EXPECT_FALSE(whale_balance(2, {1, 1}, [](std::size_t i, int) { return i == 0 ? 2.0 : 0; }).fits);
}

// --------------------------------------------------------------------------------------------
// The whole planner.

/// Every annotation, balanced by the rules of the paper written down once more: on plans, with
/// check_memory's verdict in the place of any formula.
class BruteForce {
 public:
  explicit BruteForce(const World& world)
      : world_(world),
        input_(world.input()),
        estimator_(input_),
        layers_(count_layers(world.workload)) {}

  Best run() {
    sweep(true);
    if (best_.time == kNever) sweep(false);
    return best_;
  }

 private:
  void sweep(bool all) {
    for (tensor_ = 1; tensor_ <= 4; tensor_ *= 2) {
      groups_.clear();
      for (std::size_t node = 0; node < world_.cluster.nodes.size(); ++node) {
        const auto devices = world_.cluster.devices_of(NodeId{static_cast<int>(node)});
        for (std::size_t i = 0; i + width() <= devices.size(); i += width()) {
          const auto begin = devices.begin() + static_cast<std::ptrdiff_t>(i);
          groups_.emplace_back(begin, begin + tensor_);
        }
      }
      if (all && groups_.size() * width() != world_.cluster.devices.size()) continue;
      std::stable_sort(groups_.begin(), groups_.end(), [&](const auto& a, const auto& b) {
        return world_.cluster.gpu(a[0]).memory > world_.cluster.gpu(b[0]).memory;
      });
      const int count = static_cast<int>(groups_.size());
      for (stages_ = 1; stages_ <= std::min(count, layers_); ++stages_) {
        if (all && count % stages_ != 0) continue;
        replicas_ = count / stages_;
        for (batch_ = replicas_; batch_ <= 8 * replicas_; ++batch_) {
          if (world_.job.global_batch % batch_ != 0) continue;
          for (const ir::Recompute recompute : world_.job.allowed.recompute) {
            recompute_ = recompute;
            annotation();
          }
        }
      }
    }
  }

  std::size_t width() const { return tensor_; }
  double speed(int stage, int replica) const {
    const auto& group = groups_[stage * replicas_ + replica];
    return world_.cluster.gpu(group[0]).peak.at(ir::Dtype::bf16).value;
  }

  /// Largest remainders, at least one each.
  static std::vector<int> proportional(int total, const std::vector<double>& weights) {
    std::vector<bool> low(weights.size(), false);
    while (true) {
      double sum = 0;
      int left = total;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (low[i])
          --left;
        else
          sum += weights[i];
      }
      std::vector<double> share(weights.size(), 1);
      bool again = false;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (low[i]) continue;
        share[i] = left * (weights[i] / sum);
        if (share[i] < 1) low[i] = again = true;
      }
      if (again) continue;
      std::vector<int> result;
      for (double& s : share) {
        if (std::abs(s - std::round(s)) < 1e-9) s = std::round(s);
        result.push_back(static_cast<int>(std::floor(s)));
      }
      while (std::accumulate(result.begin(), result.end(), 0) < total) {
        std::size_t most = weights.size();
        for (std::size_t i = 0; i < weights.size(); ++i) {
          if (low[i] || share[i] - result[i] < 1e-12) continue;
          if (most == weights.size() || share[i] - result[i] > share[most] - result[most]) most = i;
        }
        ++result[most];
      }
      return result;
    }
  }

  /// Moves units one by one; `use(i, load)` above 1 does not fit.
  static std::vector<int> shift(std::vector<int> loads, const std::vector<double>& speed,
                                const std::function<double(int, int)>& use) {
    std::vector<bool> full(loads.size(), false);
    std::vector<bool> was_over(loads.size(), false);
    const int count = static_cast<int>(loads.size());
    for (int i = 0; i < count; ++i) {
      was_over[i] = use(i, loads[i]) > 1;
    }
    while (true) {
      int peak = -1;
      int valley = -1;
      for (int i = 0; i < count; ++i) {
        const auto busy = [&](int j) { return loads[j] / speed[j]; };
        const auto used = [&](int j) { return use(j, loads[j]); };
        if (used(i) > 1 && (peak < 0 || used(i) > used(peak))) peak = i;
        if (!was_over[i] && !full[i] && (valley < 0 || busy(i) < busy(valley))) valley = i;
      }
      if (peak < 0 || valley < 0 || loads[peak] == 1) return loads;
      if (use(valley, loads[valley] + 1) > 1) {
        full[valley] = true;
        continue;
      }
      --loads[peak];
      ++loads[valley];
    }
  }

  /// Need over capacity of one replica, as check_memory() counts it.
  double use(int stage, int replica, int first, int layers, int samples) const {
    ir::Segment segment;
    segment.first_block = BlockId{first == 0 ? 0 : first + 1};
    segment.last_block = BlockId{first + layers == layers_ ? layers_ + 1 : first + layers};
    segment.recompute = recompute_;
    ir::Group group;
    group.tensor_parallel = tensor_;
    group.samples = samples;
    const auto held =
        models::segment_memory(segment, group, replicas_, world_.workload, world_.job);
    const int in_flight =
        std::min(static_cast<int>(world_.job.global_batch) / batch_, stages_ - stage);
    const Bytes need = held.fixed() + in_flight * held.activations_per_micro_batch;
    const auto& devices = groups_[stage * replicas_ + replica];
    const Bytes have = world_.cluster.gpu(devices[0]).memory - models::kAssumedContext;
    return std::max(need / have, samples / 8.0);
  }

  std::vector<int> samples_of(int stage, int first, int layers) const {
    std::vector<double> speeds;
    for (int r = 0; r < replicas_; ++r) speeds.push_back(speed(stage, r));
    return shift(proportional(batch_, speeds), speeds,
                 [&](int r, int samples) { return use(stage, r, first, layers, samples); });
  }

  void annotation() {
    std::vector<double> speeds;
    for (int s = 0; s < stages_; ++s) {
      double sum = 0;
      for (int r = 0; r < replicas_; ++r) sum += speed(s, r);
      speeds.push_back(sum);
    }
    const auto fullest = [&](int s, int layers) {
      int first = s == 0 ? 0 : std::min(1, layers_ - layers);
      if (s == stages_ - 1) first = layers_ - layers;
      const auto samples = samples_of(s, first, layers);
      double most = 0;
      for (int r = 0; r < replicas_; ++r) {
        most = std::max(most, use(s, r, first, layers, samples[r]));
      }
      return most;
    };
    const std::vector<int> layers = shift(proportional(layers_, speeds), speeds, fullest);
    ir::Pipeline chain;
    chain.micro_batch_size = batch_;
    chain.micro_batches = static_cast<int>(world_.job.global_batch) / batch_;
    int first = 0;
    bool allowed = true;
    for (int s = 0; s < stages_; ++s) {
      const int own = layers[s];
      ir::Segment segment;
      segment.first_block = BlockId{first == 0 ? 0 : first + 1};
      segment.last_block = BlockId{first + own == layers_ ? layers_ + 1 : first + own};
      segment.recompute = recompute_;
      const auto samples = samples_of(s, first, own);
      for (int r = 0; r < replicas_; ++r) {
        const int share = samples[r];
        segment.groups.push_back(
            {groups_[s * replicas_ + r], tensor_, ir::SequenceParallelism::none, 1, share});
        allowed = allowed && share <= 8;
      }
      chain.stages.push_back({{segment}});
      first += own;
    }
    ir::Plan plan;
    plan.pipelines = {chain};
    ++best_.examined;
    if (!allowed || !world_.verdict(plan).fits()) {
      ++best_.rejected;
      return;
    }
    EXPECT_EQ(world_.defects(plan), "");
    best_.time = std::min(best_.time, estimator_.estimate(plan).value);
  }

  const World& world_;
  PlannerInput input_;
  PlanEstimator estimator_;
  int layers_;
  int tensor_ = 1;
  int stages_ = 1;
  int replicas_ = 1;
  int batch_ = 1;
  ir::Recompute recompute_ = ir::Recompute::none;
  std::vector<std::vector<DeviceId>> groups_;
  Best best_;
};

TEST(Whale, EqualsBruteForceOverItsAnnotations) {
  int feasible = 0;
  int forbidden = 0;
  for (std::uint64_t number = 0; number < 300; ++number) {
    const auto world = tiny_world(number);
    const Best best = BruteForce(*world).run();
    const PlannerResult result = run_planner("whale", world->input(), {{"evaluate_top", "1"}});
    EXPECT_EQ(result.report.plans_examined, best.examined) << number;
    EXPECT_EQ(result.report.rejected_by_memory, best.rejected) << number;
    forbidden += best.rejected > 0;
    ASSERT_EQ(plan_of(result) != nullptr, best.time < kNever) << number;
    EXPECT_EQ(complaint(*world, world->input(), result), "") << number;
    if (plan_of(result) == nullptr) continue;
    ++feasible;
    EXPECT_NEAR(estimate_of(result), best.time, 1e-9 * best.time) << number;
  }
  EXPECT_GE(feasible, 200);
  EXPECT_GE(forbidden, 75);
}

TEST(Whale, GivesFasterReplicasMoreSamples) {
  // BERT-Large of AutoHet: the model fits on one GPU, so that data parallelism is best.
  const World world(make_cluster({{"Fast", 300, 80, 2, 200, 1}, {"Slow", 100, 80, 2, 200, 1}}, 200),
                    small_model(8), 512, 512);
  const auto result = run_planner("whale", world.input(), {{"evaluate_top", "1"}});
  const auto& plan = std::get<ir::Plan>(result.outcome);
  const auto& groups = plan.pipelines.front().stages.front().segments.front().groups;
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].samples, 3 * groups[2].samples);
  const auto even =
      run_planner("whale", world.input(), {{"evaluate_top", "1"}, {"batches", "uniform"}});
  EXPECT_LT(result.report.estimate->value, even.report.estimate->value);
}

TEST(Whale, PutsMemoryFirst) {
  const World world(make_cluster({{"Small", 300, 16, 2, 200, 1}, {"Large", 100, 80, 2, 200, 1}}, 5),
                    small_model(12), 16, 1024);
  for (const bool by_memory : {true, false}) {
    const auto result =
        run_planner("whale", world.input(),
                    {{"evaluate_top", "0"}, {"stage_order", by_memory ? "memory" : "cluster"}});
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
    const auto& plan = std::get<ir::Plan>(result.outcome);
    const DeviceId first = ir::devices_of(plan.pipelines.front().stages.front()).front();
    EXPECT_EQ(world.cluster.gpu(first).name, by_memory ? "Large" : "Small");
  }
}

TEST(Whale, UniformLayersAreWithinOneOfEachOther) {
  const World world(make_cluster({{"A", 300, 24, 1, 200, 3}, {"B", 50, 24, 1, 200, 1}}, 50),
                    llama2_13b(4), 8, 1024);
  const auto result = run_planner("whale", world.input(), {{"layers", "uniform"}});
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  for (const ir::Stage& stage : std::get<ir::Plan>(result.outcome).pipelines.front().stages) {
    EXPECT_LE(stage.segments[0].last_block.value - stage.segments[0].first_block.value, 2);
  }
}

TEST(Whale, LeavesDevicesIdleOnlyWhereNoAnnotationUsesAll) {
  const World world(make_cluster({{"X", 100, 24, 7, 100, 1}}, 5), small_model(6), 6, 1024);
  const auto yes = run_planner("whale", world.input(), {{"use_all", "yes"}});
  EXPECT_TRUE(std::holds_alternative<models::Infeasible>(yes.outcome));
  const auto rest = run_planner("whale", world.input());
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(rest.outcome));
  EXPECT_EQ(world.defects(std::get<ir::Plan>(rest.outcome)), "");
}

}  // namespace
}  // namespace orrery::planners::whale_test
