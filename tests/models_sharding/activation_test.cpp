#include "models/sharding/activation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "tests/models_sharding/random_layouts.h"

namespace orrery::models::testing {
namespace {

constexpr auto kLeader = ActivationTransfer::leader_broadcast;
constexpr auto kSliced = ActivationTransfer::sliced;

Step send(int source, int destination, std::vector<Slice> slices) {
  return {
      StepKind::send_receive, std::move(slices), {source, destination}, {}, source, destination};
}

std::int64_t sent(const std::vector<Step>& steps) {
  std::int64_t sum = 0;
  for (const Step& step : steps) {
    if (step.kind == StepKind::send_receive) sum += elements(step.slices);
  }
  return sum;
}

/// Groups of random degrees that tile the samples, with owners from `first` on.
std::vector<ActivationGroup> random_groups(std::int64_t samples, int first, bool split_too) {
  std::vector<ActivationGroup> groups;
  const auto boundaries = random_boundaries(samples, random_int(1, 3));
  for (std::size_t i = 0; i + 1 < boundaries.size(); ++i) {
    groups.emplace_back();
    groups.back().samples = {boundaries[i], boundaries[i + 1]};
    const int degree = random_int(1, 5);
    for (int k = 0; k < degree; ++k) groups.back().owners.push_back(first++);
    if (split_too && random_int(0, 1) == 1) {
      groups.back().layout = ActivationLayout::sequence_split;
    }
  }
  return groups;
}

TEST(LeaderBroadcast, SendsOverlappingSamplesBetweenLeadersThenBroadcasts) {
  const std::vector<ActivationGroup> senders{{{0, 1}, {0, 3}}, {{2, 3}, {3, 4}}};
  const std::vector<ActivationGroup> receivers{{{4}, {0, 1}}, {{5, 6, 7}, {1, 4}}};
  const std::vector<Step> expected{send(0, 4, {{0, 10}}),
                                   send(0, 5, {{10, 30}}),
                                   send(2, 5, {{30, 40}}),
                                   {StepKind::broadcast, {{10, 40}}, {5, 6, 7}, {}, 5}};
  EXPECT_EQ(transfer_activations(senders, receivers, 10, kLeader), expected);
}

TEST(LeaderBroadcast, CollectsASequenceSplitAtTheLeader) {
  const std::vector<ActivationGroup> senders{{{0, 1}, {0, 2}, ActivationLayout::sequence_split}};
  const std::vector<Step> expected{send(1, 0, {{2, 4}, {6, 8}}), send(0, 2, {{0, 8}})};
  EXPECT_EQ(transfer_activations(senders, {{{2}, {0, 2}}}, 4, kLeader), expected);
}

TEST(Sliced, PairsMembersOfEqualDegreesThenGathers) {
  const std::vector<Step> expected{send(0, 2, {{0, 4}}),
                                   send(1, 3, {{4, 8}}),
                                   {StepKind::all_gather, {{0, 8}}, {2, 3}, {{{0, 4}}, {{4, 8}}}}};
  EXPECT_EQ(transfer_activations({{{0, 1}, {0, 2}}}, {{{2, 3}, {0, 2}}}, 4, kSliced), expected);
}

TEST(Sliced, MeetsInTheFinestCommonSlicesOfUnequalDegrees) {
  const std::vector<Step> expected{
      send(0, 3, {{0, 4}}),
      send(0, 4, {{4, 6}}),
      send(1, 4, {{6, 8}}),
      send(1, 5, {{8, 12}}),
      {StepKind::all_gather, {{0, 12}}, {3, 4, 5}, {{{0, 4}}, {{4, 8}}, {{8, 12}}}}};
  EXPECT_EQ(transfer_activations({{{0, 1}, {0, 1}}}, {{{3, 4, 5}, {0, 1}}}, 12, kSliced), expected);
}

TEST(Sliced, NeedsNoGatherBetweenSequenceSplits) {
  const auto split = ActivationLayout::sequence_split;
  const std::vector<Step> expected{send(0, 2, {{0, 2}, {4, 6}}), send(1, 3, {{2, 4}, {6, 8}})};
  EXPECT_EQ(transfer_activations({{{0, 1}, {0, 2}, split}}, {{{2, 3}, {0, 2}, split}}, 4, kSliced),
            expected);
}

TEST(TransferActivations, NeedsNothingOnTheSameDevices) {
  const std::vector<ActivationGroup> groups{{{0, 1}, {0, 2}}};
  EXPECT_TRUE(transfer_activations(groups, groups, 4, kLeader).empty());
  EXPECT_TRUE(transfer_activations(groups, groups, 4, kSliced).empty());
}

TEST(TransferActivationsDeathTest, AbortsWhenSamplesDoNotMatch) {
  EXPECT_DEATH(transfer_activations({{{0}, {0, 2}}}, {{{1}, {0, 3}}}, 4, kSliced),
               "senders have 8 tokens, receivers 12");
  EXPECT_DEATH(activation_layout({{{0}, {0, 2}}, {{1}, {1, 3}}}, 4), "where 2 is next");
}

RC_GTEST_PROP(TransferActivationsLaw, ReceiversGetTheirSamples, ()) {
  const std::int64_t samples = random_int(1, 5);
  const std::int64_t sequence = random_int(1, 7);
  const auto senders = random_groups(samples, 0, true);
  // Receivers may share devices with senders, as virtual stages do.
  const auto receivers = random_groups(samples, random_int(0, 1) == 0 ? 20 : 0, true);
  const Layout from = activation_layout(senders, sequence);
  const Layout to = activation_layout(receivers, sequence);
  RC_ASSERT(validate(from) == std::nullopt);
  RC_ASSERT(validate(to) == std::nullopt);
  for (auto transfer : {kLeader, kSliced}) {
    RC_ASSERT(run(from, to, transfer_activations(senders, receivers, sequence, transfer)) == "");
  }
}

RC_GTEST_PROP(TransferActivationsLaw, EachTokenCrossesBetweenTheStagesOnce, ()) {
  const std::int64_t samples = random_int(1, 5);
  const std::int64_t sequence = random_int(1, 7);
  const auto senders = random_groups(samples, 0, false);
  const auto receivers = random_groups(samples, 20, false);
  for (auto transfer : {kLeader, kSliced}) {
    std::vector<Step> crossing;
    for (const Step& step : transfer_activations(senders, receivers, sequence, transfer)) {
      const bool leaves = step.source >= 0 && step.source < 20;
      if (leaves) crossing.push_back(step);
      RC_ASSERT(!leaves || step.kind == StepKind::send_receive);
    }
    RC_ASSERT(sent(crossing) == samples * sequence);
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
  for (const Step& step :
       transfer_activations({{from, {0, 1}}}, {{to, {0, 1}}}, share * senders, kSliced)) {
    if (step.kind != StepKind::send_receive || step.source >= 20) continue;
    load[step.source] += elements(step.slices);
    pairs.insert({step.source, step.destination});
  }
  for (int owner : from) RC_ASSERT(load[owner] == share);
  // Cuts at multiples of 1/k and 1/m: k + m - gcd(k, m) common slices.
  RC_ASSERT(pairs.size() ==
            static_cast<std::size_t>(senders + receivers - std::gcd(senders, receivers)));
}

}  // namespace
}  // namespace orrery::models::testing
