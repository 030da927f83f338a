#include "models/config/csv.h"

#include <gtest/gtest.h>

namespace orrery::config::csv_test {
namespace {

TEST(Csv, CellsComeBackAsTheyWere) {
  const std::vector<std::string> cells = {"plain", "a,b", "say \"no\"", "two\nlines",
                                          "",      " ",   "end\t",      "\""};
  EXPECT_EQ(csv_line({"a", "b,c"}), "a,\"b,c\"\n");
  EXPECT_EQ(csv_line({"", "b"}), ",b\n");
  EXPECT_EQ(parse_csv(csv_line(cells)).at(0), cells);
}

TEST(Csv, BlanksAroundCellsAreDropped) {
  std::vector<CsvCell> cells;
  EXPECT_FALSE(split_csv(" a ,\t\" b \" ,,c\r", cells));
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_EQ(cells[0].text, "a");
  EXPECT_EQ(cells[0].column, 2);
  EXPECT_EQ(cells[1].text, " b ");
  EXPECT_EQ(cells[1].column, 6);
  EXPECT_EQ(cells[2].text, "");
  EXPECT_EQ(cells[3].text, "c");
}

TEST(Csv, QuotesEndAndNothingFollowsThem) {
  std::vector<CsvCell> cells;
  EXPECT_EQ(split_csv("a,\"b", cells)->column, 3);
  EXPECT_EQ(split_csv("a,\"b\"c,d", cells)->column, 6);
}

TEST(Csv, ALineThatWasCutOffIsLeftOut) {
  EXPECT_EQ(parse_csv("a,b\nc,d\ne"),
            (std::vector<std::vector<std::string>>{{"a", "b"}, {"c", "d"}}));
}

}  // namespace
}  // namespace orrery::config::csv_test
