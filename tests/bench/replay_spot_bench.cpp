// A replay of spot machines, against 60 s by the clock: Llama 30B on 240 mixed GPUs of
// experiments/spot, 30 days of the generator `spot` (about 2,000 events). Prints CPU seconds of
// this process and of the forked simulations, and what they went into: planning and new iterations
// apart. Run by hand on a release build, in the repository's root:
// replay_spot_bench [POLICY [DAYS [SEED]]]
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "models/spec/library.h"
#include "models/spec/topology.h"
#include "sim/replay/replay.h"
#include "sim/replay/simulated_timers.h"
#include "tests/bench/timed_policy.h"
#include "traces/generate/generate.h"

int main(int count, char** words) {
  using namespace orrery;
  constexpr double kTarget =
      60;  // seconds by the clock; forked simulations run in parallel with the replay
  constexpr std::int64_t kDay = std::int64_t{86400} * 1'000'000'000;
  const std::string name = count > 1 ? words[1] : "autohet";
  const int days = count > 2 ? std::atoi(words[2]) : 30;
  const std::uint64_t seed = count > 3 ? std::strtoull(words[3], nullptr, 10) : 1;
  config::Diagnostics diagnostics;
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  models::Job job;
  job.global_batch = 512;
  job.sequence_length = 4096;
  job.allowed.recompute = {ir::Recompute::full};
  const models::Cluster cluster =
      models::load_cluster("experiments/spot/mixed_240.yaml", library, {}, diagnostics);
  const models::Workload workload =
      models::load_workload("llama_30b", job, library, {}, diagnostics);
  const traces::TraceGenerator generator =
      traces::load_generator("spot", library.root, {}, {}, {}, diagnostics);
  diagnostics.raise();
  const traces::Trace trace = traces::generate(generator, traces::nodes_of_cluster(cluster),
                                               Nanoseconds{days * kDay}, seed);

  const models::Topology topology(cluster);
  const ir::Profile profile;
  sim::SimulatedTimers timers(cluster, topology, workload, job, profile);
  std::int64_t searches = 0;
  const double start = bench::cpu_seconds();
  const auto policy =
      bench::policy_of(name, {cluster, topology, workload, job, profile, timers.evaluator(),
                              1 / 7200.0, std::nullopt, 1, &searches});
  const double made = bench::cpu_seconds();
  const bench::TimedPolicy timed(*policy);
  const sim::ReplayInput input{cluster, job, trace, timed, timers.iterations(), timers.transfers()};
  const auto started = std::chrono::steady_clock::now();
  const sim::ReplayResult result = sim::replay(input, {});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const double end = bench::cpu_seconds();
  fmt::print("{}: {} GPUs, {} days of spot machines, seed {}\n", timed.name(), cluster.size(), days,
             seed);
  fmt::print("policy                  {:8.3f} CPU s, before the replay\n", made - start);
  bench::print_costs(result, timers, seconds, "s wall", kTarget);
  fmt::print("  all processes         {:8.3f} CPU s\n", end - made);
  fmt::print("  decisions             {:8.3f} CPU s, {} searches, simulations asked for included\n",
             timed.deciding(), searches);
  fmt::print("  costs of checkpoints  {:8.3f} CPU s\n", timed.checkpoint_costs());
  return seconds <= kTarget ? 0 : 1;
}
