#include "models/schedule/closed_form.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace orrery::models::closed_form_test {
namespace {

std::vector<Seconds> times(const std::vector<double>& values) {
  std::vector<Seconds> result;
  for (const double value : values) result.push_back({value});
  return result;
}

std::vector<Seconds> random_stages() {
  const auto values =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 100)));
  std::vector<Seconds> result;
  for (const int value : values) result.push_back({static_cast<double>(value)});
  return result;
}

/// End of equal jobs that pass the machines in order, each machine one job at a time.
Seconds flow_shop(const std::vector<Seconds>& machines, int jobs) {
  std::vector<Seconds> free(machines.size());
  for (int job = 0; job < jobs; ++job) {
    Seconds ready;
    for (std::size_t i = 0; i < machines.size(); ++i) {
      ready = free[i] = std::max(ready, free[i]) + machines[i];
    }
  }
  return free.back();
}

RC_GTEST_PROP(PipelineTime, EqualsTheFlowShopOfEqualJobs, ()) {
  const auto stages = random_stages();
  const int micro_batches = *rc::gen::inRange(1, 40);
  RC_ASSERT(pipeline_time(stages, micro_batches) == flow_shop(stages, micro_batches));
}

RC_GTEST_PROP(LockStep, LiesAboveTheFlowShopAndMeetsItForEqualStages, ()) {
  auto stages = random_stages();
  const int micro_batches = *rc::gen::inRange(1, 40);
  RC_ASSERT(lock_step_time(stages, micro_batches) >= pipeline_time(stages, micro_batches));
  std::fill(stages.begin(), stages.end(), stages.front());
  RC_ASSERT(lock_step_time(stages, micro_batches) == pipeline_time(stages, micro_batches));
}

TEST(LockStep, SumsTheColumnsOfTheChart) {
  // Columns: 1 | 1,5 | 1,5,2 | 5,2 | 2
  EXPECT_EQ(lock_step_time(times({1, 5, 2}), 3), Seconds{1 + 5 + 5 + 5 + 2});
}

TEST(PipelineTime, OneStageIsSequential) {
  EXPECT_EQ(pipeline_time(times({3}), 7), Seconds{21});
  EXPECT_EQ(pipeline_time({}, 7), Seconds{});
}

TEST(Iteration, IsTheSlowestPipelineAndTheSynchronization) {
  EXPECT_EQ(iteration_time(times({3, 9, 4}), Seconds{2}), Seconds{11});
}

TEST(GpipeTime, AddsForwardAndBackwardShops) {
  const std::vector<StageTime> stages = {{Seconds{1}, Seconds{4}, {}},
                                         {Seconds{2}, Seconds{3}, {}}};
  EXPECT_EQ(schedule_entry(ir::ScheduleKind::gpipe).pipeline_time(stages, 3, 1),
            Seconds{3 + 4 + 7 + 8});
}

TEST(InterleavedTime, EqualStagesPayTheFillOncePerChunk) {
  const auto time = schedule_entry(ir::ScheduleKind::interleaved_one_f_one_b).pipeline_time;
  const std::vector<StageTime> stages(4, {Seconds{2}, Seconds{4}, {}});
  EXPECT_EQ(time(stages, 8, 1), pipeline_time(both_passes(stages), 8));
  EXPECT_EQ(time(stages, 8, 2), Seconds{8 * 6 + 3 * 3});
}

TEST(ZeroBubbleTime, EqualStagesPayThePapersBubble) {
  const std::vector<StageTime> stages(4, {Seconds{1}, Seconds{2}, Seconds{0.5}});
  EXPECT_EQ(schedule_entry(ir::ScheduleKind::zero_bubble).pipeline_time(stages, 8, 1),
            Seconds{8 * 3 + 3 * (1 + 1.5 - 0.5)});
}

TEST(PipelineTime, NoStagesTakeNoTime) {
  for (const ScheduleEntry* schedule : schedules()) {
    EXPECT_EQ(schedule->pipeline_time({}, 8, 2), Seconds{}) << schedule->name();
  }
}

}  // namespace
}  // namespace orrery::models::closed_form_test
