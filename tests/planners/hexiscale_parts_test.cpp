// Building blocks of hexiscale against slow references.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "planners/hexiscale/costs.h"
#include "planners/hexiscale/layers.h"
#include "planners/hexiscale/order.h"
#include "planners/hexiscale/public_code.h"
#include "planners/kit/integers.h"
#include "planners/kit/partition_dp.h"
#include "planners/kit/plan_parts.h"
#include "tests/planners/support.h"

namespace orrery::planners::hexiscale_parts_test {
namespace {

std::vector<StageRate> arbitrary_stages(int most) {
  const int count = *rc::gen::inRange(1, most + 1);
  std::vector<StageRate> stages;
  for (int s = 0; s < count; ++s) {
    stages.push_back({Seconds{static_cast<double>(*rc::gen::inRange(1, 20)) / 7},
                      Seconds{static_cast<double>(*rc::gen::inRange(0, 30)) / 11},
                      *rc::gen::inRange(1, 25)});
  }
  return stages;
}

RC_GTEST_PROP(HexiscaleLayers, ByComputeEqualsTheExactDynamicProgram, ()) {
  const std::vector<StageRate> stages = arbitrary_stages(5);
  const int layers = *rc::gen::inRange(1, 25);
  const int micro_batches = *rc::gen::inRange(1, 12);
  const auto fast = assign_layers_by_compute(stages, layers, micro_batches);
  const auto slow = split_pipeline_time(
      layers, static_cast<int>(stages.size()), micro_batches, [&](int s, int first, int last) {
        const StageRate& stage = stages[s];
        const int count = last - first + 1;
        return count > stage.max_layers ? kNever : (stage.fixed + count * stage.per_layer).value;
      });
  RC_ASSERT(fast.has_value() == slow.has_value());
  if (!fast) return;
  RC_ASSERT(std::accumulate(fast->begin(), fast->end(), 0) == layers);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    RC_ASSERT((*fast)[s] >= 1 && (*fast)[s] <= stages[s].max_layers);
  }
  const double time = rate_time(stages, *fast, micro_batches).value;
  RC_ASSERT(std::abs(time - slow->cost) <= 1e-9 * slow->cost);
}

RC_GTEST_PROP(HexiscaleLayers, ByMemorySharesAllLayersWithinTheLimits, ()) {
  const std::vector<StageRate> stages = arbitrary_stages(6);
  const int layers = *rc::gen::inRange(1, 40);
  std::vector<Bytes> memory;
  for (std::size_t s = 0; s < stages.size(); ++s)
    memory.push_back(*rc::gen::inRange(1, 90) * 1_GiB);
  const auto counts = assign_layers_by_memory(stages, memory, layers);
  if (!counts) return;
  RC_ASSERT(std::accumulate(counts->begin(), counts->end(), 0) == layers);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    RC_ASSERT((*counts)[s] >= 1 && (*counts)[s] <= stages[s].max_layers);
  }
}

TEST(HexiscaleLayers, ByMemoryFollowsTheMemory) {
  const StageRate stage{1_s, 0_s, 100};
  const std::vector<StageRate> stages(3, stage);
  const std::vector<Bytes> memory = {80_GiB, 24_GiB, 16_GiB};
  EXPECT_EQ(assign_layers_by_memory(stages, memory, 31), (std::vector<int>{21, 6, 4}));
}

RC_GTEST_PROP(HexiscaleLayers, BalancedBatchesEqualBruteForce, ()) {
  const int count = *rc::gen::inRange(1, 5);
  const int total = *rc::gen::inRange(1, 15);
  std::vector<PipelineRate> rates;
  for (int p = 0; p < count; ++p) {
    rates.push_back({Seconds{static_cast<double>(*rc::gen::inRange(1, 50))},
                     Seconds{static_cast<double>(*rc::gen::inRange(1, 20))}});
  }
  const auto longest = [&](const std::vector<int>& counts) {
    double worst = 0;
    for (std::size_t p = 0; p < rates.size(); ++p) {
      worst = std::max(worst, (rates[p].fill + (counts[p] - 1) * rates[p].period).value);
    }
    return worst;
  };
  const auto found = balance_micro_batches(rates, total);
  RC_ASSERT(found.has_value() == (total >= count));
  if (!found) return;
  double best = kNever;
  for_each_composition(total, count, 1, [&](const std::vector<int>& counts) {
    best = std::min(best, longest(counts));
    return true;
  });
  RC_ASSERT(std::accumulate(found->begin(), found->end(), 0) == total);
  RC_ASSERT(longest(*found) == best);
}

GroupLinks arbitrary_links() {
  GroupLinks links;
  links.groups = *rc::gen::inRange(1, 7);
  for (int a = 0; a < links.groups; ++a) {
    for (int b = 0; b < links.groups; ++b) {
      const int bandwidth = *rc::gen::inRange(1, 10);
      links.bandwidth.push_back(bandwidth);
      links.hop.push_back(1.0 / bandwidth);
    }
  }
  return links;
}

double path_cost(const GroupLinks& links, const std::vector<int>& path) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    sum += links.hop[path[i] * links.groups + path[i + 1]];
  }
  return sum;
}

RC_GTEST_PROP(HexiscaleOrder, AllNeighborsFindTheShortestPathFromEachStart, ()) {
  const GroupLinks links = arbitrary_links();
  const auto paths = top_tau_paths(links, links.groups);
  RC_ASSERT(static_cast<int>(paths.size()) == links.groups);
  for (int start = 0; start < links.groups; ++start) {
    std::vector<int> order(links.groups);
    std::iota(order.begin(), order.end(), 0);
    double best = kNever;
    do {
      if (order.front() == start) best = std::min(best, path_cost(links, order));
    } while (std::next_permutation(order.begin(), order.end()));
    const auto& found = paths[start];
    RC_ASSERT(found.front() == start);
    RC_ASSERT(std::is_permutation(found.begin(), found.end(), order.begin(), order.end()));
    RC_ASSERT(std::abs(path_cost(links, found) - best) <= 1e-12);
  }
}

TEST(HexiscaleOrder, OneNeighborIsTheGreedyPath) {
  // From 0 the fastest link leads to 2, from there to 1.
  const GroupLinks links{3, {0, 1, 5, 1, 0, 4, 5, 4, 0}, {0, 1, .2, 1, 0, .25, .2, .25, 0}};
  EXPECT_EQ(top_tau_paths(links, 1).front(), (std::vector<int>{0, 2, 1}));
}

TEST(HexiscaleOrder, PublicCodeTakesTheLastPathAndTheSlowestStart) {
  const GroupLinks links{3, {0, 1, 5, 1, 0, 4, 5, 4, 0}, {0, 1, .2, 1, 0, .25, .2, .25, 0}};
  // Largest paths: 0 2 1 (9), 1 2 0 (9), 2 1 0 (5).
  EXPECT_EQ(last_path_public(links, 2), (std::vector<std::vector<int>>{{2, 1, 0}}));
}

/// Two stages on machines of different types, so that the verdict names each of them: `layers` on
/// stage `which`, the rest on the other one.
ir::Plan two_stages(const World& world, const HexiscaleCosts& costs, int which, int layers) {
  const int first = which == 0 ? layers : costs.layers() - layers;
  ir::Pipeline chain;
  chain.micro_batches = static_cast<int>(world.job.global_batch);
  int device = 0;
  for (const auto& [start, count] : {std::pair{0, first}, {first, costs.layers() - first}}) {
    const int gpus = static_cast<int>(
        world.cluster.devices_of(world.cluster.device(DeviceId{device}).node).size());
    ir::Segment segment = segment_of_layers(world.workload, start, count);
    ir::Group group;
    group.tensor_parallel = gpus;
    for (int g = 0; g < gpus; ++g) group.devices.push_back(DeviceId{device++});
    segment.groups = {group};
    segment.recompute = costs.recompute();
    segment.zero.stage = costs.zero_stage();
    chain.stages.push_back({{segment}});
  }
  ir::Plan plan;
  plan.schedule = costs.schedule();
  plan.pipelines = {chain};
  return plan;
}

RC_GTEST_PROP(HexiscaleCosts, MaxLayersIsTheMostThatCheckMemoryAccepts, ()) {
  const auto machine = [](const char* name) {
    return Machines{name,
                    100,
                    static_cast<double>(*rc::gen::inRange(20, 60)) / 10,
                    1 << *rc::gen::inRange(0, 3),
                    100,
                    1};
  };
  World world(make_cluster({machine("A"), machine("B")}, 5), small_model(40),
              *rc::gen::inRange(1, 9), 1024);
  world.job.allowed.zero_stages = {*rc::gen::inRange(0, 4)};
  if (*rc::gen::arbitrary<bool>()) world.job.allowed.recompute = {ir::Recompute::none};
  if (*rc::gen::arbitrary<bool>()) world.job.allowed.schedules = {ir::ScheduleKind::gpipe};
  const PlannerInput input = world.input();
  HexiscaleSettings settings;
  settings.micro_batch_size = 1;
  const HexiscaleCosts costs(input, settings);
  for (int which = 0; which < 2; ++which) {
    const std::vector<DeviceId> group = world.cluster.devices_of(NodeId{which});
    HexiscaleCosts::Place place;
    place.first = which == 0;
    place.last = which == 1;
    place.in_flight = models::micro_batches_in_flight(costs.schedule(), 2, which,
                                                      static_cast<int>(world.job.global_batch), 1);
    const int most = costs.max_layers(group, place);
    const auto fits = [&](int layers) {
      const ir::Plan plan = two_stages(world, costs, which, layers);
      return world.verdict(plan).by_gpu_type[which].fits();
    };
    if (most >= 1 && most < costs.layers()) RC_ASSERT(fits(most));
    // Staging counts as if the stage received and sent, hence the second layer.
    if (most + 2 < costs.layers()) RC_ASSERT(!fits(most + 2));
  }
}

}  // namespace
}  // namespace orrery::planners::hexiscale_parts_test
