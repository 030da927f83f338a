#include "models/sharding/gradient.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>

#include "models/base/rng.h"
#include "tests/models_sharding/random_layouts.h"

namespace orrery::models::testing {
namespace {

std::vector<Piece> replica(std::int64_t length, std::vector<int> owners) {
  return split(length, owners).pieces;
}

/// Replicas with random degrees and cuts; some hold a second copy of some pieces.
Replicas random_replicas(std::int64_t length, bool second_copies) {
  Replicas replicas;
  int next = 0;
  const int count = random_int(1, 5);
  for (int r = 0; r < count; ++r) {
    const int degree = random_int(1, 5);
    const auto boundaries = random_boundaries(length, degree);
    replicas.emplace_back();
    for (std::size_t i = 0; i + 1 < boundaries.size(); ++i) {
      const Slice slice{boundaries[i], boundaries[i + 1]};
      replicas.back().push_back({next++, slice});
      if (second_copies && random_int(0, 2) == 0) replicas.back().push_back({next++, slice});
    }
  }
  return replicas;
}

TEST(SynchroniseGradients, AllReducesEachSegmentAmongOneOwnerPerReplica) {
  // Degrees 4, 2 and 1: the cuts of degree 4 give the segments (SplitAR).
  const auto steps =
      synchronise_gradients(16, {replica(16, {0, 1, 2, 3}), replica(16, {4, 5}), replica(16, {6})});
  const std::vector<Step> expected{{StepKind::all_reduce, {{0, 4}}, {0, 4, 6}, {}},
                                   {StepKind::all_reduce, {{4, 8}}, {1, 4, 6}, {}},
                                   {StepKind::all_reduce, {{8, 12}}, {2, 5, 6}, {}},
                                   {StepKind::all_reduce, {{12, 16}}, {3, 5, 6}, {}}};
  EXPECT_EQ(steps, expected);
}

TEST(SynchroniseGradients, CutsDegreesThatDoNotDivide) {
  const auto steps = synchronise_gradients(6, {replica(6, {0, 1, 2}), replica(6, {3, 4})});
  const std::vector<Step> expected{{StepKind::all_reduce, {{0, 2}}, {0, 3}, {}},
                                   {StepKind::all_reduce, {{2, 3}}, {1, 3}, {}},
                                   {StepKind::all_reduce, {{3, 4}}, {1, 4}, {}},
                                   {StepKind::all_reduce, {{4, 6}}, {2, 4}, {}}};
  EXPECT_EQ(steps, expected);
}

TEST(SynchroniseGradients, MergesSegmentsOfEqualOwnersIntoOneStep) {
  const std::vector<Piece> interleaved{{0, {0, 2}}, {1, {2, 4}}, {0, {4, 6}}, {1, {6, 8}}};
  const auto steps = synchronise_gradients(8, {interleaved, {{2, {0, 8}}}});
  const std::vector<Step> expected{{StepKind::all_reduce, {{0, 2}, {4, 6}}, {0, 2}, {}},
                                   {StepKind::all_reduce, {{2, 4}, {6, 8}}, {1, 2}, {}}};
  EXPECT_EQ(steps, expected);
}

TEST(SynchroniseGradients, NeedsNothingForOneReplica) {
  EXPECT_TRUE(synchronise_gradients(8, {replica(8, {0, 1})}).empty());
}

TEST(Zero, ScattersAndGathersEachSegmentAmongItsOwners) {
  const Replicas replicas{replica(8, {0, 1}), replica(8, {2})};
  const std::vector<Step> scatter{
      {StepKind::reduce_scatter, {{0, 4}}, {0, 2}, {{{0, 2}}, {{2, 4}}}},
      {StepKind::reduce_scatter, {{4, 8}}, {1, 2}, {{{4, 6}}, {{6, 8}}}}};
  std::vector<Step> gather = scatter;
  for (Step& step : gather) step.kind = StepKind::all_gather;
  EXPECT_EQ(scatter_gradients(8, replicas, 0), scatter);
  EXPECT_EQ(gather_parameters(8, replicas, 0), gather);
}

TEST(Zero, AllReducesShardsBetweenShardGroups) {
  const Replicas replicas{{{0, {0, 8}}}, {{1, {0, 8}}}, {{2, {0, 8}}}, {{3, {0, 8}}}};
  const std::vector<Step> expected{
      {StepKind::reduce_scatter, {{0, 8}}, {0, 1}, {{{0, 4}}, {{4, 8}}}},
      {StepKind::reduce_scatter, {{0, 8}}, {2, 3}, {{{0, 4}}, {{4, 8}}}},
      {StepKind::all_reduce, {{0, 4}}, {0, 2}, {}},
      {StepKind::all_reduce, {{4, 8}}, {1, 3}, {}}};
  EXPECT_EQ(scatter_gradients(8, replicas, 2), expected);
}

TEST(Zero, GathersSharedSlicesOnceAndBroadcastsInsideTheReplica) {
  const Replicas replicas{replicated(4, {0, 1, 2}).pieces, replicated(4, {3, 4, 5}).pieces};
  const std::vector<Step> expected{{StepKind::all_gather, {{0, 4}}, {0, 3}, {{{0, 2}}, {{2, 4}}}},
                                   {StepKind::broadcast, {{0, 4}}, {0, 1, 2}, {}, 0},
                                   {StepKind::broadcast, {{0, 4}}, {3, 4, 5}, {}, 3}};
  EXPECT_EQ(gather_parameters(4, replicas, 0), expected);
}

RC_GTEST_PROP(GradientLaw, EveryReplicaGetsTheSum, ()) {
  const std::int64_t length = random_int(1, 30);
  const Replicas replicas = random_replicas(length, true);
  const auto steps = synchronise_gradients(length, replicas);
  RC_ASSERT(run(gradient_layout(length, replicas), parameter_layout(length, replicas), steps) ==
            "");
}

RC_GTEST_PROP(GradientLaw, AllReducesMoveEachElementOnce, ()) {
  const std::int64_t length = random_int(1, 30);
  const Replicas replicas = random_replicas(length, true);
  std::int64_t reduced = 0;
  for (const Step& step : synchronise_gradients(length, replicas)) {
    if (step.kind != StepKind::all_reduce) continue;
    RC_ASSERT(step.group.size() == replicas.size());
    reduced += elements(step.slices);
  }
  RC_ASSERT(reduced == (replicas.size() > 1 ? length : 0));
}

RC_GTEST_PROP(GradientLaw, ZeroScattersSumsAndGathersParameters, ()) {
  const std::int64_t length = random_int(1, 30);
  const Replicas replicas = random_replicas(length, true);
  const int group = random_int(0, static_cast<int>(replicas.size()));
  const Layout shards = zero_layout(length, replicas, group);
  RC_ASSERT(validate(shards) == std::nullopt);
  RC_ASSERT(run(gradient_layout(length, replicas), shards,
                scatter_gradients(length, replicas, group)) == "");
  const Layout parameters = parameter_layout(length, replicas);
  RC_ASSERT(run(shards, parameters, gather_parameters(length, replicas, group)) == "");
}

RC_GTEST_PROP(GradientLaw, ZeroKeepsOneCopyPerShardGroupAndGathersTheRest, ()) {
  const std::int64_t length = random_int(1, 30);
  const Replicas replicas = random_replicas(length, false);
  const auto count = static_cast<std::int64_t>(replicas.size());
  const int group = random_int(1, static_cast<int>(count));
  const std::int64_t copies = (count + group - 1) / group;
  std::int64_t kept = 0;
  for (const Piece& piece : zero_layout(length, replicas, group).pieces) {
    kept += piece.slice.size();
  }
  RC_ASSERT(kept == copies * length);
  std::int64_t scattered = 0;
  for (const Step& step : scatter_gradients(length, replicas, group)) {
    if (step.kind == StepKind::reduce_scatter) scattered += delivered({step});
  }
  RC_ASSERT(scattered == (count - copies) * length);
  RC_ASSERT(delivered(gather_parameters(length, replicas, group)) == (count - copies) * length);
}

double fastest_milliseconds(std::int64_t length, const Replicas& replicas) {
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto steps = synchronise_gradients(length, replicas);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    EXPECT_FALSE(steps.empty());
    best = std::min(best, time.count());
  }
  return best;
}

TEST(SynchroniseGradients, TakesUnderFiveMillisecondsFor256Replicas) {
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the limit holds for optimised builds without sanitizers";
#endif
  constexpr std::int64_t kLength = 12'582'919;  // A prime: no degree divides it.
  Rng rng(1);
  Replicas equal;
  Replicas mixed;
  int next = 0;
  for (int r = 0; r < 256; ++r) {
    for (Replicas* replicas : {&equal, &mixed}) {
      const int degree = replicas == &equal ? 8 : 1 << rng.integer(0, 3);
      std::vector<int> owners;
      for (int i = 0; i < degree; ++i) owners.push_back(next++);
      replicas->push_back(replica(kLength, owners));
    }
  }
  const double equal_time = fastest_milliseconds(kLength, equal);
  const double mixed_time = fastest_milliseconds(kLength, mixed);
  RecordProperty("equal_degrees_ms", std::to_string(equal_time));
  RecordProperty("mixed_degrees_ms", std::to_string(mixed_time));
  EXPECT_LT(equal_time, 5.0);
  EXPECT_LT(mixed_time, 5.0);
}

TEST(SynchroniseGradientsDeathTest, AbortsOnAReplicaWithAHole) {
  EXPECT_DEATH(synchronise_gradients(8, {replica(8, {0}), {{1, {0, 7}}}}),
               "nobody holds summand 1 of \\[7, 8\\)");
}

}  // namespace
}  // namespace orrery::models::testing
