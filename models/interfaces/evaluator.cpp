#include "models/interfaces/evaluator.h"

#include <utility>

#include "models/cost/mfu.h"

namespace orrery::models {

Evaluation evaluation_of(const ir::Plan& plan, const Cluster& cluster, const Workload& workload,
                         Seconds iteration_time, ir::MemoryVerdict memory) {
  Evaluation evaluation;
  evaluation.iteration_time = iteration_time;
  evaluation.memory = std::move(memory);
  evaluation.tokens_per_second = tokens_per_second(plan, workload, iteration_time);
  const FlopsPerSecond peak = total_peak(plan, cluster, workload.dtype);
  evaluation.mfu = utilization(step_model_flops(plan, workload), iteration_time, peak);
  evaluation.hfu = utilization(step_hardware_flops(plan, workload), iteration_time, peak);
  if (const auto dollars = dollars_per_million_tokens(plan, cluster, workload, iteration_time)) {
    evaluation.dollars_per_million_tokens = *dollars;
    evaluation.priced = true;
  }
  return evaluation;
}

}  // namespace orrery::models
