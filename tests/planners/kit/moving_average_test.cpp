#include "planners/kit/moving_average.h"

#include <gtest/gtest.h>

namespace orrery::planners::moving_average_test {
namespace {

TEST(MovingAverage, StartsAtTheFirstSampleAndWeighsTheNewest) {
  MovingAverage average(0.25);
  EXPECT_FALSE(average.value());
  average.add(8);
  EXPECT_DOUBLE_EQ(*average.value(), 8);
  average.add(4);
  EXPECT_DOUBLE_EQ(*average.value(), 7);
  average.add(7);
  EXPECT_DOUBLE_EQ(*average.value(), 7);
}

TEST(MovingAverage, WithSmoothingOneKeepsOnlyTheLastSample) {
  MovingAverage average(1);
  average.add(3);
  average.add(11);
  EXPECT_DOUBLE_EQ(*average.value(), 11);
}

}  // namespace
}  // namespace orrery::planners::moving_average_test
