// Between the update of one rank and the end of the step, states of ranks belong to different
// steps. Does training go on as if nothing had happened when a rank dies exactly there?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/executor/launcher/runs.h"

namespace orrery::executor::torn_state_test {
namespace {

constexpr int kSteps = 5;
constexpr std::int64_t kStep = 3;  ///< In which a rank dies.
constexpr std::chrono::milliseconds kHold{20'000};

/// `replicas` copies of `stages` stages at tensor parallelism `degree`.
ir::Plan copies(const models::Workload& workload, int replicas, int stages, int degree,
                int zero = 0) {
  ir::Plan plan = pipeline_plan(workload, stages, ir::ScheduleKind::one_f_one_b);
  const ir::Pipeline one = plan.pipelines.front();
  plan.pipelines.clear();
  int device = 0;
  for (int r = 0; r < replicas; ++r) {
    ir::Pipeline pipeline = one;
    pipeline.micro_batches = kTinyBatch / 2 / replicas;
    for (ir::Stage& stage : pipeline.stages) {
      ir::Segment& segment = stage.segments.front();
      segment.zero.stage = zero;
      ir::Group& group = segment.groups.front();
      group.tensor_parallel = degree;
      group.devices.clear();
      for (int d = 0; d < degree; ++d) group.devices.push_back({device++});
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

/// A pipeline of as many of the live devices as the model allows.
NextProgramFunction pipeline_of_the_living(const models::Workload& workload) {
  return [&workload](const LostDevices& lost) -> std::variant<NextProgram, std::string> {
    std::vector<DeviceId> left = lost.live;
    left.resize(std::min<std::size_t>(left.size(), 2));
    const ir::Plan plan =
        pipeline_plan(workload, static_cast<int>(left.size()), ir::ScheduleKind::gpipe);
    return NextProgram{lower_for_executor(on_devices(plan, left), workload), "pipeline"};
  };
}

struct Torn {
  std::int32_t victim = 0;
  FaultPoint dies = FaultPoint::after_update;
  std::int32_t waiting = 1;  ///< Is at `waits` when the victim dies.
  FaultPoint waits = FaultPoint::before_update;
  std::int64_t step = kStep;
};

/// True where a survivor says that it kept its state on that side of the update of the step.
bool kept(const LaunchReport& report, const std::string& side, std::int64_t step) {
  const std::string text = fmt::format("{} the update of step {}:", side, step);
  const auto& events = report.generations.front().events;
  return std::any_of(events.begin(), events.end(), [&](const ir::LogEvent& event) {
    return event.kind == "kept" && event.detail.find(text) != std::string::npos;
  });
}

/// `memory`: nothing but the step in flight may be repeated; else a checkpoint is what is left.
void expect_continues(const ir::Plan& plan, const Torn& torn, bool memory) {
  const models::Workload workload = tiny_workload();
  const ir::Program program = lower_for_executor(plan, workload);
  const TemporaryFolder folder;
  LaunchOptions options = launch_options(program, kSteps);
  options.devices.resize(program.ranks.size());
  options.settings.elastic = true;
  if (!memory) {
    options.settings.checkpoint_every = 1;
    options.settings.local_checkpoints = folder.path();
  }
  FaultInjection waits{torn.waiting, torn.step, 0, false, torn.waits, kHold};
  FaultInjection dies{torn.victim, torn.step, 0, false, torn.dies};
  dies.after = torn.waiting;
  options.settings.faults = {waits, dies};
  options.next_program = pipeline_of_the_living(workload);
  const LaunchReport report = complete(options);
  ASSERT_EQ(report.generations.size(), 2u);
  EXPECT_TRUE(
      kept(report, torn.waits == FaultPoint::before_update ? "before" : "after", torn.step));
  EXPECT_LE(worst_difference(losses_of(report), expected_losses(program, kSteps)), 1e-12);
  const std::int64_t first = first_repeated_step(report, kSteps + 1);
  if (memory) {
    EXPECT_EQ(first, torn.step);
  } else {
    EXPECT_LE(first, torn.step);
  }
}

/// The victim has updated and the other has not, and the other way round.
void expect_continues_both_ways(const ir::Plan& plan, std::int32_t victim, std::int32_t waiting,
                                bool memory) {
  using enum FaultPoint;
  expect_continues(plan, {victim, after_update, waiting, before_update}, memory);
  expect_continues(plan, {victim, before_update, waiting, after_update}, memory);
}

TEST(TornState, OfReplicasIsMendedFromMemory) {
  expect_continues_both_ways(copies(tiny_workload(), 3, 1, 1), 0, 1, true);
}

TEST(TornState, OfReplicatedPipelinesIsMendedFromMemory) {
  // Both stages of either replica; one stage of each is left in the worst case.
  expect_continues_both_ways(copies(tiny_workload(), 2, 2, 1), 1, 0, true);
  expect_continues_both_ways(copies(tiny_workload(), 2, 2, 1), 2, 1, true);
}

TEST(TornState, OfTensorParallelReplicasIsMendedFromMemory) {
  expect_continues_both_ways(copies(tiny_workload(), 2, 1, 2), 3, 2, true);
}

TEST(TornState, OfShardedOptimizersIsMendedFromCheckpoints) {
  expect_continues_both_ways(copies(tiny_workload(), 3, 1, 1, 1), 2, 0, false);
}

TEST(TornState, OfAPipelineIsMendedFromCheckpoints) {
  expect_continues_both_ways(copies(tiny_workload(), 1, 3, 1), 0, 2, false);
}

TEST(TornState, OfTheLastStepIsMendedThoughOthersHaveEndedTheirTraining) {
  using enum FaultPoint;
  expect_continues(copies(tiny_workload(), 3, 1, 1), {0, after_update, 1, before_update, kSteps},
                   true);
}

}  // namespace
}  // namespace orrery::executor::torn_state_test
