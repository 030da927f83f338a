#include "sim/replay/flow_transfer_timer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>

#include "models/base/check.h"
#include "sim/replay/device_renaming.h"

namespace orrery::sim {
namespace {

/// Devices of the transfers, node by node; nodes by what their own devices send and take, so that
/// sets of transfers that are equal but for which node does what come in the same order. Whom a
/// peer sends to is not looked at.
std::vector<DeviceId> devices_by_node(const std::vector<models::StateTransfer>& transfers,
                                      const models::Cluster& cluster) {
  using End = std::tuple<ir::Location, ir::Location, bool, int, double>;
  std::vector<std::pair<std::vector<End>, int>> nodes(cluster.nodes.size());
  std::vector<bool> named(static_cast<std::size_t>(cluster.size()), false);
  for (const models::StateTransfer& transfer : transfers) {
    for (const bool takes : {false, true}) {
      const DeviceId device = takes ? transfer.destination : transfer.source;
      if (!device.valid()) continue;
      const models::Device& of = cluster.device(device);
      nodes[of.node.index()].first.emplace_back(transfer.from, transfer.to, takes, of.position,
                                                transfer.bytes.value);
      named[device.index()] = true;
    }
  }
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    std::sort(nodes[n].first.begin(), nodes[n].first.end());
    nodes[n].second = static_cast<int>(n);
  }
  std::sort(nodes.begin(), nodes.end());
  std::vector<DeviceId> order;
  for (const auto& [ends, node] : nodes) {
    if (ends.empty()) continue;
    for (const DeviceId device : cluster.devices_of(NodeId{node})) {
      if (named[device.index()]) order.push_back(device);
    }
  }
  return order;
}

}  // namespace

struct FlowTransferTimer::Flow {
  std::vector<LinkId> links;
  Seconds latency;
  Bytes bytes;
};

/// A set of transfers whose time is being worked out.
struct FlowTransferTimer::Running {
  Seconds bound;                   ///< It takes at least that.
  std::optional<ForkedRun> child;  ///< None: it takes exactly that.
};

struct FlowTransferTimer::Memory {
  struct Expected {
    Key key;
    Running running;
  };
  DeviceRenaming renaming;
  std::map<Key, Nanoseconds> known;
  RememberCounts counts;
  std::unique_ptr<Expected> expected;
};

FlowTransferTimer::FlowTransferTimer(const models::Cluster& cluster,
                                     const models::Topology& topology, const TransferPaths& paths,
                                     FlowEngine& engine, RememberOptions remember)
    : cluster_(cluster),
      topology_(topology),
      paths_(paths),
      engine_(engine),
      memory_(new Memory{DeviceRenaming(cluster, topology, remember.ignore_leaves), {}, {}, {}}) {}

FlowTransferTimer::~FlowTransferTimer() = default;

RememberCounts FlowTransferTimer::counts() const { return memory_->counts; }

FlowTransferTimer::Key FlowTransferTimer::name(const std::vector<models::StateTransfer>& transfers,
                                               const models::DegradedLinks& degraded_links) const {
  std::vector<std::string> degraded;
  for (const auto& [link, factor] : degraded_links) degraded.push_back(link);
  const DeviceRenaming::Names names =
      memory_->renaming.names(devices_by_node(transfers, cluster_), degraded);
  Key key{transfers, {}};
  for (const auto& entry : degraded_links) {
    if (std::count(names.links.begin(), names.links.end(), entry.first) > 0) {
      key.second.push_back(entry);
    }
  }
  for (models::StateTransfer& transfer : key.first) {
    if (transfer.source.valid()) transfer.source = names.to[transfer.source.index()];
    if (transfer.destination.valid()) transfer.destination = names.to[transfer.destination.index()];
  }
  std::sort(key.first.begin(), key.first.end());
  return key;
}

void FlowTransferTimer::prefetch(const std::vector<models::StateTransfer>& transfers,
                                 const models::DegradedLinks& degraded_links) const {
  if (transfers.empty()) return;
  Memory& memory = *memory_;
  const std::chrono::steady_clock::time_point start_of_naming = std::chrono::steady_clock::now();
  Key key = name(transfers, degraded_links);
  const bool is_new =
      !memory.known.contains(key) && !(memory.expected && memory.expected->key == key);
  memory.counts.naming += wall_time_since(start_of_naming);
  if (!is_new) return;
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  memory.expected.reset();
  Running running = start(key);
  memory.expected.reset(new Memory::Expected{std::move(key), std::move(running)});
  memory.counts.simulating += wall_time_since(begin);
}

Nanoseconds FlowTransferTimer::time(const std::vector<models::StateTransfer>& transfers,
                                    const models::DegradedLinks& degraded_links) const {
  if (transfers.empty()) return {};
  Memory& memory = *memory_;
  ++memory.counts.asked;
  const std::chrono::steady_clock::time_point start_of_naming = std::chrono::steady_clock::now();
  Key key = name(transfers, degraded_links);
  const auto found = memory.known.find(key);
  memory.counts.naming += wall_time_since(start_of_naming);
  if (found != memory.known.end()) return found->second;
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  const bool expected = memory.expected && memory.expected->key == key;
  const Nanoseconds time =
      to_nanoseconds(join(expected ? std::move(memory.expected->running) : start(key)));
  if (expected) memory.expected.reset();
  ++memory.counts.simulated;
  memory.counts.simulating += wall_time_since(begin);
  memory.known.emplace(std::move(key), time);
  return time;
}

std::vector<FlowTransferTimer::Flow> FlowTransferTimer::flows_of(
    const std::vector<models::StateTransfer>& transfers) const {
  std::vector<Flow> flows;
  flows.reserve(transfers.size());
  for (const models::StateTransfer& transfer : transfers) {
    Flow& flow = flows.emplace_back();
    flow.bytes = transfer.bytes;
    paths_.path(transfer, flow.links, flow.latency);
  }
  return flows;
}

FlowTransferTimer::Bandwidths FlowTransferTimer::bandwidths(
    const models::DegradedLinks& degraded) const {
  Bandwidths changed;
  for (const auto& [name, factor] : degraded) {
    for (std::size_t i = 0; i < topology_.links().size(); ++i) {
      if (topology_.links()[i].name != name) continue;
      changed[{static_cast<std::int32_t>(i)}] = topology_.links()[i].bandwidth * factor;
    }
  }
  return changed;
}

Seconds FlowTransferTimer::busiest_link(const std::vector<Flow>& flows,
                                        const Bandwidths& changed) const {
  std::map<LinkId, Bytes> load;
  Seconds latency, busiest;
  for (const Flow& flow : flows) {
    latency = std::max(latency, flow.latency);
    for (const LinkId link : flow.links) load[link] += flow.bytes;
  }
  for (const auto& [link, bytes] : load) {
    const auto slow = changed.find(link);
    const BytesPerSecond bandwidth = slow == changed.end() ? paths_.bandwidth(link) : slow->second;
    busiest = std::max(busiest, bytes / bandwidth);
  }
  return busiest + latency;
}

ForkedRun FlowTransferTimer::simulate(const std::vector<Flow>& flows,
                                      const Bandwidths& changed) const {
  return ForkedRun([&] {
    std::vector<std::vector<LinkId>> links;
    for (const Flow& flow : flows) links.push_back(flow.links);
    paths_.assign(std::move(links));
    for (const auto& [link, bandwidth] : changed) engine_.set_link_bandwidth(link, bandwidth);
    const Seconds start = engine_.now();
    std::vector<TaskId> tasks;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const auto [source, destination] = paths_.ends(i);
      tasks.push_back(engine_.add_flow(source, destination, flows[i].bytes, flows[i].latency));
    }
    engine_.run();
    Seconds last;
    for (const TaskId task : tasks) last = std::max(last, engine_.end_time(task) - start);
    return std::string(reinterpret_cast<const char*>(&last.value), sizeof last.value);
  });
}

Seconds FlowTransferTimer::join(Running running) const {
  if (!running.child) return running.bound;
  const ForkResult delivered = running.child->join();
  if (const auto* failure = std::get_if<ChildFailure>(&delivered)) {
    throw std::runtime_error("simulation of transfers failed: " + failure->message);
  }
  const std::string& bytes = std::get<std::string>(delivered);
  Seconds last;
  ORRERY_CHECK(bytes.size() == sizeof last.value, "{} bytes from the forked simulator",
               bytes.size());
  std::memcpy(&last.value, bytes.data(), sizeof last.value);
  return std::max(running.bound, last);
}

FlowTransferTimer::Running FlowTransferTimer::start(const Key& key) const {
  const std::vector<models::StateTransfer>& transfers = key.first;
  const Bandwidths changed = bandwidths(key.second);
  const std::vector<Flow> flows = flows_of(transfers);
  if (flows.size() <= kMostFlows) return {Seconds{}, simulate(flows, changed)};
  const auto node_of = [&](DeviceId device) {
    return device.valid() ? cluster_.device(device).node : NodeId{};
  };
  using Pair = std::tuple<ir::Location, ir::Location, NodeId, NodeId>;
  std::map<Pair, Flow> merged;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const models::StateTransfer& transfer = transfers[i];
    const auto [at, is_new] = merged.try_emplace(
        Pair{transfer.from, transfer.to, node_of(transfer.source), node_of(transfer.destination)},
        flows[i]);
    if (is_new) continue;
    Flow& flow = at->second;
    flow.bytes += flows[i].bytes;
    flow.latency = std::max(flow.latency, flows[i].latency);
    std::erase_if(flow.links, [&](LinkId link) {
      return std::find(flows[i].links.begin(), flows[i].links.end(), link) == flows[i].links.end();
    });
  }
  const Seconds bound = busiest_link(flows, changed);
  if (merged.size() > kMostFlows) return {bound, std::nullopt};
  std::vector<Flow> fewer;
  for (auto& [pair, flow] : merged) fewer.push_back(std::move(flow));
  return {bound, simulate(fewer, changed)};
}

}  // namespace orrery::sim
