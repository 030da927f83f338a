#include "models/interfaces/evaluator.h"

#include <utility>

#include "models/cost/mfu.h"

namespace orrery::ir {

void describe(config::Visitor& v, MemoryUse& use) {
  v.title("Memory");
  v.required("gpu", use.gpu, "GPU type");
  v.required("device", use.device, "worst device of the type");
  v.required("pipeline", use.pipeline, "that it works in");
  v.required("stage", use.stage, "that it works in");
  v.required("need_bytes", use.need, "peak");
  v.required("have_bytes", use.have, "of the GPU type");
  bool fits = use.fits();
  v.required("fits", fits, "need <= have");
}

void describe(config::Visitor& v, HostMemoryUse& use) {
  v.title("Host memory");
  v.required("node", use.node, "its name");
  v.required("need", use.need, "of its devices together");
  v.required("have", use.have, "of the node");
}

}  // namespace orrery::ir

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
  evaluation.dollars_per_million_tokens =
      dollars_per_million_tokens(plan, cluster, workload, iteration_time);
  evaluation.joules_per_token = joules_per_token(plan, cluster, workload, iteration_time);
  return evaluation;
}

namespace {

class Evaluated final : public Evaluator::Pending {
 public:
  explicit Evaluated(Evaluation evaluation) : evaluation_(std::move(evaluation)) {}
  Evaluation join() override { return std::move(evaluation_); }

 private:
  Evaluation evaluation_;
};

}  // namespace

std::unique_ptr<Evaluator::Pending> Evaluator::start(const ir::Plan& plan) const {
  return std::make_unique<Evaluated>(evaluate(plan));
}

void describe(config::Visitor& v, Infeasible& infeasible) {
  v.title("Infeasible");
  v.required("constraint", infeasible.constraint, "that no plan meets");
  v.required("witness", infeasible.witness, "an example");
}

void describe(config::Visitor& v, Evaluation& evaluation) {
  Breakdown& parts = evaluation.breakdown;
  v.title("Evaluation");
  v.required("iteration_seconds", evaluation.iteration_time, "one optimizer step");
  v.required("pipeline_seconds", evaluation.pipeline_times, "end of each last backward pass");
  v.optional("synchronization_seconds", evaluation.synchronization,
             "of a closed form, after the pipelines");
  v.required("compute_seconds", parts.compute, "mean over GPUs, as all below");
  v.required("tensor_parallel_seconds", parts.tensor_parallel,
             "inner collectives: tensor, sequence and expert parallelism");
  v.required("zero_seconds", parts.zero, "gathers of sharded parameters in passes (ZeRO-3)");
  v.required("pipeline_communication_seconds", parts.pipeline, "exposed sends and receives");
  v.required("data_parallel_seconds", parts.data_parallel, "exposed synchronization");
  v.required("optimizer_seconds", parts.optimizer, "optimizer step");
  v.required("bubble_seconds", parts.bubble, "idle");
  v.required("tokens_per_second", evaluation.tokens_per_second, "of the whole job");
  v.required("mfu", evaluation.mfu, "model FLOPs utilization");
  v.required("hfu", evaluation.hfu, "hardware FLOPs utilization");
  v.optional("dollars_per_million_tokens", evaluation.dollars_per_million_tokens,
             "of the GPUs that the plan uses");
  if (!v.dumping() || evaluation.joules_per_token) {
    v.optional("joules_per_token", evaluation.joules_per_token,
               "at most: what the boards of its GPUs may draw");
  }
  bool fits = evaluation.memory.fits();
  v.required("fits", fits, "in memory");
  std::string verdict = evaluation.memory.explain();
  v.required("verdict", verdict, "in words");
  v.required("memory", evaluation.memory.by_gpu_type, "by GPU type");
  if (!v.dumping() || evaluation.memory.host) {
    v.optional("host_memory", evaluation.memory.host,
               "model states there, of the node with the least room for them");
  }
}

}  // namespace orrery::models
