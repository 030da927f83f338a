// What a rank allocates: optimizer states only of what it updates, and the run log shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "tests/executor/engine/training_plans.h"
#include "tests/executor/net/meshes.h"

namespace orrery::executor::memory_test {
namespace {

constexpr double kBytes = 8;  ///< Of an fp64 number.

/// Two replicas of one device.
ir::Plan replicas(const models::Workload& workload, int zero) {
  ir::Plan plan = single_device_plan(workload, 2);
  plan.pipelines.push_back(plan.pipelines.front());
  for (int p = 0; p < 2; ++p) {
    ir::Pipeline& pipeline = plan.pipelines[p];
    pipeline.micro_batches = kTinyBatch / 2 / 2;
    ir::Segment& segment = pipeline.stages[0].segments[0];
    segment.zero.stage = zero;
    segment.groups[0].devices = {{p}};
  }
  return plan;
}

struct Memory {
  double peak = 0;   ///< As the step reports it.
  double least = 0;  ///< Smallest sample of the log.
  double moments = 0;
  double weights = 0;
  double held_back = 0;  ///< Moments that other ranks keep, as the shard says.
};

/// By rank, of one step.
std::vector<Memory> measure(const ir::Plan& plan, const models::Workload& workload) {
  const ir::Program program = lower_for_executor(plan, workload);
  const auto tokens = make_synthetic_tokens(11, program.header.model.vocabulary);
  std::vector<Memory> out(program.ranks.size());
  const auto errors =
      run_mesh("threads", static_cast<int>(program.ranks.size()), [&](Transport& transport) {
        const auto backend = make_cpu_backend(Precision::fp64);
        Worker worker(program, *backend, transport, *tokens, {});
        worker.shard().initialize();
        const StepResult result = worker.step(1);
        Memory& memory = out[transport.rank()];
        memory.peak = static_cast<double>(result.peak_bytes);
        memory.least = memory.peak;
        for (const ir::MemorySample& sample : result.memory) {
          memory.least = std::min(memory.least, sample.allocated.value);
        }
        for (const BlockId block : worker.blocks()) {
          for (const HeldParameter& held : worker.shard().parameters(block)) {
            const auto all = static_cast<double>(held.elements());
            memory.weights += all;
            memory.moments += static_cast<double>(held.first_moment.elements);
            memory.held_back += all - static_cast<double>(held.first_moment.elements);
          }
        }
      });
  EXPECT_EQ(first_error(errors), "");
  return out;
}

TEST(Memory, OfMomentsIsDividedByZeroOneAndTheLogShowsIt) {
  const models::Workload workload = tiny_workload();
  const std::vector<Memory> whole = measure(replicas(workload, 0), workload);
  const std::vector<Memory> shared = measure(replicas(workload, 1), workload);
  ASSERT_EQ(shared.size(), 2u);
  EXPECT_EQ(whole[0].held_back, 0);
  EXPECT_EQ(shared[0].moments + shared[1].moments, shared[0].weights);
  for (std::size_t r = 0; r < 2; ++r) {
    // Tensors too small to be cut, the gains of norms, stay with one rank.
    EXPECT_NEAR(shared[r].moments, shared[r].weights / 2, 0.02 * shared[r].weights);
    const double saved = 2 * kBytes * shared[r].held_back;
    EXPECT_EQ(whole[r].peak - shared[r].peak, saved) << "rank " << r;
    EXPECT_EQ(whole[r].least - shared[r].least, saved) << "rank " << r;
  }
}

TEST(Memory, OfWeightsIsDividedByZeroThreeAndOneBlockAtATimeIsWhole) {
  const models::Workload workload = tiny_workload();
  const std::vector<Memory> shared = measure(replicas(workload, 1), workload);
  const std::vector<Memory> sharded = measure(replicas(workload, 3), workload);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(sharded[r].held_back, shared[r].held_back);
    EXPECT_EQ(shared[r].least - sharded[r].least, kBytes * sharded[r].held_back) << "rank " << r;
    EXPECT_LT(sharded[r].peak, shared[r].peak) << "rank " << r;
  }
}

TEST(Memory, WithoutDuplicatesEveryRankKeepsTheMomentsOfItsSlice) {
  const models::Workload workload = tiny_workload();
  for (const Memory& rank :
       measure(pipeline_plan(workload, 2, ir::ScheduleKind::one_f_one_b), workload)) {
    EXPECT_EQ(rank.held_back, 0);
    EXPECT_EQ(rank.moments, rank.weights);
  }
}

}  // namespace
}  // namespace orrery::executor::memory_test
