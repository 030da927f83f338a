// Is the first guess of what pipelines of different lengths meet right, where a large job lost one
// of its pipelines? The last stage synchronizes its layers and the head apart, both after one pass.
#include <gtest/gtest.h>

#include "experiments/study/inputs.h"
#include "models/cost/pricer.h"
#include "models/spec/topology.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments::llama3_guess_test {
namespace {

TEST(Llama3, TheFirstGuessOfAJobThatLostAPipelineIsRight) {
  JobSettings job;
  job.cluster = "experiments/llama3/cluster.yaml";
  job.model = "llama3_405b";
  job.set_default("global_batch", 2048);
  job.set_default("sequence_length", 8192);
  std::vector<LoadedRun> runs = load_plans({"experiments/llama3/plan.yaml"}, job, JudgeSettings{});
  ir::Plan plan = *runs.at(0).plan;
  const LoadedRun& run = runs[0];
  // torchft: the others share its micro-batches.
  const int lost = plan.pipelines[57].micro_batches;
  plan.pipelines.erase(plan.pipelines.begin() + 57);
  for (int p = 0; p < lost; ++p) ++plan.pipelines[p].micro_batches;

  const models::Topology topology(run.cluster);
  sim::IterationSimulator simulator(run.cluster, topology, false);
  sim::IterationOptions options = run.spec.simulation;
  options.record_spans = options.record_memory = options.record_links = false;
  sim::FoldedIteration iteration(plan, run.cluster, topology, run.workload, run.spec.job,
                                 {.collapsed = true}, options);
  ASSERT_TRUE(iteration.needs_check()) << "two lengths of pipelines";
  const models::Pricer pricer(run.cluster, run.workload, run.spec.job, run.profile);
  const models::ProgramPrices prices(iteration.program(), pricer);
  const auto told = simulator.try_run(iteration, prices, options);
  EXPECT_TRUE(std::holds_alternative<sim::IterationResult>(told)) << "it had to guess again";
}

}  // namespace
}  // namespace orrery::experiments::llama3_guess_test
