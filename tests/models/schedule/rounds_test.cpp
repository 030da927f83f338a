#include "models/schedule/rounds.h"

#include <gtest/gtest.h>

#include <vector>

namespace orrery::models::rounds_test {
namespace {

/// Pipelines of two stages without content.
ir::Plan plan_of(const std::vector<int>& micro_batches,
                 ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b) {
  ir::Plan plan;
  plan.schedule = schedule;
  for (const int m : micro_batches) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = m;
    pipeline.stages.resize(2);
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

std::vector<int> ends(const ir::Plan& plan, std::size_t pipeline, int rounds) {
  std::vector<int> all;
  for (int r = 0; r < rounds; ++r) {
    all.push_back(round_end(plan, plan.pipelines[pipeline], r, rounds));
  }
  return all;
}

TEST(Rounds, ThePipelineWithTheFewestMicroBatchesLimitsThem) {
  const ir::Plan plan = plan_of({8, 3, 5});
  EXPECT_EQ(gradient_rounds(plan, 1), 1);
  EXPECT_EQ(gradient_rounds(plan, 2), 2);
  EXPECT_EQ(gradient_rounds(plan, 4), 3);
  EXPECT_EQ(gradient_rounds(plan, 0), 3);
}

TEST(Rounds, EndAfterEqualSharesOfTheMicroBatchesRoundedUp) {
  const ir::Plan plan = plan_of({8, 3, 5});
  EXPECT_EQ(ends(plan, 0, 3), (std::vector<int>{3, 6, 8}));
  EXPECT_EQ(ends(plan, 1, 3), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(ends(plan, 2, 3), (std::vector<int>{2, 4, 5}));
}

TEST(Rounds, OfInterleavedPipelinesEndWithWholeGroupsOfMicroBatches) {
  const ir::Plan plan = plan_of({7, 8}, ir::ScheduleKind::interleaved_one_f_one_b);
  EXPECT_EQ(gradient_rounds(plan, 0), 4);
  EXPECT_EQ(ends(plan, 0, 4), (std::vector<int>{2, 4, 6, 7}));
  EXPECT_EQ(ends(plan, 1, 2), (std::vector<int>{4, 8}));
}

}  // namespace
}  // namespace orrery::models::rounds_test
