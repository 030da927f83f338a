#include "experiments/execution/twin_results.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tools/commands/twin.h"

namespace orrery::experiments::twin_results_test {
namespace {

/// A run whose iteration of 1 s is predicted with this error.
TwinResult result(const std::string& name, std::uint64_t program, double error) {
  TwinResult out;
  out.run.name = name;
  out.run.finished = true;
  GenerationComparison one;
  one.program.header.seed = program;
  one.comparison.emplace();
  one.comparison->iteration = {1 + error, 1};
  for (const char* name : {"forward", "backward", "tensor_parallel", "pipeline", "data_parallel",
                           "optimizer", "bubble"}) {
    one.comparison->components.push_back({name, {}, 0});
  }
  one.compute_ops = 100;
  out.final = one;
  out.raw = one;
  return out;
}

TwinSummary summary_of(std::vector<TwinResult> results) {
  TwinSummary out;
  out.name = "test";
  out.results = std::move(results);
  mark_equal_programs(out);
  return out;
}

using Row = std::map<std::string, std::string>;

/// Rows of a CSV file without quotes, by column.
std::vector<Row> rows_of(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.emplace_back(1);
    for (const char c : line) {
      if (c == ',') {
        lines.back().emplace_back();
      } else {
        lines.back().back() += c;
      }
    }
  }
  std::vector<Row> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].size(), lines[0].size()) << "line " << i + 1;
    rows.emplace_back();
    for (std::size_t k = 0; k < std::min(lines[i].size(), lines[0].size()); ++k) {
      rows.back()[lines[0][k]] = lines[i][k];
    }
  }
  return rows;
}

Row iteration_errors(const TwinSummary& summary, const std::string& set) {
  for (Row& row : rows_of(twin_errors_csv(summary))) {
    if (row["set"] == set && row["metric"] == "iteration") return row;
  }
  ADD_FAILURE() << "no errors of set " << set;
  return {};
}

TEST(TwinResults, AProgramThatRanTwiceCountsOnce) {
  const TwinSummary summary =
      summary_of({result("a", 1, 0.10), result("b", 2, 0.20), result("c", 1, 0.60)});
  EXPECT_EQ(summary.results[0].same_as, "");
  EXPECT_EQ(summary.results[1].same_as, "");
  EXPECT_EQ(summary.results[2].same_as, "a");
  Row row = iteration_errors(summary, "predict");
  EXPECT_EQ(row["rows"], "2");
  EXPECT_NEAR(std::stod(row["mean"]), 0.15, 1e-9);
  EXPECT_EQ(rows_of(twin_csv(summary))[2]["same_program_as"], "a");
  EXPECT_NE(tools::twin_text(summary).find("the program of a"), std::string::npos);
}

TEST(TwinResults, ComponentsKeepTheirColumnsWhereARunHasGathersOfZero) {
  TwinResult plain = result("plain", 1, 0.1), sharded = result("sharded", 2, 0.1);
  for (TwinResult* one : {&plain, &sharded}) {
    one->final->comparison->components[3] = {"pipeline", {0.3, 0.2}, 0.1};
  }
  auto& components = sharded.final->comparison->components;
  components.insert(components.begin() + 3, {"zero", {0.9, 0.4}, 0.5});
  TwinResult failed;
  failed.run.name = "failed";
  EXPECT_FALSE(rows_of(twin_csv(summary_of({plain})))[0].contains("zero_of_iteration"));
  const TwinSummary summary = summary_of({plain, sharded, failed});
  const std::vector<Row> rows = rows_of(twin_csv(summary));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rows[i].at("pipeline_of_iteration"), "0.1");
    EXPECT_EQ(rows[i].at("bubble_of_iteration"), "0");
    EXPECT_EQ(rows[i].at("zero_of_iteration"), i == 0 ? "0" : "0.5");
  }
  std::map<std::string, std::string> means;
  for (Row& row : rows_of(twin_errors_csv(summary))) means[row["metric"]] = row["mean"];
  EXPECT_EQ(means["pipeline_share_of_iteration"], "0.1");
  EXPECT_EQ(means["zero_share_of_iteration"], "0.5");
}

TEST(TwinResults, AProgramThatWasFittedOnIsNoPredictedOne) {
  TwinResult fit = result("fit", 1, 0.01);
  fit.run.fit = true;
  // Also where the run for fitting comes later.
  const TwinSummary summary = summary_of({result("a", 1, 0.5), result("b", 2, 0.2), fit});
  EXPECT_EQ(summary.results[0].same_as, "fit");
  EXPECT_EQ(summary.results[2].same_as, "");
  EXPECT_EQ(iteration_errors(summary, "predict")["rows"], "1");
  EXPECT_EQ(iteration_errors(summary, "fit")["rows"], "1");
}

TEST(TwinResults, RecoveriesOfOneProgramAreNotTheSame) {
  std::vector<TwinResult> results = {result("a", 1, 0.1), result("b", 1, 0.3)};
  for (TwinResult& one : results) one.run.policy = "hetu";
  EXPECT_EQ(iteration_errors(summary_of(results), "recovery")["rows"], "2");
}

TEST(TwinResults, ARunThatWasSeenIsInNoMeanOfPredictedOnes) {
  TwinResult seen = result("tp4", 1, 0.5);
  seen.run.seen = "rings were changed";
  const TwinSummary summary = summary_of({seen, result("a", 2, 0.1)});
  Row predicted = iteration_errors(summary, "predict");
  EXPECT_EQ(predicted["rows"], "1");
  EXPECT_NEAR(std::stod(predicted["mean"]), 0.1, 1e-9);
  EXPECT_EQ(iteration_errors(summary, "seen")["rows"], "1");
  EXPECT_EQ(rows_of(twin_csv(summary))[0]["set"], "seen");
  EXPECT_NE(tools::twin_text(summary).find("tp4 is no unseen run: rings were changed"),
            std::string::npos);
}

TEST(TwinResults, DisturbedOpsStandBesideErrorsAndAreWarnedOf) {
  TwinResult quiet = result("quiet", 1, 0.1);
  quiet.final->disturbed_ops = 5;
  TwinResult loud = result("loud", 2, 0.1);
  loud.final->disturbed_ops = 31;
  const TwinSummary both = summary_of({quiet, loud});
  EXPECT_NEAR(std::stod(iteration_errors(both, "predict")["disturbed_share"]), 0.18, 1e-9);
  EXPECT_NE(
      tools::twin_text(both).find("More than 5 % of the ops were disturbed in 1 of 2 runs (at most "
                                  "31.0 %: loud)"),
      std::string::npos)
      << tools::twin_text(both);
  EXPECT_EQ(tools::twin_text(summary_of({quiet})).find("More than 5 %"), std::string::npos);
}

TEST(TwinResults, ARecoveryHasATotal) {
  TwinResult loss = result("loss", 1, 0.1);
  loss.run.policy = "hetu";
  loss.phases = {{"detect", 0.02, 0.16}, {"first_step", 0.98, 1.04}};
  const TwinSummary summary = summary_of({loss});
  const std::vector<Row> rows = rows_of(phases_csv(summary));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2].at("phase"), "total");
  EXPECT_NEAR(std::stod(rows[2].at("predicted_s")), 1.2, 1e-9);
  EXPECT_NEAR(std::stod(rows[2].at("measured_s")), 1.0, 1e-9);
  EXPECT_NEAR(std::stod(rows[2].at("error")), 0.2, 1e-9);
  bool found = false;
  for (Row& row : rows_of(twin_errors_csv(summary))) {
    if (row["metric"] != "recovery_total") continue;
    found = true;
    EXPECT_EQ(row["set"], "recovery");
    EXPECT_NEAR(std::stod(row["mean"]), 0.2, 1e-9);
  }
  EXPECT_TRUE(found) << "no error of the total";
}

TEST(TwinResults, ATotalWithoutAllPhasesIsNotPredicted) {
  const auto total = total_of({{"detect", 0.5, std::nullopt}, {"first_step", 1.0, 1.5}});
  ASSERT_TRUE(total.has_value());
  EXPECT_EQ(total->measured, 1.5);
  EXPECT_FALSE(total->predicted.has_value());
  EXPECT_FALSE(total_of({}).has_value());
}

}  // namespace
}  // namespace orrery::experiments::twin_results_test
