#include "models/sharding/layout.h"

#include <gtest/gtest.h>

#include "tests/models/sharding/layouts.h"

namespace orrery::models::layout_test {
namespace {

TEST(EvenPart, GivesTheRemainderToTheFirstParts) {
  EXPECT_EQ(even_part({5, 15}, 4, 0), (Slice{5, 8}));
  EXPECT_EQ(even_part({5, 15}, 4, 1), (Slice{8, 11}));
  EXPECT_EQ(even_part({5, 15}, 4, 2), (Slice{11, 13}));
  EXPECT_EQ(even_part({5, 15}, 4, 3), (Slice{13, 15}));
}

TEST(EvenPart, LeavesLatePartsEmptyWhenElementsAreFew) {
  EXPECT_EQ(even_part({0, 2}, 3, 1), (Slice{1, 2}));
  EXPECT_EQ(even_part({0, 2}, 3, 2), (Slice{2, 2}));
}

TEST(EvenPartDeathTest, AbortsOnAPartThatIsNotThere) {
  EXPECT_DEATH(even_part({0, 4}, 2, 2), "part 2 of 2 of \\[0, 4\\)");
}

TEST(Validate, AcceptsReplicasAndTilings) {
  EXPECT_EQ(validate(replicated(4, {0, 1})), std::nullopt);
  EXPECT_EQ(validate({4, {{0, {2, 4}}, {0, {0, 1}}, {1, {1, 2}}, {2, {0, 3}}}}), std::nullopt);
  EXPECT_EQ(validate({0, {}}), std::nullopt);
}

TEST(Validate, NamesWhatIsWrong) {
  const auto problem = [](const Layout& layout) { return validate(layout).value_or("valid"); };
  EXPECT_EQ(problem({-1, {}}), "length -1 is negative");
  EXPECT_EQ(problem({4, {}}), "nobody holds full values of [0, 4)");
  EXPECT_EQ(problem({4, {{0, {0, 1}}, {1, {3, 4}}}}), "nobody holds full values of [1, 3)");
  EXPECT_EQ(problem({4, {{0, {0, 5}}}}), "slice [0, 5) of owner 0 is outside [0, 4)");
  EXPECT_EQ(problem({4, {{0, {3, 1}}}}), "slice [3, 1) of owner 0 is outside [0, 4)");
  EXPECT_EQ(problem({4, {{-2, {0, 4}}}}), "owner -2 is negative");
  EXPECT_EQ(problem({4, {{0, {0, 4}, -3}}}), "owner 0 holds summand -3, which is negative");
  EXPECT_EQ(problem({4, {{0, {0, 4}}, {0, {3, 4}}}}), "owner 0 holds elements of [3, 4) twice");
  EXPECT_EQ(problem({4, {{0, {0, 4}, 0}, {0, {3, 4}, 1}}}),
            "owner 0 holds elements of [3, 4) twice");
  EXPECT_EQ(problem({4, {{0, {0, 4}}, {1, {0, 4}, 2}}}),
            "owner 0 holds full values and owner 1 holds summand 2");
  EXPECT_EQ(problem({4, {{0, {0, 4}, 0}, {1, {0, 2}, 2}}}), "nobody holds summand 2 of [2, 4)");
}

TEST(Held, JoinsAdjacentSlicesInAscendingOrder) {
  const Layout layout{9, {{0, {6, 8}}, {1, {0, 9}}, {0, {2, 3}}, {0, {0, 2}}}};
  EXPECT_EQ(held(layout, 0), (std::vector<Slice>{{0, 3}, {6, 8}}));
  EXPECT_EQ(held(layout, 2), std::vector<Slice>{});
  EXPECT_EQ(elements(held(layout, 0)), 5);
}

}  // namespace
}  // namespace orrery::models::layout_test
