#include "tools/cli/progress.h"

#include <gtest/gtest.h>

namespace orrery::tools::progress_test {
namespace {

TEST(Progress, CountsPresentAndFailedRunsAsEnded) {
  experiments::Progress view;
  view.total = 40;
  view.done = 7;
  view.present = 4;
  view.failed = 1;
  view.elapsed_seconds = 21.4;
  EXPECT_EQ(progress_text(view), "12/40 runs (4 present), 1 failed, 0:21");
  view.remaining_seconds = 48;
  EXPECT_EQ(progress_text(view), "12/40 runs (4 present), 1 failed, 0:21, about 0:48 left");
}

TEST(Progress, TimesBeyondAnHourShowHours) {
  experiments::Progress view;
  view.total = 1;
  view.elapsed_seconds = 3723;
  EXPECT_EQ(progress_text(view), "0/1 runs, 1:02:03");
}

TEST(Progress, BarIsFullOnlyAtTheEnd) {
  EXPECT_EQ(progress_bar(0, 10, 10), "[>         ]");
  EXPECT_EQ(progress_bar(5, 10, 10), "[=====>    ]");
  EXPECT_EQ(progress_bar(10, 10, 10), "[==========]");
  EXPECT_EQ(progress_bar(0, 0, 4), "[====]");
}

}  // namespace
}  // namespace orrery::tools::progress_test
