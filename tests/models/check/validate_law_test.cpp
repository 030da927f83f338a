#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/schedule/schedule.h"
#include "tests/models/check/small_case.h"
#include "tests/models/spec/random_plans.h"

namespace orrery::models::validate_law_test {
namespace {

/// A valid plan: the devices of vendor x in random order, cut into pipelines, stages and groups.
ir::Plan any_valid_plan(const Workload& workload) {
  ir::Plan plan;
  int next = 0;
  const int pipelines = ir::small(1, 2);
  for (int p = 0; p < pipelines; ++p) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = ir::small(1, 4);
    pipeline.micro_batch_size = ir::small(2, 4);
    const int first_stage_end = ir::small(0, workload.size() - 2);
    for (const auto& [first, last] :
         {std::pair{0, first_stage_end}, {first_stage_end + 1, workload.size() - 1}}) {
      const int taken = ir::small(1, pipeline.micro_batch_size - 1);
      pipeline.stages.push_back({{segment(
          first, last,
          {group({next}, taken), group({next + 1}, pipeline.micro_batch_size - taken)})}});
      next += 2;
    }
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

RC_GTEST_PROP(ValidateLaw, AcceptsEveryConsistentPlan, ()) {
  const Workload workload = small_workload(ir::small(1, 5));
  const ir::Plan plan = any_valid_plan(workload);
  Job job = small_job();
  job.global_batch = ir::global_batch(plan);
  const std::vector<PlanDefect> defects = validate(plan, small_cluster(), workload, job);
  if (!defects.empty()) RC_FAIL(defects.front().path + ": " + defects.front().what);
}

RC_GTEST_PROP(ValidateLaw, RefusesEveryPlanThatLosesABlockADeviceOrASample, ()) {
  const Workload workload = small_workload(ir::small(1, 5));
  ir::Plan plan = any_valid_plan(workload);
  Job job = small_job();
  job.global_batch = ir::global_batch(plan);
  ir::Pipeline& pipeline =
      plan.pipelines[ir::small(0, static_cast<int>(plan.pipelines.size()) - 1)];
  ir::Segment& broken = pipeline.stages[ir::small(0, 1)].segments[0];
  switch (ir::small(0, 5)) {
    case 0:
      ++broken.first_block.value;
      break;
    case 1:
      --broken.last_block.value;
      break;
    case 2:
      broken.groups[0].devices.clear();
      break;
    case 3:
      broken.groups[1].devices = broken.groups[0].devices;
      break;
    case 4:
      ++broken.groups[1].samples;
      break;
    default:
      ++pipeline.micro_batches;
  }
  RC_ASSERT(!validate(plan, small_cluster(), workload, job).empty());
}

RC_GTEST_PROP(ValidateLaw, JudgesEveryWellFormedPlanWithoutFailing, ()) {
  const ir::Plan plan = ir::any_plan();
  for (const PlanDefect& defect : validate(plan, small_cluster(), small_workload(), small_job())) {
    RC_ASSERT(!defect.path.empty());
    RC_ASSERT(!defect.what.empty());
  }
}

}  // namespace
}  // namespace orrery::models::validate_law_test
