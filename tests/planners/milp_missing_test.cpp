// What hexiscale_milp says in a build without a MILP solver.
#include <gtest/gtest.h>

#include "planners/kit/milp.h"
#include "tests/planners/family.h"

namespace orrery::planners::milp_missing_test {
namespace {

TEST(MilpMissing, TheProgramSaysWhatToInstall) {
  if (milp_available()) GTEST_SKIP() << "this build has a MILP solver";
  const PlannerResult result = run_planner("hexiscale_milp", tiny_world(1)->input());
  const auto& no = std::get<models::Infeasible>(result.outcome);
  EXPECT_EQ(no.constraint, "this build has no MILP solver");
  EXPECT_EQ(no.witness, "install coinor-libcbc-dev and configure again");
  EXPECT_FALSE(result.report.complete);
}

}  // namespace
}  // namespace orrery::planners::milp_missing_test
