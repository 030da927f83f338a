#include "models/sharding/resolve.h"

#include <gtest/gtest.h>

#include "tests/models/sharding/layouts.h"

namespace orrery::models::resolve_test {
namespace {

std::vector<GroupStep> steps(const Layout& from, const Layout& to,
                             const ResolveOptions& options = {}) {
  const auto result = resolve(from, to, options);
  const auto* failure = std::get_if<Unresolvable>(&result);
  EXPECT_EQ(failure, nullptr) << failure->reason;
  return failure == nullptr ? std::get<std::vector<GroupStep>>(result) : std::vector<GroupStep>{};
}

std::string reason(const Layout& from, const Layout& to) {
  const auto result = resolve(from, to);
  const auto* failure = std::get_if<Unresolvable>(&result);
  return failure == nullptr ? "resolved" : failure->reason;
}

GroupStep send(int source, int destination, std::vector<Slice> slices) {
  return {
      StepKind::send_receive, std::move(slices), {source, destination}, {}, source, destination};
}

TEST(Resolve, NeedsNothingBetweenEqualLayouts) {
  EXPECT_TRUE(steps(split(8, {0, 1}), split(8, {0, 1})).empty());
  EXPECT_TRUE(steps(partial(8, {0, 1}), partial(8, {0, 1})).empty());
  EXPECT_TRUE(steps({0, {}}, {0, {}}).empty());
}

TEST(Resolve, DropsReplicasForFree) {
  EXPECT_TRUE(steps(replicated(8, {0, 1, 2}), split(8, {1, 2})).empty());
}

TEST(Resolve, AllReducesPartialToReplicated) {
  const GroupStep expected{StepKind::all_reduce, {{0, 8}}, {3, 1, 2}, {}};
  EXPECT_EQ(steps(partial(8, {3, 1, 2}), replicated(8, {1, 2, 3})),
            std::vector<GroupStep>{expected});
}

TEST(Resolve, ReduceScattersPartialToSplit) {
  const GroupStep expected{
      StepKind::reduce_scatter, {{0, 8}}, {0, 1, 2}, {{{0, 3}}, {{3, 6}}, {{6, 8}}}};
  EXPECT_EQ(steps(partial(8, {0, 1, 2}), split(8, {0, 1, 2})), std::vector<GroupStep>{expected});
}

TEST(Resolve, ReducesPartialToOneOwner) {
  const GroupStep expected{StepKind::reduce_scatter, {{0, 8}}, {0, 1}, {{}, {{0, 8}}}};
  EXPECT_EQ(steps(partial(8, {0, 1}), replicated(8, {1})), std::vector<GroupStep>{expected});
}

TEST(Resolve, AllGathersSplitToReplicated) {
  const GroupStep expected{
      StepKind::all_gather, {{0, 5}}, {2, 0, 1}, {{{0, 2}}, {{2, 4}}, {{4, 5}}}};
  EXPECT_EQ(steps(split(5, {2, 0, 1}), replicated(5, {2, 0, 1})), std::vector<GroupStep>{expected});
}

TEST(Resolve, BroadcastsFromOneOwnerToSeveral) {
  const GroupStep expected{StepKind::broadcast, {{0, 5}}, {1, 0, 2}, {}, 1};
  EXPECT_EQ(steps(replicated(5, {1}), replicated(5, {0, 1, 2})), std::vector<GroupStep>{expected});
  EXPECT_EQ(steps(replicated(5, {1}), replicated(5, {1, 4})),
            std::vector<GroupStep>{send(1, 4, {{0, 5}})});
}

TEST(Resolve, SendsAloneWhenToldSo) {
  const ResolveOptions options{.gather_and_broadcast = false};
  EXPECT_EQ(steps(split(4, {0, 1}), replicated(4, {0, 1}), options),
            (std::vector<GroupStep>{send(0, 1, {{0, 2}}), send(1, 0, {{2, 4}})}));
}

TEST(Resolve, ShiftsWholeShardsWithOneSendEach) {
  EXPECT_EQ(steps(split(8, {0, 1}), split(8, {4, 5})),
            (std::vector<GroupStep>{send(0, 4, {{0, 4}}), send(1, 5, {{4, 8}})}));
}

TEST(Resolve, FusesSlicesOfOnePairIntoOneSend) {
  const Layout from{6, {{0, {0, 2}}, {1, {2, 4}}, {0, {4, 6}}}};
  EXPECT_EQ(steps(from, replicated(6, {5})),
            (std::vector<GroupStep>{send(0, 5, {{0, 2}, {4, 6}}), send(1, 5, {{2, 4}})}));
}

// The four slices of Hetu v2, section 4.3 and Figure 8, as the text describes them: GPUs 0-7 and
// 8-15 are nodes; (I) GPU1 owns what it needs, (II) GPU9 is nearer to GPU8 than GPU1 is, (III) GPU1
// has sent the third slice, so GPU2 sends the fourth.
const Layout kTable{40,
                    {{1, {0, 10}},
                     {1, {10, 20}},
                     {9, {10, 20}},
                     {1, {20, 30}},
                     {2, {20, 30}},
                     {1, {30, 40}},
                     {2, {30, 40}}}};
const Layout kNeeds{40, {{1, {0, 10}}, {8, {10, 20}}, {0, {20, 30}}, {3, {30, 40}}}};

TEST(ResolvedSendReceive, FollowsTheThreeHeuristicsInOrder) {
  const ResolveOptions options{
      .sends = {.link_rank = [](int a, int b) { return a / 8 == b / 8 ? 0 : 1; }}};
  EXPECT_EQ(steps(kTable, kNeeds, options),
            (std::vector<GroupStep>{send(9, 8, {{10, 20}}), send(1, 0, {{20, 30}}),
                                    send(2, 3, {{30, 40}})}));
}

TEST(Resolve, BroadcastsInsideTheGroupsOfASharedSummand) {
  // A norm gain in two tensor-parallel groups {0, 1, 2} and {4, 5}: all_reduce between one member
  // each, then each group by itself.
  const Layout from{6,
                    {{0, {0, 6}, 0},
                     {1, {0, 6}, 0},
                     {2, {0, 6}, 0},  //
                     {4, {0, 6}, 1},
                     {5, {0, 6}, 1}}};
  const std::vector<GroupStep> expected{{StepKind::all_reduce, {{0, 6}}, {0, 4}, {}},
                                        {StepKind::broadcast, {{0, 6}}, {0, 1, 2}, {}, 0},
                                        send(4, 5, {{0, 6}})};
  EXPECT_EQ(steps(from, replicated(6, {0, 1, 2, 4, 5})), expected);
}

TEST(Resolve, ReducesAtTheHolderThatNeedsTheResult) {
  const Layout from{6, {{0, {0, 6}, 0}, {1, {0, 6}, 0}, {4, {0, 6}, 1}}};
  const GroupStep expected{StepKind::reduce_scatter, {{0, 6}}, {1, 4}, {{{0, 6}}, {}}};
  EXPECT_EQ(steps(from, replicated(6, {1})), std::vector<GroupStep>{expected});
}

TEST(Unresolvable, SaysWhichOwnersHoldTheSummands) {
  EXPECT_EQ(reason(partial(6, {0, 1}), split(6, {0, 7})),
            "the summands of [3, 6) lie on owners [0, 1], and none of its destinations [7] holds "
            "one");
}

TEST(Unresolvable, SaysThatSummandsDoNotMove) {
  EXPECT_EQ(reason(split(6, {0, 1}), partial(6, {0, 1})),
            "the source has summands {-1} and the destination {0, 1} (-1: full)");
  EXPECT_EQ(reason(partial(6, {0, 1}), partial(6, {1, 0})),
            "owner 1 needs summand 0 of [0, 6) and does not hold it");
}

TEST(Unresolvable, SaysWhichLayoutIsInvalid) {
  EXPECT_EQ(reason({4, {}}, split(4, {0})), "source: nobody holds full values of [0, 4)");
  EXPECT_EQ(reason(split(4, {0}), {4, {}}), "destination: nobody holds full values of [0, 4)");
  EXPECT_EQ(reason(split(4, {0}), split(5, {0})), "source has 4 elements, destination 5");
}

}  // namespace
}  // namespace orrery::models::resolve_test
