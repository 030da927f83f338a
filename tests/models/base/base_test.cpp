#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <span>
#include <vector>

#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/base/median.h"
#include "models/base/rng.h"
#include "models/base/time.h"
#include "models/base/units.h"

namespace orrery::base_test {
namespace {

TEST(Quantity, DimensionsCancelAndCombine) {
  constexpr Seconds time = 300_GB / 100_GBps;
  static_assert(time == 3_s);
  static_assert(std::is_same_v<decltype(1_GB / 1_GB), double>);
  static_assert(std::is_same_v<decltype(100_TFLOPS * 2_s), Flops>);
  static_assert(std::is_same_v<decltype(Dollars{1} / 1_s), DollarsPerSecond>);
  EXPECT_EQ((2.0 * 1_GiB).value, 2147483648.0);
}

TEST(Time, RoundsToTheNearestNanosecondAndAddsExactly) {
  EXPECT_EQ(to_nanoseconds(Seconds{1.4e-9}).count, 1);
  EXPECT_EQ(to_nanoseconds(Seconds{1.6e-9}).count, 2);
  EXPECT_EQ(to_nanoseconds(Seconds{54.0 * 86400}).count, 4'665'600'000'000'000);
  const Instant start{5};
  EXPECT_EQ((start + Nanoseconds{7}) - start, Nanoseconds{7});
}

TEST(Id, IsInvalidUntilSet) {
  EXPECT_FALSE(DeviceId{}.valid());
  EXPECT_TRUE(DeviceId{0}.valid());
}

TEST(Id, RangesIncludeBothEnds) {
  std::vector<int> seen;
  for (const BlockId block : ids_from_to(BlockId{3}, BlockId{5})) seen.push_back(block.value);
  EXPECT_EQ(seen, (std::vector{3, 4, 5}));
  for (const BlockId block : ids_from_to(BlockId{3}, BlockId{2})) FAIL() << block.value;
}

template <class Vector, class Index>
concept IndexedBy = requires(Vector v, Index i) {
  v[i];
};

TEST(IdVector, IsIndexedByItsOwnIdsOnly) {
  using Flops = IdVector<DeviceId, double>;
  static_assert(IndexedBy<Flops, DeviceId> && !IndexedBy<Flops, RankId>);
  static_assert(!IndexedBy<Flops, std::size_t>);
  IdVector<DeviceId, bool> seen(3, false);
  seen[DeviceId{1}] = true;
  std::vector<int> unseen;
  for (const DeviceId device : seen.ids()) {
    if (!seen[device]) unseen.push_back(device.value);
  }
  EXPECT_EQ(unseen, (std::vector{0, 2}));
  EXPECT_FALSE(seen.contains(DeviceId{3}));
  EXPECT_FALSE(seen.contains(DeviceId{}));
}

TEST(IdVector, GivesIdsToWhatIsAddedAndIsARange) {
  IdVector<OpId, int> values = {7, 8};
  EXPECT_EQ(values.push_back(9), OpId{2});
  const std::span<const int> all = values;
  EXPECT_EQ(all.back(), 9);
  EXPECT_EQ(values, (IdVector<OpId, int>{7, 8, 9}));
}

TEST(Rng, IsEqualOnEveryMachine) {
  Rng rng(1);
  EXPECT_EQ(rng(), 0x910a2dec89025cc1ULL);  // SplitMix64's published sequence for seed 1.
}

TEST(Rng, ForksDoNotDependOnTheirOrder) {
  const Rng rng(7);
  Rng a = rng.fork(1);
  Rng b = rng.fork(2);
  Rng again = rng.fork(1);
  EXPECT_EQ(a(), again());
  EXPECT_NE(rng.fork(1)(), b());
}

TEST(Rng, DistributionsHaveTheirMoments) {
  Rng rng(3);
  constexpr int kDraws = 200000;
  double normal = 0;
  double squares = 0;
  double exponential = 0;
  int heads = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.normal();
    normal += x;
    squares += x * x;
    exponential += rng.exponential(4);
    heads += rng.bernoulli(0.3) ? 1 : 0;
  }
  EXPECT_NEAR(normal / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(exponential / kDraws, 0.25, 0.005);
  EXPECT_NEAR(heads / double{kDraws}, 0.3, 0.005);
}

TEST(Rng, IntegersReachBothEnds) {
  Rng rng(5);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(rng.integer(-1, 2));
  EXPECT_EQ(seen, (std::set<std::int64_t>{-1, 0, 1, 2}));
}

TEST(Hash, IsTheStartOfSha1) {
  EXPECT_EQ(content_hash("abc"), "a9993e364706816a");
  EXPECT_EQ(content_hash(""), "da39a3ee5e6b4b0d");
}

TEST(CheckDeathTest, SaysWhatWasExpected) {
  EXPECT_DEATH(ORRERY_CHECK(1 + 1 == 3, "sum is {}", 2), "1 \\+ 1 == 3.*sum is 2");
}

TEST(Median, OfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 10}), 3);
}

}  // namespace
}  // namespace orrery::base_test
