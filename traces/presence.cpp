#include "traces/presence.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/ir/names.h"
#include "traces/names.h"

namespace orrery::traces {

using ir::EventKind;

Presence::Presence(const TraceLayout& layout)
    : layout_(layout),
      states_(layout.device_count(), State::unknown),
      changed_(layout.names().size(), -1) {
  for (const NodeId node : layout.nodes()) present_of_.push_back(layout.gpus(node));
}

void Presence::set_absent(NodeId node) {
  for (const DeviceId device : layout_.devices_of(node)) set(device, State::left);
}

void Presence::set(DeviceId device, State state) {
  int& count = present_of_[layout_.node_of(device)];
  if (present(device)) --count;
  states_[device] = state;
  if (present(device)) ++count;
}

void Presence::end_notice(DeviceId device) {
  const auto at = notices_.find(device);
  if (at == notices_.end()) return;
  deadlines_.erase({at->second, device});
  notices_.erase(at);
}

std::string Presence::name(DeviceId device) const {
  return fmt::format("device {} of node '{}'", layout_.position(device),
                     layout_.name(layout_.node_of(device)));
}

void Presence::expire(Instant now, std::vector<Contradiction>& found) {
  while (!deadlines_.empty() && deadlines_.begin()->first.first < now) {
    const auto [pending, device] = *deadlines_.begin();
    const std::string& node = layout_.name(layout_.node_of(device));
    if (found.empty() || found.back().sequence != pending.second) {
      found.push_back({pending.second,
                       fmt::format("node '{}' does not leave by {} s, as this notice says", node,
                                   format_time(pending.first.nanoseconds)),
                       "a join of the same scope withdraws a notice"});
    }
    end_notice(device);
  }
}

void Presence::finish(Instant horizon, std::vector<Contradiction>& found) {
  expire(horizon, found);
}

std::string Presence::why_not_all(const ir::ClusterEvent& event,
                                  const std::vector<DeviceId>& devices, State needed) const {
  const auto fits = [&](DeviceId d) {
    return needed == State::present ? present(d) : states_[d] == needed;
  };
  const char* missing = needed == State::present ? "there" : "failed";
  if (event.scope.kind == ir::EventScope::Kind::node) {
    if (std::any_of(devices.begin(), devices.end(), fits)) return "";
    return fmt::format("{} of node '{}', which is not {}", kind_name(event.kind),
                       layout_.name(event.scope.node), missing);
  }
  const auto bad = std::find_if_not(devices.begin(), devices.end(), fits);
  if (bad == devices.end()) return "";
  return fmt::format("{} of {}, which is not {}", kind_name(event.kind), name(*bad), missing);
}

std::string Presence::why_not(const ir::ClusterEvent& event, const std::vector<DeviceId>& devices,
                              std::string& hint) const {
  std::string what;
  if (event.kind == EventKind::join) {
    const auto bad = std::find_if(devices.begin(), devices.end(), [&](DeviceId d) {
      return present(d) && states_[d] != State::unknown && !notices_.contains(d);
    });
    if (bad == devices.end()) return "";
    what = event.scope.kind == ir::EventScope::Kind::node
               ? fmt::format("join of node '{}', which is there", layout_.name(event.scope.node))
               : fmt::format("join of {}, which is there", name(*bad));
  } else {
    what = why_not_all(event, devices,
                       event.kind == EventKind::repair ? State::failed : State::present);
  }
  if (what.empty()) return what;
  const NodeId node = layout_.node_of(devices.front());
  if (event.kind == EventKind::repair && present(node) == 0) hint = "join brings back what left";
  if (const std::int64_t line = changed_[node]; line >= 0 && hint.empty()) {
    hint = fmt::format("its last change: line {}", line);
  }
  return what;
}

/// A node's first event decides whether it is there at the start.
void Presence::meet_nodes(const ir::ClusterEvent& event, const std::vector<DeviceId>& devices,
                          std::vector<Contradiction>& found) {
  for (std::size_t i = 0; i < devices.size();) {
    const NodeId node = layout_.node_of(devices[i]);
    const std::size_t begin = i;
    while (i < devices.size() && layout_.node_of(devices[i]) == node) ++i;
    if (states_[layout_.first(node)] != State::unknown) continue;
    if (event.kind != EventKind::join) {
      for (const DeviceId device : layout_.devices_of(node)) set(device, State::present);
    } else if (static_cast<int>(i - begin) < layout_.gpus(node)) {
      found.push_back(
          {event.sequence,
           fmt::format("join of some devices of node '{}', which is there", layout_.name(node)),
           "a node that is absent at the start joins as a whole"});
    }
  }
}

void Presence::apply(const ir::ClusterEvent& event, std::vector<Contradiction>& found) {
  expire(event.time, found);
  if (event.kind == EventKind::slow || event.kind == EventKind::restore ||
      event.kind == EventKind::degrade) {
    return;
  }
  const std::vector<DeviceId> devices = layout_.devices_of(event.scope);
  if (devices.empty()) return;
  const std::size_t before = found.size();
  meet_nodes(event, devices, found);
  if (found.size() > before) return;
  std::string hint;
  if (std::string what = why_not(event, devices, hint); !what.empty()) {
    found.push_back({event.sequence, std::move(what), std::move(hint)});
    return;
  }
  for (const DeviceId device : devices) {
    if (event.kind == EventKind::notice) {
      if (!present(device)) continue;
      end_notice(device);
      const Pending pending{event.time + event.notice, event.sequence};
      notices_.emplace(device, pending);
      deadlines_.insert({pending, device});
      continue;
    }
    State next = State::present;
    if (event.kind == EventKind::fail) next = State::failed;
    if (event.kind == EventKind::leave) next = State::left;
    if (next == State::failed && !present(device)) continue;
    if (event.kind == EventKind::repair && states_[device] != State::failed) continue;
    end_notice(device);
    set(device, next);
    changed_[layout_.node_of(device)] = event.sequence;
  }
}

}  // namespace orrery::traces
