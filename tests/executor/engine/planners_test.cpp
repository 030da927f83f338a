// Does the plan of every planner train as one device does, over 20 steps in both precisions? Each
// plans a small model on eight devices of two types, of one, and on some other clusters.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <variant>

#include "models/lower/lower.h"
#include "tests/executor/engine/equality_checks.h"
#include "tests/planners/support.h"

namespace orrery::executor::planners_test {
namespace {

constexpr int kSteps = 20;

planners::Options quick(const std::string& name) {
  if (name == "exhaustive") return {{"most_plans", "1000"}, {"most_structures", "5000"}};
  if (name == "hexiscale") return {{"rounds", "2"}};
  if (name == "hexiscale_milp") return {{"nodes", "20"}, {"variables", "2000"}};
  return {};
}

ir::Program expanded(const ir::Plan& plan, const planners::World& world) {
  models::LowerOptions options;
  options.collapsed = false;
  options.seed = 5;
  return models::lower(plan, world.cluster, world.workload, world.job, options);
}

/// At most eight devices; `memory` GiB each decide how much a plan must divide the model.
void expect_all_train(const std::vector<planners::Machines>& machines, const std::string& where,
                      std::set<std::string>& trained) {
  const models::Workload tiny = tiny_workload();
  planners::World world(planners::make_cluster(machines, 5), tiny.shape, kTinyBatch,
                        tiny.sequence_length);
  world.job.allowed.zero_stages = {0, 1, 2, 3};
  world.job.allowed.max_micro_batch_size = 4;
  std::map<std::string, ir::Program> programs;
  for (const planners::PlannerEntry* entry : planners::catalog()) {
    const auto result = planners::run_planner(entry->name, world.input(), quick(entry->name));
    const auto* plan = std::get_if<ir::Plan>(&result.outcome);
    if (plan == nullptr) continue;
    programs[entry->name] = expanded(*plan, world);
    ASSERT_TRUE(find_unsupported(programs[entry->name]).empty()) << entry->name << " on " << where;
    trained.insert(entry->name);
  }
  for (const Precision precision : {Precision::fp64, Precision::fp32}) {
    const TrainingOptions options = training(precision, kSteps);
    const TrainingRun expected =
        train(expanded(single_device_plan(world.workload), world), options);
    for (const auto& [planner, program] : programs) {
      expect_equal(
          train(program, options), expected, precision,
          planner + " on " + where + (precision == Precision::fp32 ? ", single" : ", double"));
    }
  }
}

TEST(EveryPlanner, TrainsAsOneDeviceDoes) {
  std::set<std::string> trained;
  expect_all_train({{"fast", 100, 24, 4, 100, 1}, {"slow", 40, 24, 4, 30, 1}}, "two types",
                   trained);
  expect_all_train({{"only", 100, 24, 4, 100, 2}}, "one type", trained);
  expect_all_train({{"single", 100, 24, 1, 100, 8}}, "eight nodes", trained);
  expect_all_train({{"fast", 100, 24, 1, 100, 1}, {"slow", 40, 24, 1, 30, 1}}, "two", trained);
  for (const planners::PlannerEntry* entry : planners::catalog()) {
    EXPECT_TRUE(trained.contains(entry->name)) << entry->name << " has no plan on any of them";
  }
}

}  // namespace
}  // namespace orrery::executor::planners_test
