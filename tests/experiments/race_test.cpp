// Does a race find what sampling everything would find, with fewer samples?
#include "experiments/study/race.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "experiments/study/replay_score.h"
#include "models/base/rng.h"
#include "tests/experiments/replay_support.h"

namespace orrery::experiments::race_test {
namespace {

using Matrix = std::vector<std::vector<double>>;  ///< By candidate and seed.

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::size_t best_of_all(const Matrix& values) {
  const auto better = [](const auto& a, const auto& b) { return mean(a) < mean(b); };
  return std::max_element(values.begin(), values.end(), better) - values.begin();
}

/// Runs the race on values that are known.
Race raced(const Matrix& values, RaceSettings settings) {
  settings.most = static_cast<int>(values.front().size());
  Race race(settings);
  for (std::size_t c = 0; c < values.size(); ++c) race.add();
  for (auto due = race.next(); !due.empty(); due = race.next()) {
    for (const Race::Sample& sample : due) {
      EXPECT_EQ(sample.seed, static_cast<int>(race.values(sample.candidate).size()));
      race.take(sample.candidate, values[sample.candidate][sample.seed]);
    }
  }
  return race;
}

/// Candidates whose means differ by little, under seeds that differ by much.
Matrix world(Rng& rng, std::size_t candidates, std::size_t seeds) {
  Matrix values(candidates, std::vector<double>(seeds));
  std::vector<double> level(candidates);
  for (double& each : level) each = rng.uniform();
  for (std::size_t s = 0; s < seeds; ++s) {
    const double day = 3 * rng.normal();
    for (std::size_t c = 0; c < candidates; ++c) {
      values[c][s] = 10 + level[c] + day + 0.1 * rng.normal();
    }
  }
  return values;
}

TEST(Race, FindsTheBestOfManyInATenthOfTheSamples) {
  Rng rng(7);
  int found = 0;
  double lost = 0;
  constexpr int kWorlds = 200;
  for (int i = 0; i < kWorlds; ++i) {
    const Matrix values = world(rng, 40, 32);
    const Race race = raced(values, {.budget = 128});
    EXPECT_LE(race.samples(), 128);
    const std::size_t best = best_of_all(values);
    const std::size_t chosen = race.ranking().front();
    found += chosen == best ? 1 : 0;
    lost += mean(values[best]) - mean(values[chosen]);
  }
  EXPECT_GE(found, kWorlds * 2 / 3);
  EXPECT_LT(lost / kWorlds, 0.02) << "of a range of 1";
}

TEST(Race, SpendsFewSamplesOnTheHopelessAndManyOnTheClose) {
  Matrix values(12, std::vector<double>(64));
  Rng rng(3);
  for (std::size_t c = 0; c < values.size(); ++c) {
    for (double& value : values[c])
      value = (c == 0 ? 10.0 : c == 1 ? 10.02 : 1.0) + 0.1 * rng.normal();
  }
  const Race race = raced(values, {.budget = 160, .finalists = 4});
  for (std::size_t c = 2; c < values.size(); ++c) EXPECT_LE(race.values(c).size(), 4u) << c;
  EXPECT_GE(race.values(0).size(), 20u);
  EXPECT_GE(race.values(1).size(), 20u);
}

TEST(Race, EndsWhereMoreSamplesSayNothing) {
  // As under a trace file: every seed has the same value.
  const Matrix values = {std::vector<double>(50, 3), std::vector<double>(50, 5),
                         std::vector<double>(50, 5)};
  const Race race = raced(values, {.budget = 1000});
  EXPECT_LE(race.samples(), 9);
  EXPECT_EQ(race.ranking().front(), 1u);
  EXPECT_FALSE(race.settled()) << "two are equal";
}

TEST(Race, WhoCannotRunIsOutAndALateComerIsCompared) {
  Race race({.budget = 100, .most = 5});
  race.add();
  race.add();
  bool late = false;
  for (auto due = race.next(); !due.empty(); due = race.next()) {
    for (const Race::Sample& sample : due) {
      if (sample.candidate == 1) {
        race.take(1, std::nullopt);
      } else {
        race.take(sample.candidate, (sample.candidate == 2 ? 2.0 : 1.0) + 0.01 * sample.seed);
      }
    }
    if (!late) late = race.add() == 2;
  }
  EXPECT_EQ(race.ranking(), (std::vector<std::size_t>{2, 0}));
  EXPECT_TRUE(race.settled());
}

/// Tokens per second of two policies at three intervals under traces of 12 seeds.
class Replays : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const support::ReplayExperiment files;
    ReplayCase one;
    one.cluster.value = files.folder / "quad.yaml";
    one.model.value = "gpt3_125m";
    one.job.global_batch = 16;
    one.job.sequence_length = 512;
    one.trace.generator = {"restless.yaml", {}};
    one.horizon = Seconds{1800};
    config::Diagnostics problems;
    const auto loaded = std::make_shared<const LoadedReplayCase>(
        load_replay_case(one, files.folder.path(), support::library(), problems));
    problems.raise();
    std::vector<ReplayTask> tasks;
    for (const char* name : {"checkpoint_restart", "hetu"}) {
      for (const char* interval : {"young*0.25", "young", "young*8"}) {
        ReplayPolicy policy;
        policy.name = name;
        policy.options["interval"] = interval;
        for (std::size_t seed = 0; seed < kSeeds; ++seed) {
          tasks.push_back({name, loaded, policy, {.seed = static_cast<std::int64_t>(seed)}});
        }
      }
    }
    const std::vector<ReplayScore> scores = score_replays(tasks, nullptr, [](std::size_t) {});
    for (std::size_t i = 0; i < scores.size(); ++i) {
      ASSERT_FALSE(scores[i].infeasible) << scores[i].infeasible->witness;
      if (i % kSeeds == 0) values_.emplace_back();
      values_.back().push_back(scores[i].tokens_per_second());
    }
  }

  static double deviation(const std::vector<double>& values) {
    double squares = 0;
    for (const double value : values) squares += std::pow(value - mean(values), 2);
    return std::sqrt(squares / static_cast<double>(values.size() - 1));
  }
  static std::vector<double> differences(std::size_t a, std::size_t b) {
    std::vector<double> out;
    for (std::size_t s = 0; s < kSeeds; ++s) out.push_back(values_[a][s] - values_[b][s]);
    return out;
  }

  static constexpr std::size_t kSeeds = 12;
  static Matrix values_;
};
Matrix Replays::values_;

TEST_F(Replays, ARaceChoosesWhatAllReplaysChooseOrItsEqual) {
  const Race race = raced(values_, {.budget = 50, .finalists = 3});
  EXPECT_LT(race.samples(), static_cast<std::int64_t>(values_.size() * kSeeds));
  const std::size_t best = best_of_all(values_);
  const std::size_t chosen = race.ranking().front();
  if (chosen == best) return;
  const std::vector<double> lead = differences(best, chosen);
  // Student's t at 97.5 % with 11 degrees of freedom.
  EXPECT_LT(mean(lead), 2.201 * deviation(lead) / std::sqrt(double{kSeeds}))
      << "candidate " << chosen << " in place of " << best;
}

TEST_F(Replays, CommonSeedsNarrowTheIntervalOfADifference) {
  // Different intervals of one policy: the same failures hit both.
  for (const auto& [a, b] : {std::pair<std::size_t, std::size_t>{0, 1}, {1, 2}, {3, 4}}) {
    const double paired = deviation(differences(a, b));
    const double apart = std::hypot(deviation(values_[a]), deviation(values_[b]));
    EXPECT_LT(paired, 0.8 * apart) << a << " and " << b;
  }
}

}  // namespace
}  // namespace orrery::experiments::race_test
