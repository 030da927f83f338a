#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "planners/kit/integers.h"
#include "planners/kit/partition_dp.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"
#include "tests/planners/uniform_oracle.h"

namespace orrery::planners::piper_test {
namespace {

/// All chains of one case, by recursion over the next stage, and in each stage all subsets of
/// layers to recompute.
class Brute {
 public:
  Brute(const World& world, const UniformOracle& view, int size, int round, bool paper)
      : world_(world),
        view_(view),
        size_(size),
        count_(static_cast<int>(world.job.global_batch) / size),
        round_(round),
        paper_(paper),
        layers_(count_layers(world.workload)) {
    const int most = paper ? std::min(view.size(), count_) : std::min(view.size(), layers_);
    for (int load = 1; load <= most; ++load) extend(0, load, 0, 0);
  }

  double best = kNever;  ///< Largest time of a stage x micro-batches.

 private:
  /// `load`: what the degrees of this and all later stages add up to (stages, by the plan's count).
  void extend(int first, int load, int used, double largest) {
    if (first == layers_) {
      if (load == 0) best = std::min(best, largest * count_);
      return;
    }
    for (int layers = 1; first + layers <= layers_; ++layers) {
      for (int tensor = 1; tensor <= view_.per_host; tensor *= 2) {
        for (int data = 1; data <= round_ && used + tensor * data <= view_.size(); ++data) {
          if (round_ % data != 0) continue;
          if (size_ * (round_ / data) > world_.job.allowed.max_micro_batch_size) continue;
          const int taken = paper_ ? data : 1;
          if (taken > load) continue;
          const double time = stage(first, layers, tensor, data, load);
          if (time * count_ >= best) continue;
          extend(first + layers, load - taken, used + tensor * data, std::max(largest, time));
        }
      }
    }
  }

  double stage(int first, int layers, int tensor, int data, int load) const {
    const int held = paper_ ? size_ : size_ * (round_ / data);
    const int in_flight = paper_ ? (load + data - 1) / data : std::min(load, count_ / round_);
    double fastest = kNever;
    for (int mask = 0; mask < 1 << layers; ++mask) {
      const bool mixed = mask != 0 && mask + 1 != 1 << layers;
      if (memory(first, layers, tensor, held, in_flight, mask, mixed) > view_.capacity) continue;
      double time = view_.passes(first, layers, tensor, size_, ir::Recompute::none);
      for (int l = 0; l < layers; ++l) {
        if ((mask >> l & 1) == 0) continue;
        time += view_.passes(first + l, 1, tensor, size_, ir::Recompute::full) -
                view_.passes(first + l, 1, tensor, size_, ir::Recompute::none);
      }
      fastest = std::min(fastest, time);
    }
    return fastest / data + messages(first, layers, tensor, data);
  }

  double memory(int first, int layers, int tensor, int samples, int in_flight, int mask,
                bool mixed) const {
    const auto none = view_.memory(first, layers, tensor, samples, ir::Recompute::none);
    double kept = none.activations_per_micro_batch.value;
    double again = 0;
    for (int l = 0; l < layers; ++l) {
      if ((mask >> l & 1) == 0) continue;
      const auto full = view_.memory(first + l, 1, tensor, samples, ir::Recompute::full);
      kept += full.activations_per_micro_batch.value -
              view_.memory(first + l, 1, tensor, samples, ir::Recompute::none)
                  .activations_per_micro_batch.value;
      again = std::max(again, full.recomputed.value);
    }
    const BlockId block{world_.workload.first_layer().value + first};
    const double staging = mixed ? 2 * samples * world_.workload.block(block).input_bytes.value : 0;
    return (none.parameters + none.gradients + none.optimizer_states + none.logits).value + again +
           std::max(none.communication.value, staging) + in_flight * kept;
  }

  double messages(int first, int layers, int tensor, int data) const {
    const BlockId block{world_.workload.first_layer().value + first};
    const double activation = size_ * world_.workload.block(block).input_bytes.value;
    const int cuts = (first > 0 ? 1 : 0) + (first + layers < layers_ ? 1 : 0);
    const double gradients =
        view_.parameters(first, layers) / tensor * world_.job.state_bytes.gradient;
    const double bytes = 2.0 * cuts * activation / data +
                         4.0 * (data - 1) / data * gradients / static_cast<double>(count_);
    if (bytes == 0) return 0;
    return bytes / (view_.hosts() > 1 ? view_.between_bandwidth : view_.inside_bandwidth);
  }

  const World& world_;
  const UniformOracle& view_;
  int size_;
  int count_;
  int round_;
  bool paper_;
  int layers_;
};

double brute_force(const World& world, bool paper) {
  double best = kNever;
  for (const int per_host : oracle_host_sizes(world)) {
    const UniformOracle view(world, per_host);
    for (int size = 1; size <= world.job.allowed.max_micro_batch_size; ++size) {
      if (world.job.global_batch % size != 0) continue;
      const int count = static_cast<int>(world.job.global_batch) / size;
      for (int round = 1; round <= std::min(count, view.size()); ++round) {
        if (count % round != 0) continue;
        best = std::min(best, Brute(world, view, size, round, paper).best);
      }
    }
  }
  return best;
}

/// The tiny family, and after it problems whose activations outweigh the states.
constexpr std::uint64_t kFamily = 80;
constexpr std::uint64_t kAll = 104;

std::unique_ptr<World> world_of(std::uint64_t n) {
  if (n < kFamily) return tiny_world(n);
  const auto k = static_cast<int>(n - kFamily);
  const double memory = 1.5 + 0.5 * (k % 8);
  ir::ModelShape shape = small_model(3 + k % 3);
  shape.vocabulary = 8000;
  return std::make_unique<World>(
      make_cluster({{"X", 100, memory, 2, 50, 1}, {"Y", 60, memory + 1, 2 + k % 3, 25, 1}}, 5),
      shape, 4 + 4 * (k / 8), 4096);
}

TEST(Piper, EqualsBruteForceWithTheMemoryOfThePlan) {
  int feasible = 0;
  for (std::uint64_t n = 0; n < kAll; ++n) {
    const auto world = world_of(n);
    const PlannerResult result = run_planner("piper", world->input(), {{"memory", "plan"}});
    const double best = brute_force(*world, false);
    ASSERT_EQ(plan_of(result) != nullptr, best < kNever) << n;
    EXPECT_EQ(result.report.rejected_by_memory, 0) << n;
    if (best == kNever) continue;
    ++feasible;
    EXPECT_NEAR(result.report.estimate->value, best, 1e-9 * best) << n;
  }
  EXPECT_GT(feasible, 60);
  EXPECT_LT(feasible, static_cast<int>(kAll));
}

TEST(Piper, EqualsBruteForceWithTheMemoryOfThePaperUnlessThePlanDoesNotFit) {
  int equal = 0;
  int later = 0;
  for (std::uint64_t n = 0; n < kAll; ++n) {
    const auto world = world_of(n);
    const PlannerResult result = run_planner("piper", world->input());
    const double best = brute_force(*world, true);
    const double plan = brute_force(*world, false);
    ASSERT_EQ(plan_of(result) != nullptr, plan < kNever) << n;
    if (plan == kNever) continue;
    const double found = result.report.estimate->value;
    EXPECT_GE(found, best * (1 - 1e-9)) << n;
    if (result.report.rejected_by_memory == 0) {
      EXPECT_NEAR(found, best, 1e-9 * best) << n;
      ++equal;
    } else {
      ++later;
    }
  }
  EXPECT_GT(equal, 40);
  EXPECT_GT(later, 0);
}

TEST(Piper, RecomputesFewerLayersTheMoreMemoryThereIs) {
  std::set<int> counts;
  int before = 6;
  for (double memory = 2; memory < 16; memory += 0.125) {
    const World world(make_cluster({{"X", 100, memory, 1, 50, 1}}, 5), small_model(6), 8, 4096);
    const PlannerResult result = run_planner("piper", world.input(), {{"micro_batch_size", "1"}});
    if (plan_of(result) == nullptr) continue;
    EXPECT_EQ(world.defects(*plan_of(result)), "") << memory;
    EXPECT_EQ(result.report.rejected_by_memory, 0) << memory;
    int again = 0;
    for (const ir::Segment& s : plan_of(result)->pipelines.front().stages.front().segments) {
      if (s.recompute != ir::Recompute::full) continue;
      for (const BlockId b : ids_from_to(s.first_block, s.last_block)) {
        again += b >= world.workload.first_layer() && b <= world.workload.last_layer() ? 1 : 0;
      }
    }
    EXPECT_LE(again, before) << memory;
    before = again;
    counts.insert(again);
  }
  EXPECT_EQ(before, 0);
  EXPECT_GE(counts.size(), 4u);  // All, none, and some between.
}

TEST(Piper, OneGpuStagesAreTheExactSplitOfTheChain) {
  const World world(make_cluster({{"X", 100, 80, 4, 50, 1}}, 5), small_model(10), 12, 1024);
  const UniformOracle view(world, 4);
  const double hop = 2 * world.workload.block(world.workload.first_layer()).input_bytes.value /
                     view.inside_bandwidth;
  double best = kNever;
  for (int stages = 1; stages <= 4; ++stages) {
    const auto split = split_min_max(10, stages, [&](int, int first, int last) {
      return view.passes(first, last - first + 1, 1, 1, ir::Recompute::none) +
             hop * ((first > 0 ? 1 : 0) + (last < 9 ? 1 : 0));
    });
    best = std::min(best, 12 * split->cost);
  }
  const PlannerResult result =
      run_planner("piper", world.input(),
                  {{"micro_batch_size", "1"}, {"tensor_parallel", "no"}, {"data_parallel", "no"}});
  EXPECT_NEAR(estimate_of(result), best, 1e-9 * best);
}

/// One stage of d replicas: (compute / d + 4 (d - 1) / d w / N / bandwidth) N.
TEST(Piper, ReplicasOfOneStageShareTheBatch) {
  const World world(make_cluster({{"X", 100, 80, 1, 50, 4}}, 100), small_model(1), 32, 1024);
  const UniformOracle view(world, 1);
  const PlannerResult result = run_planner("piper", world.input(), {{"micro_batch_size", "1"}});
  ASSERT_NE(plan_of(result), nullptr);
  const double compute = view.passes(0, 1, 1, 1, ir::Recompute::none);
  const double weights = 2 * view.parameters(0, 1) / view.between_bandwidth;
  EXPECT_NEAR(estimate_of(result), 32 * (compute / 4 + 3 * weights / 32), 1e-9);
  EXPECT_EQ(plan_of(result)->pipelines.front().stages.front().segments.front().groups.size(), 4u);
}

TEST(Piper, AblationsAreNeverFaster) {
  for (std::uint64_t n = 0; n < 40; ++n) {
    const auto world = tiny_world(n);
    const auto with = [&](const char* name, const char* value) {
      return estimate_of(run_planner("piper", world->input(), {{"memory", "plan"}, {name, value}}));
    };
    const double whole = with("memory", "plan") * (1 - 1e-12);
    EXPECT_GE(with("tensor_parallel", "no"), whole) << n;
    EXPECT_GE(with("data_parallel", "no"), whole) << n;
    EXPECT_GE(with("recompute", "all_or_none"), whole) << n;
    EXPECT_GE(with("recompute", "never"), with("recompute", "all_or_none") * (1 - 1e-12)) << n;
    EXPECT_GE(with("speed", "slowest"), whole) << n;
  }
}

TEST(Piper, FallsBackToWhatThePlanHoldsAndSaysSo) {
  int fell = 0;
  for (std::uint64_t n = 0; n < kAll && fell == 0; ++n) {
    const auto world = world_of(n);
    const PlannerResult result = run_planner("piper", world->input());
    for (const std::string& note : result.report.notes) {
      if (note.find("searched again with what a plan holds") == std::string::npos) continue;
      ++fell;
      const auto plan = run_planner("piper", world->input(), {{"memory", "plan"}});
      EXPECT_EQ(estimate_of(result), estimate_of(plan));
      EXPECT_GT(result.report.work, plan.report.work);
    }
  }
  EXPECT_GT(fell, 0);
}

TEST(Piper, TensorGroupsStayInTheirNodes) {
  const World world(make_cluster({{"X", 300, 24, 3, 200, 1}, {"Y", 200, 24, 8, 200, 1}}, 2),
                    llama2_13b(8), 24, 2048);
  for (const char* size : {"0", "1", "2", "4", "8"}) {
    const auto result = run_planner("piper", world.input(), {{"gpus_per_host", size}});
    if (plan_of(result) == nullptr) continue;
    EXPECT_EQ(world.defects(*plan_of(result)), "") << size;
    for (const ir::Stage& stage : plan_of(result)->pipelines.front().stages) {
      for (const ir::Group& group : stage.segments.front().groups) {
        for (const DeviceId device : group.devices) {
          EXPECT_EQ(world.cluster.device(device).node,
                    world.cluster.device(group.devices.front()).node);
        }
      }
    }
  }
}

}  // namespace
}  // namespace orrery::planners::piper_test
