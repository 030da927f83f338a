#include "experiments/validation/common/errors.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace orrery::experiments::errors_test {
namespace {

ValidationRow row(const std::string& id, double predicted, std::optional<double> measured) {
  ValidationRow out;
  out.id = id;
  out.set = std::string("a");
  out.metric = "iteration_s";
  out.predicted = predicted;
  out.measured = measured;
  return out;
}

/// Errors +10 %, -20 %, +60 %.
std::vector<ValidationRow> three() {
  return {row("x", 1.1, 1.0), row("y", 1.6, 2.0), row("z", 6.4, 4.0)};
}

TEST(Errors, MeanMedianAndMaxAreAbsoluteAndTheBiasIsSigned) {
  const ErrorSummary errors = summarize(three(), "a", "iteration_s");
  EXPECT_EQ(errors.rows, 3);
  EXPECT_NEAR(errors.mean, 0.3, 1e-12);
  EXPECT_NEAR(errors.median, 0.2, 1e-12);
  EXPECT_NEAR(errors.max, 0.6, 1e-12);
  EXPECT_NEAR(errors.bias, 0.5 / 3, 1e-12);
  EXPECT_EQ(errors.worst, "z");
}

TEST(Errors, MedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_NEAR(summarize("a", "m", {-0.1, 0.4, 0.2, -0.8}).median, 0.3, 1e-12);
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
}

TEST(Errors, DoubtfulFittedAndUnmeasuredRowsDoNotCount) {
  std::vector<ValidationRow> rows = three();
  rows[0].scored = false;
  rows[1].fitted = true;
  rows.push_back(row("w", 1, std::nullopt));
  const ErrorSummary errors = summarize(rows, "a", "iteration_s");
  EXPECT_EQ(errors.rows, 1);
  EXPECT_NEAR(errors.mean, 0.6, 1e-12);
}

TEST(Errors, OtherSetsAndMetricsDoNotCount) {
  std::vector<ValidationRow> rows = three();
  rows[0].set = std::string("b");
  rows[1].metric = "peak_memory_bytes";
  EXPECT_EQ(summarize(rows, "a", "iteration_s").rows, 1);
  EXPECT_EQ(summarize(rows, "", "iteration_s").rows, 2);
}

TEST(Errors, CsvLeavesOutWhatIsNotThere) {
  ErrorLine line;
  line.errors = summarize(three(), "a", "iteration_s");
  line.target = 0.06;
  ErrorLine empty;
  empty.errors = summarize({}, "none", "iteration_s");
  EXPECT_EQ(errors_csv("e", {line, empty}),
            "experiment,set,metric,rows,mean,median,max,bias,target,published_best\n"
            "e,a,iteration_s,3,0.3,0.2,0.6,0.166666667,0.06,\n"
            "e,none,iteration_s,0,,,,,,\n");
}

TEST(Predictions, HaveALineForEachCaseMeasuredOrNot) {
  std::vector<ValidationRow> rows = {row("x", 1.5, 1.0), row("y, z", 2, std::nullopt)};
  rows.push_back(rows.front());
  rows.back().metric = "bytes";
  rows.back().fitted = true;
  EXPECT_EQ(predictions_csv(rows),
            "id,set,scored,iteration_s_predicted,iteration_s_measured,iteration_s_error,"
            "iteration_s_use,bytes_predicted,bytes_measured,bytes_error,bytes_use\n"
            "x,a,true,1.5,1,0.5,scored,1.5,1,0.5,fitted\n"
            "\"y, z\",a,true,2,,,unmeasured,,,,\n");
}

TEST(LeaveOneOut, FitsOnAllRowsButTheOneItJudges) {
  const std::vector<double> values = {1, 2, 6};
  const auto errors =
      leave_one_out(values.size(), [&](const std::vector<std::size_t>& kept, std::size_t out) {
        double mean = 0;
        for (const std::size_t i : kept) mean += values[i] / static_cast<double>(kept.size());
        return (mean - values[out]) / values[out];
      });
  EXPECT_EQ(errors, (std::vector<double>{3.0, 0.75, -0.75}));
}

TEST(LeaveOneOut, AParameterNeedsFiveRows) {
  EXPECT_TRUE(enough_rows(1, 5));
  EXPECT_FALSE(enough_rows(1, 4));
  EXPECT_FALSE(enough_rows(2, 9));
}

}  // namespace
}  // namespace orrery::experiments::errors_test
