#include "models/sharding/annotation.h"

#include <gtest/gtest.h>

#include "models/sharding/symbolic.h"

namespace orrery::models::testing::annotation_test {
namespace {

/// Four devices and one, with shares 4:1 of the samples.
Annotation example() { return {{{{0, 1, 2, 3}, {{0, 2}, {kDuplicate, 2}}}, {{4}, {}}}, 0, {4, 1}}; }

std::string problem(const Annotation& annotation, const Shape& shape = {10, 4}) {
  return validate(annotation, shape).value_or("");
}

TEST(Annotation, IsWrittenAsInThePaper) {
  EXPECT_EQ(to_string(example()), "{0,1,2,3}: S0 x 2, D x 2 | {4}: -; HDim 0 (4:1)");
}

TEST(Annotation, PiecesSplitTheSubgroupsPartFurther) {
  const auto all = pieces(example(), {10, 4});
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0], (BoxPiece{0, {{0, 4}, {0, 4}}, kFullValue}));
  EXPECT_EQ(all[1], (BoxPiece{1, {{0, 4}, {0, 4}}, kFullValue}));
  EXPECT_EQ(all[2], (BoxPiece{2, {{4, 8}, {0, 4}}, kFullValue}));
  EXPECT_EQ(all[4], (BoxPiece{4, {{8, 10}, {0, 4}}, kFullValue}));
}

TEST(Annotation, SummandsAreNumberedThroughBothTiers) {
  const Annotation annotation{{{{5, 6}, {{kPartial, 2}}}, {{7, 8}, {{1, 2}}}}, kPartial, {}};
  const auto all = pieces(annotation, {2, 4});
  EXPECT_EQ(all[0].partial, 0);
  EXPECT_EQ(all[1].partial, 1);
  EXPECT_EQ(all[2].partial, 2);
  EXPECT_EQ(all[3].partial, 2);
  EXPECT_EQ(to_string(all[3].box), "[0,2)x[2,4)");
}

TEST(Annotation, TheFirstStateChangesSlowest) {
  const Annotation annotation{{{{0, 1, 2, 3}, {{1, 2}, {0, 2}}}}, kDuplicate, {}};
  const auto all = pieces(annotation, {4, 4});
  EXPECT_EQ(to_string(all[1].box), "[2,4)x[0,2)");
  EXPECT_EQ(to_string(all[2].box), "[0,2)x[2,4)");
}

TEST(Annotation, InvalidOnesAreRefusedWithTheReason) {
  EXPECT_EQ(problem(example()), "");
  EXPECT_EQ(problem({}), "it has no subgroup");
  EXPECT_EQ(problem({{{{}, {}}}, 0, {}}), "subgroup 0 has no device");
  EXPECT_EQ(problem({{{{0}, {}}, {{0}, {}}}, 0, {}}), "device 0 appears twice");
  EXPECT_EQ(problem({{{{-3}, {}}}, 0, {}}), "device -3 is negative");
  EXPECT_EQ(problem({{{{0, 1}, {{0, 3}}}}, 0, {}}), "subgroup 0: 3 shards on 2 devices");
  EXPECT_EQ(problem({{{{0, 1}, {{0, 0}}}}, 0, {}}), "subgroup 0: S0 has 0 shards");
  EXPECT_EQ(problem({{{{0, 1}, {{2, 2}}}}, 0, {}}),
            "subgroup 0: axis 2 of a tensor of 2 dimensions");
  EXPECT_EQ(problem({{{{0, 1}, {{-3, 2}}}}, 0, {}}),
            "subgroup 0: axis -3 of a tensor of 2 dimensions");
  EXPECT_EQ(problem({{{{0, 1, 2, 3}, {{0, 2}, {0, 2}}}}, 0, {}}),
            "subgroup 0: S0 appears twice in one DS");
  EXPECT_EQ(problem({{{{0, 1, 2, 3}, {{kPartial, 2}, {kPartial, 2}}}}, 0, {}}),
            "subgroup 0: P appears twice in one DS");
  EXPECT_EQ(problem({{{{0, 1, 2}, {{0, 3}}}}, 0, {}}),
            "subgroup 0: 3 shards do not divide the 10 of dimension 0");
  EXPECT_EQ(problem({{{{0}, {}}, {{1}, {}}}, 2, {}}), "HDim: axis 2 of a tensor of 2 dimensions");
  EXPECT_EQ(problem({{{{0}, {}}, {{1}, {}}}, 0, {1}}), "1 shares for 2 subgroups");
  EXPECT_EQ(problem({{{{0}, {}}, {{1}, {}}}, 0, {1, 0}}), "share 0 is not positive");
  EXPECT_EQ(problem({{{{0}, {}}, {{1}, {}}}, kPartial, {1, 1}}),
            "shares without a dimension that they divide");
  EXPECT_EQ(problem({{{{0}, {}}, {{1}, {}}}, 0, {1, 2}}),
            "dimension 0 of size 10 has no 1/3 for subgroup 0");
}

TEST(Annotation, UnevenSplitsAreValidOnRequest) {
  const Annotation heads{{{{0, 1, 2, 3, 4, 5, 6, 7}, {{0, 8}}}}, kDuplicate, {}};
  EXPECT_EQ(problem(heads, {52}), "subgroup 0: 8 shards do not divide the 52 of dimension 0");
  EXPECT_EQ(validate(heads, {52}, Splits::uneven), std::nullopt);
  const auto all = pieces(heads, {52});
  EXPECT_EQ(all[3].box[0], (Slice{21, 28}));
  EXPECT_EQ(all[4].box[0], (Slice{28, 34}));
  EXPECT_EQ(all[7].box[0], (Slice{46, 52}));
  // Shares along HDim stay exact: they are given, not rounded.
  EXPECT_EQ(validate({{{{0}, {}}, {{1}, {}}}, 0, {1, 2}}, {10}, Splits::uneven),
            "dimension 0 of size 10 has no 1/3 for subgroup 0");
}

TEST(SymbolicSize, IsANumberOrASymbolTimesARatio) {
  const SymbolicSize batch("B");
  EXPECT_EQ(to_string(batch.scaled(3, 4)), "3B/4");
  EXPECT_EQ(to_string(batch.scaled(1, 2).scaled(2, 1)), "B");
  EXPECT_EQ(to_string(SymbolicShape{batch, 128}), "(B, 128)");
  EXPECT_EQ(to_string(*product(batch, SymbolicSize(4).scaled(1, 8))), "B/2");
  EXPECT_FALSE(product(batch, SymbolicSize("S")));
}

TEST(SymbolicSize, BindRefusesRemaindersAndSymbolsWithoutValue) {
  const SymbolicSize size = SymbolicSize("B").scaled(3, 4);
  EXPECT_EQ(std::get<std::int64_t>(bind(size, {{"B", 8}})), 6);
  EXPECT_EQ(std::get<Unbound>(bind(size, {{"B", 6}})).reason,
            "3B/4 is 18/4, which leaves a remainder");
  EXPECT_EQ(std::get<Unbound>(bind(size, {})).reason, "3B/4: no value for B");
  EXPECT_EQ(std::get<Unbound>(bind(size, {{"B", 0}})).reason, "3B/4: B is 0");
  EXPECT_EQ(std::get<Shape>(bind(SymbolicShape{size, 5}, {{"B", 4}})), (Shape{3, 5}));
}

TEST(SymbolicShape, LocalShapesFollowBothTiers) {
  const SymbolicShape shape{SymbolicSize("B"), 4};
  EXPECT_EQ(to_string(local_shape(example(), shape, 0)), "(2B/5, 4)");
  EXPECT_EQ(to_string(local_shape(example(), shape, 1)), "(B/5, 4)");
}

}  // namespace
}  // namespace orrery::models::testing::annotation_test
