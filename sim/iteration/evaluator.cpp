#include "sim/iteration/evaluator.h"

#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/bytes.h"
#include "models/base/check.h"
#include "models/cost/memory.h"
#include "models/interfaces/answer_bytes.h"
#include "sim/flow/fork.h"

namespace orrery::sim {
namespace {

/// What a copy says: that it guessed wrong, or its evaluation of a program that it folded or not.
constexpr char kWrong = 'w';
constexpr char kFolded = 'f';
constexpr char kWhole = 'a';

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
  return evaluate_priced(plan, stragglers, slow_links).evaluation;
}

SimulatorEvaluator::Priced SimulatorEvaluator::evaluate_priced(
    const ir::Plan& plan, const std::vector<Straggler>& stragglers,
    const std::vector<SlowLink>& slow_links) const {
  IterationOptions options = options_;
  options.stragglers.insert(options.stragglers.end(), stragglers.begin(), stragglers.end());
  options.slow_links.insert(options.slow_links.end(), slow_links.begin(), slow_links.end());
  // By guess: what it met. Each runs in a copy of its own that lowers the plan anew: the first is
  // nearly always right, and copies share no memory that they write to.
  std::vector<std::string> met;
  const auto simulate = [&]() -> std::string {
    const models::Cluster& cluster = simulator_.cluster();
    FoldedIteration iteration(plan, cluster, simulator_.topology(), workload_, job_, {}, options);
    for (const std::string& meetings : met) iteration.fold_again(meetings);
    const models::ProgramPrices prices(iteration.program(), pricer_);
    const bool whole = iteration.folding() == nullptr;
    if (whole) simulator_.engine().make_links();
    const auto outcome = simulator_.try_run(iteration, prices, options);
    ByteWriter out;
    if (const auto* meetings = std::get_if<std::string>(&outcome)) {
      out.put(kWrong);
      out.put(std::string_view(*meetings));
      return out.bytes();
    }
    out.put(whole ? kWhole : kFolded);
    const IterationResult& result = std::get<IterationResult>(outcome);
    models::put(out, evaluation_from(result, plan, cluster, workload_,
                                     memory_verdict(plan, iteration.program(), result.peak_memory,
                                                    cluster, workload_, job_, profile_)));
    const std::vector<std::string> entries = pricer_.take_recent_entries();
    out.put(static_cast<std::uint64_t>(entries.size()));
    for (const std::string& line : entries) out.put(std::string_view(line));
    return out.bytes();
  };
  for (;;) {
    const ForkResult delivered = run_forked(simulate);
    if (const auto* failure = std::get_if<ChildFailure>(&delivered)) {
      throw std::runtime_error("simulation failed: " + failure->message);
    }
    ByteReader in(std::get<std::string>(delivered));
    const char outcome = in.get<char>();
    if (outcome == kWrong) {
      met.push_back(in.text());
      continue;
    }
    if (outcome == kWhole) simulator_.engine().make_links();  // Else each copy would.
    Priced priced{models::get_evaluation(in), {}};
    priced.prices.resize(in.count());
    for (std::string& line : priced.prices) line = in.text();
    ORRERY_CHECK(in.complete(), "an evaluation arrived broken");
    return priced;
  }
}

}  // namespace orrery::sim
