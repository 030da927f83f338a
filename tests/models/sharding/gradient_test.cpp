#include "models/sharding/gradient.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "models/sharding/flatten.h"
#include "tests/models/sharding/random_layouts.h"

namespace orrery::models::testing::gradient_test {
namespace {

/// One copy, split along dimension 0.
Subgroup split_copy(std::vector<int> devices) {
  const auto count = static_cast<int>(devices.size());
  return {std::move(devices), {{0, count}}};
}

Subgroup on_each(std::vector<int> devices, Axis axis) {
  const auto count = static_cast<int>(devices.size());
  return {std::move(devices), {{axis, count}}};
}

Gradients gradients(std::vector<Subgroup> copies, Shape shape) {
  return {{std::move(copies), kPartial, {}}, std::move(shape), RowSlices::joined};
}

std::vector<int> next_devices(int& next, int count) {
  std::vector<int> devices = random_order(count);
  for (int& device : devices) device += next;
  next += count;
  return devices;
}

/// Copies of random degrees over one dimension or, cut along either, two; uneven where they do not
/// divide it; some with several devices that hold equal gradients, or summands of their own.
Gradients random_gradients(bool equal_gradients) {
  Gradients out;
  out.shape = {random_int(1, 12)};
  if (random_int(0, 1) == 1) out.shape.push_back(random_int(1, 6));
  out.rows = random_int(0, 1) == 1 ? RowSlices::joined : RowSlices::apart;
  out.annotation.hetero_axis = kPartial;
  int next = 0;
  const int count = random_int(1, 4);
  for (int r = 0; r < count; ++r) {
    DistributedStates states;
    const int dimension = random_int(0, static_cast<int>(out.shape.size()) - 1);
    states.push_back({dimension, random_int(1, 4)});
    const Axis other = equal_gradients && random_int(0, 1) == 1 ? kDuplicate : kPartial;
    const int copies = random_int(0, 1) == 1 ? random_int(1, 3) : 1;
    states.insert(states.begin() + random_int(0, 1), {other, copies});
    const int devices = states[0].shards * states[1].shards;
    out.annotation.subgroups.push_back({next_devices(next, devices), std::move(states)});
  }
  if (random_int(0, 1) == 1) {
    for (int device = 0; device < next; ++device) {
      if (random_int(0, 2) > 0) out.weights[device] = random_int(1, 4);
    }
  }
  return out;
}

RC_GTEST_PROP(SynchronizeGradients, OfCopiesThatAreCutAlikeIsWhatTheResolverFinds, ()) {
  const int parts = random_int(1, 5);
  const int copies = random_int(2, 6);
  int next = 0;
  std::vector<Subgroup> all;
  for (int i = 0; i < copies; ++i) all.push_back(split_copy(next_devices(next, parts)));
  if (parts == 1) all.front().states.clear();
  const Gradients alike = gradients(std::move(all), {random_int(parts, 14)});
  const auto found = resolve(gradient_layout(alike), parameter_layout(alike));
  RC_ASSERT(synchronize_gradients(alike) == std::get<std::vector<GroupStep>>(found));
}

TEST(Zero, CutsSlicesByTheWeightsOfTheirOwners) {
  Gradients two = gradients({split_copy({0, 1}), split_copy({2})}, {8});
  two.weights = {{0, 3}, {2, 2}};
  // 0 ... 3 is of devices 0 and 2, 4 ... 7 of devices 1 (weight 1) and 2.
  const Layout shards = zero_layout(two, 0);
  EXPECT_EQ(held(shards, 0), (std::vector<Slice>{{0, 2}}));
  EXPECT_EQ(held(shards, 1), (std::vector<Slice>{{4, 5}}));
  EXPECT_EQ(held(shards, 2), (std::vector<Slice>{{2, 4}, {5, 8}}));
}

RC_GTEST_PROP(Zero, EqualWeightsAreEvenShards, ()) {
  Gradients any = random_gradients(false);
  any.weights.clear();
  const Layout even = zero_layout(any, 0);
  for (const Piece& piece : parameter_layout(any).pieces) any.weights[piece.owner] = 7;
  RC_ASSERT(zero_layout(any, 0) == even);
}

RC_GTEST_PROP(Zero, ScattersAndGathersAsTheResolverFinds, ()) {
  const Gradients any = random_gradients(false);
  const std::int64_t length = volume(any.shape);
  const Layout shards = zero_layout(any, 0);
  Layout summands{length, {}}, full{length, {}};
  const Replicas all = replicas(any);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Piece& piece : all[i]) {
      summands.pieces.push_back({piece.owner, piece.slice, static_cast<int>(i)});
      full.pieces.push_back(piece);
    }
  }
  const auto scatter = resolve(summands, shards);
  RC_ASSERT(scatter_gradients(any, 0) == std::get<std::vector<GroupStep>>(scatter));
  const auto gather = resolve(shards, full);
  RC_ASSERT(gather_parameters(any, 0) == std::get<std::vector<GroupStep>>(gather));
}

TEST(ParameterAnnotation, HasCopiesWhereGradientsHaveSummands) {
  const Gradients heads = gradients(
      {{{0, 1, 2, 3}, {{0, 2}, {kPartial, 2}}}, {{4, 5, 6, 7}, {{kDuplicate, 2}, {kPartial, 2}}}},
      {4});
  EXPECT_EQ(to_string(parameter_annotation(heads.annotation)),
            "{0,1,2,3}: S0 x 2, D x 2 | {4,5,6,7}: D x 4; HDim -1");
}

TEST(Replicas, AreTheSummandsWhateverTierTheyStandIn) {
  const Gradients heads =
      gradients({{{0, 1, 2, 3}, {{0, 2}, {kPartial, 2}}}, on_each({4, 5}, kDuplicate)}, {4});
  const Replicas expected{
      {{0, {0, 2}}, {2, {2, 4}}}, {{1, {0, 2}}, {3, {2, 4}}}, {{4, {0, 4}}, {5, {0, 4}}}};
  EXPECT_EQ(replicas(heads), expected);
}

TEST(SynchronizeGradients, AllReducesEachSegmentAmongOneOwnerPerReplica) {
  // Degrees 4, 2 and 1: the cuts of degree 4 give the segments (SplitAR).
  const auto steps = synchronize_gradients(
      gradients({split_copy({0, 1, 2, 3}), split_copy({4, 5}), split_copy({6})}, {16}));
  const std::vector<GroupStep> expected{{StepKind::all_reduce, {{0, 4}}, {0, 4, 6}, {}},
                                        {StepKind::all_reduce, {{4, 8}}, {1, 4, 6}, {}},
                                        {StepKind::all_reduce, {{8, 12}}, {2, 5, 6}, {}},
                                        {StepKind::all_reduce, {{12, 16}}, {3, 5, 6}, {}}};
  EXPECT_EQ(steps, expected);
}

TEST(SynchronizeGradients, CutsDegreesThatDoNotDivide) {
  const auto steps =
      synchronize_gradients(gradients({split_copy({0, 1, 2}), split_copy({3, 4})}, {6}));
  const std::vector<GroupStep> expected{{StepKind::all_reduce, {{0, 2}}, {0, 3}, {}},
                                        {StepKind::all_reduce, {{2, 3}}, {1, 3}, {}},
                                        {StepKind::all_reduce, {{3, 4}}, {1, 4}, {}},
                                        {StepKind::all_reduce, {{4, 6}}, {2, 4}, {}}};
  EXPECT_EQ(steps, expected);
}

TEST(SynchronizeGradients, MergesSegmentsOfEqualOwnersIntoOneStep) {
  // Columns split in two: each device has a slice of each row.
  const auto steps = synchronize_gradients(gradients({{{0, 1}, {{1, 2}}}, {{2}, {}}}, {2, 4}));
  const std::vector<GroupStep> expected{{StepKind::all_reduce, {{0, 2}, {4, 6}}, {0, 2}, {}},
                                        {StepKind::all_reduce, {{2, 4}, {6, 8}}, {1, 2}, {}}};
  EXPECT_EQ(steps, expected);
}

TEST(SynchronizeGradients, NeedsNothingForOneReplica) {
  EXPECT_TRUE(synchronize_gradients(gradients({split_copy({0, 1})}, {8})).empty());
}

TEST(SynchronizeGradients, AddsUpSummandsInsideACopy) {
  // Two key-value heads on four devices, and whole on one: heads meet in groups of three.
  const auto steps =
      synchronize_gradients(gradients({{{0, 1, 2, 3}, {{0, 2}, {kPartial, 2}}}, {{4}, {}}}, {2}));
  const std::vector<GroupStep> expected{{StepKind::all_reduce, {{0, 1}}, {0, 1, 4}, {}},
                                        {StepKind::all_reduce, {{1, 2}}, {2, 3, 4}, {}}};
  EXPECT_EQ(steps, expected);
}

TEST(Zero, ScattersAndGathersEachSegmentAmongItsOwners) {
  const Gradients two = gradients({split_copy({0, 1}), split_copy({2})}, {8});
  const std::vector<GroupStep> scatter{
      {StepKind::reduce_scatter, {{0, 4}}, {0, 2}, {{{0, 2}}, {{2, 4}}}},
      {StepKind::reduce_scatter, {{4, 8}}, {1, 2}, {{{4, 6}}, {{6, 8}}}}};
  std::vector<GroupStep> gather = scatter;
  for (GroupStep& step : gather) step.kind = StepKind::all_gather;
  EXPECT_EQ(scatter_gradients(two, 0), scatter);
  EXPECT_EQ(gather_parameters(two, 0), gather);
}

TEST(Zero, AllReducesShardsBetweenShardGroups) {
  const Gradients four = gradients({{{0}, {}}, {{1}, {}}, {{2}, {}}, {{3}, {}}}, {8});
  const std::vector<GroupStep> expected{
      {StepKind::reduce_scatter, {{0, 8}}, {0, 1}, {{{0, 4}}, {{4, 8}}}},
      {StepKind::reduce_scatter, {{0, 8}}, {2, 3}, {{{0, 4}}, {{4, 8}}}},
      {StepKind::all_reduce, {{0, 4}}, {0, 2}, {}},
      {StepKind::all_reduce, {{4, 8}}, {1, 3}, {}}};
  EXPECT_EQ(scatter_gradients(four, 2), expected);
}

TEST(Zero, GathersSharedSlicesOnceAndBroadcastsInsideTheReplica) {
  const Gradients gains =
      gradients({on_each({0, 1, 2}, kDuplicate), on_each({3, 4, 5}, kDuplicate)}, {4});
  const std::vector<GroupStep> expected{
      {StepKind::all_gather, {{0, 4}}, {0, 3}, {{{0, 2}}, {{2, 4}}}},
      {StepKind::broadcast, {{0, 4}}, {0, 1, 2}, {}, 0},
      {StepKind::broadcast, {{0, 4}}, {3, 4, 5}, {}, 3}};
  EXPECT_EQ(gather_parameters(gains, 0), expected);
}

TEST(Zero, DividesEachExpertsMatrix) {
  // Three experts of five elements each, whole on two devices: odd rows give the first one more.
  Gradients experts = gradients({{{0}, {}}, {{1}, {}}}, {3, 5});
  experts.rows = RowSlices::apart;
  EXPECT_EQ(held(zero_layout(experts, 0), 0), (std::vector<Slice>{{0, 3}, {5, 8}, {10, 13}}));
  experts.rows = RowSlices::joined;
  EXPECT_EQ(held(zero_layout(experts, 0), 0), (std::vector<Slice>{{0, 8}}));
}

/// Replicas that are cut alike, as one subgroup: tensor-parallel parts outside, replicas inside.
TEST(Zero, DividesReplicasThatAreCutAlikeAsAnAnnotationSays) {
  for (const int degree : {1, 2, 3}) {
    for (const int count : {2, 3, 5}) {
      const Shape shape{std::int64_t{6} * degree * count};
      std::vector<Subgroup> copies;
      Subgroup all{{}, {{0, degree * count}}};
      for (int r = 0; r < count; ++r) copies.push_back({{}, {{0, degree}}});
      for (int part = 0; part < degree; ++part) {
        for (int r = 0; r < count; ++r) {
          copies[r].devices.push_back(r * degree + part);
          all.devices.push_back(r * degree + part);
        }
      }
      std::vector<Piece> shards = zero_layout(gradients(copies, shape), 0).pieces;
      std::sort(shards.begin(), shards.end(),
                [](const Piece& a, const Piece& b) { return a.slice < b.slice; });
      EXPECT_EQ(flatten({{all}, kDuplicate, {}}, shape).pieces, shards);
    }
  }
}

RC_GTEST_PROP(GradientLaw, EveryReplicaGetsTheSum, ()) {
  const Gradients all = random_gradients(true);
  RC_ASSERT(run(gradient_layout(all), parameter_layout(all), synchronize_gradients(all)) == "");
}

RC_GTEST_PROP(GradientLaw, ReplicasTileTheParameter, ()) {
  const Gradients all = random_gradients(true);
  for (const auto& replica : replicas(all)) {
    RC_ASSERT(validate(Layout{volume(all.shape), replica}) == std::nullopt);
  }
}

RC_GTEST_PROP(GradientLaw, AllReducesMoveEachElementOnce, ()) {
  const Gradients all = random_gradients(true);
  const std::size_t count = replicas(all).size();
  std::int64_t reduced = 0;
  for (const GroupStep& step : synchronize_gradients(all)) {
    if (step.kind != StepKind::all_reduce) continue;
    RC_ASSERT(step.group.size() == count);
    reduced += elements(step.slices);
  }
  RC_ASSERT(reduced == (count > 1 ? volume(all.shape) : 0));
}

RC_GTEST_PROP(GradientLaw, ZeroScattersSumsAndGathersParameters, ()) {
  const Gradients all = random_gradients(true);
  const int group = random_int(0, static_cast<int>(replicas(all).size()));
  const Layout shards = zero_layout(all, group);
  RC_ASSERT(validate(shards) == std::nullopt);
  RC_ASSERT(run(gradient_layout(all), shards, scatter_gradients(all, group)) == "");
  RC_ASSERT(run(shards, parameter_layout(all), gather_parameters(all, group)) == "");
}

RC_GTEST_PROP(GradientLaw, ZeroKeepsOneCopyPerShardGroupAndGathersTheRest, ()) {
  const Gradients all = random_gradients(false);
  const std::int64_t length = volume(all.shape);
  const auto count = static_cast<std::int64_t>(replicas(all).size());
  const int group = random_int(1, static_cast<int>(count));
  const std::int64_t copies = (count + group - 1) / group;
  std::int64_t kept = 0;
  for (const Piece& piece : zero_layout(all, group).pieces) kept += piece.slice.size();
  RC_ASSERT(kept == copies * length);
  std::int64_t scattered = 0;
  for (const GroupStep& step : scatter_gradients(all, group)) {
    if (step.kind == StepKind::reduce_scatter) scattered += delivered({step});
  }
  RC_ASSERT(scattered == (count - copies) * length);
  RC_ASSERT(delivered(gather_parameters(all, group)) == (count - copies) * length);
}

TEST(SynchronizeGradientsDeathTest, AbortsOnWhatAreNoGradients) {
  EXPECT_DEATH(synchronize_gradients(gradients({{{0}, {}}, {{0}, {}}}, {8})),
               "device 0 appears twice");
  Gradients copies = gradients({{{0}, {}}, {{1}, {}}}, {8});
  copies.annotation.hetero_axis = kDuplicate;
  EXPECT_DEATH(synchronize_gradients(copies), "whose copies do not add up");
}

}  // namespace
}  // namespace orrery::models::testing::gradient_test
