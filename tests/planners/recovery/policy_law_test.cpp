// Does every policy of the catalog keep the contract of RecoveryDecision, whatever happens?
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "planners/recovery/kit/phases.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::policy_law_test {
namespace {

class PolicyLaw : public testing::TestWithParam<const RecoveryEntry*> {};

std::string in_words(const ir::ClusterEvent& event) {
  std::string text = "kind " + std::to_string(static_cast<int>(event.kind)) + " scope " +
                     std::to_string(static_cast<int>(event.scope.kind));
  for (const DeviceId device : event.scope.devices)
    text += " device " + std::to_string(device.value);
  if (event.scope.node.valid()) text += " node " + std::to_string(event.scope.node.value);
  return text;
}

TEST_P(PolicyLaw, DecisionsKeepTheContractUnderRandomEvents) {
  const auto world = recovery_world();
  const PolicyInput input = policy_input(*world);
  constexpr int kLives = 20;
  constexpr int kEvents = 25;
  for (std::uint64_t seed = 0; seed < kLives; ++seed) {
    const auto policy = make_policy(GetParam()->name, input);
    ASSERT_NE(policy, nullptr);
    JobLife life(*world, input, *policy);
    ASSERT_TRUE(life.state().training) << "no first plan";
    ASSERT_EQ(plan_faults(*world, *life.state().plan, life.state().live), "");
    RandomEvents events(world->cluster, seed);
    std::string history;
    for (int i = 0; i < kEvents; ++i) {
      if (life.state().training) {
        const auto levels = policy->checkpoints(*life.state().plan, life.state().iteration_time);
        ASSERT_EQ(level_faults(*world, *life.state().plan, levels), "");
      }
      life.train(events.rng().integer(0, 100));
      const bool interrupted = events.rng().bernoulli(0.2);
      const ir::ClusterEvent event = events.next(life.state());
      history += in_words(event) + (interrupted ? " (interrupted)\n" : "\n");
      ASSERT_EQ(life.fire(event, interrupted), "") << "seed " << seed << "\n" << history;
    }
  }
}

TEST_P(PolicyLaw, WithoutAnyDeviceItWaits) {
  const auto world = recovery_world(true);
  const PolicyInput input = policy_input(*world);
  const auto policy = make_policy(GetParam()->name, input);
  ASSERT_NE(policy, nullptr);
  JobLife life(*world, input, *policy);
  life.train(50);
  for (int node = 0; node < 4; ++node) {
    ASSERT_EQ(life.fire(node_event(ir::EventKind::fail, node)), "");
  }
  EXPECT_EQ(life.decision().action, models::RecoveryDecision::Action::wait);
  for (int node = 0; node < 4; ++node) {
    ASSERT_EQ(life.fire(node_event(ir::EventKind::join, node)), "");
  }
  EXPECT_TRUE(life.state().training) << "it did not come back";
}

TEST_P(PolicyLaw, UnknownOptionsAreRefusedAndDefaultsAreValid) {
  const auto world = recovery_world(true);
  const PolicyInput input = policy_input(*world);
  EXPECT_FALSE(GetParam()->check({{"no_such_option", "1"}}).empty());
  Options defaults;
  for (const OptionInfo& info : GetParam()->options()) {
    EXPECT_NE(std::string(info.doc), "") << info.name;
    defaults.emplace_back(info.name, info.default_value);
  }
  EXPECT_NE(make_policy(GetParam()->name, input, defaults), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Catalog, PolicyLaw,
                         testing::ValuesIn(recovery_catalog().begin(), recovery_catalog().end()),
                         [](const auto& entry) { return std::string(entry.param->name); });

TEST_P(PolicyLaw, PhasesHaveOneNameFollowTheRuntimeAndNameTheSourceOfWhatWasPublished) {
  std::map<std::string, OptionInfo> options;
  for (const OptionInfo& info : GetParam()->options()) {
    EXPECT_TRUE(options.emplace(info.name, info).second) << info.name << " twice";
  }
  const Phases phases;
  const std::map<std::string, Stall> shared = {{"detect", phases.detect},
                                               {"detect_exception", phases.detect_exception},
                                               {"decide", phases.decide},
                                               {"reinitialize", phases.reinitialize},
                                               {"restart", kRestart}};
  for (const auto& [name, common] : shared) {
    const auto own = options.find(name);
    if (own == options.end()) {
      EXPECT_EQ(name, "restart") << "no option " << name;
      continue;
    }
    EXPECT_EQ(own->second.default_value, "auto") << name;
    const std::string doc = own->second.doc;
    if (doc.starts_with(common.source)) continue;
    EXPECT_NE(doc.find('['), std::string::npos) << name << " names no source: " << doc;
  }
}

TEST(RecoveryCatalog, NamesAreUniqueSortedAndFound) {
  std::string last;
  for (const RecoveryEntry* entry : recovery_catalog()) {
    EXPECT_LT(last, entry->name);
    last = entry->name;
    EXPECT_EQ(find_policy(entry->name), entry);
    for (const char* text : {entry->source, entry->recovers, entry->needs, entry->loses,
                             entry->slow, entry->deviations}) {
      EXPECT_NE(std::string(text), "") << entry->name;
    }
  }
  EXPECT_EQ(find_policy("none"), nullptr);
}

}  // namespace
}  // namespace orrery::planners::policy_law_test
