// Are node sets that are equal up to a renaming planned once, and do renamed plans mean the same?
#include "planners/recovery/kit/replan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planners/catalog.h"
#include "planners/recovery/kit/node_classes.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::replan_test {
namespace {

using Devices = std::vector<DeviceId>;

/// Nodes of two: three A, two B; with `leaves` the first two A each on a leaf of their own.
models::Cluster five_nodes(bool leaves) {
  models::Cluster cluster = make_cluster({{"A", 100, 24, 2, 100, 3}, {"B", 60, 16, 2, 50, 2}}, 5);
  if (leaves) {
    cluster.nodes[0].leaf = 1;
    cluster.nodes[1].leaf = 2;
  }
  cluster.devices.clear();
  models::seal(cluster);
  return cluster;
}

Devices subset(const models::Cluster& cluster, unsigned mask) {
  Devices out;
  for (const models::Device& device : cluster.devices) {
    if (mask >> device.id.value & 1U) out.push_back(device.id);
  }
  return out;
}

/// Smallest set among all that a permutation of nodes, and of the two equal devices of each, makes
/// of this one.
Devices orbit_of(const models::Cluster& cluster, const Devices& devices,
                 const std::vector<std::vector<int>>& permutations) {
  Devices best;
  for (const std::vector<int>& to : permutations) {
    Devices moved;
    for (const DeviceId id : devices) {
      const models::Device& device = cluster.device(id);
      const DeviceId first{2 * to[device.node.index()]};
      const bool taken = std::find(moved.begin(), moved.end(), first) != moved.end();
      moved.push_back(taken ? DeviceId{first.value + 1} : first);
    }
    std::sort(moved.begin(), moved.end());
    if (best.empty() || moved < best) best = moved;
  }
  return best;
}

void expect_orbits(const models::Cluster& cluster,
                   const std::vector<std::vector<int>>& permutations) {
  const NodeClasses classes(cluster);
  std::map<Devices, Devices> canonical_of;  // By orbit.
  std::set<Devices> forms;
  for (unsigned mask = 1; mask < 1U << 10; ++mask) {
    const Devices devices = subset(cluster, mask);
    const NodeClasses::Canonical form = classes.canonical(devices);
    const Devices orbit = orbit_of(cluster, devices, permutations);
    ASSERT_EQ(orbit_of(cluster, form.devices, permutations), orbit) << "set " << mask;
    const auto [known, fresh] = canonical_of.try_emplace(orbit, form.devices);
    ASSERT_EQ(known->second, form.devices) << "set " << mask;
    forms.insert(form.devices);
    Devices back;
    for (const DeviceId device : form.devices) {
      const DeviceId to{form.back[device.index()]};
      const models::Device& a = cluster.device(device);
      const models::Device& b = cluster.device(to);
      EXPECT_EQ(a.gpu_type, b.gpu_type);
      back.push_back(to);
    }
    std::sort(back.begin(), back.end());
    ASSERT_EQ(back, devices) << "set " << mask;
  }
  EXPECT_EQ(forms.size(), canonical_of.size());
}

TEST(Replan, CanonicalSetsAreTheOrbitsOfNodePermutations) {
  std::vector<std::vector<int>> permutations;
  std::vector<int> a = {0, 1, 2};
  do {
    permutations.push_back({a[0], a[1], a[2], 3, 4});
    permutations.push_back({a[0], a[1], a[2], 4, 3});
  } while (std::next_permutation(a.begin(), a.end()));
  expect_orbits(five_nodes(false), permutations);
}

TEST(Replan, PositionsThatNoLinkTellsApartAreInterchangeable) {
  models::Cluster cluster = make_cluster({{"A", 100, 24, 4, 100, 1}}, 5);
  const auto without = [&](int lost) {
    Devices devices;
    for (const int d : {0, 1, 2, 3}) {
      if (d != lost) devices.push_back({d});
    }
    return NodeClasses(cluster).canonical(devices).devices;
  };
  EXPECT_EQ(without(0), without(3));
  const std::string link = cluster.nodes[0].nics[0].link;
  cluster.nodes[0].pcie = {{{0, 1}, link, ""}, {{2, 3}, link, ""}};
  EXPECT_EQ(without(0), without(1));
  EXPECT_EQ(without(2), without(3));
  EXPECT_NE(without(0), without(2)) << "switches as wholes are not exchanged";
}

TEST(Replan, EqualLeavesAreInterchangeableAsWholes) {
  // Nodes 0 and 1 are alone on leaves 1 and 2; node 2 shares leaf 0 with both B.
  std::vector<std::vector<int>> permutations;
  for (const auto& a : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
    permutations.push_back({a[0], a[1], 2, 3, 4});
    permutations.push_back({a[0], a[1], 2, 4, 3});
  }
  expect_orbits(five_nodes(true), permutations);
}

TEST(Replan, RenamedPlansAreValidAndTakeEquallyLong) {
  const auto world = recovery_world();
  PolicyInput input = policy_input(*world);
  std::int64_t searches = 0;
  input.searches = &searches;
  const Replanner replanner(input, "megatron_grid");
  const NodeClasses classes(world->cluster);
  std::map<Devices, double> time_of;  // By canonical set.
  Rng rng(1);
  for (int i = 0; i < 120; ++i) {
    Devices devices;
    for (const models::Device& device : world->cluster.devices) {
      if (rng.bernoulli(0.6)) devices.push_back(device.id);
    }
    if (devices.empty()) continue;
    const auto answer = replanner.plan_for(devices);
    const auto* plan = std::get_if<models::PlanPointer>(&answer);
    const Devices form = classes.canonical(devices).devices;
    const double time = plan == nullptr ? 0 : input.evaluator.evaluate(**plan).iteration_time.value;
    if (plan != nullptr) {
      ASSERT_EQ(plan_faults(*world, **plan, devices), "");
      EXPECT_EQ(std::get<models::PlanPointer>(replanner.plan_for(devices)), *plan);
    }
    const auto [known, fresh] = time_of.try_emplace(form, time);
    EXPECT_NEAR(known->second, time, 1e-12 * time);
  }
  EXPECT_EQ(searches, static_cast<std::int64_t>(time_of.size()));
  EXPECT_LT(searches, 120);
}

TEST(Replan, PlannersAnswerAsWithoutTheReplannerOnCanonicalSets) {
  const auto world = recovery_world();
  const PolicyInput input = policy_input(*world);
  const Replanner replanner(input, "megatron_grid");
  const Devices all = all_devices(world->cluster);
  PlannerInput asked = world->input();
  asked.devices = all;
  const auto direct = run_planner("megatron_grid", asked);
  EXPECT_EQ(*std::get<models::PlanPointer>(replanner.plan_for(all)),
            std::get<ir::Plan>(direct.outcome));
}

/// Counts what it had to search for.
class Notes final : public KnownSearches {
 public:
  FoundPlan plan(const std::string& question,
                 const std::function<FoundPlan()>& search) const override {
    const auto [known, fresh] = answers.try_emplace(question);
    if (fresh) known->second = search();
    return known->second;
  }
  mutable std::map<std::string, FoundPlan> answers;
};

TEST(Replan, PlansAreSearchedForOnceByAllWhoAskAlike) {
  const auto world = recovery_world();
  const Notes notes;
  const Devices all = all_devices(world->cluster);
  std::int64_t searches = 0;
  const auto ask = [&](const char* planner, const Options& options, std::uint64_t seed) {
    PolicyInput input = policy_input(*world);
    input.known_searches = &notes;
    input.searches = &searches;
    input.seed = seed;
    return std::get<models::PlanPointer>(Replanner(input, planner, options).plan_for(all));
  };
  const models::PlanPointer first = ask("megatron_grid", {}, 1);
  EXPECT_EQ(*ask("megatron_grid", {}, 2), *first);
  EXPECT_EQ(notes.answers.size(), 1u);
  EXPECT_EQ(searches, 2);  // As if nothing were known.
  ask("megatron_grid", {{"evaluate_top", "1"}}, 1);
  EXPECT_EQ(notes.answers.size(), 2u);
  ask("amp", {}, 1);
  EXPECT_EQ(notes.answers.size(), 3u);
}

TEST(Replan, WhoDoesNotDrawAnswersAlikeForEverySeed) {
  const auto world = recovery_world();
  for (const PlannerEntry* entry : catalog()) {
    if (entry->draws) continue;
    Options quick;
    if (std::string(entry->name) == "exhaustive") quick = {{"most_plans", "1000"}};
    PlannerInput input = world->input();
    input.seed = 1;
    const PlannerResult one = run_planner(entry->name, input, quick);
    input.seed = 99;
    const PlannerResult other = run_planner(entry->name, input, quick);
    ASSERT_EQ(one.outcome.index(), other.outcome.index()) << entry->name;
    const auto* plan = std::get_if<ir::Plan>(&one.outcome);
    if (plan == nullptr) continue;
    EXPECT_EQ(*plan, std::get<ir::Plan>(other.outcome)) << entry->name;
  }
}

Devices without(const Devices& devices, const std::set<int>& gone) {
  Devices out;
  for (const DeviceId device : devices) {
    if (!gone.contains(device.value)) out.push_back(device);
  }
  return out;
}

TEST(Replan, SparesTakeTheSamePlaceInAnEqualNode) {
  const auto world = recovery_world();  // Nodes 0 to 3 A, 4 and 5 B; devices 2 n and 2 n + 1.
  const ir::Plan plan = uniform_plan(*world, 2, 1, 2);  // On nodes 0 and 1.
  const Devices all = all_devices(world->cluster);
  const auto swapped = with_spares(plan, world->cluster, without(all, {1}));
  ASSERT_TRUE(swapped);
  EXPECT_EQ(ir::devices_of(*swapped), (Devices{{2}, {3}, {4}, {5}}));  // Node 2 for node 0.
  EXPECT_EQ(swapped->pipelines[0].stages[0].segments[0].groups[0].devices, (Devices{{4}, {5}}));
  EXPECT_EQ(world->defects(*swapped), "");
  EXPECT_EQ(*with_spares(plan, world->cluster, all), plan);
  // Two nodes lost, two of the kind are left; a third has no spare: B is of another kind.
  EXPECT_TRUE(with_spares(plan, world->cluster, without(all, {0, 2})));
  EXPECT_FALSE(with_spares(plan, world->cluster, without(all, {0, 2, 4})));
}

TEST(Replan, ANodeWithAnIdleDeviceMendsItself) {
  const auto world = recovery_world();
  const ir::Plan plan = uniform_plan(*world, 1, 1, 1);  // On device 0 alone.
  const auto swapped = with_spares(plan, world->cluster, without(all_devices(world->cluster), {0}));
  ASSERT_TRUE(swapped);
  EXPECT_EQ(ir::devices_of(*swapped), (Devices{{1}}));
}

TEST(Replan, UsableLeavesOutLeavingAndSlowDevices) {
  models::JobState state;
  state.live = {{0}, {1}, {2}, {5}};
  state.leaving = {{{1}, Instant{5}}};
  state.slow = {{{2}, 0.5}, {{5}, 0.9}};
  EXPECT_EQ(usable(state, 0), (Devices{{0}, {2}, {5}}));
  EXPECT_EQ(usable(state, 0.6), (Devices{{0}, {5}}));
  EXPECT_EQ(usable(state, 1), (Devices{{0}}));
  const auto world = recovery_world();
  EXPECT_EQ(whole_nodes(world->cluster, state.live), (Devices{{0}, {1}}));
}

}  // namespace
}  // namespace orrery::planners::replan_test
