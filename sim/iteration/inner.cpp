#include "sim/iteration/inner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/cost/collective.h"

namespace orrery::sim {
namespace {

/// Over the same edges, each with the same share of the bytes: what one after the other takes is
/// what their sum takes.
bool same_edges(const InnerPhase& a, const InnerPhase& b) {
  const auto alike = [&](const InnerFlow& x, const InnerFlow& y) {
    const double one = x.bytes.value * b.flows.front().bytes.value;
    const double other = y.bytes.value * a.flows.front().bytes.value;
    return x.source == y.source && x.destination == y.destination &&
           std::abs(one - other) <= 1e-9 * std::abs(one);
  };
  return std::equal(a.flows.begin(), a.flows.end(), b.flows.begin(), b.flows.end(), alike);
}

double bytes_of(const InnerPhase& phase) {
  double bytes = 0;
  for (const InnerFlow& flow : phase.flows) bytes += flow.bytes.value;
  return bytes;
}

/// That share of its time. A flow waits for its path's latency once, however small it is.
InnerFlow part_of(InnerFlow flow, double share) {
  if (share == 1) return flow;
  flow.bytes *= share;
  flow.tail = share * (flow.tail + flow.latency) - flow.latency;
  return flow;
}

/// All repetitions of a phase in one.
InnerPhase repeated(const InnerPhase& phase) {
  InnerPhase once{1, phase.gathers, phase.flows};
  for (InnerFlow& flow : once.flows) {
    flow.bytes *= phase.count;
    flow.tail = phase.count * (flow.tail + flow.latency) - flow.latency;
  }
  return once;
}

}  // namespace

InnerMode effective_mode(bool collapsed, InnerMode mode) {
  if (mode != InnerMode::automatic) return mode;
  return collapsed ? InnerMode::closed_form : InnerMode::aggregated;
}

bool takes_closed_form(const ir::Program& program, const ir::CollectiveShape& shape,
                       const models::PathFunction& path) {
  if (shape.parts.size() != 1) return false;
  const ir::CollectiveShape::Part& part = shape.parts.front();
  const auto edges =
      models::collective_flows(shape.kind, program.group(part.group).devices, part.bytes, path);
  return std::all_of(edges.begin(), edges.end(), [&](const models::FlowEdge& edge) {
    return path(edge.source, edge.destination).kind == models::PathClass::nvlink;
  });
}

InnerTable::InnerTable(const ir::Program& program, const models::ProgramPrices& prices,
                       const models::Network& network)
    : program_(program),
      prices_(prices),
      network_(network),
      closed_form_(program.inner_sets.size()) {}

Seconds repetition_time(const ir::InnerCollective& inner, const DeviceSets& groups,
                        const models::Network& network) {
  models::SharedLinks links(network);
  Seconds slowest;
  for (const std::vector<DeviceId>& group : groups) {
    if (inner.kind == ir::CollectiveKind::all_to_all) {
      links.add(inner.kind, group, inner.bytes, inner.bytes_per_peer);
    } else {
      slowest =
          std::max(slowest, models::collective_time(inner.kind, models::CollectiveAlgorithm::ring,
                                                    group, inner.bytes, network.path));
    }
  }
  return std::max(slowest, links.time());
}

Seconds InnerTable::time_of(const ir::InnerCollective& inner) const {
  DeviceSets groups;
  for (const std::int32_t group : inner.groups) groups.push_back(program_.group(group).devices);
  return inner.count * repetition_time(inner, groups, network_);
}

const InnerTimes& InnerTable::closed_form(std::int32_t set) {
  std::optional<InnerTimes>& known = closed_form_[as_size(set)];
  if (known) return *known;
  known.emplace();
  const std::vector<ir::InnerCollective>& collectives = program_.inner_sets[as_size(set)];
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const Seconds time = time_of(collectives[i]);
    const double exposed = prices_.exposed(set, i);
    known->exposed.all += exposed * time;
    known->hidden.all += (1 - exposed) * time;
    if (collectives[i].purpose != ir::Purpose::zero) continue;
    known->exposed.gathers += exposed * time;
    known->hidden.gathers += (1 - exposed) * time;
  }
  return *known;
}

bool InnerTable::hides(std::int32_t set) const {
  for (std::size_t i = 0; i < program_.inner_sets[as_size(set)].size(); ++i) {
    if (prices_.exposed(set, i) < 1) return true;
  }
  return false;
}

bool InnerTable::gathers(std::int32_t set) const {
  const auto& inner = program_.inner_sets[set];
  return std::any_of(inner.begin(), inner.end(), [](const ir::InnerCollective& one) {
    return one.purpose == ir::Purpose::zero;
  });
}

Bytes InnerTable::payload(std::int32_t set, RankId rank) {
  const auto [place, fresh] = payloads_.try_emplace({set, rank.value});
  if (!fresh) return place->second;
  const std::vector<DeviceId>& own = program_.rank(rank).devices;
  for (const ir::InnerCollective& inner : program_.inner_sets[set]) {
    for (const std::int32_t group : inner.groups) {
      const auto& devices = program_.group(group).devices;
      const bool takes_part = std::find_first_of(devices.begin(), devices.end(), own.begin(),
                                                 own.end()) != devices.end();
      if (takes_part) place->second += inner.count * inner.bytes;
    }
  }
  return place->second;
}

InnerTable::Phases InnerTable::make_phases(std::int32_t set, std::span<const RankId> ranks) const {
  std::vector<DeviceId> own;
  for (const RankId rank : ranks) {
    const std::vector<DeviceId>& devices = program_.rank(rank).devices;
    own.insert(own.end(), devices.begin(), devices.end());
  }
  std::sort(own.begin(), own.end());
  Phases phases;
  const std::vector<ir::InnerCollective>& collectives = program_.inner_sets[as_size(set)];
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const ir::InnerCollective& inner = collectives[i];
    const double exposed = prices_.exposed(set, i);
    InnerPhase phase{inner.count, inner.purpose == ir::Purpose::zero ? 1.0 : 0.0, {}};
    for (const std::int32_t group : inner.groups) {
      for (const models::FlowEdge& edge :
           models::collective_flows(inner.kind, program_.group(group).devices, inner.bytes,
                                    network_.path, inner.bytes_per_peer)) {
        if (!std::binary_search(own.begin(), own.end(), edge.source)) continue;
        const InnerFlow flow{edge.source, edge.destination, edge.bytes,
                             network_.path(edge.source, edge.destination).latency,
                             edge.extra_latency};
        if (exposed > 0) phase.flows.push_back(part_of(flow, exposed));
        if (exposed < 1) {
          phases.hidden.push_back(flow);
          phases.hidden.back().bytes *= inner.count * (1 - exposed);
        }
      }
    }
    phases.exposed.push_back(std::move(phase));
  }
  return phases;
}

const InnerTable::Phases& InnerTable::phases_of(std::int32_t set, std::span<const RankId> ranks) {
  const Key key{set, ranks.front().value};
  const auto found = phases_.find(key);
  if (found != phases_.end()) return found->second;
  return phases_.emplace(key, make_phases(set, ranks)).first->second;
}

const std::vector<InnerPhase>& InnerTable::phases(std::int32_t set, std::span<const RankId> ranks) {
  return phases_of(set, ranks).exposed;
}

const std::vector<InnerFlow>& InnerTable::hidden(std::int32_t set, std::span<const RankId> ranks) {
  return phases_of(set, ranks).hidden;
}

const std::vector<InnerPhase>& InnerTable::merged(std::int32_t set, std::span<const RankId> ranks) {
  const Key key{set, ranks.front().value};
  const auto found = merged_.find(key);
  if (found != merged_.end()) return found->second;
  std::vector<InnerPhase> merged;
  for (const InnerPhase& phase : phases(set, ranks)) {
    InnerPhase once = repeated(phase);
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const InnerPhase& other) {
      return same_edges(other, once);
    });
    if (same == merged.end()) {
      merged.push_back(std::move(once));
      continue;
    }
    const double before = bytes_of(*same);
    const double added = bytes_of(once);
    if (before + added > 0) {
      same->gathers = (before * same->gathers + added * once.gathers) / (before + added);
    }
    for (std::size_t i = 0; i < once.flows.size(); ++i) {
      same->flows[i].bytes += once.flows[i].bytes;
      same->flows[i].tail += once.flows[i].tail + once.flows[i].latency;
    }
  }
  return merged_.emplace(key, std::move(merged)).first->second;
}

}  // namespace orrery::sim
