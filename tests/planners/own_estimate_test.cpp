// PlannerEntry::estimate, a planner's cost model on any plan: what the search itself said about its
// own plan, and a reason in words where the model cannot represent one.
#include <gtest/gtest.h>

#include "tests/planners/support.h"

namespace orrery::planners::own_estimate_test {
namespace {

std::variant<Seconds, models::Infeasible> estimate(const char* planner, const World& world,
                                                   const ir::Plan& plan) {
  PlannerInput input = world.input();
  input.devices = ir::devices_of(plan);
  return find_planner(planner)->estimate(input, plan);
}

TEST(OwnEstimate, OfThePlannersPlanIsWhatTheSearchReported) {
  const std::vector<std::vector<Machines>> clusters = {
      {{"A", 100, 40, 4, 100, 2}, {"B", 60, 24, 4, 50, 1}},
      {{"A", 100, 80, 2, 100, 2}},
  };
  int judged = 0;
  for (const auto& machines : clusters) {
    const World world(make_cluster(machines, 5), small_model(12), 16, 1024);
    for (const PlannerEntry* entry : catalog()) {
      if (entry->estimate == nullptr) continue;
      const PlannerResult result = run_planner(entry->name, world.input());
      const ir::Plan* plan = plan_of(result);
      ASSERT_NE(plan, nullptr) << entry->name;
      const auto own = estimate(entry->name, world, *plan);
      const Seconds* seconds = std::get_if<Seconds>(&own);
      ASSERT_NE(seconds, nullptr) << entry->name << ": " << std::get<1>(own).witness;
      EXPECT_NEAR(seconds->value, estimate_of(result), 1e-9 * estimate_of(result)) << entry->name;
      ++judged;
    }
  }
  EXPECT_EQ(judged, 8) << "autohet, hethub, hetu and metis on two clusters";
}

TEST(OwnEstimate, PlansOutsideOfTheModelHaveAReason) {
  const World world(make_cluster({{"A", 100, 80, 2, 100, 2}}, 5), small_model(12), 16, 1024);
  const PlannerResult found = run_planner("hetu", world.input());
  ASSERT_NE(plan_of(found), nullptr);
  ir::Plan two_groups = *plan_of(found);
  two_groups.pipelines.resize(1);
  auto& groups = two_groups.pipelines.front().stages.front().segments.front().groups;
  groups.push_back(groups.front());
  for (const char* planner : {"autohet", "hethub", "hetu"}) {
    const auto own = estimate(planner, world, two_groups);
    const auto* no = std::get_if<models::Infeasible>(&own);
    ASSERT_NE(no, nullptr) << planner;
    EXPECT_EQ(no->constraint, "not expressible");
    EXPECT_EQ(no->witness, "a stage of several groups");
  }
}

}  // namespace
}  // namespace orrery::planners::own_estimate_test
