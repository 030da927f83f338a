#include "experiments/validation/a100/experiment.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "experiments/validation/a100/table.h"
#include "tests/experiments/library.h"

namespace orrery::experiments::experiment_test {
namespace {

using support::library;

/// Small runs of different shape.
std::vector<A100Row> shapes() {
  std::vector<A100Row> rows;
  for (const int tp : {1, 2, 4, 8}) {
    for (const int micro_batch : {1, 2, 4}) {
      A100Row row;
      row.id = "tp" + std::to_string(tp) + "-b" + std::to_string(micro_batch);
      row.set = "small";
      row.layers = 8;
      row.hidden = 1024 * tp;
      row.heads = 16;
      row.sequence = 2048;
      row.vocabulary = 50304;
      row.tp = tp;
      row.pp = tp == 2 ? 2 : 1;
      row.dp = 16 / tp / row.pp;
      row.micro_batch = micro_batch;
      row.global_batch = std::int64_t{8} * row.dp;
      row.nics_per_node = 4;
      rows.push_back(row);
    }
  }
  return rows;
}

A100Parameters truth() {
  A100Parameters parameters = declared_a100_parameters();
  parameters[A100Parameter::gemm_share] = 0.63;
  parameters[A100Parameter::memory_share] = 0.55;
  return parameters;
}

/// The shapes, "measured" by the simulator itself with parameters that the fit does not know.
std::vector<A100Row> synthetic() {
  std::vector<A100Row> rows = shapes();
  const auto predictions = predict_a100(rows, truth(), library(), {});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].measured = predictions[i].iteration;
    rows[i].fitted = i != 5 && i != 8;
  }
  return rows;
}

const std::vector<A100Parameter> kFree = {A100Parameter::gemm_share, A100Parameter::memory_share};

TEST(FitA100, RecoversTheParametersOfSimulatedRows) {
  const std::vector<A100Row> rows = synthetic();
  const A100Fit fit = fit_a100(rows, kFree, declared_a100_parameters(), library(), {});
  EXPECT_NEAR(fit.parameters[A100Parameter::gemm_share], 0.63, 0.01);
  EXPECT_NEAR(fit.parameters[A100Parameter::memory_share], 0.55, 0.01);
  EXPECT_EQ(fit.parameters[A100Parameter::nvlink_share], truth()[A100Parameter::nvlink_share]);
  for (const double error : fit.left_out) EXPECT_NEAR(error, 0, 0.01);
}

TEST(FitA100, DoesNotSeeScoredMeasurements) {
  std::vector<A100Row> rows = synthetic();
  const A100Fit before = fit_a100(rows, kFree, declared_a100_parameters(), library(), {});
  for (A100Row& row : rows) {
    if (!row.fitted) row.measured = 10 * *row.measured;
  }
  const A100Fit after = fit_a100(rows, kFree, declared_a100_parameters(), library(), {});
  EXPECT_EQ(before.parameters, after.parameters);
  EXPECT_EQ(before.left_out, after.left_out);
}

TEST(PredictA100, IsTheSameWhateverRunsBesideIt) {
  const std::vector<A100Row> rows = shapes();
  const auto one = predict_a100(rows, truth(), library(), {false, 1, {}});
  const auto many = predict_a100(rows, truth(), library(), {false, 3, {}});
  ASSERT_EQ(one.size(), rows.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].iteration.value, many[i].iteration.value) << rows[i].id;
  }
}

TEST(PredictA100, WaitsForTheHostWhereKernelsAreShort) {
  std::vector<A100Row> rows = {shapes().front()};
  A100Parameters slow_host = truth();
  slow_host[A100Parameter::host_per_layer] = 0.02;
  const double fast = predict_a100(rows, truth(), library(), {})[0].iteration.value;
  const double slow = predict_a100(rows, slow_host, library(), {})[0].iteration.value;
  // Eight layers, eight micro-batches, three passes of a layer with full recomputation.
  EXPECT_GE(slow, 8 * 8 * 3 * 0.02);
  EXPECT_LT(fast, slow);
}

TEST(UnseenErrors, TakeFittedRowsFromTheirLeaveOneOut) {
  std::vector<A100Row> rows = shapes();
  rows.resize(3);
  rows[0].measured = rows[1].measured = Seconds{2};
  rows[0].fitted = true;
  A100Fit fit;
  fit.rows = {0};
  fit.left_out = {0.25};
  const auto errors =
      unseen_errors(rows, {{Seconds{2}, {}}, {Seconds{1}, {}}, {Seconds{1}, {}}}, fit);
  EXPECT_EQ(errors[0], 0.25);
  EXPECT_EQ(errors[1], -0.5);
  EXPECT_FALSE(errors[2].has_value());
}

class Files : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ = ::testing::TempDir() + "a100_parameters_test.csv";
};

TEST_F(Files, ParametersAreReadBackAndOthersAreDeclared) {
  const std::vector<A100Row> rows = synthetic();
  A100Fit fit;
  fit.parameters = truth();
  fit.rows = {0};
  fit.left_out = {0.1};
  config::Diagnostics diagnostics;
  const A100Parameters read = read_parameters(
      write(parameters_csv("test", fitted_parameters(rows, kFree, fit))), diagnostics);
  EXPECT_TRUE(diagnostics.empty());
  EXPECT_EQ(read, truth());
}

TEST_F(Files, WrongParametersAreProblemsAtTheirPlace) {
  config::Diagnostics diagnostics;
  read_parameters(write("name,value\ngemm_share,0.7\nspeed,1\nmemory_share,7\n"), diagnostics);
  ASSERT_EQ(diagnostics.problems().size(), 2U);
  EXPECT_EQ(diagnostics.problems()[0].at.line, 3);
  EXPECT_EQ(diagnostics.problems()[1].at.line, 4);
  EXPECT_EQ(diagnostics.problems()[1].at.column, 14);
}

TEST_F(Files, MissingColumnsAndCellsAreProblems) {
  config::Diagnostics diagnostics;
  const PublishedTable table(write("id,tp\na,0\nb\n"), {"id", "pp"}, diagnostics);
  EXPECT_EQ(diagnostics.problems().size(), 2U);  // the short line, the column
  EXPECT_EQ(table.count(0, "tp"), 0);
  EXPECT_EQ(diagnostics.problems().size(), 3U);
}

}  // namespace
}  // namespace orrery::experiments::experiment_test
