#include "tools/cli/table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::tools::table_test {
namespace {

TEST(Table, AlignsNumbersRightAndTextLeft) {
  Table table;
  table.column("planner").number("time s").column("verdict");
  table.row({"amp", "9.5", "fits"});
  table.row({"hexiscale", "123.25", "-"});
  EXPECT_EQ(table.text(),
            "planner    time s  verdict\n"
            "amp           9.5  fits\n"
            "hexiscale  123.25  -\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table;
  table.column("GPU").number("n");
  table.row({"µ-é", "1"});
  table.row({"abc", "22"});
  EXPECT_EQ(table.text(), "GPU   n\nµ-é   1\nabc  22\n");
}

TEST(Table, WideAndCombiningAndColoredTextHaveTheirWidthOnScreen) {
  EXPECT_EQ(display_width("\u4e2d\u6587"), 4U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
  EXPECT_EQ(display_width("\033[31mfits\033[0m"), 4U);
  EXPECT_EQ(display_width("\xff\xfe"), 2U);
  EXPECT_EQ(display_width(""), 0U);
}

TEST(Table, IndentsEveryLineAndLeavesNoBlanksAtTheEnd) {
  Table table;
  table.column("a").column("long heading");
  table.row({"x", ""});
  table.row({"y"});
  EXPECT_EQ(table.text(2), "  a  long heading\n  x\n  y\n");
}

TEST(Numbers, AreGroupedByThousands) {
  EXPECT_EQ(grouped(0, 0), "0");
  EXPECT_EQ(grouped(999.5, 1), "999.5");
  EXPECT_EQ(grouped(1234567.891, 2), "1,234,567.89");
  EXPECT_EQ(grouped(-1234, 0), "-1,234");
  EXPECT_EQ(grouped(-123, 0), "-123");
  EXPECT_EQ(grouped(std::nan(""), 2), "-");
}

TEST(Table, ColumnsThatANarrowTerminalCannotHoldComeBelow) {
  Table table;
  table.column("planner").number("estimate").number("simulated").column("verdict");
  table.row({"amp", "1.5", "2.5", "fits"});
  table.row({"metis", "1.25", "2.25"});
  EXPECT_EQ(table.text(0, false, 29),
            "planner  estimate  simulated\n"
            "amp           1.5        2.5\n"
            "metis        1.25       2.25\n"
            "\n"
            "planner  verdict\n"
            "amp      fits\n"
            "metis\n");
  EXPECT_EQ(table.text(0, false, 37), table.text(0, false, 0));
  EXPECT_EQ(table.text(0, false, 1),
            "planner  estimate\n"
            "amp           1.5\n"
            "metis        1.25\n"
            "\n"
            "planner  simulated\n"
            "amp            2.5\n"
            "metis         2.25\n"
            "\n"
            "planner  verdict\n"
            "amp      fits\n"
            "metis\n")
      << "two columns at least";
}

TEST(Numbers, DurationsReadWell) {
  EXPECT_EQ(duration(3.204), "3.20 s");
  EXPECT_EQ(duration(42.4), "42 s");
  EXPECT_EQ(duration(59.7), "1 min 00 s");
  EXPECT_EQ(duration(245), "4 min 05 s");
  EXPECT_EQ(duration(7384), "2 h 03 min");
}

TEST(Numbers, ShortTimesKeepThreeDigits) {
  EXPECT_EQ(seconds_cell(31.62081), "31.6208");
  EXPECT_EQ(seconds_cell(0.0278), "0.0278");
  EXPECT_EQ(seconds_cell(0), "0.0000");
  EXPECT_EQ(seconds_cell(0.000107), "0.000107");
  EXPECT_EQ(seconds_cell(1e-30), "0.000000000");
}

TEST(Numbers, OneRunIsNoPlural) {
  EXPECT_EQ(counted(1, "run"), "1 run");
  EXPECT_EQ(counted(2, "run"), "2 runs");
}

}  // namespace
}  // namespace orrery::tools::table_test
