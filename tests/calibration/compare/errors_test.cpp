#include "calibration/compare/errors.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace orrery::calibration::errors_test {
namespace {

/// Errors +10 %, -20 %, +60 %.
ErrorSummary three() { return summarize_errors("a", "s", {0.1, -0.2, 0.6}, {"x", "y", "z"}); }

TEST(Errors, MeanMedianAndMaxAreAbsoluteAndTheBiasIsSigned) {
  const ErrorSummary errors = three();
  EXPECT_EQ(errors.rows, 3);
  EXPECT_NEAR(errors.mean, 0.3, 1e-12);
  EXPECT_NEAR(errors.median, 0.2, 1e-12);
  EXPECT_NEAR(errors.max, 0.6, 1e-12);
  EXPECT_NEAR(errors.bias, 0.5 / 3, 1e-12);
  EXPECT_EQ(errors.worst, "z");
}

TEST(Errors, MedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_NEAR(summarize_errors("a", "m", {-0.1, 0.4, 0.2, -0.8}).median, 0.3, 1e-12);
}

TEST(Errors, CsvLeavesOutWhatIsNotThere) {
  ErrorSummary line = three();
  line.target = 0.06;
  EXPECT_EQ(errors_csv("e", {line, summarize_errors("none", "s", {})}),
            "experiment,set,metric,rows,mean,median,max,bias,target,published_best\n"
            "e,a,s,3,0.3,0.2,0.6,0.166666667,0.06,\n"
            "e,none,s,0,,,,,,\n");
}

}  // namespace
}  // namespace orrery::calibration::errors_test
