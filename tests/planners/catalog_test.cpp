#include "planners/catalog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "tests/planners/support.h"

namespace orrery::planners::catalog_test {
namespace {

TEST(Catalog, NamesAreDistinctAndFound) {
  std::set<std::string> names;
  for (const PlannerEntry* entry : catalog()) {
    EXPECT_TRUE(names.insert(entry->name).second) << entry->name;
    EXPECT_EQ(find_planner(entry->name), entry);
    for (const char* text : {entry->source, entry->searches, entry->ignores}) {
      EXPECT_NE(std::string(text), "") << entry->name;
    }
  }
  EXPECT_EQ(names.size(), planner_names().size());
  EXPECT_TRUE(names.count("megatron_grid") == 1 && names.count("hexiscale") == 1);
  EXPECT_EQ(find_planner("hexascale"), nullptr);
}

TEST(Catalog, EveryDefaultParses) {
  for (const PlannerEntry* entry : catalog()) {
    Options all;
    for (const OptionInfo& info : entry->options()) {
      EXPECT_NE(std::string(info.doc), "") << entry->name << " " << info.name;
      all.emplace_back(info.name, info.default_value);
      EXPECT_TRUE(entry->check({all.back()}).empty()) << entry->name << " " << info.name;
    }
    EXPECT_TRUE(entry->check(all).empty()) << entry->name;
    EXPECT_TRUE(entry->check({}).empty()) << entry->name;
  }
}

TEST(Catalog, TensorParallelDegreesThatAreNoPowerOfTwoAreProblems) {
  for (const char* name : {"hetu", "hexiscale"}) {
    const config::Diagnostics found = find_planner(name)->check({{"tensor_parallel", "3"}});
    ASSERT_EQ(found.problems().size(), 1u) << name;
    EXPECT_EQ(found.problems().front().at.file, "tensor_parallel") << name;
    EXPECT_EQ(found.problems().front().what, "3 is not a power of two") << name;
  }
}

TEST(Catalog, NoOptionTakesNonsense) {
  for (const PlannerEntry* entry : catalog()) {
    for (const OptionInfo& info : entry->options()) {
      for (const char* value : {"", "-1", "no such value", "1e999", "4x"}) {
        const config::Diagnostics found = entry->check({{info.name, value}});
        ASSERT_FALSE(found.empty()) << entry->name << " " << info.name << ": " << value;
        EXPECT_EQ(found.problems().front().at.file, info.name);
        EXPECT_NE(found.problems().front().what, "");
      }
    }
  }
}

TEST(Catalog, UnknownOptionAnswersWithTheValidOnes) {
  for (const PlannerEntry* entry : catalog()) {
    const config::Diagnostics found = entry->check({{"qqqqqqqq", "3"}});
    ASSERT_FALSE(found.empty()) << entry->name;
    EXPECT_EQ(found.problems().front().at.file, "qqqqqqqq");
    const std::string& hint = found.problems().front().hint;
    for (const OptionInfo& info : entry->options()) {
      EXPECT_NE(hint.find(info.name), std::string::npos) << hint;
    }
  }
}

TEST(Catalog, EveryPlannerSignsValidPlansThatFit) {
  World world(make_cluster({{"X", 300, 80, 4, 200, 2}, {"Y", 100, 40, 2, 32, 2}}, 5),
              small_model(16), 32, 1024);
  world.job.allowed.zero_stages = {0, 3};  // One planner is ZeRO-3.
  for (const PlannerEntry* entry : catalog()) {
    const PlannerResult result = run_planner(entry->name, world.input());
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome)) << entry->name;
    const auto& plan = std::get<ir::Plan>(result.outcome);
    EXPECT_EQ(world.defects(plan), "") << entry->name;
    EXPECT_TRUE(world.verdict(plan).fits()) << entry->name;
    EXPECT_EQ(plan.planner, entry->name);
    EXPECT_EQ(plan.cluster_hash, world.cluster.hash);
    EXPECT_EQ(plan.workload_hash, world.workload.hash);
    ASSERT_TRUE(plan.predicted && result.report.estimate) << entry->name;
    EXPECT_EQ(plan.predicted->iteration_time, *result.report.estimate);
    EXPECT_GT(plan.predicted->peak_memory.value, 0);
    EXPECT_GT(result.report.plans_examined, 0);
    EXPECT_GT(result.report.work, 0);
    EXPECT_NE(result.report.work_unit, "");
    // Twelve GPUs are beyond the default budgets of the exact searches.
    const std::set<std::string> exact = {"exhaustive", "hexiscale_milp"};
    EXPECT_TRUE(result.report.complete || exact.contains(entry->name)) << entry->name;
  }
}

/// Planners that examine many plans.
constexpr const char* kSearches[] = {"megatron_grid", "hexiscale"};

/// Passes on to another evaluator, but for what a test changes.
class Wrapped : public models::Evaluator {
 public:
  explicit Wrapped(const models::Evaluator& inner) : inner_(inner) {}
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    ++asked;
    if (cancel != nullptr) *cancel = true;
    models::Evaluation result = inner_.evaluate(plan);
    if (asked <= reject) {
      result.memory.by_gpu_type = {{"X", DeviceId{0}, 0, 0, 2_GiB, 1_GiB}};
    }
    return result;
  }
  std::string name() const override { return "wrapped"; }
  mutable int asked = 0;
  int reject = 0;
  std::atomic<bool>* cancel = nullptr;

 private:
  const models::Evaluator& inner_;
};

PlannerInput with_evaluator(const World& world, const models::Evaluator& evaluator) {
  return {world.cluster, world.topology, world.workload,       world.job,
          world.profile, evaluator,      world.input().devices};
}

TEST(Searches, PlansThatTheEvaluatorRejectsAreNotReturned) {
  const World world(make_cluster({{"X", 300, 80, 4, 200, 2}}, 5), small_model(8), 32, 1024);
  for (const char* name : kSearches) {
    Wrapped evaluator(world.input().evaluator);
    evaluator.reject = 2;
    const auto some = run_planner(name, with_evaluator(world, evaluator));
    EXPECT_TRUE(std::holds_alternative<ir::Plan>(some.outcome)) << name;
    EXPECT_GT(evaluator.asked, 2);
    evaluator.reject = 1'000'000;
    const auto none = run_planner(name, with_evaluator(world, evaluator));
    ASSERT_TRUE(std::holds_alternative<models::Infeasible>(none.outcome)) << name;
    EXPECT_NE(std::get<models::Infeasible>(none.outcome).witness.find("needs 2.0 GiB"),
              std::string::npos);
  }
}

TEST(Searches, CtrlCWhileTheEvaluatorRunsKeepsTheBestSoFar) {
  const World world(make_cluster({{"X", 300, 80, 4, 200, 2}}, 5), small_model(8), 32, 1024);
  for (const char* name : kSearches) {
    std::atomic<bool> canceled = false;
    Wrapped evaluator(world.input().evaluator);
    evaluator.cancel = &canceled;
    PlannerInput input = with_evaluator(world, evaluator);
    input.canceled = &canceled;
    const auto result = run_planner(name, input);
    EXPECT_TRUE(std::holds_alternative<ir::Plan>(result.outcome)) << name;
    EXPECT_EQ(evaluator.asked, 1) << name;
    EXPECT_FALSE(result.report.complete) << name;
  }
}

}  // namespace
}  // namespace orrery::planners::catalog_test
