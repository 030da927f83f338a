#include "sim/iteration/evaluator.h"

#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/check.h"
#include "models/cost/memory.h"
#include "sim/iteration/iteration_bytes.h"

namespace orrery::sim {
ir::MemoryVerdict memory_verdict(const ir::Plan& plan, const ir::Program& program,
                                 const std::vector<Bytes>& peaks, const models::Cluster& cluster,
                                 const models::Workload& workload, const models::Job& job,
                                 const ir::Profile& profile) {
  ir::MemoryVerdict verdict = models::check_memory(plan, cluster, workload, job, profile);
  for (std::size_t r = 0; r < peaks.size(); ++r) {
    const ir::Rank& rank = program.ranks[r];
    for (const DeviceId device : rank.devices) {
      const std::string& gpu = cluster.gpu(device).name;
      const Bytes need = models::device_memory(profile, gpu, peaks[r]);
      for (ir::MemoryUse& use : verdict.by_gpu_type) {
        if (use.gpu != gpu || need <= use.need) continue;
        use = {gpu, device, rank.pipeline, rank.stage, need, use.have};
      }
    }
  }
  return verdict;
}

SimulatorEvaluator::SimulatorEvaluator(IterationSimulator& simulator,
                                       const models::Workload& workload, const models::Job& job,
                                       const ir::Profile& profile, IterationOptions options)
    : simulator_(simulator),
      workload_(workload),
      job_(job),
      profile_(profile),
      options_(std::move(options)),
      pricer_(simulator.cluster(), workload, job, profile) {
  options_.record_spans = options_.record_memory = options_.record_links = false;
}

models::Evaluation SimulatorEvaluator::evaluate(const ir::Plan& plan) const {
  return evaluate(plan, {}, {});
}

models::Evaluation SimulatorEvaluator::evaluate(const ir::Plan& plan,
                                                const std::vector<Straggler>& stragglers,
                                                const std::vector<SlowLink>& slow_links) const {
  return start(plan, stragglers, slow_links).join();
}

SimulatorEvaluator::Running SimulatorEvaluator::start(
    const ir::Plan& plan, const std::vector<Straggler>& stragglers,
    const std::vector<SlowLink>& slow_links) const {
  IterationOptions options = options_;
  options.stragglers.insert(options.stragglers.end(), stragglers.begin(), stragglers.end());
  options.slow_links.insert(options.slow_links.end(), slow_links.begin(), slow_links.end());
  FoldedIteration iteration(plan, simulator_.cluster(), simulator_.topology(), workload_, job_, {},
                            options);
  const models::ProgramPrices prices(iteration.program(), pricer_);
  // What the copies would each do again.
  if (iteration.folding() == nullptr) simulator_.engine().make_links();
  return Running(*this, plan, iteration, [&](FoldedIteration& folded) {
    return to_bytes(simulator_.run(folded, prices, pricer_, options));
  });
}

SimulatorEvaluator::Running::Running(const SimulatorEvaluator& of, const ir::Plan& plan,
                                     FoldedIteration& iteration,
                                     const std::function<std::string(FoldedIteration&)>& simulate)
    : of_(of),
      plan_(plan),
      child_([&] { return simulate(iteration); }),
      program_(iteration.take_program()) {}

models::Evaluation SimulatorEvaluator::Running::join() {
  const ForkResult delivered = child_.join();
  if (const auto* failure = std::get_if<ChildFailure>(&delivered)) {
    throw std::runtime_error("simulation failed: " + failure->message);
  }
  const IterationResult result = iteration_from_bytes(std::get<std::string>(delivered));
  const models::Cluster& cluster = of_.simulator_.cluster();
  return evaluation_from(result, plan_, cluster, of_.workload_,
                         memory_verdict(plan_, program_, result.peak_memory, cluster, of_.workload_,
                                        of_.job_, of_.profile_));
}

}  // namespace orrery::sim
