// One iteration of plan files, in each way of folding and whole, without the start of a program:
// lowering, pricing and simulation in CPU seconds, the median of nine processes.
//
//   plan_bench PLAN...     files that `orrery plan --output` wrote; CSV
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "experiments/study/inputs.h"
#include "models/config/diagnostics.h"
#include "models/cost/pricer.h"
#include "models/spec/topology.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {
namespace {

constexpr int kRuns = 9;

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Measurement {
  double lower, run, iteration, pipelines, timers, flows;
  double seconds() const { return lower + run; }
};

Measurement measure(const LoadedRun& run, sim::FoldMode fold) {
  const models::Topology topology(run.cluster);
  sim::IterationSimulator simulator(run.cluster, topology, false);
  sim::IterationOptions options = run.spec.simulation;
  options.fold = fold;
  options.record_spans = options.record_memory = options.record_links = false;
  const double start = cpu_seconds();
  sim::FoldedIteration iteration(*run.plan, run.cluster, topology, run.workload, run.spec.job, {},
                                 options);
  const models::Pricer pricer(run.cluster, run.workload, run.spec.job, run.profile);
  const models::ProgramPrices prices(iteration.program(), pricer);
  const double lowered = cpu_seconds();
  const sim::IterationResult result = simulator.run(iteration, prices, pricer, options);
  return {lowered - start,
          cpu_seconds() - lowered,
          result.iteration_time.value,
          static_cast<double>(result.simulated_pipelines),
          static_cast<double>(result.work.timers),
          static_cast<double>(result.work.flows)};
}

Measurement median(const LoadedRun& run, sim::FoldMode fold) {
  std::vector<Measurement> measured;
  for (int i = 0; i < kRuns; ++i) {
    const sim::ForkResult result = sim::run_forked([&] {
      const Measurement one = measure(run, fold);
      return std::string(reinterpret_cast<const char*>(&one), sizeof one);
    });
    if (const auto* failure = std::get_if<sim::ChildFailure>(&result)) {
      throw std::runtime_error(failure->message);
    }
    Measurement one{};
    std::memcpy(&one, std::get<std::string>(result).data(), sizeof one);
    measured.push_back(one);
  }
  std::sort(measured.begin(), measured.end(),
            [](const Measurement& a, const Measurement& b) { return a.seconds() < b.seconds(); });
  return measured[kRuns / 2];
}

int table(const std::vector<std::string>& plans) {
  fmt::print("plan,fold,lower_s,run_s,iteration_s,pipelines,timers,flows\n");
  for (const LoadedRun& run : load_plans(plans, JobSettings{}, JudgeSettings{})) {
    for (const auto& [fold, name] : enum_names(sim::FoldMode{})) {
      const Measurement m = median(run, fold);
      fmt::print("{},{},{:.4f},{:.4f},{:.17g},{},{},{}\n", run.spec.plan->value, name, m.lower,
                 m.run, m.iteration, m.pipelines, m.timers, m.flows);
    }
  }
  return 0;
}

}  // namespace
}  // namespace orrery::experiments

int main(int argc, char** argv) {
  try {
    return orrery::experiments::table({argv + 1, argv + argc});
  } catch (const std::exception& problem) {
    fmt::print(stderr, "{}\n", problem.what());
    return 2;
  }
}
