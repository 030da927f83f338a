/// Are drawn steps what the distribution and the budget say?
#include "models/spec/lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/config/document.h"
#include "models/spec/library.h"

namespace orrery::models::lengths_test {
namespace {

constexpr std::int64_t kTokens = 204800;

LengthModel library_lengths(const std::string& name) {
  config::Diagnostics diagnostics;
  LengthModel model = load_lengths(name, default_library_root(), {}, diagnostics);
  diagnostics.raise();
  return model;
}

TEST(Lengths, EveryStepHoldsItsTokensExactlyAndNoSequenceExceedsTheContext) {
  for (const char* name : {"commoncrawl_like", "github_like"}) {
    const LengthModel model = library_lengths(name);
    for (const std::int64_t context : {4096, 16384, 32768}) {
      for (std::uint64_t step = 0; step < 50; ++step) {
        const auto lengths = draw_step(model, kTokens, context, Rng(7).fork(step));
        EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), kTokens);
        for (const std::int64_t length : lengths) {
          EXPECT_GT(length, 0);
          EXPECT_LE(length, context);
          EXPECT_EQ(length % model.multiple, 0);
        }
      }
    }
  }
}

TEST(Lengths, CommonCrawlLikeHas97PercentUnder8K) {
  const LengthModel model = library_lengths("commoncrawl_like");
  EXPECT_NEAR(share_up_to(model.distribution, 8192), 0.97, 1e-9);
  std::int64_t shorter = 0;
  std::int64_t all = 0;
  for (std::uint64_t step = 0; step < 400; ++step) {
    for (const std::int64_t length : draw_step(model, kTokens, 32768, Rng(1).fork(step))) {
      shorter += length <= 8192 ? 1 : 0;
      ++all;
    }
  }
  // About 50,000 sequences: standard error below 0.001; cutting a step's last one adds short ones.
  EXPECT_NEAR(static_cast<double>(shorter) / static_cast<double>(all), 0.97, 0.005);
}

TEST(Lengths, SharesOfLibraryDistributionsFallIntoTheirBuckets) {
  for (const char* name : {"commoncrawl_like", "github_like"}) {
    const LengthModel model = library_lengths(name);
    double below = 0;
    for (const auto& bucket : model.distribution.buckets) {
      below += bucket.share;
      EXPECT_NEAR(share_up_to(model.distribution, bucket.longest), below, 1e-9);
    }
    EXPECT_NEAR(below, 1, 1e-9);
    EXPECT_EQ(share_up_to(model.distribution, 1), 0);
  }
}

TEST(Lengths, SameSeedSameStepOtherSeedOtherStep) {
  const LengthModel model = library_lengths("github_like");
  const auto draw = [&](std::uint64_t seed) { return draw_step(model, kTokens, 32768, Rng(seed)); };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
}

TEST(Lengths, AStepOfSequencesHoldsSoManyOfTheSameDistribution) {
  const LengthModel model = library_lengths("github_like");
  const auto drawn = draw_sequences(model, 4000, 16384, Rng(9));
  ASSERT_EQ(drawn.size(), 4000U);
  double shorter = 0;
  for (const std::int64_t length : drawn) {
    EXPECT_LE(length, 16384);
    EXPECT_EQ(length % model.multiple, 0);
    shorter += length <= 4096 ? 1.0 / 4000 : 0;
  }
  // Binomial: standard error below 0.006.
  EXPECT_NEAR(shorter, share_up_to(model.distribution, 4096), 0.03);
}

TEST(Lengths, AShorterContextCutsTheSameSequences) {
  const LengthModel model = library_lengths("github_like");
  const auto whole = draw_step(model, kTokens, 32768, Rng(5));
  const auto cut = draw_step(model, kTokens, 4096, Rng(5));
  ASSERT_LE(whole.size(), cut.size());
  for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
    EXPECT_EQ(cut[i], std::min<std::int64_t>(whole[i], 4096)) << i;
  }
}

TEST(Lengths, BadDistributionsAreRefusedAtTheirPlace) {
  const auto problem = [](const std::string& lengths) {
    config::Diagnostics diagnostics;
    config::load_text<LengthModel>(
        "schema: orrery/lengths/1\nname: x\nsource: y\nlengths: " + lengths + "\n", "x.yaml",
        diagnostics);
    return diagnostics.empty() ? "" : config::to_string(diagnostics.problems().front());
  };
  EXPECT_EQ(problem("[{longest: 8, share: 1}]"), "");
  EXPECT_NE(problem("[{longest: 8, share: 0.5}]").find("x.yaml:4:"), std::string::npos);
  EXPECT_NE(problem("[{longest: 8, share: 0.5}, {longest: 8, share: 0.5}]").find("ascend"),
            std::string::npos);
  EXPECT_NE(problem("[]").find("no buckets"), std::string::npos);
  config::Diagnostics diagnostics;
  load_lengths("commoncrawl", default_library_root(), {"file", 1, 1}, diagnostics);
  ASSERT_FALSE(diagnostics.empty());
  EXPECT_NE(diagnostics.problems().front().hint.find("commoncrawl_like"), std::string::npos);
}

}  // namespace
}  // namespace orrery::models::lengths_test
