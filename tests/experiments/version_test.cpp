#include "experiments/study/version.h"

#include <gtest/gtest.h>

#include <string>

#include "models/config/document.h"
#include "planners/catalog.h"
#include "planners/recovery/catalog.h"

namespace orrery::experiments::version_test {
namespace {

using config::Value;

Value settings(const std::string& yaml) {
  config::Diagnostics problems;
  Value value = config::load_value_text(yaml, "settings", problems);
  problems.raise();
  return value;
}

TEST(Version, EveryPlannerAndPolicyIsAPartOfTheCode) {
  for (const planners::PlannerEntry* entry : planners::catalog()) {
    const CodeParts parts = parts_of_planner(entry->name);
    EXPECT_TRUE(parts.contains(std::string("planner ") + entry->name)) << entry->name;
  }
  for (const planners::RecoveryEntry* entry : planners::recovery_catalog()) {
    const CodeParts parts = parts_named_in(Value::scalar(entry->name));
    EXPECT_TRUE(parts.contains(std::string("policy ") + entry->name)) << entry->name;
  }
}

TEST(Version, OfARunCoversWhatItsSettingsName) {
  EXPECT_EQ(parts_named_in(settings("{planner: {name: metis, options: {}}, model: gpt3_125m}")),
            CodeParts{"planner metis"});
  EXPECT_EQ(parts_named_in(settings("{policy: {name: unicron, options: {planner: alpa}}}")),
            (CodeParts{"planner alpa", "policy unicron"}));
  EXPECT_EQ(parts_named_in(settings("{plan: plan.yaml, seeds: [1, 2]}")), CodeParts{});
}

TEST(Version, DiffersByItsParts) {
  const std::string shared = version_of({});
  const std::string metis = version_of({"planner metis"});
  EXPECT_NE(shared, metis);
  EXPECT_NE(metis, version_of({"planner alpa"}));
  EXPECT_NE(program_version(), metis);
  EXPECT_EQ(metis, version_of(parts_of_planner("metis")));
  EXPECT_NE(version_of({"module 1"}), version_of({"module 2"}));
  EXPECT_EQ(shared.find('+'), std::string(kVersionNumber).size());
}

TEST(Version, OfAPlannerThatAsksAllOthersCoversAllOthers) {
  EXPECT_EQ(parts_of_planner("orrery"), all_parts());
  EXPECT_LT(parts_of_planner("hexiscale_milp").size(), all_parts().size());
}

}  // namespace
}  // namespace orrery::experiments::version_test
