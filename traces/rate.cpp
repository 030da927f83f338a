#include "traces/rate.h"

#include <cmath>
#include <map>
#include <set>

#include "models/base/check.h"
#include "traces/generate/spot.h"
#include "traces/layout.h"

namespace orrery::traces {
namespace {

double hit(double nodes, double in_use) { return 1 - std::pow(1 - in_use, nodes); }

double failures_per_second(const FailureSettings& failures, double devices, double in_use) {
  const double scale =
      failures.rate / failures.period.value * devices / static_cast<double>(failures.gpus);
  double rate = 0;
  for (const FailureCause& cause : failures.causes) {
    const bool job = cause.scope == FailureScope::job;
    const int nodes = cause.scope == FailureScope::leaf ? cause.nodes : 1;
    rate += scale * cause.count * (job ? 1 : hit(nodes, in_use));
  }
  return rate;
}

}  // namespace

double expected_interruptions_per_second(const TraceGenerator& generator,
                                         const GeneratorNodes& nodes, double in_use) {
  ORRERY_CHECK(in_use > 0 && in_use <= 1, "share in use {}", in_use);
  double devices = 0;
  std::map<std::string, std::size_t> by_type;
  for (const TraceNode& node : nodes.nodes) {
    devices += node.gpus;
    ++by_type[node.gpu_type];
  }
  double rate = 0;
  if (generator.failures) rate += failures_per_second(*generator.failures, devices, in_use);
  for (const auto& [type, count] : by_type) {
    const SpotType* spot = spot_type_of(generator, type);
    if (spot == nullptr) continue;
    rate += spot_departures_per_second(*spot, count) * hit(spot->burst, in_use);
  }
  return rate;
}

double mean_interruptions_per_second(const Trace& trace, double in_use) {
  ORRERY_CHECK(in_use > 0 && in_use <= 1, "share in use {}", in_use);
  const double seconds = to_seconds(trace.horizon).value;
  if (!(seconds > 0)) return 0;
  struct Hit {
    bool job = false;
    std::set<NodeId> nodes;
  };
  const TraceLayout layout(trace.nodes);
  std::map<Instant, Hit> instants;
  for (const ir::ClusterEvent& event : trace.events) {
    const bool counts = (event.kind == ir::EventKind::fail || event.kind == ir::EventKind::leave) &&
                        event.cause != kPlannedMaintenance && event.time > Instant{} &&
                        event.time < Instant{} + trace.horizon;
    if (!counts) continue;
    Hit& at = instants[event.time];
    if (event.scope.kind == ir::EventScope::Kind::job) at.job = true;
    if (event.scope.kind == ir::EventScope::Kind::node) at.nodes.insert(event.scope.node);
    for (const DeviceId device : event.scope.devices) at.nodes.insert(layout.node_of(device));
  }
  double count = 0;
  for (const auto& [time, at] : instants) {
    count += at.job ? 1 : hit(static_cast<double>(at.nodes.size()), in_use);
  }
  return count / seconds;
}

}  // namespace orrery::traces
