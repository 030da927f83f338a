// Does the example of docs/howto/recovery-policy.md compile, appear in the catalog and recover?
// That it keeps the contract is tested by policy_law_test.cpp, which is linked into the same
// program.
#include <gtest/gtest.h>

#include "tests/planners/recovery/family.h"

namespace orrery::planners::howto_test {
namespace {

constexpr const char* kExample = "plain_restart";

TEST(RecoveryGuide, ItsExampleStandsInTheCatalog) {
  const RecoveryEntry* entry = find_policy(kExample);
  ASSERT_NE(entry, nullptr);
  EXPECT_STREQ(entry->name, kExample);
}

TEST(RecoveryGuide, ItsExampleResumesFromTheCheckpointOnWhatIsLeft) {
  const auto world = recovery_world();
  const PolicyInput input = policy_input(*world);
  const auto policy = make_policy(kExample, input, {{"detect", "7"}});
  ASSERT_NE(policy, nullptr);
  JobLife life(*world, input, *policy);
  ASSERT_TRUE(life.state().training);
  life.train(90);
  const DeviceId used = ir::working_devices(*life.state().plan).front();
  ASSERT_EQ(life.fire(node_event(ir::EventKind::fail, world->cluster.device(used).node.value)), "");
  const models::RecoveryDecision& decision = life.decision();
  EXPECT_EQ(decision.action, models::RecoveryDecision::Action::resume);
  EXPECT_GT(decision.resume_iteration, 0) << "not from a checkpoint";
  EXPECT_LT(decision.resume_iteration, 90) << "GPU memory is not what it reads";
  ASSERT_FALSE(decision.phases.empty());
  EXPECT_EQ(decision.phases.front().kind, models::RecoveryPhase::Kind::detect);
  EXPECT_EQ(decision.phases.front().duration, to_nanoseconds(Seconds{7}));
}

}  // namespace
}  // namespace orrery::planners::howto_test
