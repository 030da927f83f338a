#include "traces/generate_health.h"

#include <cmath>
#include <numbers>

#include "traces/generate_random.h"
#include "traces/trace.h"

namespace orrery::traces {
namespace {

ir::ClusterEvent link_event(Instant at, ir::EventKind kind, const std::string& link) {
  ir::ClusterEvent event;
  event.time = at;
  event.kind = kind;
  event.scope.kind = ir::EventScope::Kind::link;
  event.scope.link = link;
  event.cause = "degraded link";
  return event;
}

}  // namespace

std::vector<ir::ClusterEvent> draw_links(const DegradedLinks& links, Nanoseconds horizon,
                                         const Rng& root) {
  std::vector<ir::ClusterEvent> events;
  for (const std::string& link : links.links) {
    const Rng stream = root.fork(stream_key("link " + link));
    Rng durations = stream.fork(1);
    Instant free;
    for (const Instant at : draw_renewals(links.per_link_day / kDay, 1, horizon, stream)) {
      if (at < free) continue;
      events.push_back(link_event(at, ir::EventKind::degrade, link));
      events.back().factor = links.factor;
      free = at + draw_duration(links.duration, durations);
      if (free.nanoseconds > horizon.count) break;
      events.push_back(link_event(free, ir::EventKind::restore, link));
    }
  }
  return events;
}

std::vector<ir::ClusterEvent> draw_daily(const DailyVariation& daily, Nanoseconds horizon) {
  std::vector<ir::ClusterEvent> events;
  if (daily.depth == 0) return events;
  const Nanoseconds step = to_nanoseconds(daily.step);
  double last = 1;
  for (Instant at; at.nanoseconds < horizon.count; at = at + step) {
    const double hour = (to_seconds(Nanoseconds{at.nanoseconds}) + daily.step / 2).value / 3600;
    const double phase = 2 * std::numbers::pi * (hour - daily.warmest_hour) / 24;
    const double factor = std::round((1 - daily.depth * (1 + std::cos(phase)) / 2) * 1e4) / 1e4;
    if (factor == last) continue;
    last = factor;
    ir::ClusterEvent event;
    event.time = at;
    event.kind = ir::EventKind::slow;
    event.scope.kind = ir::EventScope::Kind::job;
    event.cause = "time of day";
    event.factor = factor;
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace orrery::traces
