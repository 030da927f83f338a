#include "sim/iteration/evaluator.h"

#include <cstring>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/check.h"
#include "models/cost/memory.h"

namespace orrery::sim {
namespace {

/// The numbers of a result that an evaluation needs, as bytes for the pipe to the parent.
std::string encode(const IterationResult& result) {
  std::vector<double> numbers = {result.iteration_time.value,
                                 result.breakdown.compute.value,
                                 result.breakdown.tensor_parallel.value,
                                 result.breakdown.pipeline.value,
                                 result.breakdown.data_parallel.value,
                                 result.breakdown.optimizer.value,
                                 result.breakdown.bubble.value,
                                 static_cast<double>(result.pipeline_times.size())};
  for (const Seconds time : result.pipeline_times) numbers.push_back(time.value);
  for (const Bytes peak : result.peak_memory) numbers.push_back(peak.value);
  std::string bytes(numbers.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

IterationResult decode(const std::string& bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  ORRERY_CHECK(numbers.size() >= 8, "{} bytes from the forked simulator", bytes.size());
  IterationResult result;
  result.iteration_time = {numbers[0]};
  result.breakdown = {{numbers[1]}, {numbers[2]}, {numbers[3]},
                      {numbers[4]}, {numbers[5]}, {numbers[6]}};
  const auto pipelines = static_cast<std::size_t>(numbers[7]);
  for (std::size_t i = 8; i < numbers.size(); ++i) {
    if (i < 8 + pipelines) {
      result.pipeline_times.push_back({numbers[i]});
    } else {
      result.peak_memory.push_back({numbers[i]});
    }
  }
  return result;
}

}  // namespace

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
    return encode(simulator_.run(folded, prices, pricer_, options));
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
  const IterationResult result = decode(std::get<std::string>(delivered));
  const models::Cluster& cluster = of_.simulator_.cluster();
  return evaluation_from(result, plan_, cluster, of_.workload_,
                         memory_verdict(plan_, program_, result.peak_memory, cluster, of_.workload_,
                                        of_.job_, of_.profile_));
}

}  // namespace orrery::sim
