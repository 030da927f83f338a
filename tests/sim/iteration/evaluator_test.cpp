#include "sim/iteration/evaluator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "models/cost/memory.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "tests/sim/in_child.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::evaluator_test {
namespace {

using models::Evaluation;

ir::Plan plan_of(int pipelines, int stages, int tensor_parallel) {
  PlanShape shape;
  shape.pipelines = pipelines;
  shape.stages = stages;
  shape.tensor_parallel = tensor_parallel;
  shape.micro_batches = 8 / pipelines;
  return make_plan(shape, 4);
}

/// Runs `work` on an evaluator in a child process.
std::string evaluate(const std::function<std::string(const SimulatorEvaluator&)>& work) {
  const models::Cluster cluster = make_cluster({});
  const models::Workload workload = make_workload(4);
  const models::Job job = make_job();
  const ir::Profile profile;
  return in_child([&] {
    const models::Topology topology(cluster);
    IterationSimulator simulator(cluster, topology);
    return work(SimulatorEvaluator(simulator, workload, job, profile));
  });
}

std::string text(const Evaluation& evaluation) {
  return fmt::format("{:a} {:a} {:a} {:a} {:a} {:a} {:a}", evaluation.iteration_time.value,
                     evaluation.mfu, evaluation.hfu, evaluation.tokens_per_second,
                     evaluation.breakdown.bubble.value, evaluation.breakdown.compute.value,
                     evaluation.memory.by_gpu_type.at(0).need.value);
}

TEST(SimulatorEvaluator, DoesNotDependOnWhatWasEvaluatedBefore) {
  const std::string alone = evaluate(
      [](const SimulatorEvaluator& judge) { return text(judge.evaluate(plan_of(2, 2, 2))); });
  const std::string after = evaluate([](const SimulatorEvaluator& judge) {
    judge.evaluate(plan_of(1, 4, 1));
    judge.evaluate(plan_of(4, 1, 2));
    return text(judge.evaluate(plan_of(2, 2, 2)));
  });
  EXPECT_FALSE(alone.empty());
  EXPECT_EQ(alone, after);
}

TEST(SimulatorEvaluator, ReportsUtilizationThroughputAndPrice) {
  const std::string wrong = evaluate([](const SimulatorEvaluator& judge) -> std::string {
    const Evaluation e = judge.evaluate(plan_of(1, 1, 1));
    // One device: 8 samples x 4 blocks x 3 ms at half of the peak, and nothing else but the
    // optimizer and one kernel launch.
    const auto near = [](double a, double b) { return relative_difference(a, b) < 1e-6; };
    if (!near(e.iteration_time.value, 8 * 4 * 3e-3)) return "iteration time";
    if (!near(e.mfu, 0.5) || !near(e.hfu, 0.5)) return "utilization";
    if (!near(e.tokens_per_second, 8 * 1024 / e.iteration_time.value)) return "throughput";
    if (!e.dollars_per_million_tokens) return "priced";
    if (!near(e.dollars_per_million_tokens->value, 2.0 / 3600 * 1e6 / e.tokens_per_second)) {
      return "price";
    }
    const auto& b = e.breakdown;
    const double sum = b.compute.value + b.tensor_parallel.value + b.zero.value + b.pipeline.value +
                       b.data_parallel.value + b.optimizer.value + b.bubble.value;
    if (!near(sum, e.iteration_time.value)) return "breakdown";
    if (!e.memory.fits()) return "memory";
    if (e.pipeline_times.size() != 1 || !near(e.pipeline_times[0].value, 96e-3)) return "pipelines";
    return "nothing";
  });
  EXPECT_EQ(wrong, "nothing");
}

TEST(MemoryTimeline, PeaksWhereTheReplayInProgramOrderDoes) {
  const models::Cluster cluster = make_cluster({});
  const models::Workload workload = make_workload(4);
  for (const auto schedule : {ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b}) {
    PlanShape shape;
    shape.stages = 4;
    shape.tensor_parallel = 2;
    shape.schedule = schedule;
    const ir::Plan plan = make_plan(shape, 4);
    const ir::Program program = models::lower(plan, cluster, workload, make_job(), {});
    const std::vector<Bytes> expected = models::peak_memory(program);
    const Outcome run = simulate(cluster, workload, program);
    ASSERT_EQ(run.peak_memory.size(), expected.size());
    std::map<double, double> sampled;
    for (std::size_t i = 0; i + 2 < run.memory_samples.size(); i += 3) {
      double& peak = sampled[run.memory_samples[i]];
      peak = std::max(peak, run.memory_samples[i + 2]);
    }
    for (std::size_t r = 0; r < expected.size(); ++r) {
      EXPECT_DOUBLE_EQ(run.peak_memory[r], expected[r].value) << "rank " << r;
      EXPECT_DOUBLE_EQ(sampled[static_cast<double>(r)], expected[r].value) << "rank " << r;
    }
  }
}

TEST(MemoryVerdict, IsRaisedWhereTheTimelinePeaksHigher) {
  const models::Cluster cluster = make_cluster({});
  const models::Workload workload = make_workload(4);
  const ir::Plan plan = plan_of(1, 2, 2);
  const ir::Program program = models::lower(plan, cluster, workload, make_job(), {});
  ir::Profile profile;
  profile.memory = {{"gpu", 1_GiB, 1.5, {}}};
  const ir::MemoryVerdict closed =
      models::check_memory(plan, cluster, workload, make_job(), profile);
  const ir::MemoryVerdict low =
      memory_verdict(plan, program, {0_B, 0_B}, cluster, workload, make_job(), profile);
  EXPECT_EQ(low.by_gpu_type.at(0).need, closed.by_gpu_type.at(0).need);
  const ir::MemoryVerdict high =
      memory_verdict(plan, program, {0_B, 60_GiB}, cluster, workload, make_job(), profile);
  EXPECT_EQ(high.by_gpu_type.at(0).need, 91_GiB);
  EXPECT_EQ(high.by_gpu_type.at(0).stage, 1);
  EXPECT_FALSE(high.fits());
}

}  // namespace
}  // namespace orrery::sim::evaluator_test
