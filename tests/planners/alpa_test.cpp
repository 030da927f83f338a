#include <gtest/gtest.h>

#include "planners/kit/integers.h"
#include "planners/kit/partition_dp.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"
#include "tests/planners/uniform_oracle.h"

namespace orrery::planners::alpa_test {
namespace {

std::vector<int> layers_of(const ir::Plan& plan) {
  std::vector<int> layers;
  for (const ir::Stage& stage : plan.pipelines.front().stages) {
    layers.push_back(stage.segments.back().last_block.value -
                     stage.segments.front().first_block.value + 1);
  }
  return layers;
}

/// All chains of one case, by recursion over the next stage.
class Brute {
 public:
  Brute(const World& world, const UniformOracle& view, int micro_batches, ir::Recompute recompute)
      : world_(world),
        view_(view),
        micro_batches_(micro_batches),
        size_(static_cast<int>(world.job.global_batch) / micro_batches),
        recompute_(recompute),
        layers_(count_layers(world.workload)),
        best_(view.size() + 1, kNever) {
    for (int n = 1; n <= view.per_host; n *= 2) submeshes_.push_back(n);
    for (int h = 2; h <= view.hosts(); h *= 2) submeshes_.push_back(h * view.per_host);
    for (int stages = 1; stages <= std::min(layers_, view.size()); ++stages) {
      extend(0, stages, 0, 0, 0);
    }
  }

  /// The best of the chains over the most whole hosts.
  double best() const {
    for (int devices = view_.size(); devices > 0; devices -= view_.per_host) {
      if (best_[devices] < kNever) {
        return best_[devices];
      }
    }
    return kNever;
  }

 private:
  void extend(int first, int stages_left, int used, double sum, double largest) {
    if (stages_left == 0) {
      if (first != layers_) return;
      double& best = best_[used];
      best = std::min(best, sum + (micro_batches_ - 1) * largest);
      return;
    }
    for (int layers = 1; first + layers <= layers_; ++layers) {
      for (const int devices : submeshes_) {
        if (used + devices > view_.size()) continue;
        for (int tensor = 1; tensor <= std::min(devices, view_.per_host); tensor *= 2) {
          const double time = stage(first, layers, devices / tensor, tensor, stages_left);
          if (time == kNever) continue;
          extend(first + layers, stages_left - 1, used + devices, sum + time,
                 std::max(largest, time));
        }
      }
    }
  }

  double stage(int first, int layers, int data, int tensor, int stages_left) const {
    if (size_ % data != 0 || size_ / data > world_.job.allowed.max_micro_batch_size) return kNever;
    const int samples = size_ / data;
    const models::SegmentMemory held = view_.memory(first, layers, tensor, samples, recompute_);
    const double need =
        (held.fixed() + std::min(stages_left, micro_batches_) * held.activations_per_micro_batch)
            .value;
    if (need > view_.capacity) return kNever;
    const double elements = view_.parameters(first, layers) / tensor;
    const double once =
        view_.optimizer(elements) + view_.ring(data, elements * world_.job.state_bytes.gradient,
                                               data * tensor <= view_.per_host);
    return view_.passes(first, layers, tensor, samples, recompute_) + once / micro_batches_;
  }

  const World& world_;
  const UniformOracle& view_;
  int micro_batches_;
  int size_;
  ir::Recompute recompute_;
  int layers_;
  std::vector<int> submeshes_;
  std::vector<double> best_;  // By devices.
};

double brute_force(const World& world) {
  double best = kNever;
  for (const int per_host : oracle_host_sizes(world)) {
    const UniformOracle view(world, per_host);
    for (int count = 1; count <= world.job.global_batch; ++count) {
      if (world.job.global_batch % count != 0) continue;
      for (const ir::Recompute recompute : world.job.allowed.recompute) {
        best = std::min(best, Brute(world, view, count, recompute).best());
      }
    }
  }
  return best;
}

TEST(Alpa, EqualsBruteForceOverItsSpace) {
  int feasible = 0;
  for (std::uint64_t n = 0; n < 80; ++n) {
    const auto world = tiny_world(n);
    const PlannerResult result = run_planner("alpa", world->input(), {{"gap", "0"}});
    const double best = brute_force(*world);
    ASSERT_EQ(plan_of(result) != nullptr, best < kNever) << n;
    EXPECT_EQ(result.report.rejected_by_memory, 0) << n;
    if (best == kNever) continue;
    ++feasible;
    EXPECT_NEAR(result.report.estimate->value, best, 1e-9 * best) << n;
    const PlannerResult coarse = run_planner("alpa", world->input());
    const double most = best + 1e-6 * static_cast<double>(world->job.global_batch);
    EXPECT_LE(coarse.report.estimate->value, most) << n;
    EXPECT_GE(coarse.report.estimate->value, best * (1 - 1e-9)) << n;
  }
  EXPECT_GT(feasible, 40);
  EXPECT_LT(feasible, 80);
}

/// With one sample a micro-batch and no tensor parallelism, every stage has one GPU.
TEST(Alpa, OneGpuStagesAreTheExactSplitOfTheChain) {
  const World world(make_cluster({{"X", 100, 80, 4, 50, 1}}, 5), small_model(10), 12, 1024);
  const UniformOracle view(world, 4);
  const int layers = 10;
  const auto cost = [&](int, int first, int last) {
    const int count = last - first + 1;
    return view.passes(first, count, 1, 1, ir::Recompute::none) +
           view.optimizer(view.parameters(first, count)) / 12;
  };
  const auto split = split_pipeline_time(layers, 4, 12, cost);
  ASSERT_TRUE(split);
  const PlannerResult result = run_planner(
      "alpa", world.input(),
      {{"micro_batches", "12"}, {"logical_shapes", "data_parallel_only"}, {"gap", "0"}});
  ASSERT_NE(plan_of(result), nullptr);
  EXPECT_NEAR(result.report.estimate->value, split->cost, 1e-9 * split->cost);
  EXPECT_EQ(plan_of(result)->pipelines.front().stages.size(), 4u);
}

/// [Metis, ATC 2024, Figure 2: Alpa balances two unequal GPUs like two equal ones]
TEST(Alpa, SplitsLayersOfUnequalGpusEvenly) {
  ir::ModelShape shape = small_model(12);
  shape.vocabulary = 64;  // The head hardly counts.
  const auto split = [&](double tflops) {
    const World world(make_cluster({{"V", 125, 80, 1, 50, 1}, {"T", tflops, 80, 1, 50, 1}}, 5),
                      shape, 32, 1024);
    const PlannerResult result = run_planner(
        "alpa", world.input(), {{"micro_batches", "32"}, {"logical_shapes", "data_parallel_only"}});
    return layers_of(std::get<ir::Plan>(result.outcome));
  };
  EXPECT_EQ(split(125), (std::vector<int>{7, 7}));  // With embedding and head.
  EXPECT_EQ(split(30), (std::vector<int>{7, 7}));
}

TEST(Alpa, TheOrderOfTheMachinesDoesNotMatter) {
  const Machines x{"X", 300, 80, 4, 200, 1};
  const Machines y{"Y", 100, 40, 4, 32, 1};
  const World one(make_cluster({x, y}, 5), small_model(8), 16, 1024);
  const World two(make_cluster({y, x}, 5), small_model(8), 16, 1024);
  const auto first = run_planner("alpa", one.input());
  const auto second = run_planner("alpa", two.input());
  EXPECT_NEAR(first.report.estimate->value, second.report.estimate->value, 1e-12);
  EXPECT_EQ(first.report.chosen, second.report.chosen);
}

TEST(Alpa, SlowestIsNeverFasterThanTheMean) {
  for (std::uint64_t n = 0; n < 20; ++n) {
    const auto world = tiny_world(n);
    const auto mean = run_planner("alpa", world->input(), {{"gap", "0"}});
    const auto slowest = run_planner("alpa", world->input(), {{"gap", "0"}, {"speed", "slowest"}});
    ASSERT_EQ(plan_of(mean) == nullptr, plan_of(slowest) == nullptr) << n;
    if (plan_of(mean) == nullptr) continue;
    EXPECT_GE(slowest.report.estimate->value, mean.report.estimate->value * (1 - 1e-12)) << n;
  }
}

TEST(Alpa, LargerSpacesAreNeverWorse) {
  for (std::uint64_t n = 0; n < 30; ++n) {
    const auto world = tiny_world(n);
    const auto estimate = [&](const char* name, const char* value) {
      const auto result = run_planner("alpa", world->input(),
                                      {{"gap", "0"}, {name, value}, {"gpus_per_host", "1"}});
      return plan_of(result) == nullptr ? kNever : result.report.estimate->value;
    };
    const double all = estimate("submeshes", "all");
    EXPECT_LE(all, estimate("submeshes", "power_of_two") * (1 + 1e-12)) << n;
    EXPECT_LE(all, estimate("logical_shapes", "data_parallel_only") * (1 + 1e-12)) << n;
  }
}

TEST(Alpa, LogicalShapesAreRespected) {
  const World world(make_cluster({{"X", 300, 80, 4, 200, 2}}, 5), small_model(8), 32, 1024);
  for (const char* shapes : {"data_parallel_only", "same_as_physical"}) {
    const auto result = run_planner("alpa", world.input(), {{"logical_shapes", shapes}});
    ASSERT_NE(plan_of(result), nullptr);
    for (const ir::Stage& stage : plan_of(result)->pipelines.front().stages) {
      const auto& groups = stage.segments.front().groups;
      const auto devices = static_cast<int>(ir::devices_of(stage).size());
      const bool physical = std::string(shapes) == "same_as_physical";
      for (const ir::Group& group : groups) {
        EXPECT_EQ(group.tensor_parallel, physical ? std::min(devices, 4) : 1) << shapes;
      }
    }
  }
}

TEST(Alpa, NodesThatAreNoPowerOfTwoAreCut) {
  const World world(make_cluster({{"X", 300, 80, 3, 200, 2}}, 5), small_model(8), 32, 1024);
  const auto cut = run_planner("alpa", world.input(), {{"gpus_per_host", "2"}});
  ASSERT_NE(plan_of(cut), nullptr);
  EXPECT_EQ(ir::devices_of(*plan_of(cut)).size(), 4u);
  ASSERT_FALSE(cut.report.notes.empty());
  EXPECT_EQ(cut.report.notes.front(), "hosts of 2: 4 of 6 GPUs, the rest fills no host");
  const auto free = run_planner("alpa", world.input());
  EXPECT_LE(*free.report.estimate, *cut.report.estimate);
  const config::Diagnostics found = find_planner("alpa")->check({{"gpus_per_host", "3"}});
  ASSERT_EQ(found.problems().size(), 1u);
  EXPECT_EQ(found.problems().front().at.file, "gpus_per_host");
}

}  // namespace
}  // namespace orrery::planners::alpa_test
