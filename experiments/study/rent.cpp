#include "experiments/study/rent.h"

#include <optional>
#include <utility>

#include "experiments/study/replay_traces.h"

namespace orrery::experiments {

std::vector<Fleet> offered_fleets(const RobustChoices& choices, const LoadedReplayCase& base,
                                  config::Diagnostics& diagnostics) {
  const config::Position at = at_setting("rent");
  if (choices.rent.has_value() != choices.target_rate.has_value()) {
    diagnostics.add(at_setting(choices.rent ? "target_rate" : "rent"), "missing",
                    "--rent \"8..64 of A100, H100\" --target-rate 200000");
    return {};
  }
  if (!choices.rent) return {};
  if (base.spec.trace.file) {
    diagnostics.add(at, "needs a generator: a trace file is of one cluster");
  }
  if (!choices.plans.empty()) diagnostics.add(at_setting("plan"), "does not go with --rent");
  const RentRange range = parse_rent(*choices.rent, base.cluster, at, diagnostics);
  if (!diagnostics.empty()) return {};
  return fleets(range, base.cluster, choices.prices == Prices::spot, at, diagnostics);
}

RobustResult rented(
    const RobustInputs& inputs, const std::vector<Fleet>& offered,
    const std::function<RobustResult(const models::Cluster&, RobustResult)>& chosen) {
  constexpr double kHour = 3600;
  const double target = *inputs.settings.choices.target_rate;
  std::vector<RobustFleet> seen;
  RobustResult last;
  for (const Fleet& fleet : offered) {
    if (inputs.call.cancellation.requested()) break;
    RobustInputs own = inputs;
    LoadedRun& run = own.run;
    run.cluster = only_nodes(inputs.run.cluster, fleet.nodes);
    run.devices.clear();
    for (const models::Device& device : run.cluster.devices) run.devices.push_back(device.id);
    RobustFleet row{
        fleet.name,   fleet.gpus, fleet.price.value * kHour, most_tokens_per_second(run),
        std::nullopt, false};
    if (row.most_tokens_per_second < target) {
      seen.push_back(row);
      continue;
    }
    LoadedReplayCase& base = own.base;
    base.cluster = run.cluster;
    base.hashes.cluster = run.cluster.hash;
    config::Diagnostics problems;
    base.traces = TraceSource(base.spec, "", base.cluster, problems);
    problems.raise();
    base.interruptions = base.traces.interruptions(1);
    const models::Cluster cluster = run.cluster;
    last = search_robust(std::move(own), target);
    row.tried = true;
    if (last.best) row.tokens_per_second = last.best->tokens_per_second;
    const bool reached = last.best && last.best->tokens_per_second.mean >= target;
    seen.push_back(row);
    if (!reached || last.interrupted) continue;
    last.fleet = row;
    last = chosen(cluster, std::move(last));
    break;
  }
  if (!last.fleet) {  // What was found is of a fleet that falls short.
    last.best.reset();
    last.plan.reset();
  }
  last.cluster = inputs.base.cluster.name;
  last.model = inputs.base.workload.name;
  last.fleets = std::move(seen);
  last.interrupted = inputs.call.cancellation.requested();
  return last;
}

}  // namespace orrery::experiments
