/// The published experiment: what the paper says in words about it, on fewer steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "experiments/study/files.h"
#include "experiments/study/mixed_length_study.h"
#include "models/config/document.h"
#include "sim/flow/fork.h"
#include "tests/experiments/library.h"

namespace orrery::experiments::mixed_length_paper_test {
namespace {

/// steps.csv of an experiment of the paper, each run in a process of its own.
std::string published(const std::string& name, int steps, const std::vector<std::string>& cases) {
  config::Diagnostics diagnostics;
  Study study = load_study("experiments/hetu/" + name + "/manifest.yaml", diagnostics);
  diagnostics.raise();
  study.set("steps", config::Value::scalar(std::to_string(steps)));
  const auto runs =
      load_mixed_lengths(study, expand(study, diagnostics), support::library(), diagnostics);
  diagnostics.raise();
  std::string all;
  for (const auto& [point, loaded] : runs) {
    if (std::find(cases.begin(), cases.end(), point.on("case")) == cases.end()) continue;
    const sim::ForkResult done = sim::run_forked([&run = *loaded] {
      MixedLengthSession session(run);
      return run_steps(run, session, {});
    });
    if (const auto* failure = std::get_if<sim::ChildFailure>(&done)) {
      ADD_FAILURE() << failure->message;
      return "";
    }
    const std::string& text = std::get<std::string>(done);
    all += all.empty() ? text : text.substr(text.find('\n') + 1);
  }
  return all;
}

TEST(MixedLengthPaper, HetuAEqualsHotspaAndHetuBLeads) {
  constexpr int kSteps = 40;
  const auto rows = parse_csv(published(
      "mixed_length", kSteps,
      {"CommonCrawl-like 32K", "CommonCrawl-like 16K", "GitHub-like 32K", "GitHub-like 16K"}));
  ASSERT_EQ(rows.size(), 1U + 2 * 2 * 5 * kSteps);
  // Rows of a system without its name, and the mean of its step times.
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<std::string>> all;
  std::map<std::tuple<std::string, std::string, std::string>, double> mean;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    std::vector<std::string> rest = rows[r];
    rest[3] = "";
    const std::tuple key(rows[r][1], rows[r][2], rows[r][3]);
    all[key].push_back(csv_line(rest));
    mean[key] += std::stod(rows[r][5]) / kSteps;
  }
  for (const std::string lengths : {"commoncrawl_like", "github_like"}) {
    for (const std::string context : {"16384", "32768"}) {
      const auto of = [&](const char* system) { return mean.at({lengths, context, system}); };
      EXPECT_EQ((all[{lengths, context, "HotSPa"}]), (all[{lengths, context, "Hetu-A"}]));
      EXPECT_LT(of("HotSPa"), of("Megatron")) << lengths << " " << context;
      EXPECT_LT(of("HotSPa"), of("DeepSpeed")) << lengths << " " << context;
      EXPECT_LT(of("Hetu-B"), of("HotSPa")) << lengths << " " << context;
    }
  }
}

TEST(MixedLengthPaper, SameSeedSameBytes) {
  const std::vector<std::string> one = {"CommonCrawl-like 32K"};
  EXPECT_EQ(published("mixed_length", 3, one), published("mixed_length", 3, one));
}

TEST(MixedLengthPaper, SearchedStrategiesAreNoSlowerOnTheStepsThatAreRun) {
  constexpr int kSteps = 20;
  const auto rows = parse_csv(published("tables_9_to_12", kSteps, {"CommonCrawl-like 16K"}));
  ASSERT_EQ(rows.size(), 1U + 8 * kSteps);
  std::map<std::string, double> mean;
  for (std::size_t r = 1; r < rows.size(); ++r) mean[rows[r][3]] += std::stod(rows[r][5]) / kSteps;
  EXPECT_LE(mean.at("DeepSpeed, searched"), mean.at("DeepSpeed, Table 9"));
  EXPECT_LE(mean.at("Megatron, searched"), mean.at("Megatron, Table 9"));
  EXPECT_LE(mean.at("HotSPa, searched"), mean.at("HotSPa, Table 10"));
  EXPECT_LE(mean.at("Hetu-B, searched"), mean.at("Hetu-B, Table 12"));
}

}  // namespace
}  // namespace orrery::experiments::mixed_length_paper_test
