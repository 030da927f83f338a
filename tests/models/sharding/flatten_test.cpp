#include "models/sharding/flatten.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "tests/models/sharding/interpreter.h"
#include "tests/models/sharding/random_annotations.h"

namespace orrery::models::testing::flatten_test {
namespace {

constexpr int kTrials = 3000;

std::vector<Piece> flat(const Annotation& annotation, const Shape& shape,
                        RowSlices rows = RowSlices::joined) {
  return flatten(annotation, shape, rows).pieces;
}

TEST(Flatten, GivesTheFirstShardsOfAnUnevenSplitOneMore) {
  const Annotation heads{{{{4, 2, 7}, {{0, 3}}}}, kDuplicate, {}};
  EXPECT_EQ(flat(heads, {8}), (std::vector<Piece>{{4, {0, 3}}, {2, {3, 6}}, {7, {6, 8}}}));
  EXPECT_EQ(flat(heads, {2}), (std::vector<Piece>{{4, {0, 1}}, {2, {1, 2}}}));
}

TEST(Flatten, CutsRowsOfTheLastDimensionOnRequest) {
  // Four experts of six columns: two on each pair of devices, whose members have three columns.
  const Annotation experts{{{{0, 1, 2, 3}, {{0, 2}, {1, 2}}}}, kDuplicate, {}};
  const std::vector<Piece> expected{{0, {0, 3}},   {0, {6, 9}},   {1, {3, 6}},   {1, {9, 12}},
                                    {2, {12, 15}}, {2, {18, 21}}, {3, {15, 18}}, {3, {21, 24}}};
  EXPECT_EQ(flat(experts, {4, 6}, RowSlices::apart), expected);
  EXPECT_EQ(flat(experts, {4, 6}, RowSlices::joined), expected);
  const Annotation whole{{{{0, 1}, {{0, 2}}}}, kDuplicate, {}};
  EXPECT_EQ(flat(whole, {4, 6}), (std::vector<Piece>{{0, {0, 12}}, {1, {12, 24}}}));
  EXPECT_EQ(flat(whole, {4, 6}, RowSlices::apart),
            (std::vector<Piece>{{0, {0, 6}}, {0, {6, 12}}, {1, {12, 18}}, {1, {18, 24}}}));
}

TEST(Flatten, SplitsEachSamplesTokensBetweenGroupsOfCopies) {
  // Sequence degree 2 with tensor parallelism 2, and one device with the third sample.
  const Annotation activations{{{{0, 1, 2, 3}, {{1, 2}, {kDuplicate, 2}}}, {{4}, {}}}, 0, {2, 1}};
  const std::vector<Piece> expected{{0, {0, 3}}, {0, {5, 8}},  {1, {0, 3}},
                                    {1, {5, 8}}, {2, {3, 5}},  {2, {8, 10}},
                                    {3, {3, 5}}, {3, {8, 10}}, {4, {10, 15}}};
  EXPECT_EQ(flat(activations, {3, 5}), expected);
}

TEST(Flatten, NumbersSummandsThroughBothTiers) {
  const Annotation gradients{{{{0, 1}, {{kPartial, 2}}}, {{2, 3}, {{0, 2}}}}, kPartial, {}};
  EXPECT_EQ(flat(gradients, {4}),
            (std::vector<Piece>{{0, {0, 4}, 0}, {1, {0, 4}, 1}, {2, {0, 2}, 2}, {3, {2, 4}, 2}}));
}

/// Random annotations, on the shape for which they were drawn or on another one that does not fit
/// their shards evenly.
struct Drawn {
  Annotation annotation;
  Shape shape;
};

Drawn draw_any(Rng& rng, bool partial) {
  while (true) {
    Drawn drawn;
    drawn.shape = random_shape(rng);
    drawn.annotation = random_annotation(rng, drawn.shape, 8, partial);
    if (rng.bernoulli(0.6)) {
      for (auto& size : drawn.shape) size = draw(rng, 1, 7);
    }
    const bool of_parts = drawn.annotation.hetero_size() > 1 &&
                          drawn.annotation.hetero_axis != kPartial && has_partial(drawn.annotation);
    if (of_parts || validate(drawn.annotation, drawn.shape, Splits::uneven)) continue;
    return drawn;
  }
}

using Held = std::map<std::pair<int, int>, std::set<std::int64_t>>;  // By device, summand.

/// The elements of every device are those of its boxes, in both forms of rows, ascending.
TEST(Flatten, HoldsTheElementsOfTheBoxes) {
  Rng rng(1);
  int uneven = 0;
  for (int n = 0; n < kTrials; ++n) {
    const auto [annotation, shape] = draw_any(rng, true);
    Held boxes;
    for (const BoxPiece& piece : pieces(annotation, shape)) {
      for_each_element(piece.box, shape, [&](std::size_t flat) {
        boxes[{piece.device, piece.partial}].insert(static_cast<std::int64_t>(flat));
      });
    }
    std::size_t slices = 0;
    for (const RowSlices rows : {RowSlices::apart, RowSlices::joined}) {
      Held found;
      std::map<int, std::int64_t> end;
      const Layout layout = flatten(annotation, shape, rows);
      ASSERT_EQ(layout.length, volume(shape));
      for (const Piece& piece : layout.pieces) {
        const auto [before, first] = end.try_emplace(piece.owner, -1);
        ASSERT_LE(before->second + (rows == RowSlices::joined ? 1 : 0), piece.slice.begin);
        before->second = piece.slice.end;
        ASSERT_GT(piece.slice.size(), 0);
        ASSERT_TRUE(rows == RowSlices::joined || piece.slice.size() <= shape.back());
        for (std::int64_t x = piece.slice.begin; x < piece.slice.end; ++x) {
          ASSERT_TRUE((found[{piece.owner, piece.partial}].insert(x).second));
        }
      }
      ASSERT_EQ(found, boxes) << to_string(annotation);
      ASSERT_TRUE(rows == RowSlices::apart || layout.pieces.size() <= slices);
      slices = layout.pieces.size();
    }
    uneven += validate(annotation, shape) ? 1 : 0;
  }
  EXPECT_GE(uneven, kTrials / 20);
}

/// What the interpreter of boxes lays out by the annotation, the flat interpreter accepts as its
/// flat form.
TEST(Flatten, MeansTheSameNumbersAsTheAnnotation) {
  Rng rng(2);
  for (int n = 0; n < kTrials; ++n) {
    const auto [annotation, shape] = draw_any(rng, false);
    const Layout layout = flatten(annotation, shape);
    ASSERT_EQ(validate(layout), std::nullopt) << to_string(annotation);
    const Values values = random_values(rng, shape);
    const Buffers buffers = materialize(annotation, shape, values, rng);
    ASSERT_EQ(compare(layout, Summands{{kFullValue, values}}, buffers).value_or(""), "")
        << to_string(annotation);
  }
}

TEST(FlattenDeathTest, AbortsOnWhatHasNoFlatForm) {
  EXPECT_DEATH(flatten({{{{0, 1}, {{kPartial, 2}}}, {{2}, {}}}, 0, {}}, {4}),
               "has summands of parts of the tensor");
  EXPECT_DEATH(flatten({{{{0, 1}, {{0, 3}}}}, 0, {}}, {4}), "3 shards on 2 devices");
  EXPECT_DEATH(flatten({{{{0}, {}}}, 0, {}}, {}), "without dimensions");
}

}  // namespace
}  // namespace orrery::models::testing::flatten_test
