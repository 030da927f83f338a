#include "models/config/visitor.h"
#include "traces/statistics.h"

namespace orrery::traces {

void describe(config::Visitor& v, CauseCount& count) {
  v.required("kind", count.kind, "");
  v.required("cause", count.cause, "");
  v.required("events", count.events, "");
}

void describe(config::Visitor& v, Quantile& quantile) {
  v.required("probability", quantile.probability, "");
  v.required("nodes", quantile.nodes, "");
  v.required("devices", quantile.devices, "");
}

void describe(config::Visitor& v, Availability& a) {
  v.required("gpu_type", a.gpu_type, "");
  v.required("nodes", a.nodes, "");
  v.required("devices", a.devices, "");
  v.required("mean_nodes", a.mean_nodes, "");
  v.required("mean_devices", a.mean_devices, "");
  v.required("quantiles", a.quantiles, "");
  v.required("node_hours", a.node_hours, "");
  v.required("gpu_hours", a.gpu_hours, "");
  v.required("departures", a.departures, "");
  v.required("arrivals", a.arrivals, "");
  v.required("bursts", a.bursts, "");
  v.required("join_bursts", a.join_bursts, "");
  v.required("mean_burst", a.mean_burst, "");
  v.required("max_burst", a.max_burst, "");
  v.required("mean_join_burst", a.mean_join_burst, "");
  v.required("lifetime_hours", a.lifetime_hours, "");
  v.required("away_hours", a.away_hours, "");
  v.required("leaves_per_node_hour", a.leaves_per_node_hour, "");
}

void describe(config::Visitor& v, TraceStatistics& s) {
  v.title("Trace statistics");
  v.required("source", s.source, "");
  v.required("horizon_hours", s.horizon_hours, "");
  v.required("events", s.events, "");
  v.required("counts", s.counts, "");
  v.required("failures", s.failures, "");
  v.required("unexpected", s.unexpected, "");
  v.required("announced", s.announced, "");
  v.required("mtbf_hours", s.mtbf_hours, "");
  v.required("mttf_1024_gpus_hours", s.mttf_1024_gpus_hours, "");
  v.required("per_1000_node_days", s.per_1000_node_days, "");
  v.required("all", s.all, "");
  v.required("types", s.types, "");
}

}  // namespace orrery::traces
