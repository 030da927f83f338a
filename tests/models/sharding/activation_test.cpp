#include "models/sharding/activation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "models/base/ids.h"
#include "models/sharding/flatten.h"
#include "tests/models/sharding/random_layouts.h"

namespace orrery::models::testing::activation_test {
namespace {

constexpr auto kLeader = ActivationTransfer::leader_broadcast;
constexpr auto kSliced = ActivationTransfer::sliced;

GroupStep send(int source, int destination, std::vector<Slice> slices) {
  return {
      StepKind::send_receive, std::move(slices), {source, destination}, {}, source, destination};
}

std::int64_t sent(const std::vector<GroupStep>& steps) {
  std::int64_t sum = 0;
  for (const GroupStep& step : steps) {
    if (step.kind == StepKind::send_receive) sum += elements(step.slices);
  }
  return sum;
}

Subgroup whole(std::vector<int> devices) {
  const auto count = static_cast<int>(devices.size());
  return {std::move(devices), {{kDuplicate, count}}};
}

Subgroup split_tokens(std::vector<int> devices, int copies = 1) {
  const auto parts = static_cast<int>(devices.size()) / copies;
  return {std::move(devices), {{kTokenAxis, parts}, {kDuplicate, copies}}};
}

Annotation by_samples(std::vector<Subgroup> subgroups, std::vector<std::int64_t> samples) {
  return {std::move(subgroups), kSampleAxis, std::move(samples)};
}

enum class States { whole, split, both };

/// Groups of random degrees that share the samples, with devices from `first` on, in any order.
Annotation random_activations(std::int64_t samples, int first, States most) {
  Annotation annotation{{}, kSampleAxis, {}};
  const auto count = static_cast<int>(std::min<std::int64_t>(random_int(1, 3), samples));
  annotation.shares.assign(count, 1);
  for (std::int64_t rest = samples - count; rest > 0; --rest) {
    ++annotation.shares[random_int(0, count - 1)];
  }
  for (int i = 0; i < count; ++i) {
    const int degree = random_int(1, 5);
    const int copies = random_int(1, 3);
    const auto states = static_cast<States>(random_int(0, static_cast<int>(most)));
    std::vector<int> devices = random_order(states == States::both ? degree * copies : degree);
    for (int& device : devices) device += first;
    first += static_cast<int>(devices.size());
    annotation.subgroups.push_back(states == States::whole   ? whole(devices)
                                   : states == States::split ? split_tokens(devices)
                                                             : split_tokens(devices, copies));
  }
  return annotation;
}

TEST(LeaderBroadcast, SendsOverlappingSamplesBetweenLeadersThenBroadcasts) {
  const Annotation senders = by_samples({whole({0, 1}), whole({2, 3})}, {3, 1});
  const Annotation receivers = by_samples({whole({4}), whole({5, 6, 7})}, {1, 3});
  const std::vector<GroupStep> expected{send(0, 4, {{0, 10}}),
                                        send(0, 5, {{10, 30}}),
                                        send(2, 5, {{30, 40}}),
                                        {StepKind::broadcast, {{10, 40}}, {5, 6, 7}, {}, 5}};
  EXPECT_EQ(transfer_activations(senders, receivers, {4, 10}, kLeader), expected);
}

TEST(LeaderBroadcast, CollectsSplitTokensAtTheLeader) {
  const Annotation senders = by_samples({split_tokens({0, 1})}, {2});
  const std::vector<GroupStep> expected{send(1, 0, {{2, 4}, {6, 8}}), send(0, 2, {{0, 8}})};
  EXPECT_EQ(transfer_activations(senders, by_samples({whole({2})}, {2}), {2, 4}, kLeader),
            expected);
}

TEST(LeaderBroadcast, GivesEachPartALeaderWherePartsHaveCopies) {
  const Annotation senders = by_samples({split_tokens({0, 1, 2, 3}, 2)}, {1});
  const std::vector<GroupStep> expected{send(0, 4, {{0, 2}}), send(2, 4, {{2, 4}})};
  EXPECT_EQ(transfer_activations(senders, by_samples({whole({4})}, {1}), {1, 4}, kLeader),
            expected);
}

TEST(Sliced, PairsMembersOfEqualDegreesThenGathers) {
  const std::vector<GroupStep> expected{
      send(0, 2, {{0, 4}}),
      send(1, 3, {{4, 8}}),
      {StepKind::all_gather, {{0, 8}}, {2, 3}, {{{0, 4}}, {{4, 8}}}}};
  EXPECT_EQ(transfer_activations(by_samples({whole({0, 1})}, {2}), by_samples({whole({2, 3})}, {2}),
                                 {2, 4}, kSliced),
            expected);
}

TEST(Sliced, MeetsInTheFinestCommonSlicesOfUnequalDegrees) {
  const std::vector<GroupStep> expected{
      send(0, 3, {{0, 4}}),
      send(0, 4, {{4, 6}}),
      send(1, 4, {{6, 8}}),
      send(1, 5, {{8, 12}}),
      {StepKind::all_gather, {{0, 12}}, {3, 4, 5}, {{{0, 4}}, {{4, 8}}, {{8, 12}}}}};
  EXPECT_EQ(transfer_activations(by_samples({whole({0, 1})}, {1}),
                                 by_samples({whole({3, 4, 5})}, {1}), {1, 12}, kSliced),
            expected);
}

TEST(Sliced, NeedsNoGatherBetweenSplitTokens) {
  const std::vector<GroupStep> expected{send(0, 2, {{0, 2}, {4, 6}}), send(1, 3, {{2, 4}, {6, 8}})};
  EXPECT_EQ(transfer_activations(by_samples({split_tokens({0, 1})}, {2}),
                                 by_samples({split_tokens({2, 3})}, {2}), {2, 4}, kSliced),
            expected);
}

/// Two parts with two copies each to three parts, the first one token longer: each part is divided
/// between its copies; the receivers' middle part has tokens of both.
TEST(Sliced, DividesEachPartAmongItsCopies) {
  const Annotation senders = by_samples({split_tokens({0, 1, 2, 3}, 2)}, {1});
  const Annotation receivers = by_samples({split_tokens({4, 5, 6})}, {1});
  const std::vector<GroupStep> expected{
      send(0, 4, {{0, 2}}), send(1, 4, {{2, 4}}), send(0, 5, {{4, 5}}), send(2, 5, {{5, 6}}),
      send(3, 5, {{6, 7}}), send(2, 6, {{7, 9}}), send(3, 6, {{9, 10}})};
  EXPECT_EQ(transfer_activations(senders, receivers, {1, 10}, kSliced), expected);
}

TEST(TransferActivations, NeedsNothingOnTheSameDevices) {
  const Annotation groups = by_samples({whole({0, 1})}, {2});
  EXPECT_TRUE(transfer_activations(groups, groups, {2, 4}, kLeader).empty());
  EXPECT_TRUE(transfer_activations(groups, groups, {2, 4}, kSliced).empty());
}

TEST(TransferActivationsDeathTest, AbortsOnWhatAreNoActivationsOfTheShape) {
  const Annotation two = by_samples({whole({0}), whole({1})}, {1, 1});
  const auto transfer = [](const Annotation& senders, const Shape& shape) {
    return transfer_activations(senders, by_samples({whole({2})}, {1}), shape, kSliced);
  };
  EXPECT_DEATH(transfer(two, {3, 4}), "dimension 0 of size 3 has no 1/2 for subgroup 0");
  EXPECT_DEATH(transfer(two, {2}), "activations of 1 dimensions");
  Annotation by_tokens = two;
  by_tokens.hetero_axis = kTokenAxis;
  EXPECT_DEATH(transfer(by_tokens, {2, 4}), "are not divided by samples");
  EXPECT_DEATH(transfer(by_samples({{{0, 1}, {{kSampleAxis, 2}}}}, {1}), {2, 4}),
               "neither whole nor split by tokens");
}

RC_GTEST_PROP(TransferActivationsLaw, ReceiversGetTheirSamples, ()) {
  const Shape shape{random_int(1, 5), random_int(1, 7)};
  const Annotation senders = random_activations(shape[0], 0, States::both);
  // Receivers may share devices with senders, as virtual stages do.
  const Annotation receivers =
      random_activations(shape[0], random_int(0, 1) == 0 ? 60 : 0, States::both);
  const Layout from = flatten(senders, shape);
  const Layout to = flatten(receivers, shape);
  RC_ASSERT(validate(from) == std::nullopt);
  RC_ASSERT(validate(to) == std::nullopt);
  for (auto transfer : {kLeader, kSliced}) {
    RC_ASSERT(run(from, to, transfer_activations(senders, receivers, shape, transfer)) == "");
  }
}

RC_GTEST_PROP(TransferActivationsLaw, KnownStepsAreThoseOfOtherNames, ()) {
  const Shape shape{random_int(1, 5), random_int(1, 7)};
  Annotation senders = random_activations(shape[0], 0, States::both);
  Annotation receivers = random_activations(shape[0], random_int(0, 1) == 0 ? 60 : 0, States::both);
  KnownTransfers known;
  for (int round = 0; round < 3; ++round) {
    for (auto transfer : {kLeader, kSliced}) {
      RC_ASSERT(known.steps(senders, receivers, shape, transfer) ==
                transfer_activations(senders, receivers, shape, transfer));
    }
    const int stretch = random_int(1, 3);
    const int shift = random_int(0, 9);
    for (Annotation* annotation : {&senders, &receivers}) {
      for (Subgroup& subgroup : annotation->subgroups) {
        for (int& device : subgroup.devices) device = stretch * device + shift;
      }
    }
  }
}

RC_GTEST_PROP(TransferActivationsLaw, EachTokenCrossesBetweenTheStagesOnce, ()) {
  const Shape shape{random_int(1, 5), random_int(1, 7)};
  const Annotation senders = random_activations(shape[0], 0, States::whole);
  const Annotation receivers = random_activations(shape[0], 60, States::whole);
  for (auto transfer : {kLeader, kSliced}) {
    std::vector<GroupStep> crossing;
    for (const GroupStep& step : transfer_activations(senders, receivers, shape, transfer)) {
      const bool leaves = step.source >= 0 && step.source < 60;
      if (leaves) crossing.push_back(step);
      RC_ASSERT(!leaves || step.kind == StepKind::send_receive);
    }
    RC_ASSERT(sent(crossing) == volume(shape));
  }
}

RC_GTEST_PROP(TransferActivationsLaw, SlicedSendersShareTheLoadEvenly, ()) {
  const int senders = random_int(1, 6);
  const int receivers = random_int(1, 6);
  const std::int64_t share = random_int(1, 9) * receivers;
  std::vector<int> from = random_order(senders);
  std::vector<int> to;
  for (int i = 0; i < receivers; ++i) to.push_back(20 + i);
  std::map<int, std::int64_t> load;
  std::set<std::pair<int, int>> pairs;
  for (const GroupStep& step :
       transfer_activations(by_samples({whole(from)}, {1}), by_samples({whole(to)}, {1}),
                            {1, share * senders}, kSliced)) {
    if (step.kind != StepKind::send_receive || step.source >= 20) continue;
    load[step.source] += elements(step.slices);
    pairs.insert({step.source, step.destination});
  }
  for (int owner : from) RC_ASSERT(load[owner] == share);
  // Cuts at multiples of 1/k and 1/m: k + m - gcd(k, m) common slices.
  RC_ASSERT(pairs.size() == as_size(senders + receivers - std::gcd(senders, receivers)));
}

}  // namespace
}  // namespace orrery::models::testing::activation_test
