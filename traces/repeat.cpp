#include "traces/repeat.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "models/base/check.h"
#include "traces/layout.h"
#include "traces/presence.h"

namespace orrery::traces {
namespace {

using ir::ClusterEvent;
using ir::EventKind;
using Kind = ir::EventScope::Kind;

/// What is slow: devices, links, the job.
class Health {
 public:
  void apply(const ClusterEvent& event, const TraceLayout& layout) {
    const bool slows = event.kind == EventKind::slow || event.kind == EventKind::degrade;
    if (!slows && event.kind != EventKind::restore) return;
    if (event.scope.kind == Kind::job) job_ = slows;
    if (event.scope.kind == Kind::link) mark(links_, event.scope.link, slows);
    for (const DeviceId device : layout.devices_of(event.scope)) mark(devices_, device, slows);
  }

  /// restore of everything that is slow.
  std::vector<ClusterEvent> restore() const {
    std::vector<ClusterEvent> events;
    const auto add = [&](Kind kind) -> ClusterEvent& {
      events.emplace_back();
      events.back().kind = EventKind::restore;
      events.back().scope.kind = kind;
      return events.back();
    };
    if (!devices_.empty()) {
      add(Kind::devices).scope.devices.assign(devices_.begin(), devices_.end());
    }
    for (const std::string& link : links_) add(Kind::link).scope.link = link;
    if (job_) add(Kind::job);
    return events;
  }

 private:
  template <class T>
  static void mark(std::set<T>& set, const T& what, bool slow) {
    if (slow) {
      set.insert(what);
    } else {
      set.erase(what);
    }
  }

  std::set<DeviceId> devices_;
  std::set<std::string> links_;
  bool job_ = false;
};

/// What brings each node back to how it was at the start.
std::vector<ClusterEvent> rewind(const Presence& presence, const TraceLayout& layout,
                                 const std::set<NodeId>& absent) {
  std::vector<ClusterEvent> events;
  for (const NodeId node : layout.nodes()) {
    ClusterEvent event;
    event.kind = absent.contains(node) ? EventKind::leave : EventKind::join;
    std::vector<DeviceId> missing;
    for (const DeviceId device : layout.devices_of(node)) {
      if (!presence.present(device) || presence.noticed(device)) missing.push_back(device);
    }
    const bool whole = static_cast<int>(missing.size()) == layout.gpus(node);
    if (event.kind == EventKind::leave ? presence.present(node) == 0 : missing.empty()) continue;
    if (event.kind == EventKind::leave || whole) {
      event.scope.kind = Kind::node;
      event.scope.node = node;
    } else {
      event.scope.devices = std::move(missing);
    }
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace

/// At each seam each node comes or goes at most, and three events restore what is slow.
double repeated_events(const Trace& trace, Nanoseconds horizon) {
  const double rounds =
      std::ceil(static_cast<double>(horizon.count) / static_cast<double>(trace.horizon.count));
  return rounds * static_cast<double>(trace.events.size()) +
         (rounds - 1) * static_cast<double>(trace.nodes.size() + 3);
}

Trace repeat(const Trace& trace, Nanoseconds horizon) {
  ORRERY_CHECK(trace.horizon.count >= 1'000'000'000, "a trace of {} ns", trace.horizon.count);
  const TraceLayout layout(trace.nodes);
  const std::vector<NodeId> list = absent_at_start(trace);
  const std::set<NodeId> absent(list.begin(), list.end());
  Presence presence(layout);
  for (const NodeId node : list) presence.set_absent(node);
  Health health;
  std::vector<Contradiction> ignored;
  const Nanoseconds seam{trace.horizon.count - 1};
  for (const ClusterEvent& event : trace.events) {
    if (event.time.nanoseconds >= seam.count) break;
    presence.apply(event, ignored);
    health.apply(event, layout);
  }
  std::vector<ClusterEvent> back = rewind(presence, layout, absent);
  for (ClusterEvent& event : health.restore()) back.push_back(std::move(event));

  Trace out = trace;
  out.horizon = horizon;
  out.events.clear();
  const auto add = [&](ClusterEvent event, Instant at) {
    event.time = at;
    event.sequence = static_cast<std::int64_t>(out.events.size());
    if (at.nanoseconds <= horizon.count) out.events.push_back(std::move(event));
  };
  for (Instant start; start.nanoseconds < horizon.count; start = start + trace.horizon) {
    const bool last = (start + trace.horizon).nanoseconds >= horizon.count;
    for (const ClusterEvent& event : trace.events) {
      if (!last && event.time.nanoseconds >= seam.count) break;
      add(event, start + Nanoseconds{event.time.nanoseconds});
    }
    if (last) break;
    for (ClusterEvent event : back) {
      event.cause = "repeat";
      add(std::move(event), start + seam);
    }
  }
  sort_events(out);
  return out;
}

}  // namespace orrery::traces
