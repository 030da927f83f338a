#include "traces/window.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/base/check.h"
#include "traces/layout.h"
#include "traces/presence.h"

namespace orrery::traces {
namespace {

using ir::ClusterEvent;
using ir::EventKind;
using Kind = ir::EventScope::Kind;

constexpr const char* kWindowCause = "window";

/// What was said last of speeds and prices, by what it was said of.
class LastSaid {
 public:
  void apply(const ClusterEvent& event, const TraceLayout& layout) {
    for (const DeviceId device : layout.devices_of(event.scope)) {
      if (event.price) prices_[device] = *event.price;
      note(devices_, device, event);
    }
    if (event.scope.kind == Kind::link) note(links_, event.scope.link, event);
    if (event.scope.kind == Kind::job) note(job_, 0, event);
  }

  std::vector<ClusterEvent> events() const {
    std::vector<ClusterEvent> out;
    for (const auto& [device, event] : devices_) {
      out.push_back(event);
      out.back().scope = {};
      out.back().scope.devices = {device};
      out.back().price.reset();
    }
    for (const auto& [link, event] : links_) out.push_back(event);
    for (const auto& [job, event] : job_) out.push_back(event);
    for (const auto& [device, price] : prices_) {
      ClusterEvent event;
      event.kind = EventKind::restore;
      const auto slow = devices_.find(device);
      if (slow != devices_.end()) {  // A restore would end it.
        event.kind = slow->second.kind;
        event.factor = slow->second.factor;
      }
      event.scope.devices = {device};
      event.price = price;
      out.push_back(std::move(event));
    }
    return out;
  }

 private:
  template <class Key>
  static void note(std::map<Key, ClusterEvent>& of, const Key& key, const ClusterEvent& event) {
    if (event.kind == EventKind::slow || event.kind == EventKind::degrade) of[key] = event;
    if (event.kind == EventKind::restore) of.erase(key);
  }

  std::map<DeviceId, ClusterEvent> devices_;
  std::map<std::string, ClusterEvent> links_;
  std::map<int, ClusterEvent> job_;
  std::map<DeviceId, DollarsPerSecond> prices_;
};

}  // namespace

Trace window(const Trace& trace, Instant start, Nanoseconds horizon) {
  ORRERY_CHECK(start.nanoseconds >= 0 && horizon.count > 0 &&
                   horizon.count <= trace.horizon.count - start.nanoseconds,
               "{} ns from {} ns on, of {} ns", horizon.count, start.nanoseconds,
               trace.horizon.count);
  const TraceLayout layout(trace.nodes);
  Presence presence(layout);
  for (const NodeId node : absent_at_start(trace)) presence.set_absent(node);
  LastSaid standing;
  std::map<DeviceId, ClusterEvent> notices;
  std::map<DeviceId, EventKind> lost;  ///< How: what failed may be repaired.
  std::vector<Contradiction> ignored;
  std::size_t next = 0;
  for (; next < trace.events.size(); ++next) {
    const ClusterEvent& event = trace.events[next];
    if (event.time.nanoseconds >= start.nanoseconds) break;
    presence.apply(event, ignored);
    standing.apply(event, layout);
    for (const DeviceId device : layout.devices_of(event.scope)) {
      if (event.kind == EventKind::notice) notices[device] = event;
      if (event.kind == EventKind::fail || event.kind == EventKind::leave) {
        lost[device] = event.kind;
      }
    }
  }

  Trace out = trace;
  out.horizon = horizon;
  out.events.clear();
  const auto add = [&](ClusterEvent event, Instant at) {
    event.time = at;
    event.sequence = static_cast<std::int64_t>(out.events.size());
    out.events.push_back(std::move(event));
  };
  std::vector<ClusterEvent> state = standing.events();
  for (const NodeId node : layout.nodes()) {
    for (const EventKind kind : {EventKind::fail, EventKind::leave}) {
      ClusterEvent gone;
      gone.kind = kind;
      for (const DeviceId device : layout.devices_of(node)) {
        const auto how = lost.find(device);
        const bool so = how == lost.end() ? kind == EventKind::leave : how->second == kind;
        if (so && !presence.present(device)) gone.scope.devices.push_back(device);
      }
      if (gone.scope.devices.empty()) continue;
      if (static_cast<int>(gone.scope.devices.size()) == layout.gpus(node)) {
        gone.scope = {};
        gone.scope.kind = Kind::node;
        gone.scope.node = node;
      }
      state.push_back(std::move(gone));
    }
  }
  for (const auto& [device, event] : notices) {
    if (!presence.noticed(device)) continue;
    state.push_back(event);
    state.back().scope = {};
    state.back().scope.devices = {device};
    state.back().notice.count -= start.nanoseconds - event.time.nanoseconds;
  }
  for (ClusterEvent& event : state) {
    event.cause = kWindowCause;
    add(std::move(event), {});
  }
  for (; next < trace.events.size(); ++next) {
    const Instant at{trace.events[next].time.nanoseconds - start.nanoseconds};
    if (at.nanoseconds > horizon.count) break;
    add(trace.events[next], at);
  }
  sort_events(out);
  return out;
}

}  // namespace orrery::traces
