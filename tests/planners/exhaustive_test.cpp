// The reference itself, against an enumeration that knows neither symmetry nor independence of
// pipelines: every permutation of every subset of the devices, cut in every way into groups, stages
// and pipelines, with every number tried, each plan built and judged as a whole.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/base/rng.h"
#include "planners/exhaustive/space.h"
#include "planners/kit/estimate.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "tests/planners/family.h"

namespace orrery::planners::exhaustive_test {
namespace {

class Enumeration {
 public:
  Enumeration(const World& world, std::size_t most_groups)
      : world_(world), most_groups_(most_groups), estimator_(world.input()) {}

  double best() {
    std::vector<DeviceId> all = world_.input().devices;
    for (unsigned mask = 1; mask < 1U << all.size(); ++mask) {
      std::vector<DeviceId> some;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if ((mask >> i & 1U) != 0) some.push_back(all[i]);
      }
      do {
        cut(some, 1, {{{{some.front()}}}});
      } while (std::next_permutation(some.begin(), some.end()));
    }
    return best_;
  }
  std::int64_t judged() const { return judged_; }

 private:
  using Groups = std::vector<std::vector<DeviceId>>;
  using Stages = std::vector<Groups>;

  /// The next device joins the group, or starts a group, a stage or a pipeline.
  void cut(const std::vector<DeviceId>& devices, std::size_t next, std::vector<Stages> made) {
    if (next == devices.size()) return fill(made);
    const DeviceId device = devices[next];
    std::vector<Stages> joined = made;
    joined.back().back().back().push_back(device);
    cut(devices, next + 1, joined);
    joined = made;
    joined.back().back().push_back({device});
    cut(devices, next + 1, joined);
    joined = made;
    joined.back().push_back({{device}});
    cut(devices, next + 1, joined);
    joined = made;
    joined.push_back({{{device}}});
    cut(devices, next + 1, joined);
  }

  void fill(const std::vector<Stages>& made) {
    for (const Stages& stages : made) {
      for (const Groups& groups : stages) {
        if (groups.size() > most_groups_) return;
        for (const auto& group : groups) {
          if (16 % group.size() != 0) return;
          for (const DeviceId d : group) {
            if (world_.cluster.device(d).node != world_.cluster.device(group.front()).node) return;
          }
        }
      }
    }
    for (const ir::ScheduleKind schedule : world_.job.allowed.schedules) {
      for (const int zero : world_.job.allowed.zero_stages) {
        for (const auto transfer :
             {ir::ActivationTransfer::sliced, ir::ActivationTransfer::leader_broadcast}) {
          ir::Plan plan;
          plan.schedule = schedule;
          plan.communication.activation_transfer = transfer;
          for (const Stages& stages : made) {
            ir::Pipeline pipeline;
            for (const Groups& groups : stages) {
              ir::Segment segment;
              segment.zero.stage = zero;
              for (const auto& devices : groups) {
                ir::Group group;
                group.devices = devices;
                group.tensor_parallel = static_cast<int>(devices.size());
                segment.groups.push_back(group);
              }
              pipeline.stages.push_back({{segment}});
            }
            plan.pipelines.push_back(pipeline);
          }
          batches(plan, 0, static_cast<int>(world_.job.global_batch));
        }
      }
    }
  }

  void batches(ir::Plan& plan, std::size_t p, int left) {
    if (p == plan.pipelines.size()) {
      if (left == 0) blocks(plan, 0);
      return;
    }
    for (int size = 1; size <= left; ++size) {
      for (int count = 1; count * size <= left; ++count) {
        plan.pipelines[p].micro_batch_size = size;
        plan.pipelines[p].micro_batches = count;
        batches(plan, p + 1, left - count * size);
      }
    }
  }

  void blocks(ir::Plan& plan, std::size_t p) {
    if (p == plan.pipelines.size()) return samples(plan, 0, 0, 0);
    auto& stages = plan.pipelines[p].stages;
    for_each_composition(world_.workload.size(), static_cast<int>(stages.size()), 1,
                         [&](const std::vector<int>& split) {
                           int first = 0;
                           for (std::size_t s = 0; s < stages.size(); ++s) {
                             ir::Segment& segment = stages[s].segments.front();
                             segment.first_block = BlockId{first};
                             first += split[s];
                             segment.last_block = BlockId{first - 1};
                           }
                           blocks(plan, p + 1);
                           return true;
                         });
  }

  void samples(ir::Plan& plan, std::size_t p, std::size_t s, std::size_t g) {
    if (p == plan.pipelines.size()) return recompute(plan, 0, 0);
    if (s == plan.pipelines[p].stages.size()) return samples(plan, p + 1, 0, 0);
    ir::Segment& segment = plan.pipelines[p].stages[s].segments.front();
    int left = plan.pipelines[p].micro_batch_size;
    for (std::size_t e = 0; e < g; ++e) left -= segment.groups[e].samples;
    if (g == segment.groups.size()) {
      if (left == 0) samples(plan, p, s + 1, 0);
      return;
    }
    for (int n = 1; n <= std::min(left, world_.job.allowed.max_micro_batch_size); ++n) {
      segment.groups[g].samples = n;
      samples(plan, p, s, g + 1);
    }
  }

  void recompute(ir::Plan& plan, std::size_t p, std::size_t s) {
    if (p == plan.pipelines.size()) return judge(plan);
    if (s == plan.pipelines[p].stages.size()) return recompute(plan, p + 1, 0);
    for (const ir::Recompute kind : world_.job.allowed.recompute) {
      plan.pipelines[p].stages[s].segments.front().recompute = kind;
      recompute(plan, p, s + 1);
    }
  }

  void judge(const ir::Plan& plan) {
    ++judged_;
    const double time = estimator_.estimate(plan).value;
    if (time < best_ && world_.verdict(plan).fits()) best_ = time;
  }

  const World& world_;
  std::size_t most_groups_;
  PlanEstimator estimator_;
  double best_ = kNever;
  std::int64_t judged_ = 0;
};

PlannerResult expect_enumeration(const World& world, const std::string& name,
                                 std::size_t most_groups = 6) {
  Enumeration all(world, most_groups);
  const double best = all.best();
  const PlannerResult result =
      run_planner("exhaustive", world.input(),
                  {{"groups_per_stage", std::to_string(most_groups)}, {"most_plans", "100000000"}});
  EXPECT_TRUE(result.report.complete) << name;
  if (best == kNever) {
    EXPECT_EQ(estimate_of(result), kNever) << name;
    return result;
  }
  EXPECT_NEAR(estimate_of(result), best, 1e-9) << name << ", chosen " << result.report.chosen;
  const auto& plan = std::get<ir::Plan>(result.outcome);
  EXPECT_EQ(world.defects(plan), "") << name;
  EXPECT_TRUE(world.verdict(plan).fits()) << name;
  EXPECT_EQ(PlanEstimator(world.input()).estimate(plan), *result.report.estimate);
  EXPECT_GE(all.judged(), result.report.plans_examined) << name;
  return result;
}

TEST(Exhaustive, EqualsTheDumbEnumerationOnTheFamilyUpToThreeGpus) {
  int worlds = 0;
  int feasible = 0;
  for (std::uint64_t n = 0; n < 400 && worlds < 25; ++n) {
    const auto world = tiny_world(n);
    if (world->cluster.size() > 3 || world->job.global_batch > 6) continue;
    ++worlds;
    expect_enumeration(*world, "world " + std::to_string(n));
    feasible +=
        std::holds_alternative<ir::Plan>(run_planner("exhaustive", world->input()).outcome) ? 1 : 0;
  }
  EXPECT_EQ(worlds, 25);
  EXPECT_GE(feasible, 20);
}

ir::ModelShape tiny_model(int layers) {
  ir::ModelShape shape = small_model(layers);
  shape.vocabulary = 8000;
  return shape;
}

TEST(Exhaustive, EqualsTheDumbEnumerationOnFourGpus) {
  World pairs(make_cluster({{"A", 160, 16, 2, 100, 1}, {"B", 80, 16, 2, 25, 1}}, 12), tiny_model(4),
              4, 512);
  pairs.job.allowed.recompute = {ir::Recompute::none};
  expect_enumeration(pairs, "two nodes of two");
  World apart(make_cluster({{"A", 160, 1.6, 1, 100, 2}, {"B", 40, 2, 1, 25, 2}}, 2), tiny_model(3),
              3, 512);
  expect_enumeration(apart, "four nodes of one, little memory");
}

TEST(Exhaustive, EqualsTheDumbEnumerationWhereGroupsOfAStageHelp) {
  // Twenty slow GPUs' worth of work before a fast one: data parallelism in the first stage only.
  World world(make_cluster({{"A", 40, 1.45, 2, 100, 1}, {"B", 320, 1.45, 1, 25, 1}}, 12),
              tiny_model(4), 6, 512);
  expect_enumeration(world, "two slow GPUs and a fast one");
  const PlannerResult one = run_planner("exhaustive", world.input(), {{"groups_per_stage", "1"}});
  const PlannerResult all = run_planner("exhaustive", world.input());
  EXPECT_LE(estimate_of(all), estimate_of(one));
}

TEST(Exhaustive, EqualsTheDumbEnumerationUnderOtherJobs) {
  const auto make = [](double memory) {
    return std::make_unique<World>(
        make_cluster({{"A", 160, memory, 2, 100, 1}, {"B", 80, memory, 1, 25, 1}}, 2),
        tiny_model(3), 4, 512);
  };
  for (const double memory : {16.0, 1.4, 1.25}) {
    const std::string at = " with " + std::to_string(memory) + " GiB";
    auto world = make(memory);
    world->job.allowed.zero_stages = {0, 1, 2, 3};
    expect_enumeration(*world, "ZeRO" + at);
    world = make(memory);
    world->job.allowed.zero_stages = {3};
    expect_enumeration(*world, "ZeRO-3 only" + at);
    world = make(memory);
    world->job.allowed.schedules = {ir::ScheduleKind::gpipe};
    expect_enumeration(*world, "GPipe" + at);
    world = make(memory);
    world->job.allowed.schedules = {ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b};
    world->job.allowed.recompute = {ir::Recompute::full, ir::Recompute::selective};
    expect_enumeration(*world, "two schedules, recompute always" + at);
    world = make(memory);
    world->job.allowed.max_micro_batch_size = 2;
    expect_enumeration(*world, "micro-batches of two" + at);
  }
}

/// A node of two types behind two PCIe switches, and one GPU apart.
models::Cluster crooked_cluster() {
  models::Cluster cluster = make_cluster({{"A", 160, 16, 2, 25, 1}, {"B", 80, 2, 1, 25, 1}}, 2);
  models::Node& node = cluster.nodes.front();
  node.gpu_types = {0, 1};
  node.nics.push_back(node.nics.front());  // One each.
  node.domains.clear();
  models::seal(cluster);
  return cluster;
}

TEST(Exhaustive, EqualsTheDumbEnumerationWhereDevicesOfANodeDiffer) {
  expect_enumeration(World(crooked_cluster(), tiny_model(3), 4, 512), "crooked");
}

/// Gradients cost little, so that plans of several pipelines win; GPUs of one type, of which only
/// the first two share a fast link.
TEST(Exhaustive, EqualsTheDumbEnumerationOnFastNetworks) {
  Rng rng(0xfa57);
  const auto any = [&](std::int64_t low, std::int64_t high) {
    return static_cast<int>(rng.integer(low, high));
  };
  int several = 0;
  for (int n = 0; n < 150; ++n) {
    const double memory = any(0, 1) == 0 ? 16 : 1.6;
    const double inside = any(0, 1) == 0 ? any(1, 4) : any(5, 400);
    const auto tflops = [&] { return static_cast<double>(any(2, 20)); };
    models::Cluster cluster = any(0, 2) == 0
                                  ? make_cluster({{"A", tflops(), memory, 3, inside, 1}}, 100)
                                  : make_cluster({{"A", tflops(), memory, 2, inside, 1},
                                                  {"B", tflops(), memory, 1, 25, 1}},
                                                 any(1, 200) / (any(0, 2) == 0 ? 100.0 : 1.0));
    if (cluster.nodes.size() == 1) {
      models::Node& node = cluster.nodes.front();
      node.domains.front().members = {0, 1};
      node.pcie.front().link = node.nics.front().link;
      models::seal(cluster);
    }
    World world(std::move(cluster), tiny_model(any(2, 3)), any(2, 6), 2048);
    world.job.allowed.max_micro_batch_size = any(1, 3);
    if (any(0, 3) == 0) world.job.allowed.zero_stages = {3};
    const PlannerResult result =
        expect_enumeration(world, "fast network " + std::to_string(n), any(0, 1) == 0 ? 1 : 6);
    const auto* plan = std::get_if<ir::Plan>(&result.outcome);
    several += plan != nullptr && plan->pipelines.size() > 1 ? 1 : 0;
  }
  EXPECT_GE(several, 20);
}

TEST(Exhaustive, EqualPipelinesMayHaveEqualSplits) {
  World world(make_cluster({{"A", 5, 1.8, 1, 100, 4}}, 400), tiny_model(4), 4, 2048);
  world.job.allowed.recompute = {ir::Recompute::none};
  world.job.allowed.max_micro_batch_size = 1;
  const PlannerResult result = expect_enumeration(world, "two by two", 1);
  const auto& plan = std::get<ir::Plan>(result.outcome);
  ASSERT_EQ(plan.pipelines.size(), 2U) << result.report.chosen;
  EXPECT_EQ(plan.pipelines[0].stages[0].segments[0].last_block,
            plan.pipelines[1].stages[0].segments[0].last_block)
      << result.report.chosen;
}

TEST(Exhaustive, InterchangeableDevicesShareANodeATypeAndTheirPaths) {
  const World family(make_cluster({{"A", 160, 16, 4, 25, 2}, {"B", 80, 2, 1, 25, 3}}, 2),
                     tiny_model(3), 4, 512);
  std::vector<std::size_t> sizes;
  for (const exhaustive::DeviceClass& same : exhaustive::device_classes(family.input())) {
    sizes.push_back(same.devices.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 4, 3}));  // The lone B are equal across nodes.
  const World crooked(crooked_cluster(), tiny_model(3), 4, 512);
  EXPECT_EQ(exhaustive::device_classes(crooked.input()).size(), 3U);
}

TEST(Exhaustive, AskingForAllPlansKeepsTheBest) {
  for (const std::uint64_t n : {1U, 3U, 8U, 13U}) {
    const auto world = tiny_world(n);
    if (world->cluster.size() > 4) continue;
    const Options one_wins = {{"most_plans", "100000000"}};
    const PlannerResult one = run_planner("exhaustive", world->input(), one_wins);
    const PlannerResult all = run_planner("exhaustive", world->input(),
                                          {{"most_plans", "100000000"}, {"evaluate_top", "0"}});
    EXPECT_EQ(estimate_of(one), estimate_of(all)) << n;
    EXPECT_GE(all.report.plans_examined, one.report.plans_examined) << n;
    EXPECT_FALSE(all.report.runners_up.empty()) << n;
  }
}

}  // namespace
}  // namespace orrery::planners::exhaustive_test
