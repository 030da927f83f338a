#include "models/sharding/layout.h"

#include <gtest/gtest.h>

namespace orrery::models {
namespace {

TEST(Split, GivesTheRemainderToTheFirstOwners) {
  const Layout layout = split(10, {7, 3, 5, 1});
  const std::vector<Piece> expected{{7, {0, 3}}, {3, {3, 6}}, {5, {6, 8}}, {1, {8, 10}}};
  EXPECT_EQ(layout.length, 10);
  EXPECT_EQ(layout.pieces, expected);
}

TEST(Split, LeavesLateOwnersEmptyWhenElementsAreFew) {
  const Layout layout = split(2, {0, 1, 2});
  EXPECT_EQ(layout.pieces[2].slice.size(), 0);
  EXPECT_EQ(validate(layout), std::nullopt);
}

TEST(Split, FollowsGivenBoundaries) {
  const Layout layout = split_at({0, 1, 1, 8}, {4, 5, 6});
  const std::vector<Piece> expected{{4, {0, 1}}, {5, {1, 1}}, {6, {1, 8}}};
  EXPECT_EQ(layout.length, 8);
  EXPECT_EQ(layout.pieces, expected);
}

TEST(Partial, NumbersSummandsByPosition) {
  const Layout layout = partial(6, {9, 2});
  const std::vector<Piece> expected{{9, {0, 6}, 0}, {2, {0, 6}, 1}};
  EXPECT_EQ(layout.pieces, expected);
  EXPECT_EQ(validate(layout), std::nullopt);
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
}  // namespace orrery::models
