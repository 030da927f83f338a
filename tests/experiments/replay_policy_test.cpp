// Do policies that flags name mean what a study, the flags' options and `all` say?
#include "experiments/study/replay_policy.h"

#include <gtest/gtest.h>

namespace orrery::experiments::replay_policy_test {
namespace {

const config::Position kNames{"--policy", 0, 0};
const config::Position kOptions{"--option", 0, 0};

std::vector<config::Located<ReplayPolicy>> named(
    const std::vector<std::string>& names, const std::map<std::string, std::string>& options = {}) {
  config::Diagnostics problems;
  auto policies = named_policies(names, kNames, options, kOptions, problems);
  EXPECT_TRUE(problems.empty());
  return policies;
}

/// "hetu(a=1)": names and options in order.
std::string text_of(const std::vector<config::Located<ReplayPolicy>>& policies) {
  std::string text;
  for (const auto& [policy, at] : policies) {
    text += (text.empty() ? "" : " ") + policy.shown();
    for (const auto& [name, value] : policy.options) text += "(" + name + "=" + value + ")";
  }
  return text;
}

/// What is wrong, by the flag that it is at.
std::string problems_of(const std::vector<std::string>& names,
                        const std::map<std::string, std::string>& options = {}) {
  config::Diagnostics problems;
  named_policies(names, kNames, options, kOptions, problems);
  std::string text;
  for (const config::Problem& problem : problems.problems()) text += to_string(problem) + "\n";
  return text;
}

TEST(ReplayPolicy, OptionsGoToWhomTheyName) {
  EXPECT_EQ(text_of(named({"hetu", "torchft"}, {{"torchft.spares", "take"}})),
            "hetu torchft(spares=take)");
  // Of `all`, to those that have it; its own counts more.
  EXPECT_EQ(text_of(named({"checkpoint_restart", "gemini", "torchft"},
                          {{"all.interval", "600"}, {"checkpoint_restart.interval", "60"}})),
            "checkpoint_restart(interval=60) gemini torchft");
  // One that is not named goes with `all`.
  EXPECT_EQ(text_of(named({"all"}, {{"torchft.spares", "take"}, {"all.spares", "leave"}})),
            "all(spares=leave) torchft(spares=take)");
  const auto everyone =
      expand_policies(named({"all"}, {{"torchft.spares", "take"}, {"all.spares", "leave"}}));
  EXPECT_GT(everyone.size(), 8u);
  std::map<std::string, std::string> spares;
  for (const auto& [policy, at] : everyone) {
    const auto given = policy.options.find("spares");
    spares[policy.name] = given == policy.options.end() ? "" : given->second;
  }
  EXPECT_EQ(spares.at("torchft"), "take");
  EXPECT_EQ(spares.at("recycle"), "leave");
  EXPECT_EQ(spares.at("hetu"), "");
}

TEST(ReplayPolicy, WhatIsWrongIsAtItsFlag) {
  EXPECT_EQ(problems_of({"hetu", "hetu"}), "--policy: 'hetu' appears twice\n");
  EXPECT_EQ(problems_of({}), "--policy: no policy is named\n");
  EXPECT_EQ(problems_of({"hetu"}, {{"torchft.spares", "take"}}),
            "--option: 'torchft' is not among the policies of --policy\n");
  EXPECT_NE(problems_of({"hetu"}, {{"spares", "take"}}).find("is not POLICY.NAME=VALUE"),
            std::string::npos);
  EXPECT_NE(problems_of({"hetu"}, {{"all.spare", "take"}}).find("no policy of --policy has"),
            std::string::npos);
}

TEST(ReplayPolicy, AStudysOptionsStayWithThePoliciesThatFlagsName) {
  config::Located<ReplayPolicy> all{{.name = "all", .options = {{"spares", "leave"}}}, {}};
  config::Located<ReplayPolicy> own{{.name = "torchft", .options = {{"spares", "take"}}}, {}};
  config::Located<ReplayPolicy> labeled{
      {.name = "torchft", .label = "short", .options = {{"spares", "leave"}}}, {}};
  const std::vector<config::Located<ReplayPolicy>> study = {own, labeled, all};
  EXPECT_EQ(text_of(as_in_file(named({"torchft"}), study)),
            "torchft(spares=take) short(spares=leave)");
  EXPECT_EQ(text_of(as_in_file(named({"recycle", "hetu"}), study)), "recycle(spares=leave) hetu");
  EXPECT_EQ(text_of(as_in_file(named({"torchft"}, {{"torchft.spares", "leave"}}), {own})),
            "torchft(spares=leave)");
  EXPECT_EQ(text_of(as_in_file(named({"all"}), study)),
            "torchft(spares=take) short(spares=leave) all(spares=leave)");
  EXPECT_EQ(text_of(as_in_file(named({"hetu"}), {})), "hetu");
}

}  // namespace
}  // namespace orrery::experiments::replay_policy_test
