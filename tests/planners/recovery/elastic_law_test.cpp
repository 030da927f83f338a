// Do the policies that lay out their own pipelines keep the contract on larger clusters, where
// several pipelines are hit, shadows take over and stages are rerouted?
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/planners/recovery/family.h"

namespace orrery::planners::elastic_law_test {
namespace {

struct Case {
  const char* policy;
  Options options;
};

class ElasticLaw : public testing::TestWithParam<Case> {
 protected:
  /// Nodes of one GPU; with little memory several of them are needed for the model.
  static std::unique_ptr<World> world() {
    auto result = equal_nodes({44, 48, 1, 2.9});
    result->job.allowed.schedules.push_back(ir::ScheduleKind::zero_bubble);
    return result;
  }
};

TEST_P(ElasticLaw, DecisionsKeepTheContractOnManyNodes) {
  const auto w = world();
  const PolicyInput input = policy_input(*w);
  const auto policy = make_policy(GetParam().policy, input, GetParam().options);
  ASSERT_NE(policy, nullptr);
  int resumed = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    JobLife life(*w, input, *policy);
    ASSERT_TRUE(life.state().training);
    RandomEvents events(w->cluster, seed);
    for (int i = 0; i < 40; ++i) {
      life.train(events.rng().integer(0, 100));
      const bool interrupted = events.rng().bernoulli(0.2);
      ASSERT_EQ(life.fire(events.next(life.state()), interrupted), "")
          << "seed " << seed << ", event " << i;
      if (life.decision().action == models::RecoveryDecision::Action::resume) ++resumed;
    }
  }
  EXPECT_GT(resumed, 20);
}

TEST_P(ElasticLaw, SingleLossesNeverRollBack) {
  const auto w = world();
  const PolicyInput input = policy_input(*w);
  const auto policy = make_policy(GetParam().policy, input, GetParam().options);
  ASSERT_NE(policy, nullptr);
  for (int lost = 0; lost < 44; lost += 3) {
    JobLife life(*w, input, *policy);
    life.train(70);
    ASSERT_EQ(life.fire(device_event(ir::EventKind::fail, lost)), "") << lost;
    if (life.decision().action == models::RecoveryDecision::Action::proceed) continue;
    EXPECT_EQ(life.decision().resume_iteration, 70) << lost;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ElasticLaw,
                         testing::Values(Case{"bamboo", {{"stages", "4"}}}, Case{"oobleck", {}},
                                         Case{"oobleck", {{"fault_threshold", "3"}}},
                                         Case{"parcae", {}}, Case{"recycle", {}},
                                         Case{"torchft", {}}),
                         [](const auto& one) {
                           return std::string(one.param.policy) +
                                  std::to_string(one.param.options.size()) +
                                  std::to_string(one.index);
                         });

}  // namespace
}  // namespace orrery::planners::elastic_law_test
