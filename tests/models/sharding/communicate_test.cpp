/// The classification of Hetu v2's section 4, case by case.
#include "models/sharding/communicate.h"

#include <gtest/gtest.h>

namespace orrery::models::testing::communicate_test {
namespace {

using Steps = std::vector<CommunicationStep>;

const Shape kShape{8, 8};
constexpr AxisShards kP2{kPartial, 2};
constexpr AxisShards kD2{kDuplicate, 2};

Annotation one(std::vector<int> devices, DistributedStates states) {
  return {{{std::move(devices), std::move(states)}}, kDuplicate, {}};
}

Annotation two(const Subgroup& a, const Subgroup& b, Axis hetero_axis) {
  return {{a, b}, hetero_axis, {}};
}

/// "AR 0,2 1,3; SplitAR ..." with the groups of each step; "!" and the reason's rule when refused.
std::string show(const Annotation& from, const Annotation& to) {
  const auto result = communicate(from, to, kShape);
  if (const auto* refusal = std::get_if<Refusal>(&result)) {
    return "! " + refusal->reason;
  }
  std::string text;
  for (const auto& step : std::get<Steps>(result)) {
    if (!text.empty()) text.append("; ");
    text.append(to_string(step.kind));
    for (const auto& group : groups(step)) {
      text.append(" ");
      for (std::size_t i = 0; i < group.size(); ++i) {
        text.append(i == 0 ? "" : ",").append(std::to_string(group[i]));
      }
    }
  }
  return text;
}

TEST(Communicate, BottomTierWithEqualStatesIsIdentityOrSendReceive) {
  EXPECT_EQ(show(one({0, 1}, {{0, 2}}), one({0, 1}, {{0, 2}})), "identity");
  EXPECT_EQ(show(one({0, 1}, {{0, 2}}), one({2, 3}, {{0, 2}})), "SR 0,2 1,3");
  EXPECT_EQ(show(one({0, 1}, {kP2}), one({0, 3}, {kP2})), "SR 1,3");
}

TEST(Communicate, BottomTierUsesCollectivesWhereTheGroupStays) {
  EXPECT_EQ(show(one({0, 1, 2, 3}, {kP2, {1, 2}}), one({0, 1, 2, 3}, {kD2, {1, 2}})), "AR 0,2 1,3");
  EXPECT_EQ(show(one({0, 1}, {kP2}), one({0, 1}, {{0, 2}})), "RS 0,1");
  EXPECT_EQ(show(one({0, 1}, {{0, 2}}), one({0, 1}, {kD2})), "AG 0,1");
  EXPECT_EQ(show(one({0, 1}, {kD2}), one({0, 1}, {{0, 2}})), "identity");
}

TEST(Communicate, BottomTierFallsBackToBatchedSends) {
  EXPECT_EQ(show(one({0, 1}, {{0, 2}}), one({0, 1}, {{1, 2}})), "BSR 0,1 1,0");
  EXPECT_EQ(show(one({0, 1}, {{0, 2}}), one({2}, {})), "BSR 0,2 1,2");
}

TEST(Communicate, SubgroupsResolveOneByOne) {
  EXPECT_EQ(show(two({{0, 3}, {kP2}}, {{5}, {}}, 0), two({{0, 3}, {{1, 2}}}, {{6}, {}}, 0)),
            "RS 0,3; SR 5,6");
}

TEST(Communicate, TopTierUsesSplitCollectivesOverFinestSlices) {
  const Subgroup wide{{0, 1}, {{1, 2}}};
  const Subgroup narrow{{2}, {}};
  EXPECT_EQ(show(two(wide, narrow, kPartial), two(wide, narrow, kDuplicate)), "SplitAR 0,2 1,2");
  EXPECT_EQ(show(two(wide, narrow, kPartial), two(wide, narrow, 0)), "SplitRS 0,2 1,2");
  EXPECT_EQ(show(two(wide, narrow, 0), two(wide, narrow, kDuplicate)), "SplitAG 0,2 1,2");
  EXPECT_EQ(show(two(wide, narrow, kDuplicate), two(wide, narrow, 0)), "identity");
  EXPECT_EQ(show(two(wide, narrow, 0), two(wide, narrow, 1)), "BSR 0,1 1,2 2,0 2,1");
}

/// Figure 7: reduce-scatter in one subgroup, identity in the other, then SplitAR.
TEST(Communicate, TheBottomTierGoesFirstWhereBothChange) {
  const auto from = two({{0, 1}, {kP2}}, {{2}, {}}, kPartial);
  const auto to = two({{0, 1}, {{0, 2}}}, {{2}, {}}, kDuplicate);
  EXPECT_EQ(show(from, to), "RS 0,1; identity; SplitAR 0,2 1,2");
  const auto steps = std::get<Steps>(communicate(from, to, kShape));
  EXPECT_EQ(steps[0].tier, Tier::bottom);
  EXPECT_EQ(steps[0].phase, 0);
  EXPECT_EQ(steps[2].tier, Tier::top);
  EXPECT_EQ(steps[2].phase, 1);
}

TEST(Communicate, OtherChangesAreBatchedSends) {
  EXPECT_EQ(show(two({{0}, {}}, {{1}, {}}, 0), one({0, 1, 2}, {{kDuplicate, 3}})),
            "BSR 0,1 0,2 1,0 1,2");
  EXPECT_EQ(show(two({{0}, {}}, {{1}, {}}, 0), two({{0}, {}}, {{2}, {}}, kDuplicate)),
            "BSR 0,2 1,0 1,2");
}

TEST(Communicate, PartialAcrossChangedGroupsIsRefused) {
  EXPECT_EQ(show(two({{0}, {}}, {{1}, {}}, kPartial), one({0, 1}, {kD2})),
            "! Partial, and the number of subgroups changes: sends cannot add ({0}: - | {1}: -; "
            "HDim -2 to {0,1}: D x 2)");
  EXPECT_EQ(show(one({0, 1}, {kP2}), one({2, 3}, {kD2})),
            "! subgroup 0 holds 2 summands, which sends cannot add on other devices");
  EXPECT_EQ(show(one({0, 1, 2, 3}, {{kPartial, 4}}), one({0, 1, 2, 3}, {kD2, {0, 2}})),
            "! subgroup 0 holds 4 summands, and neither AR, RS nor AG leads to its states");
  EXPECT_EQ(show(one({0, 1}, {kD2}), one({0, 1}, {kP2})),
            "! subgroup 0 would need 2 summands, it has 1");
  EXPECT_EQ(show(two({{0}, {}}, {{1}, {}}, 0), two({{0}, {}}, {{1}, {}}, kPartial)),
            "! the subgroups would need summands, they hold none");
}

TEST(Communicate, InvalidAnnotationsAreRefused) {
  EXPECT_EQ(show(one({0, 1, 2}, {{0, 3}}), one({0}, {})),
            "! source: subgroup 0: 3 shards do not divide the 8 of dimension 0");
}

}  // namespace
}  // namespace orrery::models::testing::communicate_test
