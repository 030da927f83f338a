// Who fetches what from where: every needed unit comes from exactly one place, the nearest that has
// it, in the newest version that is complete.
#include <gtest/gtest.h>
// gtest first: rapidcheck's printers need it.
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "executor/launcher/inventory.h"
#include "executor/net/message.h"

namespace orrery::executor::inventory_test {
namespace {

constexpr std::int64_t kUnits = 6;

StateOffer memory(StateVersion version, std::int64_t begin, std::int64_t end) {
  return {StateOrigin::memory, version, {0, 0, begin, end}};
}

TEST(Inventory, OwnMemoryThenPeersThenLocalThenCloud) {
  std::vector<StateReport> members(3);
  for (auto& member : members) member.node = "a";
  members[2].node = "b";
  members[0].needs = {{{0, 0, 0, 8}, true}};
  members[0].offers = {memory({5, 0}, 0, 2)};
  members[1].offers = {memory({5, 0}, 0, 4), {StateOrigin::local, {5, 0}, {0, 0, 0, 6}}};
  members[2].offers = {{StateOrigin::local, {5, 0}, {0, 0, 4, 7}},
                       {StateOrigin::cloud, {5, 0}, {0, 0, 0, 8}}};
  const StatePlan plan = plan_state(members);
  ASSERT_TRUE(plan.version);
  const std::vector<StateMove> expected = {{0, 0, StateOrigin::memory, {0, 0, 0, 2}, true},
                                           {1, 0, StateOrigin::memory, {0, 0, 2, 4}, true},
                                           {1, 0, StateOrigin::local, {0, 0, 4, 6}, true},
                                           {2, 0, StateOrigin::local, {0, 0, 6, 7}, true},
                                           {0, 0, StateOrigin::cloud, {0, 0, 7, 8}, true}};
  EXPECT_EQ(plan.moves, expected);
}

TEST(Inventory, TheNewestVersionThatIsCompleteWins) {
  std::vector<StateReport> members(2);
  members[0].needs = {{{0, 0, 0, 4}, true}};
  members[0].offers = {memory({9, 1}, 0, 2), memory({8, 1}, 0, 2), memory({8, 0}, 0, 4)};
  members[1].offers = {memory({8, 1}, 2, 4)};
  EXPECT_EQ(plan_state(members).version, (StateVersion{8, 1}));
  members[1].offers.clear();
  EXPECT_EQ(plan_state(members).version, (StateVersion{8, 0}));
  members[0].offers.pop_back();
  EXPECT_EQ(plan_state(members).version, std::nullopt);
  EXPECT_TRUE(plan_state(members).moves.empty());
}

TEST(Inventory, AStateAfterTheLastReportedStepIsPreferredToNewerOnes) {
  std::vector<StateReport> members(1);
  members[0].needs = {{{0, 0, 0, 4}, true}};
  members[0].offers = {memory({5, 1}, 0, 4), memory({4, 1}, 0, 4), memory({4, 0}, 0, 4)};
  EXPECT_EQ(plan_state(members, 4).version, (StateVersion{4, 1}));
  EXPECT_EQ(plan_state(members, 3).version, (StateVersion{5, 1}));
  members[0].offers[1].slice.end = 3;
  EXPECT_EQ(plan_state(members, 4).version, (StateVersion{4, 0}));
}

TEST(Inventory, PeersShareTheSending) {
  std::vector<StateReport> members(4);
  for (int m : {0, 1}) members[m].needs = {{{0, 0, 0, 4}, true}};
  for (int m : {2, 3}) members[m].offers = {memory({1, 0}, 0, 4)};
  const StatePlan plan = plan_state(members);
  ASSERT_EQ(plan.moves.size(), 2u);
  EXPECT_NE(plan.moves[0].from, plan.moves[1].from);
}

RC_GTEST_PROP(Inventory, EveryNeededUnitComesOnceFromAHolderIfAllAreSomewhere, ()) {
  const auto number = [](int below) { return *rc::gen::inRange(0, below); };
  std::vector<StateReport> members(1 + number(4));
  std::map<StateVersion, std::map<std::pair<int, std::int64_t>, int>> held;
  std::set<std::pair<int, std::int64_t>> needed;
  const auto range = [&] {
    const std::int64_t begin = number(kUnits);
    return std::pair(begin, begin + 1 + number(static_cast<int>(kUnits - begin)));
  };
  for (auto& member : members) {
    member.node = number(2) == 0 ? "a" : "b";
    for (int i = number(3); i > 0; --i) {
      const auto [begin, end] = range();
      member.needs.push_back({{number(2), 0, begin, end}, number(2) == 0});
      for (std::int64_t u = begin; u < end; ++u)
        needed.insert({member.needs.back().slice.block, u});
    }
    for (int i = number(5); i > 0; --i) {
      const auto [begin, end] = range();
      const StateVersion version{number(3), 0};
      const int block = number(2);
      member.offers.push_back(
          {static_cast<StateOrigin>(number(3)), version, {block, 0, begin, end}});
      for (std::int64_t u = begin; u < end; ++u) ++held[version][{block, u}];
    }
    RC_ASSERT(to_message(from_message<StateReport>(to_message(member), "state")) ==
              to_message(member));
  }
  std::optional<StateVersion> best;
  for (const auto& [version, units] : held) {
    bool complete = true;
    for (const auto& unit : needed) complete = complete && units.contains(unit);
    if (complete) best = version;
  }
  const StatePlan plan = plan_state(members);
  RC_ASSERT(plan.version == best);
  std::map<std::tuple<int, int, std::int64_t, bool>, int> arrived;
  for (const StateMove& move : plan.moves) {
    bool offered = move.origin == StateOrigin::cloud;
    for (const StateOffer& offer : members[move.from].offers) {
      offered =
          offered || (offer.origin == move.origin && offer.version == *plan.version &&
                      offer.slice.block == move.slice.block &&
                      offer.slice.begin <= move.slice.begin && move.slice.end <= offer.slice.end);
    }
    RC_ASSERT(offered);
    for (std::int64_t u = move.slice.begin; u < move.slice.end; ++u) {
      ++arrived[{move.to, move.slice.block, u, move.whole}];
    }
  }
  if (!best) return;
  std::map<std::tuple<int, int, std::int64_t, bool>, int> expected;
  for (std::size_t m = 0; m < members.size(); ++m) {
    for (const StateNeed& need : members[m].needs) {
      for (std::int64_t u = need.slice.begin; u < need.slice.end; ++u) {
        ++expected[{static_cast<int>(m), need.slice.block, u, need.whole}];
      }
    }
  }
  RC_ASSERT(arrived == expected);
}

TEST(Inventory, EachSliceIsSavedByOneRankOnceForEachNode) {
  std::vector<StateReport> members(3);
  for (auto& member : members) member.needs = {{{0, 0, 0, 4}, true}, {{0, 1, 0, 2}, false}};
  members[0].node = members[2].node = "a";
  members[1].node = "b";
  members[2].needs[0].slice.end = 6;
  using Slices = std::vector<StateSlice>;
  EXPECT_EQ(slices_to_save(members, 0, true), (Slices{{0, 0, 0, 4}}));
  EXPECT_EQ(slices_to_save(members, 1, true), (Slices{{0, 0, 0, 4}}));
  EXPECT_EQ(slices_to_save(members, 1, false), Slices{});
  EXPECT_EQ(slices_to_save(members, 2, true), (Slices{{0, 0, 4, 6}}));
}

}  // namespace
}  // namespace orrery::executor::inventory_test
